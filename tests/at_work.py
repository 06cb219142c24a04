"""Throughput by hand, for tests: what loops do while all of them are at counted iterations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd


def rate_at_work(iterations: Iterable[Any], warmup: int, batch: int) -> float:
    """Examples per second, loop by loop. ``iterations``: each with loop, iteration, start, end."""
    every: dict[str, list[Any]] = {}
    for i in iterations:
        every.setdefault(i.loop, []).append(i)
    counted = {loop: [i for i in own if i.iteration >= warmup] for loop, own in every.items()}
    loops = {loop: own for loop, own in counted.items() if own}
    quickest = min(loops.values(), key=lambda own: own[-1].end)
    start, end = max(own[0].start for own in loops.values()), quickest[-1].end
    middle = (quickest[0].start + end) / 2
    if start > middle:  # of its last half another's warm-up, too
        at_work = {loop: every[loop] for loop in loops}
        start = max(middle, *(own[0].start for own in at_work.values()))
    else:
        at_work = loops
    if start >= end:  # never together
        at_work = loops
        start = min(own[0].start for own in loops.values())
        end = max(own[-1].end for own in loops.values())
    done = 0.0
    for own in at_work.values():
        done += sum(
            max(0.0, min(i.end, end) - max(i.start, start)) / (i.end - i.start) for i in own
        )
    return done * batch / (end - start)


def rate_of_run(folder: Path, warmup: int, batch: int) -> float:
    """The same of a run directory."""
    kept = pd.read_parquet(folder / "iterations.parquet").sort_values(["loop", "iteration"])
    return rate_at_work(kept.itertuples(), warmup, batch)
