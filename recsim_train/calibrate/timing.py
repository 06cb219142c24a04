"""Timing one kernel at a time, as it meets the processor in a real step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

_SPOILER_BYTES = 3 << 20
"""More than a core's own cache: between two calls of a kernel a real step touches other data."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Medians over repeats, seconds."""

    cpu: float
    """Of the calling thread: not disturbed by what else the machine does."""
    wall: float
    spread: float
    """Relative, robust (1.4826 times the median absolute deviation of the CPU seconds)."""
    repeats: int


class Stopwatch:
    """Times callables within a budget."""

    def __init__(self, budget: float, most: int = 25, least: int = 5) -> None:
        """``budget``: seconds that one callable may take after its warm-up."""
        self._budget, self._most, self._least = budget, most, least
        self._spoiler = torch.zeros(_SPOILER_BYTES // 4)

    def spoil(self) -> None:
        """Leave other data than the kernel's in this core's caches."""
        self._spoiler.add_(1.0)

    def time(self, call: Callable[[], object], *, warm_up: int = 2) -> Timed:
        """Median seconds of ``call``."""
        for _ in range(warm_up):
            call()
        cpu: list[float] = []
        wall: list[float] = []
        begin = time.perf_counter()
        while len(cpu) < self._most and (
            len(cpu) < self._least or time.perf_counter() - begin < self._budget
        ):
            self.spoil()
            start, busy = time.perf_counter(), time.thread_time()
            call()
            cpu.append(time.thread_time() - busy)
            wall.append(time.perf_counter() - start)
        middle = median(cpu)
        return Timed(middle, median(wall), relative_spread(cpu), len(cpu))


def relative_spread(values: list[float]) -> float:
    """Robust relative standard deviation: 1.4826 * MAD / median."""
    middle = median(values)
    return 1.4826 * median(abs(v - middle) for v in values) / middle if middle > 0.0 else 0.0
