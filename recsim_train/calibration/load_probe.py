"""The probes of busy cores: training steps beside others, and beside threads that wake often."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from statistics import fmean, median

import numpy as np

from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.kernel_probe import Bench
from recsim_train.calibration.timing import relative_spread
from recsim_train.executor import kernels
from recsim_train.executor.routing import assemble_rows, route_gradient, route_ids
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.executor.worker import Worker

Step = Callable[[], None]

_PAUSE, _TOUCHED = 1e-3, 512 << 10
"""Of threads that wake: seconds of sleep; bytes that each then reads and writes."""
_BUSY = (Setting(24, 18, (256, 64), (256, 96), (200,), 20 * MEBI), 200)


def _step(bench: Bench, worker: Worker, size: int) -> Step:
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
) -> dict[str, object]:
    """Steps per CPU second of one thread, in windows of ``seconds``, one for each line from the
    caller. CPU seconds, so that other load on the machine is not taken for slow cores.

    An empty object asks for a window, anything else for the end, so that several such processes
    can work side by side. ``seconds``, ``switches``: of a mean step, and how often another thread
    got its core.
    """
    setting, size = _BUSY
    bench = Bench(setting)
    step = _step(bench, bench.worker, size)
    for _ in range(5):
        step()
    windows: list[float] = []
    means: list[float] = []
    switches: list[float] = []
    spreads: list[float] = []
    tick()
    while not json.loads(next_line()):
        times: list[float] = []
        begin, before = time.perf_counter(), _switches()
        while time.perf_counter() - begin < seconds:
            busy = time.thread_time()
            step()
            times.append(time.thread_time() - busy)
        windows.append(1.0 / median(times))
        means.append(fmean(times))
        switches.append((_switches() - before) / len(times))
        spreads.append(relative_spread(times))
        tick()
    return {"rates": windows, "spreads": spreads, "seconds": means, "switches": switches}


def _switches() -> int:
    """How often the calling thread lost its core to another."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def disturb(seconds: float, next_line: Callable[[], str], tick: Callable[[], None]) -> int:
    """Wake every millisecond and do about what a small request asks for, in windows as
    `measure_busy`; how many there were."""
    content = np.ones(_TOUCHED // 8)
    windows = 0
    tick()
    while not json.loads(next_line()):
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            time.sleep(_PAUSE)
            content += 1.0
        windows += 1
        tick()
    return windows
