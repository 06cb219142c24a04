"""Is the strategy that predictions pick also the best measured one, where several are close?

    python benchmarks/close_clusters.py [--settings 12] [--seed 43] [...] > experiments/close.yaml
    recsim-train validate experiments/close.yaml
    python benchmarks/close_clusters.py --judge close-clusters-validation

Settings are drawn as in draw_clusters.py, with modelled compute, and all strategies are predicted
in each. Settings in which at least three of different kinds are predicted within 25 % of the best
are kept, in the order in which they were drawn, and the best four of these are measured, one of
each kind first. The pick of a setting is the best predicted one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import draw_clusters as drawn
import yaml
from script import options, table

import recsim_train

CLOSE, LEAST, MOST = 0.25, 3, 4
"""What is close; kinds of strategies that have to be; how many are measured."""
TURNS = tuple(turn for turn in drawn.TURNS if turn != "cores")
AT_ONCE = len(TURNS)
"""Settings that are drawn and predicted together."""
MOST_DRAWN = 60


def candidates(draw: Random, number: int) -> list[dict[str, Any]]:
    """All strategies in one setting, as points of an experiment."""
    turn = TURNS[number % len(TURNS)]
    kinds = drawn.MEET if turn == "collective" else drawn.ROWS
    model = drawn.drawn_model(draw, number, turn) | {"name": f"close-{number}"}
    roles = drawn.drawn_roles(draw, turn, {"kind": "allreduce"})
    cluster = drawn.drawn_cluster(draw, turn, roles)
    batch = drawn.drawn_batch(draw, model, roles, cluster)
    wanted = drawn.SECONDS / drawn.seconds_of(model, batch, roles, cluster)
    return [
        {
            "strategy": dict(kind),
            "model": model,
            "roles": roles,
            "training": {
                "batch_size": batch,
                "threads": 1,
                "steps": drawn.steps_of(wanted, drawn.period_of(kind)),
                **drawn.LEARNING,
            },
            "cluster": cluster,
            "execution.compute": "modelled",
        }
        for kind in kinds
    ]


def experiment(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One with these points."""
    whole = drawn.experiment(0, 0)
    once = whole["validation"] | {"repeats": 1}
    sweep = {"points": list(points)}
    return whole | {"name": "close-clusters", "validation": once, "sweep": sweep}


def predicted(points: Sequence[Mapping[str, Any]]) -> list[float]:
    """Examples per second of each; 0 where there can be no such job."""
    quick = {"precision": "3 %", "what_if_steps": 0}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "close-clusters.yaml"
        file.write_text(yaml.safe_dump(experiment(points) | {"simulation": quick}))
        made = recsim_train.predict(recsim_train.load(file), out=scratch, processes=2)
        assert made.sweep is not None
        return [row["examples_per_second"] or 0.0 for row in made.sweep.rows]


def close(points: Sequence[dict[str, Any]], rates: Sequence[float]) -> list[dict[str, Any]]:
    """Those that are close to the best; none where they are too few."""
    best = max(rates)
    order = sorted(range(len(points)), key=lambda n: -rates[n])
    near = [n for n in order if rates[n] >= (1.0 - CLOSE) * best]
    first: dict[str, int] = {}
    for n in near:
        first.setdefault(points[n]["strategy"]["kind"], n)
    if len(first) < LEAST:
        return []
    measured = [*first.values(), *(n for n in near if n not in first.values())]
    return [points[n] for n in measured[:MOST]]


def chosen(settings: int, seed: int, skip: int, fastest: float) -> Iterator[dict[str, Any]]:
    """Points of all settings that are kept, without the first and those of faster links."""
    draw, found = Random(seed), 0
    for begin in range(0, MOST_DRAWN, AT_ONCE):
        batch = [candidates(draw, begin + n) for n in range(AT_ONCE)]
        rates = predicted([point for points in batch for point in points])
        for points in batch:
            own, rates = rates[: len(points)], rates[len(points) :]
            kept = close(points, own)
            if kept and found < settings:
                found += 1
                if found > skip and fastest_of(kept[0]) <= fastest:
                    yield from kept
        print(f"{begin + AT_ONCE} drawn, {found} kept", file=sys.stderr)
        if found == settings:
            return


def fastest_of(point: Mapping[str, Any]) -> float:
    """Mbit/s of a setting's fastest link of a host."""
    return max(float(host["nic"].split()[0]) for host in point["cluster"]["hosts"].values())


def judged(validation: Mapping[str, Any]) -> Iterator[list[str]]:
    """By setting: what was picked, what measured best, and by how much the pick is short of it."""
    settings: dict[str, list[Mapping[str, Any]]] = {}
    for row in validation["rows"]:
        if row.get("measured"):
            settings.setdefault(row["model"], []).append(row)
    for name, rows in settings.items():
        pick = max(rows, key=lambda row: float(row["predicted"]))
        best = max(rows, key=lambda row: float(row["measured"]))
        short = 1.0 - pick["measured"] / best["measured"]
        closest = sum(row["measured"] >= (1.0 - CLOSE) * best["measured"] for row in rows)
        words = [row["label"].split(f", {name}")[0] for row in (pick, best)]
        yield [name, str(len(rows)), str(closest), *words, f"{short:.1%}"]


def main() -> None:
    """Draw and write, or judge."""
    about = {
        "--settings": (12, "how many"),
        "--seed": (43, "of the draws"),
        "--skip": (0, "so many of the settings, which were measured before"),
        "--fastest": (1000.0, "Mbit/s: settings with hosts of faster links are left out"),
        "--judge": ("", "finished validations, with commas between them"),
    }
    asked = options(__doc__, about)
    if asked.judge:
        files = [Path(folder) / "validation.json" for folder in asked.judge.split(",")]
        made = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        rows = [row for validation in made for row in judged(validation)]
        heads = ("setting", "measured", "within 25 %", "picked", "best measured", "short by")
        print("\n".join(table(heads, rows)))
        held = sum(float(row[-1].rstrip("%")) <= 5.0 for row in rows)
        print(f"\nThe pick is within 5 % of the best measured in {held} of {len(rows)} settings.")
        return
    points = list(chosen(asked.settings, asked.seed, asked.skip, asked.fastest))
    names = ("settings", "seed", "skip", "fastest")
    given = " ".join(f"--{name} {getattr(asked, name)}" for name in names)
    print(f"# Drawn by `python benchmarks/close_clusters.py {given}`, before any run.")
    text = yaml.safe_dump(experiment(points), sort_keys=False, default_flow_style=None, width=120)
    print(text, end="")


if __name__ == "__main__":
    main()
