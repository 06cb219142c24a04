"""What each effect does with real tensors: (answer, payload bytes that this side sent)."""

from __future__ import annotations

from collections.abc import Callable

from recsim_train.executor.books import booked
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.shards.stubs import Done, Finish
from recsim_train.strategy import effects
from recsim_train.strategy.base import Program
from recsim_train.strategy.effects import END
from recsim_train.trace.ledger import ASKING


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
    effects.NextBatch: lambda c, _: (c.feed.next(), 0),
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
    effects.Close: lambda c, effect: (c.queues[effect.queue].put(END), 0),
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
