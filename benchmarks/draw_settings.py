"""Settings that nobody chose: an experiment of drawn settings, to validate predictions on.

    python benchmarks/draw_settings.py [--count 20] [--seed 40] [--cores 2] > experiments/drawn.yaml

Strategy, options, model, batch size, trainers, threads and servers come from `random.Random(seed)`.
No batch size and no net is one of experiments/fidelity.yaml. Nothing is drawn again: a setting that
the tool refuses would be a fault of the rules below. Draw before calibration, replace none.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml
from script import options

BATCHES = (96, 192, 256, 384, 768, 1024, 1536)
WIDTHS = (32, 96, 128, 192, 320, 384)
DIMS = (8, 24, 32, 48)
KINDS = ("criteo-kaggle", "criteo-kaggle", "wide-deep", "deepfm", "dcn")
"""DLRM, whose presets differ in their shapes only, twice as often as each of the others."""
STRATEGIES: tuple[tuple[dict[str, Any], ...], ...] = (
    (
        {"kind": "flat_ps"},
        {"kind": "flat_ps", "prefetch": 1},
        {"kind": "flat_ps", "pooling": "worker"},
        {"kind": "flat_ps", "mode": "easgd", "every": 4},
        {"kind": "flat_ps", "compression": {"kind": "dct", "refresh": 40}},
    ),
    ({"kind": "allreduce"}, {"kind": "allreduce", "pooling": "worker"}),
    ({"kind": "localsgd", "every": 3}, {"kind": "localsgd", "every": 10}),
    ({"kind": "des"}, {"kind": "des", "partition": "hash"}),
    (
        {"kind": "shadowsync", "algorithm": "easgd"},
        {"kind": "shadowsync", "algorithm": "bmuf"},
        {"kind": "shadowsync", "algorithm": "ma", "sync": "foreground", "every": 4},
    ),
    ({"kind": "hierarchical", "hosts": 1, "outer": "easgd"}, {"kind": "hierarchical"}),
    ({"kind": "scalefreectr"}, {"kind": "scalefreectr", "cache": False}),
)
"""By strategy; in turn, so that each comes up about as often."""
FREE = ("flat_ps", "shadowsync")
"""Those whose trainers may have several worker threads."""
RUN_SECONDS, LEAST_STEPS, MOST_STEPS = 5.0, 40, 1200
PER_EXAMPLE, PER_PARAMETER = 20e-6, 1.2e-10
"""A guess at the CPU seconds of an example, which sets nothing but how many steps are run."""
TRAINERS = {2: (1, 2, 2, 3), 16: (2, 4, 8, 12)}
THREADS = {2: (1, 1, 2), 16: (1, 2, 4)}
"""By the machine's cores."""
RATES = {"dense_lr": 0.001, "sparse_lr": 0.001}
"""At which nothing diverges: a run that does is no measurement."""


def drawn_model(draw: Random, number: int) -> dict[str, Any]:
    """A net and its tables."""
    preset, dim = draw.choice(KINDS), draw.choice(DIMS)
    bags = draw.random() < 0.3
    model: dict[str, Any] = {"preset": preset, "name": f"drawn-{number}", "embedding_dim": dim}
    if bags:
        count, ids = draw.choice((4, 8, 12)), draw.choice((5, 10, 20))
        model["tables"] = {"count": count, "rows": 20_000, "ids": ids}
    else:
        model["max_rows"] = 20_000
    top = sorted((draw.choice(WIDTHS) for _ in range(draw.choice((1, 2, 3)))), reverse=True)
    model["top_mlp"] = [*top, 1]
    if preset == "criteo-kaggle":
        bottom = sorted((draw.choice(WIDTHS) for _ in range(draw.choice((1, 2)))), reverse=True)
        model["bottom_mlp"] = [*bottom, dim]
    return model


def steps_of(model: dict[str, Any], examples: int, cores: int) -> int:
    """Steps of about `RUN_SECONDS`. ``examples``: of all trainers' steps together."""
    tables = model.get("tables", {"count": 26})["count"]
    widths = [13, *model.get("bottom_mlp", [])]
    wide = [tables * model["embedding_dim"], *model["top_mlp"]]
    parameters = sum(a * b for row in (widths, wide) for a, b in zip(row, row[1:], strict=False))
    seconds = examples * (PER_EXAMPLE + PER_PARAMETER * parameters) / cores
    return max(LEAST_STEPS, min(MOST_STEPS, round(RUN_SECONDS / seconds)))


def drawn_point(draw: Random, number: int, cores: int) -> dict[str, Any]:
    """One setting."""
    strategy = dict(draw.choice(STRATEGIES[number % len(STRATEGIES)]))
    model = drawn_model(draw, number)
    trainers, batch = draw.choice(TRAINERS[cores]), draw.choice(BATCHES)
    servers = draw.choice((1, 2, 3))
    threads = draw.choice(THREADS[cores]) if strategy["kind"] in FREE else 1
    if strategy["kind"] in ("hierarchical", "des", "localsgd"):
        trainers = max(2, trainers)  # alone they have nobody to meet
    steps = steps_of(model, trainers * threads * batch, cores)
    return {
        "strategy": strategy,
        "model": model,
        "roles": {"trainers": trainers, "embedding_servers": servers, "dense_servers": 1},
        "training": {"batch_size": batch, "threads": threads, "steps": steps, **RATES},
    }


def experiment(count: int, seed: int, cores: int) -> dict[str, Any]:
    """The whole experiment: what all settings share is as in experiments/fidelity.yaml."""
    draw = Random(seed)
    shared = Path(__file__).resolve().parent.parent / "experiments/fidelity.yaml"
    base = yaml.safe_load(shared.read_text(encoding="utf-8"))
    names = ("data", "cluster", "seed", "simulation")
    gates = {"raw_median": "8 %", "raw_p90": "16 %", "order": "96 %"}
    return {
        "name": "drawn",
        **{name: base[name] for name in names},
        "model": {"preset": "criteo-kaggle", "max_rows": 20_000},
        "roles": base["roles"],
        "training": {"batch_size": 512, "threads": 1, "steps": 80, "warmup_steps": 8},
        "strategy": "flat_ps",
        "validation": {
            "repeats": 1,
            "patience": "600 s",
            "gates": {"configurations": count, **gates},
        },
        "sweep": {"points": [drawn_point(draw, number, cores) for number in range(count)]},
    }


def main() -> None:
    """Draw and write."""
    cores = {"type": int, "choices": TRAINERS, "default": 2}
    asked = options(__doc__, {"--count": (20, ""), "--seed": (40, ""), "--cores": cores})
    given = f"--count {asked.count} --seed {asked.seed} --cores {asked.cores}"
    command = f"python benchmarks/draw_settings.py {given}"
    print(f"# Drawn by `{command}`,\n# before calibration; none of them was replaced.")
    text = yaml.safe_dump(
        experiment(asked.count, asked.seed, asked.cores),
        sort_keys=False,
        default_flow_style=None,
        width=120,
    )
    print(text, end="")


if __name__ == "__main__":
    main()
