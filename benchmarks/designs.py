"""`recommend` against exhaustive search: what it finds, and what it costs.

    python benchmarks/designs.py --kept FOLDER [--only NAME] [--jobs 2] [--out FILE]

Each of a space's designs is simulated, without an interval, and as any prediction is where it might
be the best of all with one: an interval's lower end is below the prediction. The space is searched
as a user would; what is asked is in a file beside it (NAME.ask, `draw_spaces.py`), or here. The
best one has to be the one that is recommended, or among those that it says cannot be told from
it. CPU seconds of a search are those of this process and of those that it
started, those of designs are what each took; what predictions of all, with intervals, would take is
estimated from a sample. Designs that are done are in FOLDER, and are not simulated again: use
another folder for other code.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import yaml
from script import options, table

import recsim_train
from recsim_train.designs import searching
from recsim_train.designs.making import space
from recsim_train.designs.searching import Design
from recsim_train.designs.wanted import Demand
from recsim_train.evaluate.evaluator import Memo, evaluate
from recsim_train.evaluate.levels import FINAL, INTERVAL, Level
from recsim_train.session.job import NOBODY

TARGETS: dict[str, float] = {"target": 60_000.0}
"""Examples per second that are asked for, by space; of the others the most are."""
BATCH, SAMPLE = 16, 40
"""Designs that get an interval together; those whose CPU seconds stand for all."""


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
    columns = (
        "space", "designs", "by", "target", "met", "in_group", "worse", "simulated", "by_bounds",
        "cpu", "cpu_of_all", "share", "cpu_of_predictions",
    )  # fmt: skip
    print("\n".join(table(columns, ([row[name] for name in columns] for row in found))))


def compared(file: Path, jobs: int, kept: Path) -> dict[str, Any]:
    """One space."""
    study = recsim_train.load(file)
    asked = file.with_suffix(".ask")
    ask = yaml.safe_load(asked.read_text(encoding="utf-8")) if asked.exists() else {}
    designs = [Design(n, c) for n, c in enumerate(space(study, None, NOBODY).candidates)]
    kept.mkdir(parents=True, exist_ok=True)
    without, whole = (Kept(kept / f"{file.stem}-{name}.jsonl", jobs) for name in ("all", "whole"))
    without.simulate(designs, FINAL, rounds=1)
    rated = [d for d in designs if d.eps]
    by, target = ask.get("by", "throughput"), TARGETS.get(file.stem)
    if share := ask.get("share"):
        fastest = best_of(rated, Demand(target=1e-9, by="throughput"), whole)
        target = share * fastest.surely(Demand(target=1.0))
    with _cpu() as searched:
        made = recsim_train.recommend(study, target=target, by=by if ask else None, processes=jobs)
    wanted = made.answer.wanted
    best = best_of(rated, wanted, whole)
    exhausted = without.seconds + whole.seconds
    sample = Kept(kept / f"{file.stem}-sample.jsonl", jobs)
    some = [] if ask else Random(1).sample([Design(d.number, d.candidate) for d in designs], SAMPLE)
    sample.simulate(some, INTERVAL, rounds=searching.STAGES)
    group = [made.answer.chosen, *made.answer.tied]
    found = made.answer.found
    bounds = [d.bound for d in found.designs if d.known is not None]
    enough = [bound for bound in bounds if target is None or bound >= target]
    return {
        "space": file.stem,
        "designs": len(designs),
        "added": len(found.designs) - len(designs),
        "open": len(enough),
        "by": wanted.by,
        "target": target,
        "met": made.answer.met,
        "chosen": _told(made.answer.chosen),
        "best": _told(best),
        "group": len(group),
        "in_group": best.candidate.job.identity in {d.candidate.job.identity for d in group},
        "worse": worse(made.answer.chosen, best, wanted),
        "simulated": [sum(d.rounds > n for d in found.designs) for n in range(searching.STAGES)],
        "by_bounds": round(found.by_bounds / found.seconds, 4),
        "cpu": round(searched["seconds"], 1),
        "cpu_of_all": round(exhausted, 1),
        "share": round(searched["seconds"] / exhausted, 3),
        "cpu_of_predictions": round(sample.seconds / SAMPLE * len(designs), 1) if some else None,
        "with_interval": sum(d.whole for d in rated),
        "wall": round(searched["wall"], 1),
    }


def best_of(rated: Sequence[Design], wanted: Demand, whole: Kept) -> Design:
    """By whole predictions, of which as many are made as it takes to know."""

    def place(design: Design) -> tuple[float, ...]:
        return wanted.order(design.candidate, design.surely(wanted))

    rated = sorted(rated, key=lambda d: wanted.order(d.candidate, d.eps or 0.0))
    for first in range(0, len(rated), BATCH):
        known = [d for d in rated if d.whole]
        ahead = wanted.order(rated[first].candidate, rated[first].eps or 0.0)
        if known and ahead >= min(map(place, known)):
            break
        whole.simulate(rated[first : first + BATCH], INTERVAL, rounds=searching.STAGES)
    return min((d for d in rated if d.whole), key=place)


def worse(chosen: Design, best: Design, wanted: Demand) -> float:
    """By how much what was chosen is worse than the best in what was asked, relative; 1 where only
    the best meets the target, below 0 where it is better, by a design that the space has not."""
    ends = [d.surely(wanted) for d in (chosen, best)]
    if wanted.enough(ends[0]) is not wanted.enough(ends[1]):
        return 1.0 if wanted.enough(ends[1]) else -1.0
    if wanted.target is None and wanted.by != "throughput":
        prices = [wanted.price(d.candidate) / (d.eps or 1.0) for d in (chosen, best)]
    elif wanted.target is None or not wanted.enough(ends[0]):
        prices = [1.0 / end for end in ends]
    else:
        prices = [wanted.price(d.candidate) for d in (chosen, best)]
    return round(prices[0] / prices[1] - 1.0, 4)


class Kept:
    """Designs that were simulated, in a file, and the CPU seconds that they took, beside it."""

    def __init__(self, file: Path, jobs: int) -> None:
        self._memo, self._jobs = Memo(file, resume=True), jobs
        self._spent = file.with_suffix(".seconds")

    @property
    def seconds(self) -> float:
        """Of all of them."""
        return sum(map(float, self._spent.read_text(encoding="utf-8").split()))

    def simulate(self, designs: Sequence[Design], level: Level, *, rounds: int) -> None:
        """Each that is not kept yet; all get their rows, as those of so many rounds."""
        cases = [design.candidate.job.case for design in designs]
        with _cpu() as used:
            rows = evaluate(cases, level, processes=self._jobs, memo=self._memo)
            for done, (place, row) in enumerate(rows, start=1):
                if row.examples_per_second:
                    designs[place].row, designs[place].rounds = row, rounds
                if done % 50 == 0:
                    print(f"{self._spent.stem}: {done}", flush=True)
        with self._spent.open("a", encoding="utf-8") as file:
            print(used["seconds"], file=file)


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
