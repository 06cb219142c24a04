"""The state of one loop while it runs."""

from __future__ import annotations

from typing import Any, Protocol

from recsim_train.placement.plan import LoopId, Plan
from recsim_train.sim.accounts import Account
from recsim_train.sim.engine import Engine
from recsim_train.sim.folding import Lateness
from recsim_train.sim.host.process import Process, Thread
from recsim_train.sim.messages.serving import Connection
from recsim_train.sim.queues import Queue
from recsim_train.sim.records import Records
from recsim_train.strategy.base import Program
from recsim_train.strategy.driver import Driver
from recsim_train.strategy.effects import Effect
from recsim_train.trace.record import Iteration, Sync, lane
from recsim_train.workload.compression import Tallies


class Course(Protocol):
    """Who follows the course of training loops, and where their time and records are kept."""

    engine: Engine
    records: Records

    def began(self, loop: LoopState) -> None:
        """An iteration has begun."""

    def completed(self, loop: LoopState) -> None:
        """One more iteration is over."""

    def over(self, loop: LoopState) -> None:
        """It ends no more."""


class LoopState:
    """A trainer's loop: its driver, its queue, its threads at shards, its records."""

    def __init__(
        self,
        plan: Plan,
        loop: LoopId,
        process: Process,
        program: Program,
        course: Course,
    ) -> None:
        definition = plan.loop(loop.loop)
        self.loop = loop
        self.trains = definition.training
        self.background = definition.background
        self.name = loop.name
        self.label = loop.label
        self.process = process
        self.thread = Thread(process, "loop", loop.label)
        self.threaded = plan.threads_of(definition) > 1
        """Whether its operations run on several threads."""
        clock, self._records, self._course = course.engine.clock, course.records, course
        self.driver = Driver(loop.name, definition, plan.topology, program, clock, self)
        self.position = plan.positions.get(loop, -1)
        """Place in the stream of batches; -1 for loops that consume none."""
        self.queue: Queue | None = None
        self.serving: dict[tuple[str, int], Connection] = {}
        """Its threads at shards in other processes, by service and shard."""
        self.completed = 0
        """Iterations that have ended."""
        self.unserved: dict[int, int] = {}
        """Requests that shards have not finished, by iteration."""
        self.waiting = "its start"
        """What it waits for, as the deadlock report says it."""
        self.taken = 0
        """Batches, from its queue."""
        self.ahead = 0
        """Iterations until the one that a request is for."""
        self.starting = False
        """Whether its request is one that it does not wait for now; see `World.wait`."""
        self.account = Account(plan.experiment.training.warmup_steps)
        """Where the time of its effects goes."""
        self.held = 0.0
        """Of its first iteration, the share by which the next one begins later."""
        self.lateness: Lateness | None = None
        """Of those that this loop stands for, where they wait for each other."""
        self.share = 1.0
        """Of a tensor's entries, what the loop's threshold lets pass."""
        self.tallies: Tallies = {}

    @property
    def iteration(self) -> int:
        """The iteration or round that it is in, or that its present request is for."""
        return self.driver.iteration + self.ahead

    # ------------------------------------------------------------------ what its driver tells

    def begins(self, iteration: int, now: float) -> None:
        if self.trains:
            self._course.began(self)

    def ends(self, iteration: int, began: float, now: float) -> None:
        self.completed += 1
        if self.background:
            self._records.rounds.append(Iteration(self.name, iteration, began, now))
        elif self.trains:
            self._records.iterations.append(Iteration(self.name, iteration, began, now))
            self._course.completed(self)

    def did(
        self,
        effect: Effect[Any],
        iteration: int,
        began: float,
        now: float,
        sent: int,
        number: int = 0,
    ) -> None:
        self._records.series(
            self.process.name, lane(self.label, number), effect.kind, effect.about
        ).add(iteration, began, now, sent)

    def over(self) -> None:
        if self.trains:
            self._course.over(self)

    def synced(self, iteration: int, now: float) -> None:
        self._records.syncs.append(Sync(self.name, iteration, now))

    # ------------------------------------------------------------------ its requests

    def ask(self) -> None:
        """A request of the present iteration is on its way."""
        self.unserved[self.iteration] = self.unserved.get(self.iteration, 0) + 1

    def served(self, iteration: int) -> None:
        """A shard has finished a request of ``iteration``."""
        self.unserved[iteration] -= 1
        if not self.unserved[iteration]:
            del self.unserved[iteration]

    def settled(self) -> int:
        """Iterations that have ended and that no shard still works on."""
        done = [self.completed] if self.trains else []
        return min([*done, *self.unserved], default=1 << 62)
