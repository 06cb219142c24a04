"""What predictions of a real model cost: one of them, points of a sweep, bounds of designs.

    python benchmarks/predictions.py [--points 6] [--rounds 3] [--out FILE]

The model has 40 tables with bags of 1 to 30 ids, on 20 hosts: 12 trainers of 16 threads, 6
embedding and 2 dense servers. Each measurement is a process of its own, and its CPU seconds (user
and system) include reading the experiment and importing; compiled code is made before. "all steps"
simulates every step that the experiment has, "default" ends as predictions do. No "what if".
"bounds" are those of every design that `recommend` would look at for 20 hosts: seconds up to the
first one's (without what makes the designs), and of each further one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from script import options

ROWS = (50_000_000,) * 3 + (1_000_000,) * 10 + (10_000,) * 27
IDS = (
    8, 19, 18, 5, 12, 30, 20, 16, 21, 19, 3, 20, 1, 30, 27, 16, 9, 18, 8, 7,
    23, 16, 18, 27, 18, 16, 13, 21, 28, 5, 8, 21, 5, 28, 30, 17, 13, 24, 1, 22,
)  # fmt: skip
EXPERIMENT = {
    "name": "predictions",
    "model": {
        "embedding_dim": 64,
        "dense_features": 13,
        "bottom_mlp": [512, 256, 64],
        "top_mlp": [1024, 512, 256, 1],
        "tables": [
            {"rows": rows, "ids": ids, "variable": True}
            for rows, ids in zip(ROWS, IDS, strict=True)
        ],
    },
    "roles": {"trainers": 12, "embedding_servers": 6, "dense_servers": 2},
    "training": {"batch_size": 512, "threads": 16, "steps": 100, "warmup_steps": 5},
    "strategy": "flat_ps",
    "cluster": "paper-20core-25gbit",
    "simulation": {"what_if_steps": 0},
}
HOSTS = 20


def predicted(path: Path, sets: list[str]) -> dict[str, Any]:
    from recsim_train import load, predict

    runs = predict(load(path, overrides=sets))
    rates = [run.examples_per_second for run in runs]
    return {"points": len(rates), "examples_per_second": rates}


def looked(path: Path) -> dict[str, Any]:
    from recsim_train.designs.making import space
    from recsim_train.evaluate.evaluator import Simulator
    from recsim_train.evaluate.levels import BOUND
    from recsim_train.session.job import NOBODY
    from recsim_train.session.study import read

    study = read(path, None, [], None)
    ready = time.process_time()
    candidates, simulator = space(study, HOSTS, NOBODY).candidates, Simulator()
    each = []
    for candidate in candidates:
        before = time.process_time()
        simulator.row(candidate.job.case, BOUND)
        each.append(time.process_time() - before)
    further = each[1:]
    return {
        "designs": len(each),
        "first": ready + each[0],
        "further": {"mean": statistics.mean(further), "median": statistics.median(further)},
    }


def measure(part: str, points: int) -> dict[str, Any]:
    """One measurement in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.yaml"
        path.write_text(yaml.safe_dump(EXPERIMENT), encoding="utf-8")
        servers = list(range(4, 4 + points))
        found: dict[str, Any]
        if part == "bounds":
            found = looked(path)
        elif part == "sweep":
            found = predicted(path, [f"roles.embedding_servers={servers}"])
        else:
            found = predicted(path, ["simulation.precision=0 %"] if part == "all steps" else [])
    return {**found, "cpu_seconds": time.process_time()}


def main() -> None:
    given = options(
        __doc__,
        {
            "--points": (6, "of the sweep"),
            "--rounds": (3, "each part so often"),
            "--out": {"type": Path},
            "--part": {"help": "measure this one here"},
        },
    )
    if given.part:
        print(json.dumps(measure(given.part, given.points)))
        return
    command = [sys.executable, __file__, "--points", str(given.points), "--part"]

    def child(part: str) -> dict[str, Any]:
        done = subprocess.run([*command, part], capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    child("default")  # makes the compiled code
    found: dict[str, Any] = {"points": given.points, "rounds": given.rounds, "parts": {}}
    for _ in range(given.rounds):
        for part in ("default", "all steps", "sweep", "bounds"):
            found["parts"].setdefault(part, []).append(child(part))
            said = found["parts"][part][-1]["cpu_seconds"]
            print(f"{part}: {said:.2f} CPU s; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    text = json.dumps(found, indent=1)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
