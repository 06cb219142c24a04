"""Training steps of several processes and of several threads at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence

import torch

from recsim_train.calibrate.grid import MEBI, Setting
from recsim_train.calibrate.kernel_probe import Bench
from recsim_train.calibrate.timing import relative_spread
from recsim_train.executor import kernels
from recsim_train.executor.kernels import Worker
from recsim_train.executor.values import RealIds, RealRows
from recsim_train.workload.operations import Scope, cost

Step = Callable[[], None]

_BUSY = (Setting(24, 18, (256, 64), (256, 96), (200,), 20 * MEBI), 200)
_CROWDED = (
    (Setting(8, 4, (32,), (16,), (32,), 4 * MEBI), 32),
    (Setting(24, 12, (128,), (64,), (48,), 8 * MEBI), 48),
    (Setting(8, 16, (64, 32), (96, 32), (64,), 8 * MEBI), 64),
    (Setting(32, 24, (96,), (160, 48), (96,), 16 * MEBI), 96),
)


def _step(bench: Bench, worker: Worker, size: int) -> Step:
    """One whole iteration against a shard in the own process."""
    batch, state, slices = bench.batch(size), bench.state, bench.slices
    ids = batch.ids
    assert isinstance(ids, RealIds)

    def step() -> None:
        routed = kernels.route_ids(ids, slices, frozenset())
        local, starts = state.local(routed.values, routed.counts), routed.starts()
        found = kernels.lookup_pooled(state, local, starts, size)
        rows = kernels.assemble_rows(bench.model, ids, [(slices, routed.counts, found)])
        gradients = kernels.forward_backward(worker, batch, rows)
        assert isinstance(gradients.rows, RealRows)
        [piece] = kernels.route_gradient(gradients.rows, [(slices, routed.counts)])
        kernels.update_pooled(state, local, starts, piece)
        kernels.apply(worker, gradients.dense)  # type: ignore[arg-type]

    return step


_OPERATIONS = (
    "route_ids",
    "lookup_pooled",
    "assemble_rows",
    "forward_backward",
    "route_gradient",
    "update_pooled",
    "apply",
)


def _lock_units(bench: Bench, size: int) -> float:
    """Calls out of Python in one `_step`."""
    ids = size * bench.setting.tables
    scope = Scope(
        model=bench.model,
        training=bench.adagrad,
        batch=size,
        ids=ids,
        unique=ids,
        tables=bench.setting.tables,
        elements=1,
    )
    return sum(cost(name, scope).get("interpreter", 0.0) for name in _OPERATIONS)


def measure_busy(
    seconds: float, next_line: Callable[[], str], tick: Callable[[], None]
) -> dict[str, object]:
    """Rates of one thread in windows of ``seconds``, one for each line that the caller sends.

    An empty object asks for a window, anything else for the end, so that several such processes
    can work side by side.
    """
    setting, size = _BUSY
    bench = Bench(setting)
    step = _step(bench, bench.worker, size)
    for _ in range(5):
        step()
    windows: list[float] = []
    spreads: list[float] = []
    tick()
    while not json.loads(next_line()):
        times: list[float] = []
        begin = last = time.perf_counter()
        while last - begin < seconds:
            step()
            now = time.perf_counter()
            times.append(now - last)
            last = now
        windows.append(len(times) / (last - begin))
        spreads.append(relative_spread(times))
        tick()
    return {"rates": windows, "spreads": spreads}


def measure_threads(cores: int, seconds: float, *, quick: bool) -> list[dict[str, float]]:
    """Steps per second of 1 thread and of ``cores`` threads of one process, per setting.

    ``lock``: calls out of Python in one step.
    """
    found = []
    for setting, size in _CROWDED[: 2 if quick else None]:
        bench = Bench(setting)
        workers = [Worker(bench.worker.replica, "server") for _ in range(cores)]
        steps = [_step(bench, worker, size) for worker in workers]
        # alternating, so that a slow spell of the machine meets both
        alone, together = 0.0, 0.0
        for _ in range(2):
            alone += _rate(steps[:1], seconds) / 2
            together += _rate(steps, seconds) / 2
        found.append({"alone": alone, "together": together, "lock": _lock_units(bench, size)})
    return found


def _rate(steps: Sequence[Step], seconds: float) -> float:
    """Steps per second of all threads together."""
    counts = [0] * len(steps)
    over = threading.Event()
    gate = threading.Barrier(len(steps) + 1)

    def body(index: int) -> None:
        torch.set_num_threads(1)
        step = steps[index]
        step()
        gate.wait()
        done = 0
        while not over.is_set():
            step()
            done += 1
        counts[index] = done

    threads = [threading.Thread(target=body, args=(i,)) for i in range(len(steps))]
    for thread in threads:
        thread.start()
    gate.wait()
    begin = time.perf_counter()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)
