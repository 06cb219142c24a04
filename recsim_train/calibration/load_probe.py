"""The probes of busy cores: steps beside others, in turns, and by threads of one process."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import fsum, pi, sqrt
from statistics import fmean, median

from recsim_train.calibration.crowd import THREADS
from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.kernel_probe import KernelBench, random_ids
from recsim_train.executor.net import kernels
from recsim_train.executor.shards.routing import assemble_rows, route_gradient, route_ids
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.executor.worker import Worker

Step = Callable[[], None]
_AWAY = 3e-4
"""Seconds between two looks at the clock after which another process had the core."""
_LOCK_WINDOWS, _LOCK_SECONDS = 6, 0.25
_BUSY = (Setting(24, 18, (256, 64), (256, 96), (200,), 20 * MEBI), 200)


def _step(bench: KernelBench, worker: Worker, size: int) -> Step:
    """One whole iteration against a shard in the own process."""
    batch, state, parts = bench.batch(size), bench.state, bench.whole
    ids = batch.ids
    assert isinstance(ids, RealIds)

    def step() -> None:
        routed = route_ids(ids, parts)
        pooled, local, bags = kernels.lookup_pooled(state, routed[0])
        rows = assemble_rows(ids, parts, routed, [pooled])
        gradients = kernels.forward_backward(worker, batch, rows)
        assert isinstance(gradients.rows, RealRows)
        [piece] = route_gradient(gradients.rows, parts, routed)
        kernels.update_pooled(state, local, bags, piece)
        kernels.apply(worker, gradients.dense)  # type: ignore[arg-type]

    return step


def measure_busy(
    seconds: float, next_line: Callable[[], str], tick: Callable[[], None]
) -> list[dict[str, float]]:
    """Steps of one thread, in windows of ``seconds``, one for each line from the caller.

    An empty object asks for a window, anything else for the end, so that several such processes
    can work side by side. Of each window: ``rate``, steps per CPU second (so that other load on the
    machine is not taken for slow cores), and ``spread``, as `spread_of` has it.
    """
    setting, size = _BUSY
    bench = KernelBench(setting)
    step = _step(bench, bench.worker, size)
    for _ in range(5):
        step()
    windows: list[dict[str, float]] = []
    tick()
    while not json.loads(next_line()):
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            busy = time.thread_time()
            step()
            times.append(time.thread_time() - busy)
        windows.append({"rate": 1.0 / median(times), "spread": spread_of(times)})
        tick()
    return windows


def spread_of(times: Sequence[float]) -> float:
    """Relative standard deviation of steps, by how far two in a row are apart.

    Of normal ones that is 2 / sqrt(pi) standard deviations on the mean. Who waits for another waits
    half of it; rare slow steps count by how often they come, and a spell in which all cores are
    slow, so that nobody waits, hardly counts. 0 of fewer than two.
    """
    apart = fsum(abs(b - a) for a, b in pairwise(times))
    return deviation(apart, len(times), fmean(times)) if times else 0.0


def deviation(apart: float, count: int, mean: float) -> float:
    """As `spread_of`. ``apart``: sum of the differences of ``count`` values in a row."""
    return apart / (count - 1) * sqrt(pi) / 2.0 / mean if count > 1 and mean > 0.0 else 0.0


def take_turns(
    seconds: float, next_line: Callable[[], str], tick: Callable[[], None]
) -> list[float]:
    """For how long this process kept the first core, each time, in windows as `measure_busy`, while
    another such process wants it; nothing where the system ties no process to a core."""
    kept: list[float] = []
    if not hasattr(os, "sched_setaffinity"):
        seconds = 0.0
    else:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tick()
    while not json.loads(next_line()):
        begin = last = time.perf_counter()
        end = begin + seconds
        while last < end:
            if (now := time.perf_counter()) - last > _AWAY:
                kept.append(last - begin)
                begin = now
            last = now
        tick()
    return kept


def measure_lock(
    settings: Sequence[tuple[Setting, int]], *, quick: bool, tick: Callable[[], None]
) -> list[tuple[float, float, int]]:
    """By setting, steps per second of one thread, and of `THREADS` threads of this process
    together: means over windows that take turns. And how many distinct ids a step has."""
    windows, seconds = (2, 0.05) if quick else (_LOCK_WINDOWS, _LOCK_SECONDS)
    found = []
    for setting, size in settings:
        benches = [KernelBench(setting) for _ in range(THREADS)]
        steps = [_step(bench, bench.worker, size) for bench in benches]
        for step in steps:
            for _ in range(5):
                step()
        rates = [(rate(steps[:1], seconds), rate(steps, seconds)) for _ in range(windows)]
        alone, together = (fmean(part) for part in zip(*rates, strict=True))
        ids = random_ids(setting, size, benches[0].generator)
        distinct = kernels.deduplicate(benches[0].worker, ids).values.numel()
        found.append((alone, together, distinct))
        tick()
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
