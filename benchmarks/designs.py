"""`recommend` against exhaustive search: what it finds, and what it costs.

    python benchmarks/designs.py --kept FOLDER [--only NAME] [--jobs 2] [--out FILE]

Each space is searched as a user would, and each of its designs is simulated as any prediction is.
The best of all, by what was asked, has to be the one that is recommended, or among those that it
says cannot be told from it. CPU seconds of a search are those of this process and of those that it
started, those of all designs are what each took. Designs that are done are in FOLDER, one file for
each space, and are not simulated again: use another folder for other code.
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
from recsim_train.session.making import Keep, Simulator
from recsim_train.session.pool import Finished, Task, each

TARGETS: dict[str, float] = {"target": 60_000.0}
"""Examples per second that are asked for, by space; of the others the most are."""


def main() -> None:
    """Search each space twice."""
    about = {
        "--spaces": ("benchmarks/designs", "a folder of experiments with a search"),
        "--only": ("", "one space, by its name"),
        "--kept": {"type": Path, "required": True, "help": "where designs that are done are"},
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
            found.append(compared(file, asked.jobs, asked.kept))
            if asked.out:
                Path(asked.out).write_text(json.dumps(found, indent=1) + "\n")
    columns = ("space", "designs", "open", "group", "in_group", "cpu", "cpu_of_all", "share")
    print("\n".join(table(columns, ([row[name] for name in columns] for row in found))))


def compared(file: Path, jobs: int, kept: Path) -> dict[str, Any]:
    """One space."""
    study = recsim_train.load(file)
    target = TARGETS.get(file.stem)
    with _cpu() as searched:
        made = recsim_train.recommend(study, target=target, processes=jobs)
    designs = [Design(n, c) for n, c in enumerate(space(study, None, NOBODY).candidates)]
    kept.mkdir(parents=True, exist_ok=True)
    exhausted = _simulate(designs, jobs, kept / f"{file.stem}.jsonl")
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
        "cpu_of_all": round(exhausted, 1),
        "share": round(searched["seconds"] / exhausted, 3),
        "wall": round(searched["wall"], 1),
    }


def _short(made: Recommendation, best: Design) -> float:
    """By how much what was chosen is slower than the best, relative."""
    return round(1.0 - (made.answer.chosen.eps or 0.0) / (best.eps or 1.0), 4)


def _simulate(designs: list[Design], jobs: int, kept: Path) -> float:
    """Simulate those that are not kept yet; CPU seconds of all."""
    last = searching.STAGES - 1
    with kept.open("a+", encoding="utf-8") as file:
        file.seek(0)
        done: list[dict[str, Any]] = [json.loads(line) for line in file]
        there = {one["identity"] for one in done}
        wanted = [d for d in designs if d.candidate.job.identity not in there]
        tasks = [looking.task_of(d.number, d.candidate, last) for d in wanted]
        for number, one in each(_timed, tasks, jobs):
            identity = {"identity": designs[number].candidate.job.identity}
            line = json.dumps(identity | one, default=str)
            print(line, file=file, flush=True)
            done.append(json.loads(line))
            if len(done) % 50 == 0:
                print(f"{len(done)} of {len(designs)}", flush=True)
    rows = {one["identity"]: one for one in done}
    for design in designs:
        row = rows[design.candidate.job.identity]["row"]
        if row["examples_per_second"]:
            design.row, design.rounds = row, searching.STAGES
    return float(sum(rows[d.candidate.job.identity]["cpu_seconds"] for d in designs))


def _timed(task: Task, simulator: Simulator, keep: Keep | None) -> Finished:
    before = time.process_time()
    number, row = looking.whole(task, simulator, keep)
    return number, {"row": row, "cpu_seconds": time.process_time() - before}


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
