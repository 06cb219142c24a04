"""Throughput by hand, for tests: what loops do while all of them are at counted iterations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd


def rate_at_work(iterations: Iterable[Any], warmup: int, batch: int) -> float:
    """Examples per second, loop by loop. ``iterations``: each with loop, iteration, start, end."""
    loops: dict[str, list[Any]] = {}
    for i in iterations:
        if i.iteration >= warmup:
            loops.setdefault(i.loop, []).append(i)
    start = max(own[0].start for own in loops.values())
    end = min(own[-1].end for own in loops.values())
    if start >= end:  # never together
        start = min(own[0].start for own in loops.values())
        end = max(own[-1].end for own in loops.values())
    done = 0.0
    for own in loops.values():
        done += sum(
            max(0.0, min(i.end, end) - max(i.start, start)) / (i.end - i.start) for i in own
        )
    return done * batch / (end - start)


def rate_of_run(folder: Path, warmup: int, batch: int) -> float:
    """The same of a run directory."""
    kept = pd.read_parquet(folder / "iterations.parquet").sort_values(["loop", "iteration"])
    return rate_at_work(kept.itertuples(), warmup, batch)
