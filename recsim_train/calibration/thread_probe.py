"""The probe of threads within operations: kernels on one thread and on as many as there are cores.

Round by round all on one, then all on many, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import torch

from recsim_train.calibration.grid import THREADED, THREADED_QUICK
from recsim_train.calibration.kernel_probe import Bench, Case
from recsim_train.executor.pools import make_pool

_MEASURED = {
    "forward_backward", "deduplicate", "lookup_pooled", "lookup_rows", "assemble_rows",
    "apply", "snapshot", "accumulate", "drain",
}  # fmt: skip
"""Of each class of work (`recsim_train.workload.threads.CLASSES`) some that are mostly it."""
_ROUNDS = 9


def _cases(quick: bool) -> list[Case]:
    found: list[Case] = []
    for setting in THREADED_QUICK if quick else THREADED:
        bench = Bench(setting)
        for size in setting.batches:
            found += bench.cases(size)
        found += bench.dense_cases()
    return [case for case in found if case.operation in _MEASURED]


def _round(cases: list[Case], threads: int) -> list[tuple[float, float]]:
    """(wall, CPU of the whole process) seconds of each case."""
    make_pool(threads)
    times = []
    for case in cases:
        start, busy = time.perf_counter(), time.process_time()
        case.call()
        passed = time.perf_counter() - start
        times.append((passed, time.process_time() - busy))
    return times


def measure(threads: int, *, quick: bool, tick: Callable[[], None]) -> list[dict[str, object]]:
    """Medians as plain data: operation, label, work; ``one`` and ``many``: [wall, CPU] seconds."""

    def inside() -> list[dict[str, object]]:
        cases = _cases(quick)
        rounds: dict[int, list[list[tuple[float, float]]]] = {1: [], threads: []}
        for number in range(-2, 3 if quick else _ROUNDS):
            for count, seen in rounds.items():
                times = _round(cases, count)
                if number >= 0:
                    seen.append(times)
            if number >= 0:
                tick()
        one, many = (
            [
                [median(part) for part in zip(*repeats, strict=True)]
                for repeats in zip(*r, strict=True)
            ]
            for r in rounds.values()
        )
        return [
            {"operation": c.operation, "label": c.label, "work": dict(c.work), "one": a, "many": b}
            for c, a, b in zip(cases, one, many, strict=True)
        ]

    # a thread of its own, as a loop is
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(inside).result()
    torch.set_num_threads(1)
    return found
