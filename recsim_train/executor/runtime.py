"""One loop of a strategy with real tensors: its thread's state, and how it is driven."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recsim_train.executor.link.gloo import Collective
from recsim_train.executor.queues import QueueFeed, ThreadBarrier, ThreadProgress, ThreadQueue
from recsim_train.executor.shards.stubs import DenseStub, EmbeddingStub
from recsim_train.executor.worker import Worker
from recsim_train.strategy.base import Loop, Program, Topology
from recsim_train.strategy.driver import Driver
from recsim_train.strategy.effects import Effect
from recsim_train.trace.record import Iteration, Recorder, Span, Sync, lane


@dataclass(slots=True)
class LoopContext:
    """All that one loop's thread uses; nothing of it is shared with other threads but the replica
    inside ``worker``, local shards, queues, barriers and the count of iterations. It is told what
    its driver does."""

    instance: str
    label: str
    definition: Loop
    topology: Topology
    worker: Worker
    feed: QueueFeed | None
    embedding: EmbeddingStub | None
    dense: DenseStub | None
    collectives: Mapping[str, Collective]
    clock: Callable[[], float]
    recorder: Recorder | None
    queues: Mapping[str, ThreadQueue] = field(default_factory=dict)
    barriers: Mapping[str, ThreadBarrier] = field(default_factory=dict)
    progress: ThreadProgress = field(default_factory=ThreadProgress)
    done: int = 0
    """Finished iterations, for progress."""
    driver: Driver | None = None
    """Once it runs."""
    ahead: int = 0
    """Iterations until the one that a request is for."""

    @property
    def name(self) -> str:
        """Such as "trainer[0].worker[1]"."""
        return f"{self.instance}.{self.label}"

    @property
    def iteration(self) -> int:
        """As requests carry it; -1 where nothing is recorded."""
        if self.recorder is None or self.driver is None:
            return -1
        return self.driver.iteration + self.ahead

    @property
    def waiting(self) -> str:
        """What it waits for, and where."""
        return "not started" if self.driver is None else self.driver.waiting

    def drive(self, program: Program) -> Driver:
        """The driver of a program in this loop."""
        self.driver = Driver(self.name, self.definition, self.topology, program, self.clock, self)
        return self.driver

    # -- what its driver tells -------------------------------------------------------------

    def begins(self, iteration: int, now: float) -> None:
        """Nothing is recorded before it is over."""

    def ends(self, iteration: int, began: float, now: float) -> None:
        if self.definition.training:
            self.progress.ended()
        if self.recorder is None or not (self.definition.trains or self.definition.background):
            return
        self.done = iteration + 1
        self.recorder.iterations.append(
            Iteration(self.name, iteration, began, now, self.worker.loss)
        )

    def did(
        self,
        effect: Effect[Any],
        iteration: int,
        began: float,
        now: float,
        sent: int,
        number: int = 0,
    ) -> None:
        if self.recorder is not None:
            loop, kind, about = lane(self.label, number), effect.kind, effect.about
            self.recorder.add(Span(self.instance, loop, iteration, kind, about, began, now, sent))

    def over(self) -> None:
        self.progress.over(self.name)

    def synced(self, iteration: int, now: float) -> None:
        if self.recorder is not None:
            self.recorder.syncs.append(Sync(self.name, iteration, now))
