"""Timings of kernels as a real step meets them: in turn, each after all the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over repeats, seconds."""

    cpu: float
    """Of the calling thread: not disturbed by what else the machine does."""
    wall: float
    spread: float
    """Relative, robust (1.4826 times the median absolute deviation of the CPU seconds)."""


def time_in_turn(
    calls: Sequence[Callable[[], object]], budget: float, *, least: int = 5, most: int = 40
) -> list[Timing]:
    """Median seconds of each call.

    Every round runs all calls once, so that neither code nor data is in the caches because of the
    call itself: timed over and over alone, a short kernel looks a third cheaper than it is in a
    training step. ``budget``: seconds for all rounds together, after two to warm up.
    """
    cpu: list[list[float]] = [[] for _ in calls]
    wall: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    rounds = -2
    while rounds < least or (rounds < most and time.perf_counter() - begin < budget):
        for index, call in enumerate(calls):
            start, busy = time.perf_counter(), time.thread_time()
            call()
            used, passed = time.thread_time() - busy, time.perf_counter() - start
            if rounds >= 0:
                cpu[index].append(used)
                wall[index].append(passed)
        rounds += 1
    return [
        Timing(median(c), median(w), relative_spread(c)) for c, w in zip(cpu, wall, strict=True)
    ]


def relative_spread(values: Sequence[float]) -> float:
    """Robust relative standard deviation: 1.4826 * MAD / median."""
    middle = median(values)
    return 1.4826 * median(abs(v - middle) for v in values) / middle if middle > 0.0 else 0.0
