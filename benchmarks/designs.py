"""`recommend` against exhaustive search: what it finds, and what it costs.

    python benchmarks/designs.py [--spaces benchmarks/designs] [--jobs 2] [--out FILE]

Each space is searched as a user would, and each of its designs is simulated as any prediction is.
The best of all, by what was asked, has to be the one that is recommended, or among those that it
says cannot be told from it. CPU seconds are those of this process and of those it started.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from script import options, table

import recsim_train
from recsim_train.designs import looking, searching
from recsim_train.designs.making import Recommendation, space
from recsim_train.designs.searching import Design
from recsim_train.session.caller import NOBODY
from recsim_train.session.pool import each

TARGETS: dict[str, float] = {"target": 60_000.0}
"""Examples per second that are asked for, by space; of the others the most are."""


def main() -> None:
    """Search each space twice."""
    about = {
        "--spaces": ("benchmarks/designs", "a folder of experiments with a search"),
        "--only": ("", "one space, by its name"),
        "--jobs": (2, "processes that simulate"),
        "--out": ("", "a JSON file; what it has of other spaces stays"),
    }
    asked = options(__doc__, about)
    found: list[dict[str, Any]] = []
    if asked.out and Path(asked.out).exists():
        found = json.loads(Path(asked.out).read_text())
    for file in sorted(Path(asked.spaces).glob("*.yaml")):
        if asked.only in ("", file.stem):
            found = [row for row in found if row["space"] != file.stem]
            found.append(compared(file, asked.jobs))
            if asked.out:
                Path(asked.out).write_text(json.dumps(found, indent=1) + "\n")
    columns = ("space", "designs", "open", "group", "in_group", "cpu", "cpu_of_all", "share")
    print("\n".join(table(columns, ([row[name] for name in columns] for row in found))))


def compared(file: Path, jobs: int) -> dict[str, Any]:
    """One space."""
    study = recsim_train.load(file)
    target = TARGETS.get(file.stem)
    with _cpu() as searched:
        made = recsim_train.recommend(study, target=target, processes=jobs)
    designs = [Design(n, c) for n, c in enumerate(space(study, None, NOBODY).candidates)]
    with _cpu() as exhausted:
        _simulate(designs, jobs)
    wanted = made.answer.wanted
    rated = [d for d in designs if d.eps]
    best = min(rated, key=lambda d: wanted.order(d.candidate, d.surely(wanted)))
    group = [made.answer.chosen, *made.answer.tied]
    bounds = [d.bound for d in made.answer.found.designs if d.look is not None]
    enough = [bound for bound in bounds if target is None or bound >= target]
    return {
        "space": file.stem,
        "designs": len(designs),
        "open": len(enough),
        "target": target,
        "chosen": _told(made.answer.chosen),
        "best": _told(best),
        "group": len(group),
        "in_group": best.candidate.job.identity in {d.candidate.job.identity for d in group},
        "short_of_best": _short(made, best),
        "cpu": round(searched["seconds"], 1),
        "cpu_of_all": round(exhausted["seconds"], 1),
        "share": round(searched["seconds"] / exhausted["seconds"], 3),
        "wall": round(searched["wall"], 1),
    }


def _short(made: Recommendation, best: Design) -> float:
    """By how much what was chosen is slower than the best, relative."""
    return round(1.0 - (made.answer.chosen.eps or 0.0) / (best.eps or 1.0), 4)


def _simulate(designs: list[Design], jobs: int) -> None:
    last = searching.STAGES - 1
    tasks = [looking.task_of(d.number, d.candidate, last) for d in designs]
    for done, (number, row) in enumerate(each(looking.whole, tasks, jobs), start=1):
        if row["examples_per_second"]:
            designs[number].row, designs[number].rounds = row, searching.STAGES
        if done % 50 == 0:
            print(f"{done} of {len(tasks)}", flush=True)


def _told(design: Design) -> dict[str, Any]:
    return {
        "strategy": design.kind,
        **design.candidate.job.settings,
        "examples_per_second": round(design.eps or 0.0, 1),
    }


@contextmanager
def _cpu() -> Iterator[dict[str, float]]:
    """CPU and wall seconds of what is done inside, by this process and those it started."""

    def used() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))

    found: dict[str, float] = {}
    before, began = used(), time.monotonic()
    yield found
    found["seconds"], found["wall"] = used() - before, time.monotonic() - began


if __name__ == "__main__":
    main()
