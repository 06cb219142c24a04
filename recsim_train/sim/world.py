"""The state of one loop while it runs, and the world that its effects need at hand: time,
machines, prices, records."""

from __future__ import annotations

from typing import Any, Protocol

from recsim_train.data.counts import IdCounts
from recsim_train.placement.plan import LoopId, Plan
from recsim_train.placement.transport import number_bytes
from recsim_train.sim.engine import Engine, Event, Steps
from recsim_train.sim.folding import Lateness
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.host.process import Process, Thread
from recsim_train.sim.messages.serving import Connection
from recsim_train.sim.pricing import Priced, Pricing, plus
from recsim_train.sim.queues import Countdown, Queue
from recsim_train.sim.records import COMPUTE, WAITING, Account, Records
from recsim_train.strategy.base import Program
from recsim_train.strategy.driver import Driver
from recsim_train.strategy.effects import Effect
from recsim_train.trace.ledger import ASKING, RUNTIME
from recsim_train.trace.record import Iteration, Sync, lane
from recsim_train.workload import compression, shape
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


SENT: Any = object()
"""No event: what a request's process yields when all has been sent."""


class World:
    """What every effect needs at hand."""

    def __init__(
        self, machines: Machines, pricing: Pricing, records: Records, counts: IdCounts
    ) -> None:
        self.machines = machines
        self.engine = machines.engine
        self.pricing = pricing
        self.records = records
        self.counts = counts
        self.model = pricing.experiment.model
        self.training = pricing.experiment.training
        self.data = pricing.experiment.data
        self.layout = compression.layout(self.model)
        self.value_bytes = shape.value_bytes(self.model)
        self._wire_bytes = number_bytes(pricing.experiment)
        self.overhead = pricing.units(RUNTIME, effect=1)
        """The runtime's own work for one effect."""
        self.asking = plus(self.overhead, pricing.units(ASKING, asking=1))
        """The same for one that asks shards."""

    def sparse_bytes(self, share: float, start: int, stop: int) -> int:
        """Expected bytes of elements ``start`` to ``stop`` of a thresholded vector."""
        whole, entries = self.layout.within(share, start, stop)
        each = self.value_bytes + compression.INDEX_BYTES
        return whole * self.value_bytes + entries * each

    def number_bytes(self, loop: LoopState) -> int:
        """Of a number of the loop's requests that may be rounded: outside of training none is."""
        return self.value_bytes if loop.iteration < 0 else self._wire_bytes

    def work(self, loop: LoopState, work: Priced, what: str) -> Event:
        """A loop's own work on a core."""
        loop.waiting = "a core"
        return self._on(loop, work, f"{loop.label}.{what}")

    def _on(self, loop: LoopState, work: Priced, purpose: str) -> Event:
        done, alone = self.machines.compute(
            loop.thread, work, purpose, lateness=loop.lateness, threaded=loop.threaded
        )
        loop.account.take(COMPUTE, alone)
        return done

    def wait(self, loop: LoopState, done: Countdown) -> Steps:
        """Wait for the last of some requests; where the loop only starts them, say `SENT` first."""
        if loop.starting:
            loop.starting, waiting = False, loop.waiting
            yield SENT
            loop.waiting = waiting
        start = self.engine.now
        yield done.done
        loop.account.blame(self.engine.now - start, done.last)

    def wait_for_others(self, loop: LoopState, steps: Steps) -> Steps:
        """Wait for what others do; returns what the steps bring."""
        start = self.engine.now
        brought = yield from steps
        loop.account.now[WAITING] += self.engine.now - start
        return brought

    def serve(self, loop: LoopState, work: Priced, what: str) -> Event:
        """What a shard in the loop's own process does for it, in the loop's thread."""
        return self._on(loop, work, f"{loop.name}.{what}")

    def meet(self, loop: LoopState) -> Steps:
        """Wait until the last of those that a loop stands for is where it is."""
        if loop.lateness is not None:
            late = loop.lateness.latest()
            if late > 0.0:
                yield self.engine.timeout(late)
                loop.account.now[WAITING] += late
