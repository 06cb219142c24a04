"""Modelled compute: an operation takes as long as a prediction says, whatever it takes here.

Operations are carried out on the true tensors and then sleep for the rest of their modelled time,
so that many hosts fit the cores of one machine. Passes through nets, which are dear, are not
carried out: a stand-in gives tensors of their results' shapes. Messages, coding and reading are
what they are.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from recsim_train.executor.net.model import Pass
from recsim_train.executor.net.net_kernels import net_open
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.values import RealBlock, RealDense, RealParts, RealRows
from recsim_train.executor.worker import Worker
from recsim_train.strategy.values import Batch, Gradients, NetGradients
from recsim_train.trace.ledger import READING
from recsim_train.workload.operations import ProcessTimes

_SHORTEST = 100e-6
"""Seconds: what is shorter is slept together with what follows, since waking takes some 50 us."""
_LATE = 1e-3
"""A thread that wakes so many seconds after its time is late."""
_SPREAD = 1e-3
"""Standard deviation of a stand-in's gradients."""
_PR_SET_TIMERSLACK = 29
_REAL = {READING, "narrow", "widen"}
"""What takes what it takes: making batches, coding numbers for the wire."""


class _Owed(threading.local):
    seconds = 0.0
    """That the calling thread has still to sleep; negative: that it has taken too long."""


class ModelledCompute:
    """Of one process: its host's cores, its interpreter lock, and who sleeps for how long."""

    def __init__(self, times: ProcessTimes) -> None:
        self._times = {n: t for n, t in times.operations.items() if n not in _REAL}
        self._cores = threading.Semaphore(times.cores)
        self._interpreter = threading.Lock()
        self._owed = _Owed()
        self._counting = threading.Lock()
        self.slept: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
        """Until now: figures of `recsim_train.trace.facts.Slept`."""

    def begin(self, operation: str) -> float | None:
        """An operation begins: when, once there is a core; None: it takes what it takes."""
        if operation not in self._times:
            return None
        self._cores.acquire()
        return time.monotonic()

    def end(self, operation: str, began: float) -> None:
        """It has been carried out: sleep for the rest of its time, and leave the core."""
        asked, locked = self._times[operation]
        # negative, where the work took longer: what the thread does next sleeps less for it
        self._owed.seconds += began + asked - time.monotonic()
        waited, wakes, late = 0.0, 0, 0
        for most, lock in ((locked, self._interpreter), (inf, nullcontext())):
            share = min(most, self._owed.seconds)
            if share < _SHORTEST:
                continue
            before = time.monotonic()
            with lock:
                start = time.monotonic()
                waited += start - before
                time.sleep(share)
                passed = time.monotonic() - start
            self._owed.seconds -= passed
            wakes += 1
            late += passed - share > _LATE
        taken = time.monotonic() - began - waited
        self._cores.release()
        with self._counting:
            found = asked, taken, wakes, late
            self.slept = tuple(a + b for a, b in zip(self.slept, found, strict=True))


Given = RealBlock | RealParts | NetGradients


class Repeated(Pass):
    """Gives again what the ``first`` pass gave, which has the same shape in every pass, with rows'
    gradients of its own."""

    def __init__(self, first: Pass | None, given: dict[object, Given], rows: RealRows) -> None:
        """``first``: of the first pass, itself, whose results go to ``given``."""
        self._first, self._given, self._rows = first, given, rows

    def forward(self, cut: int) -> RealParts | RealBlock:
        return self._crossing("forward", cut)

    def receive(self, cut: int, arrived: RealParts | RealBlock) -> None:
        if self._first is not None:
            self._first.receive(cut, arrived)

    def backward(self, cut: int) -> RealParts | RealBlock:
        return self._crossing("backward", cut)

    def take_back(self, cut: int, arrived: RealParts | RealBlock) -> None:
        if self._first is not None:
            self._first.take_back(cut, arrived)

    def gradients(self) -> NetGradients:
        if self._first is not None:
            self._given["gradients"] = self._first.gradients()
        found = self._given["gradients"]
        assert isinstance(found, NetGradients)
        assert isinstance(found.own, RealDense)
        assert isinstance(found.shared, RealDense)
        own, shared = (replace(p, tensor=p.tensor.clone()) for p in (found.own, found.shared))
        return NetGradients(own, shared, self._rows)

    def _crossing(self, way: str, cut: int) -> RealParts | RealBlock:
        """A copy: collectives write where they read."""
        if self._first is not None:
            self._given[way, cut] = getattr(self._first, way)(cut)
        found = self._given[way, cut]
        if isinstance(found, RealParts):
            return RealParts(tuple(part.clone() for part in found.tensors))
        assert isinstance(found, RealBlock)
        return RealBlock(found.tensor.clone())


class StandIn:
    """In place of passes through nets: seeded numbers as gradients, and no loss."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._seed = seed
        self._numbers = torch.empty(0)
        self._given: dict[Worker, dict[object, Given]] = {}

    def __call__(self, worker: Worker, batch: Batch, rows: RealRows) -> Gradients:
        """Gradients of the replica [parameters] and of the rows, as `kernels.forward_backward`."""
        parameters = worker.replica.parameters
        drawn, room = self._drawn(parameters), worker.room()
        flat = drawn.clone() if room is None else room.copy_(drawn)
        worker.loss = None
        return Gradients(RealDense(flat), RealRows(self._drawn(rows.tensor), rows.ids))

    def open(self, worker: Worker, batch: Batch, rows: RealRows) -> Pass:
        """In place of a pass through a net that is cut over hosts: only a loop's first is one."""
        first = None
        if worker not in self._given:
            self._given[worker] = {}
            first = net_open(worker, batch, rows)
        return Repeated(first, self._given[worker], RealRows(self._drawn(rows.tensor), rows.ids))

    def _drawn(self, like: Tensor) -> Tensor:
        """Some of the same numbers, from another place each time."""
        count = like.numel()
        if len(self._numbers) < 2 * count:
            generator = torch.Generator().manual_seed(self._seed)
            numbers = torch.randn(2 * count, generator=generator) * _SPREAD
            self._numbers = numbers.to(like.dtype)
        start = self._draw.randrange(len(self._numbers) - count + 1)
        return self._numbers[start : start + count].view(like.shape)


def install(times: ProcessTimes, seed: int) -> ModelledCompute:
    """Have this process's operations take these times; on its main thread, before others start."""
    # else a sleeping thread of ours wakes up to 50 us late
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    stand_in = StandIn(seed)
    KERNELS.update(forward_backward=stand_in, net_open=stand_in.open)
    return ModelledCompute(times)
