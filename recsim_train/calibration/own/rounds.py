"""The micro-workloads that a plan needs, and rounds through all of them on the thread's own clock.

`OPERATIONS` is what there is a micro-workload for; a test compares it with all operations.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import fsum, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_train.calibration.own import caches, dense, nets, steps
from recsim_train.calibration.own.bench import Bench, Micro, Timed
from recsim_train.calibration.own.measure import CELLS
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.stream import open_stream
from recsim_train.executor import feed
from recsim_train.executor.books import core_waits
from recsim_train.executor.pools import make_pool
from recsim_train.executor.process.attend import schedule
from recsim_train.executor.process.spec import register_packed
from recsim_train.placement.plan import Instance, Plan
from recsim_train.placement.transport import positions_of, reading_of
from recsim_train.strategy.values import Batch
from recsim_train.workload.arithmetic import Work, add
from recsim_train.workload.operations import OPS, cost
from recsim_train.workload.scope import Cell, Divided, Scope
from recsim_train.workload.signature import Signature, signature

_READING = frozenset({"reading"})
OPERATIONS = steps.OPERATIONS | dense.OPERATIONS | nets.OPERATIONS | caches.OPERATIONS | _READING
"""Operations that have a micro-workload."""
_WARM = 3
"""Rounds that are not counted: memory is touched for the first time, caches fill."""
_LEAST = 5
"""Rounds that count, at least."""
_ENDLESS = 1 << 40
"""Iterations."""


class Reads(Micro):
    """The micro-workload of readers: batches of the plan's own data, as many as are made together.

    Of readers there is one of each shape: all others do the same. Batches are made as often as in a
    run: once in so many rounds, after everything else has been through the caches.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        readers: dict[Scope, Instance | None] = {}
        for reader in bench.plan.of_role("reader") or (None,):
            readers.setdefault(reading_of(bench.plan, reader), reader)
        self._streams = [(scope, self._stream(reader)) for scope, reader in readers.items()]
        self.period = max(int(scope.batches) for scope in readers)
        self._rounds = count()

    def _stream(self, reader: Instance | None) -> Iterator[NumpyBatch]:
        plan = self.bench.plan
        stream = open_stream(
            self.bench.model,
            plan.experiment.data,
            batch_size=plan.examples,
            positions=positions_of(plan, reader),
            total=plan.streams,
            iterations=_ENDLESS,
            seed=plan.experiment.seed,
        )
        return (fed.batch for fed in stream)

    def round(self, _: Batch, timed: Timed) -> None:
        done = next(self._rounds)
        for scope, stream in self._streams:
            if done % int(scope.batches) == 0:
                numbered, model = enumerate(stream), self.bench.model
                made = partial(feed.read_batches, model, numbered, int(scope.batches), [])
                timed(
                    "reading", made, ids=scope.ids, batches=scope.batches, texts=scope.texts,
                    source=scope.source,
                )  # fmt: skip


def micros(bench: Bench) -> list[Micro]:
    """What does the operations that a plan asks for, in the order of an iteration."""
    plan = bench.plan
    found: list[Micro] = []
    if plan.topology.cache is not None:
        found.append(caches.Caches(bench))
    elif plan.embedding is not None and bench.asks(steps.OPERATIONS):
        found.append(steps.Steps(bench))
    if plan.net is not None and bench.asks(nets.OPERATIONS):
        found.append(nets.Nets(bench))
    if bench.asks(dense.OPERATIONS):
        found.append(dense.Vectors(bench))
    if bench.asks(_READING):
        found.append(Reads(bench))
    return found


def deviation(seconds: Sequence[float] | NDArray[np.float64]) -> float:
    """Relative standard deviation of values, by how far two in a row are apart.

    Of normal ones that is 2 / sqrt(pi) standard deviations on the mean. Who waits for another waits
    half of it; rare slow steps count by how often they come, and a spell in which all cores are
    slow, so that nobody waits, hardly counts. 0 of fewer than two.
    """
    if len(seconds) < 2 or not (mean := float(np.mean(seconds))) > 0.0:
        return 0.0
    apart = float(np.mean(np.abs(np.diff(seconds))))
    return apart * sqrt(pi) / 2.0 / mean


@dataclass
class CallTally:
    """Calls of one shape."""

    operation: str
    shape: Signature
    seconds: list[tuple[float, float, float]] = field(default_factory=list)
    """Of each: wall, CPU, CPU of the calling thread."""
    work: dict[str, float] = field(default_factory=dict)
    """The counted work of all together."""
    divided: dict[str, float] = field(default_factory=dict)
    """The same of what threads share."""
    wakes: float = 0.0

    def figures(self) -> dict[str, Any]:
        """Means, and the relative standard error of the CPU seconds, as plain data."""
        count, (_, cpu, _) = len(self.seconds), np.array(self.seconds).T
        wall, mean, own = np.mean(self.seconds, axis=0).tolist()
        return {
            "operation": self.operation,
            "shape": str(self.shape),
            "count": count,
            "cpu": mean,
            "own": own,
            "error": float(cpu.std()) / sqrt(count) / mean if mean > 0.0 else 1.0,
            "jitter": deviation(cpu),
            "wall": wall,
            "work": {name: units / count for name, units in self.work.items()},
            "divided": {name: units / count for name, units in self.divided.items()},
            "wakes": self.wakes / count,
        }


_Described = tuple[tuple[object, ...], Signature, Work, Divided]
"""A call: with which others it is tallied, its shape, its counted work, and what threads share."""


class Clock:
    """Times operations: CPU seconds of the calling thread, or with a pool of the whole process."""

    def __init__(self, plan: Plan, *, pooled: bool = False) -> None:
        self._plan = plan
        self._now: Callable[[], float] = time.process_time if pooled else time.thread_time
        self._scopes: dict[object, _Described] = {}
        self.tallies: dict[tuple[object, ...], CallTally] = {}
        self.counting = False

    def __call__(self, operation: str, call: Callable[[], Any], **sizes: Any) -> Any:
        start, mine, busy = time.perf_counter(), time.thread_time(), self._now()
        answer = call()
        cpu, own = self._now() - busy, time.thread_time() - mine
        wall = time.perf_counter() - start
        if self.counting:
            self._add(operation, sizes, (wall, cpu, own))
        return answer

    def _add(
        self, operation: str, sizes: dict[str, Any], seconds: tuple[float, float, float]
    ) -> None:
        key = operation, *sizes.values()
        known = self._scopes.get(key)
        if known is None:
            known = self._scopes[key] = self._describe(operation, sizes)
        group, shape, work, divided = known
        tally = self.tallies.setdefault(group, CallTally(operation, shape))
        tally.seconds.append(seconds)
        tally.work = add(tally.work, work)
        tally.divided = add(tally.divided, divided.work)
        tally.wakes += divided.wakes

    def _describe(self, operation: str, sizes: dict[str, Any]) -> _Described:
        experiment = self._plan.experiment
        scope = Scope(experiment.model, experiment.training, batch=self._plan.examples, **sizes)
        shape = signature(operation, scope)
        divided = OPS[operation].divided(scope)
        return (operation, *shape.fixed()), shape, cost(operation, scope), divided


class PlanRounds:
    """All micro-workloads of one plan; made and used in one thread."""

    def __init__(self, plan: Plan, cells: list[Cell]) -> None:
        self.plan, self.bench = plan, Bench(plan, cells)
        self.micros = micros(self.bench)

    def once(self, timed: Any) -> None:
        """One round."""
        batch = self.bench.next()
        for micro in self.micros:
            micro.round(batch, timed)

    def window(self, seconds: float, threads: int = 1) -> list[dict[str, Any]]:
        """What rounds of so many seconds took, by operation and shape.

        ``threads``: on which each operation runs.
        """
        make_pool(threads)
        clock = Clock(self.plan, pooled=threads > 1)
        for _ in range(_WARM):
            self.once(clock)
        clock.counting = True
        begin, rounds, before = time.perf_counter(), 0, fsum(core_waits().values())
        least = max((_LEAST, *(micro.period for micro in self.micros)))
        while rounds < least or time.perf_counter() - begin < seconds:
            self.once(clock)
            rounds += 1
        # what others took is no part of an operation: CPU seconds are without it, walls are not
        late = (fsum(core_waits().values()) - before) / threads / (time.perf_counter() - begin)
        found = [tally.figures() for tally in clock.tallies.values()]
        for figures in found:
            figures["wall"] = max(figures["cpu"] / threads, figures["wall"] * (1.0 - late))
        return found


def operations(folder: str) -> Callable[..., list[dict[str, Any]]]:
    """Rounds in windows, of the plan in a folder: answers what one of them has seen.

    Loops are threads, whose memory is managed differently from the main thread's: so is what is
    timed here.
    """
    plan, cells, own = pickle.loads((Path(folder) / CELLS).read_bytes())
    register_packed(own)
    schedule("SCHED_OTHER")  # as the executor's threads beside gloo's
    thread = ThreadPoolExecutor(1)
    rounds = thread.submit(PlanRounds, plan, cells).result()
    return lambda **window: thread.submit(rounds.window, **window).result()
