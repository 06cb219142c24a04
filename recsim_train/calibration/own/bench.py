"""What all micro-workloads of a plan share: its data, its parameters, and who times them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from recsim_train.data.stream import open_stream
from recsim_train.executor.feed import to_batch
from recsim_train.executor.net.model import dtype_of
from recsim_train.executor.values import RealDense, RealIds
from recsim_train.executor.worker import MixCache, Replica, Worker
from recsim_train.placement.plan import Plan
from recsim_train.strategy.values import Batch
from recsim_train.workload.scope import Cell

_BATCHES = 24
"""Real batches that rounds go through, at most; of a cache, steps."""
_CACHED = 100
_EXAMPLES = 1 << 16
"""Of all of them together, at least four batches."""

_OTHERS = 2 << 20
"""Bytes: more than a core's own cache, less than what cores share."""


class Timed(Protocol):
    """Does one operation: what it answers. ``sizes``: those of this very call, by the names of a
    `recsim_train.workload.scope.Scope`."""

    def __call__(self, operation: str, call: Callable[[], Any], **sizes: Any) -> Any: ...


class Micro(ABC):
    """Micro-workloads that belong together."""

    period = 1
    """Rounds after which each operation has been done."""

    @abstractmethod
    def round(self, batch: Batch, timed: Timed) -> None:
        """Do each operation once, or what one iteration has of it."""


@dataclass
class Bench:
    """One plan's data and parameters. ``cells``: the shapes that it asks for."""

    plan: Plan
    cells: list[Cell]
    batches: list[Batch] = field(init=False)
    by_trainer: list[list[Batch]] = field(init=False)
    """Of the cache's steps: the same as ``batches``, with those of all trainers."""

    def __post_init__(self) -> None:
        spec = self.plan.experiment
        self.model, self.training, self.seed = spec.model, spec.training, spec.seed
        self.dtype = dtype_of(self.model)
        self.pooling = self.plan.embedding.service.pooling if self.plan.embedding else "server"
        self.by_trainer = self._read()
        self.batches = [step[0] for step in self.by_trainer]
        self._next = cycle(range(len(self.batches)))
        self.names = {name for name, _ in self.cells}
        self._others = np.ones(_OTHERS // 8)

    def elsewhere(self) -> None:
        """The work of others goes through the core's cache: what comes next is done on another core
        than what was done last, and finds nothing of it there."""
        self._others += 1.0

    def _read(self) -> list[list[Batch]]:
        """Steps of batches, those of one place in the stream each: a few, or with a cache all."""
        plan, spec = self.plan, self.plan.experiment
        cached = plan.topology.cache is not None
        places = range(plan.streams if cached else 1)
        steps = min(_CACHED if cached else _BATCHES, max(4, _EXAMPLES // plan.examples))
        steps = max(1, min(steps, spec.training.warmup_steps + spec.training.steps))
        found: list[list[Batch]] = [[] for _ in range(steps)]
        stream = open_stream(
            spec.model,
            spec.data,
            batch_size=plan.examples,
            positions=list(places),
            total=plan.streams,
            iterations=steps,
            seed=spec.seed,
        )
        for _, iteration, batch in stream:
            found[iteration].append(to_batch(spec.model, batch))
        return found

    def next(self) -> Batch:
        """The next batch."""
        return self.batches[next(self._next)]

    def asks(self, operations: Iterable[str]) -> bool:
        """Whether any of them is asked for."""
        return not self.names.isdisjoint(operations)

    def worker(self, host: int = 0, cache: MixCache | None = None) -> Worker:
        """A loop's thread with a replica of its own."""
        replica = Replica.of(self.plan, host)
        return Worker(replica, self.pooling, self.plan.net, host, cache)

    def numbers(self, *shape: int, size: float = 1e-6) -> Tensor:
        """Normal numbers: small ones change nothing that is trained with them."""
        return torch.randn(*shape, dtype=self.dtype) * size

    def dense(self, elements: int) -> RealDense:
        """A vector over so many dense parameters."""
        return RealDense(self.numbers(elements))


def ids_of(batch: Batch) -> RealIds:
    """A batch's ids."""
    assert isinstance(batch.ids, RealIds)
    return batch.ids
