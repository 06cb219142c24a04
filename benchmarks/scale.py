"""How the time and memory of `recsim-train simulate` grow with trainers, servers and steps.

    python benchmarks/scale.py [--trainers 10,100,1000,10000] [--strategies flat_ps,des] [--json]
    python benchmarks/scale.py --servers growing
    python benchmarks/scale.py --fold 0 --trainers 10,100,1000     (every trainer simulated)
    python benchmarks/scale.py --steps 50,100,200,400 --trainers 20
    python benchmarks/scale.py --markdown FILE --figure FILE       (also write a table, a picture)

Each point is a simulation in a process of its own, with the settings that an experiment has by
default (100 steps after 10, precision 0.5 %), of a cluster whose hosts' work varies by 10 %. Wall
and CPU time begin before the experiment is read and end with the outcome; loading the compiled
solver is part of them, compiling it is not. The growth exponent is the slope of a straight line
through the logarithms; with few trainers most of the time is start-up, so that of the larger half
of the points is given, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from script import exponent, options, table

STRATEGIES: dict[str, Any] = {
    "flat_ps": "flat_ps",
    "flat_ps rows": {"kind": "flat_ps", "pooling": "worker"},
    "allreduce": "allreduce",
    "dct": {"kind": "allreduce", "compression": {"kind": "dct", "refresh": 50}},
    "localsgd": {"kind": "localsgd", "every": 5},
    "s-easgd": {"kind": "shadowsync", "algorithm": "easgd"},
    "s-ma": {"kind": "shadowsync", "algorithm": "ma"},
    "fr-easgd": {"kind": "shadowsync", "algorithm": "easgd", "sync": "foreground", "every": 5},
    "fr-bmuf": {"kind": "shadowsync", "algorithm": "bmuf", "sync": "foreground", "every": 5},
    "des": {"kind": "des", "partition": "hash"},
    "hierarchical": {"kind": "hierarchical", "hosts": 5, "outer": "ma"},
    "scalefreectr": {"kind": "scalefreectr", "cache_rows": 200_000},
}
PER_SERVER = 200
"""Trainers for each embedding server where servers grow along; dense servers: half as many."""


def experiment(point: dict[str, Any]) -> dict[str, Any]:
    trainers = point["trainers"]
    servers = max(1, math.ceil(trainers / PER_SERVER)) if point["servers"] == "growing" else 4
    folded = {} if point["fold"] is None else {"fold_above": point["fold"]}
    exact = {} if point["steps"] == 100 else {"precision": "0 %"}
    return {
        "name": "scale",
        "model": {"preset": "criteo-kaggle", "max_rows": 100_000},
        "data": {"eval_rows": 0},
        "roles": {
            "trainers": trainers,
            "embedding_servers": servers,
            "dense_servers": max(1, servers // 2),
        },
        "training": {"batch_size": 256, "steps": point["steps"], "warmup_steps": 10},
        "strategy": STRATEGIES[point["strategy"]],
        "simulation": {**folded, **exact},
        "cluster": "paper-20core-25gbit",
    }


def measure(point: dict[str, Any]) -> dict[str, Any]:
    """Simulate one point in this process."""
    start = time.perf_counter()
    from recsim_train import load
    from recsim_train.evaluate.prediction import predict

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.yaml"
        path.write_text(yaml.safe_dump(experiment(point)), encoding="utf-8")
        (job,) = load(path).jobs()
        outcome = predict(job.case)
    speed, folding = outcome.speed, outcome.facts.folding
    return {
        **point,
        "wall_seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time(),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "counted_steps": outcome.steps,
        "simulated_trainers": folding.simulated if folding else point["trainers"],
        "folding_error": folding.error if folding else None,
        "examples_per_second": None if speed is None else speed.examples_per_second,
        "activities": outcome.facts.activities,
    }


def child(point: dict[str, Any], limit: float) -> dict[str, Any] | None:
    """`measure` in a process of its own; None where it takes longer than ``limit`` seconds."""
    command = [sys.executable, __file__, "--point", json.dumps(point)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{point}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def growth(points: list[dict[str, Any]], along: str) -> str:
    """Markdown: one row for each strategy, and its growth."""
    sizes = sorted({p[along] for p in points})
    rows = []
    for name in dict.fromkeys(p["strategy"] for p in points):
        mine = {p[along]: p for p in points if p["strategy"] == name}
        said = {
            size: f"{p['cpu_seconds']:.1f} s, {p['peak_rss_mib']:.0f} MiB"
            for size, p in mine.items()
        }
        done = sorted(mine)
        times = [mine[size]["cpu_seconds"] for size in done]
        upper = len(done) // 2
        errors = [p["folding_error"] for p in mine.values() if p["folding_error"] is not None]
        slopes = exponent(done, times), exponent(done[upper:], times[upper:])
        cells = [name, *(said.get(size, "-") for size in sizes), *(f"{s:.2f}" for s in slopes)]
        rows.append([*cells, f"{max(errors):.1%}" if errors else "-"])
    heads = [f"{along} {size:,}" for size in sizes]
    head = ["strategy", *heads, "growth", "upper half", "folding error"]
    return "\n".join(table(head, rows)) + "\n"


def draw(points: list[dict[str, Any]], along: str, path: Path) -> None:
    """CPU time and memory against trainers (or steps)."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    mpl.rcParams["svg.hashsalt"] = "recsim-train"
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, name in enumerate(dict.fromkeys(p["strategy"] for p in points)):
        mine = sorted((p for p in points if p["strategy"] == name), key=lambda p: p[along])
        x = [p[along] for p in mine]
        style = {"marker": "os^dvP*X<>h"[number % 11], "ms": 5, "lw": 1.2, "label": name}
        style["color"] = mpl.colormaps["tab20"](2 * number % 19)
        left.plot(x, [p["cpu_seconds"] for p in mine], **style)
        right.plot(x, [p["peak_rss_mib"] for p in mine], **style)
    for axes, what in ((left, "CPU time (s)"), (right, "peak memory (MiB)")):
        axes.set(xscale="log", yscale="log", xlabel=along, ylabel=what)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.2, 0.5)))
        axes.grid(alpha=0.3)
    sizes = sorted({p[along] for p in points})
    first = min(p["cpu_seconds"] for p in points if p[along] == sizes[0])
    left.plot(sizes, [first * s / sizes[0] for s in sizes], "k:", lw=1, label="linear")
    left.set_ylim(top=4 * max(p["cpu_seconds"] for p in points))
    left.legend(fontsize=7, ncols=2)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    about = {
        "--trainers": ("10,100,1000,10000", ""),
        "--steps": ("100", ""),
        "--strategies": (",".join(STRATEGIES), ""),
        "--servers": {"choices": ("fixed", "growing"), "default": "fixed"},
        "--fold": {"type": int, "help": "simulation.fold_above; 0: none is folded"},
        "--limit": (300.0, "seconds for one point"),
        "--json": (False, ""),
        "--markdown": {"type": Path},
        "--figure": {"type": Path},
        "--point": {"help": argparse.SUPPRESS},
    }
    given = options(__doc__, about)
    if given.point:
        print(json.dumps(measure(json.loads(given.point))))
        return
    trainers, steps = (list(map(int, each.split(","))) for each in (given.trainers, given.steps))
    along = "steps" if len(steps) > 1 else "trainers"
    found = []
    for name, count, number in itertools.product(given.strategies.split(","), trainers, steps):
        point = {"strategy": name, "trainers": count, "steps": number}
        done = child({**point, "servers": given.servers, "fold": given.fold}, given.limit)
        said = f"not done in {given.limit:g} s"
        if done is not None:
            found.append(done)
            said = (
                f"{done['cpu_seconds']:6.1f} s CPU, {done['wall_seconds']:6.1f} s wall, "
                f"{done['peak_rss_mib']:5.0f} MiB; load {os.getloadavg()[0]:.1f}"
            )
        print(f"{name:14s} {count:6,d} trainers {number:4d} steps: {said}", file=sys.stderr)
    text = growth(found, along)
    if given.markdown:
        given.markdown.write_text(text, encoding="utf-8")
    if given.figure:
        draw(found, along, given.figure)
    print(json.dumps(found, indent=1) if given.json else text)


if __name__ == "__main__":
    main()
