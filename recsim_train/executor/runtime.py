"""One loop of a strategy with real tensors: its thread's state, how it is driven, and what each
effect does: (answer, payload bytes that this side sent)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recsim_train.executor.books import booked
from recsim_train.executor.checkpoint.halts import Halts
from recsim_train.executor.link.gloo import Collective
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.queues import QueueFeed, ThreadBarrier, ThreadProgress, ThreadQueue
from recsim_train.executor.shards.stubs import DenseStub, Done, EmbeddingStub, Finish
from recsim_train.executor.worker import Worker
from recsim_train.strategy import effects
from recsim_train.strategy.base import Loop, Program, Topology
from recsim_train.strategy.driver import Driver
from recsim_train.strategy.effects import LATER, Later
from recsim_train.strategy.values import Batch
from recsim_train.trace.ledger import ASKING
from recsim_train.trace.record import Recorder, Span, lane


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
    halts: Halts | None = None
    """Where it stands still for checkpoints; None: there are none."""

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
        if not self.definition.background:
            self.driver.iteration += self.done  # before it began
        return self.driver

    def next_batch(self, held: int) -> Batch | Later | None:
        """See `NextBatch`."""
        assert self.feed is not None
        if self.halts is not None and not self.halts.take(self.name, held):
            return LATER
        return self.feed.next()

    # -- what its driver tells -------------------------------------------------------------

    def begins(self, iteration: int, now: float) -> None:
        """Nothing is recorded before it is over."""

    def ends(self, iteration: int, began: float, now: float) -> None:
        if self.definition.training:
            self.progress.ended()
            if self.halts is not None:
                self.halts.ended(self.name, iteration + 1)
        if self.recorder is None or not (self.definition.trains or self.definition.background):
            return
        self.done = iteration + 1
        self.recorder.iterations.add(self.name, iteration, began, now, self.worker.loss)

    def did(
        self,
        effect: effects.Effect[Any],
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
            self.recorder.syncs.add(self.name, iteration, now)


def _compute(context: LoopContext, effect: effects.Compute[object]) -> Done:
    name = effect.operation.name
    with booked(name):
        return KERNELS[name](context.worker, *effect.arguments), 0


_SEND: dict[type, Callable[..., Finish]] = {
    effects.Lookup: lambda c, effect: c.embedding.lookup(effect.ids, c.iteration),
    effects.Update: lambda c, effect: c.embedding.update(effect.gradient, c.iteration),
    effects.Fetch: lambda c, effect: c.embedding.fetch(effect.ids, c.iteration),
    effects.Store: lambda c, effect: c.embedding.store(effect.rows, c.iteration),
    effects.Pull: lambda c, _: c.dense.pull(c.iteration),
    effects.Push: lambda c, effect: c.dense.push(effect.gradient, c.iteration, add=effect.add),
    effects.Exchange: lambda c, effect: c.dense.exchange(
        effect.parameters, effect.alpha, c.iteration, new=effect.central == "new"
    ),
    effects.Wait: lambda _, effect: effect.handle.under_way,
}
"""What waits for the answer to a request, by effect; the driver knows the loop's services, and
which effects may be started."""


@booked(ASKING)
def _request(context: LoopContext, effect: effects.Effect[object]) -> Done:
    return _SEND[type(effect)](context, effect)()


@booked(ASKING)
def _start(context: LoopContext, effect: effects.Start[object]) -> Done:
    """Answers with what waits for the request's own answer."""
    context.ahead = effect.ahead
    try:
        return _SEND[type(effect.request)](context, effect.request), 0
    finally:
        context.ahead = 0


PERFORM: dict[type, Callable[..., Done]] = {
    effects.NextBatch: lambda c, effect: (c.next_batch(effect.held), 0),
    effects.NextItem: lambda c, effect: (c.queues[effect.queue].take(), 0),
    effects.NextRound: lambda c, effect: (
        effect.last if effect.group is None else c.collectives[effect.group].agree(effect.last),
        0,
    ),
    effects.Compute: _compute,
    **dict.fromkeys((*effects.REQUESTS, effects.Wait), _request),
    effects.Start: _start,
    effects.AllReduce: lambda c, effect: c.collectives[effect.group].all_reduce(
        effect.value, effect.op
    ),
    effects.AllGather: lambda c, effect: c.collectives[effect.group].all_gather(effect.value),
    effects.AllToAll: lambda c, effect: c.collectives[effect.group].all_to_all(effect.parts),
    effects.Put: lambda c, effect: (c.queues[effect.queue].put(effect.item), 0),
    effects.Take: lambda c, effect: (c.queues[effect.queue].take(), 0),
    effects.Close: lambda c, effect: (c.queues[effect.queue].put(effects.END), 0),
    effects.Barrier: lambda c, effect: (c.barriers[effect.barrier].wait(), 0),
    effects.Progress: lambda c, effect: (c.progress.wait(effect.iterations), 0),
    effects.Now: lambda c, _: (c.clock(), 0),
}
"""Of every effect but `Synced`, which the driver answers."""


def run_loop(context: LoopContext, program: Program) -> None:
    """Drive a program to its end.

    Raises as `Driver.next` does. Errors of effects are thrown into the program first.
    """
    driver = context.drive(program)
    while (effect := driver.next()) is not None:
        try:
            answer, sent = PERFORM[type(effect)](context, effect)
        except Exception as error:  # the program may handle it
            driver.failed(error)
        else:
            driver.answered(answer, sent)
    for barrier in context.topology.barriers:
        if context.definition.name in barrier.loops:
            context.barriers[barrier.name].leave()
