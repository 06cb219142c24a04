"""The probe of threads within operations: kernels on one thread and on as many as there are cores.

Round by round all on one, then all on many, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import torch

from recsim_train.calibration.grid import THREADED, THREADED_CHECK, THREADED_QUICK, Setting
from recsim_train.calibration.kernel_probe import Case, KernelBench
from recsim_train.executor.pools import make_pool

_MEASURED = {
    "forward_backward", "lookup_pooled", "route_gradient", "load", "subtract", "interpolate",
    "block_step", "apply", "snapshot", "accumulate", "drain",
}  # fmt: skip
"""Of each class of work that is divided (`recsim_train.workload.divided`) some that are mostly it,
large and small."""
_ROUNDS = 9


Figures = tuple[float, float, float]
"""Seconds: wall, CPU of the whole process, CPU of the calling thread."""


def _cases(settings: Sequence[Setting]) -> list[Case]:
    found: list[Case] = []
    for setting in settings:
        bench = KernelBench(setting)
        for size in setting.batches:
            found += bench.cases(size)
        found += bench.dense_cases()
    return [case for case in found if case.operation in _MEASURED and case.divided.wakes]


def _round(cases: Sequence[Case], threads: int) -> list[Figures]:
    make_pool(threads)
    times = []
    for case in cases:
        own, start, busy = time.thread_time(), time.perf_counter(), time.process_time()
        case.call()
        passed, spent = time.perf_counter() - start, time.process_time() - busy
        times.append((passed, spent, time.thread_time() - own))
    return times


def measure(threads: int, *, quick: bool, tick: Callable[[], None]) -> list[dict[str, object]]:
    """Medians as plain data: operation, label, work, of it what is ``divided`` and into how many
    operators (``wakes``); ``one`` and ``many``: `Figures`; ``check``: whether the law is to be
    checked on it, not fitted to it."""

    def inside() -> list[dict[str, object]]:
        cases = _cases(THREADED_QUICK if quick else THREADED)
        fitted = len(cases)
        cases += [] if quick else _cases(THREADED_CHECK)
        rounds: dict[int, list[list[Figures]]] = {1: [], threads: []}
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
            {
                "operation": case.operation,
                "label": case.label,
                "work": dict(case.work),
                "divided": dict(case.divided.work),
                "wakes": case.divided.wakes,
                "one": a,
                "many": b,
                "check": number >= fitted,
            }
            for number, (case, a, b) in enumerate(zip(cases, one, many, strict=True))
        ]

    # a thread of its own, as a loop is
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(inside).result()
    torch.set_num_threads(1)
    return found
