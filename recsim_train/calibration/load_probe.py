"""The probes of busy cores: steps beside others, in turns, and by threads of one process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import fsum
from statistics import fmean, median
from typing import Any

from recsim_train.calibration.grid import CROWD, CROWDED, MEBI, Setting
from recsim_train.calibration.own.rounds import PlanRounds, deviation
from recsim_train.calibration.own.unit import step_plan
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.operations import cost
from recsim_train.workload.scope import Scope

Step = Callable[[], None]
_AWAY = 3e-4
"""Seconds between two looks at the clock after which another process had the core."""
_WARM = 5
_LOCK_WINDOWS, _LOCK_SECONDS = 6, 0.25
_BUSY = Setting(24, 18, (256, 64), (256, 96), (), 20 * MEBI), 200


def steps_of(setting: Setting, batch: int) -> tuple[Step, list[Work]]:
    """One whole iteration against a shard in the own process, the same again and again: the calls
    of a round, and nothing else of it. And the counted work of each call."""
    plan, cells, _ = step_plan(setting, batch, names=["forward_backward", "apply"])
    work: list[Work] = []
    calls: list[Callable[[], object]] = []

    def kept(operation: str, call: Callable[[], Any], **sizes: Any) -> Any:
        spec = plan.experiment
        work.append(cost(operation, Scope(spec.model, spec.training, batch=batch, **sizes)))
        calls.append(call)
        return call()

    PlanRounds(plan, cells).once(kept)

    def step() -> None:
        for call in calls:
            call()

    for _ in range(_WARM):
        step()
    return step, work


def busy() -> Callable[[float], dict[str, float]]:
    """Steps of one thread, in windows of so many seconds.

    Of each window: ``rate``, steps per CPU second (so that other load on the machine is not taken
    for slow cores), and ``spread``, the steps' `deviation`.
    """
    step, _ = steps_of(*_BUSY)

    def window(seconds: float) -> dict[str, float]:
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.thread_time()
            step()
            times.append(time.thread_time() - begin)
        return {"rate": 1.0 / median(times), "spread": deviation(times)}

    return window


def turns() -> Callable[[float], list[float]]:
    """For how long this process kept the first core, each time, in windows as of `busy`, while
    another such process wants it."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return _kept


def _kept(seconds: float) -> list[float]:
    kept: list[float] = []
    begin = last = time.perf_counter()
    end = begin + seconds
    while last < end:
        if (now := time.perf_counter()) - last > _AWAY:
            kept.append(last - begin)
            begin = now
        last = now
    return kept


def lock() -> Callable[[bool], list[tuple[float, float, list[Work]]]]:
    """Threads of one process, which share its interpreter lock."""
    return measure_lock


def measure_lock(quick: bool) -> list[tuple[float, float, list[Work]]]:
    """By setting, steps per second of one thread, and of `CROWD` threads of this process
    together: means over windows that take turns. And the counted work of a step, by operation."""
    windows, seconds = (2, 0.05) if quick else (_LOCK_WINDOWS, _LOCK_SECONDS)
    found = []
    for setting, size in CROWDED[: 1 if quick else None]:
        steps, works = zip(*(steps_of(setting, size) for _ in range(CROWD)), strict=True)
        rates = [(rate(steps[:1], seconds), rate(steps, seconds)) for _ in range(windows)]
        alone, together = (fmean(part) for part in zip(*rates, strict=True))
        found.append((alone, together, works[0]))
    return found


def rate(steps: Sequence[Step], seconds: float) -> float:
    """Steps per second of all together, a thread for each, for so many ``seconds``."""
    start = threading.Barrier(len(steps))

    def go_on(step: Step) -> float:
        start.wait()
        begin, done = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < seconds:
            step()
            done += 1
        return done / passed

    with ThreadPoolExecutor(len(steps)) as pool:
        return fsum(pool.map(go_on, steps))
