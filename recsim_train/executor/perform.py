"""What each effect does with real tensors: (answer, payload bytes that this side sent)."""

from __future__ import annotations

from collections.abc import Callable

from recsim_train.executor.books import booked
from recsim_train.executor.net.sparse import RealSparse
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.shards.stubs import DenseStub, Done, EmbeddingStub, Finish
from recsim_train.executor.values import RealBlock, RealDense, RealIds, RealParts, RealRows
from recsim_train.strategy import effects
from recsim_train.strategy.base import Program
from recsim_train.strategy.effects import END
from recsim_train.strategy.values import Block
from recsim_train.trace.ledger import ASKING


def _next_batch(context: LoopContext, _: effects.NextBatch) -> Done:
    assert context.feed is not None
    return context.feed.next(), 0


def _compute(context: LoopContext, effect: effects.Compute[object]) -> Done:
    name = effect.operation.name
    with booked(name):
        return KERNELS[name](context.worker, *effect.arguments), 0


def _embedding(context: LoopContext) -> EmbeddingStub:
    assert context.embedding is not None  # the driver knows the topology
    return context.embedding


def _dense(context: LoopContext) -> DenseStub:
    assert context.dense is not None
    return context.dense


def _lookup(context: LoopContext, effect: effects.Lookup) -> Finish:
    assert isinstance(effect.ids, RealIds)
    return _embedding(context).lookup(effect.ids, context.iteration)


def _update(context: LoopContext, effect: effects.Update) -> Finish:
    assert isinstance(effect.gradient, RealRows)
    return _embedding(context).update(effect.gradient, context.iteration)


def _fetch(context: LoopContext, effect: effects.Fetch) -> Finish:
    assert isinstance(effect.ids, RealIds)
    return _embedding(context).fetch(effect.ids, context.iteration)


def _store(context: LoopContext, effect: effects.Store) -> Finish:
    assert isinstance(effect.rows, RealRows)
    return _embedding(context).store(effect.rows, context.iteration)


def _pull(context: LoopContext, _: effects.Pull) -> Finish:
    return _dense(context).pull(context.iteration)


def _push(context: LoopContext, effect: effects.Push) -> Finish:
    assert isinstance(effect.gradient, RealDense | RealSparse)
    return _dense(context).push(effect.gradient, context.iteration, add=effect.add)


def _exchange(context: LoopContext, effect: effects.Exchange) -> Finish:
    assert isinstance(effect.parameters, RealDense)
    return _dense(context).exchange(
        effect.parameters, effect.alpha, context.iteration, new=effect.central == "new"
    )


_SEND: dict[type, Callable[..., Finish]] = {
    effects.Lookup: _lookup,
    effects.Update: _update,
    effects.Fetch: _fetch,
    effects.Store: _store,
    effects.Pull: _pull,
    effects.Push: _push,
    effects.Exchange: _exchange,
}
"""Of every effect that may be started."""


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


@booked(ASKING)
def _wait(_: LoopContext, effect: effects.Wait[object]) -> Done:
    done: Done = effect.handle.under_way()
    return done


def _all_reduce(context: LoopContext, effect: effects.AllReduce[Block]) -> Done:
    assert isinstance(effect.value, RealDense | RealBlock | RealRows)
    return context.collectives[effect.group].all_reduce(effect.value, effect.op)


def _all_gather(context: LoopContext, effect: effects.AllGather) -> Done:
    assert isinstance(effect.value, RealDense | RealBlock)
    return context.collectives[effect.group].all_gather(effect.value)


def _all_to_all(context: LoopContext, effect: effects.AllToAll) -> Done:
    assert isinstance(effect.parts, RealParts)
    return context.collectives[effect.group].all_to_all(effect.parts)


def _next_round(context: LoopContext, effect: effects.NextRound) -> Done:
    if effect.group is None:
        return bool(effect.last), 0
    return context.collectives[effect.group].agree(effect.last), 0


def _put(context: LoopContext, effect: effects.Put) -> Done:
    context.queues[effect.queue].put(effect.item)
    return None, 0


def _close(context: LoopContext, effect: effects.Close) -> Done:
    context.queues[effect.queue].put(END)
    return None, 0


def _take(context: LoopContext, effect: effects.Take | effects.NextItem) -> Done:
    return context.queues[effect.queue].take(), 0


def _barrier(context: LoopContext, effect: effects.Barrier) -> Done:
    return context.barriers[effect.barrier].wait(), 0


def _progress(context: LoopContext, effect: effects.Progress) -> Done:
    return context.progress.wait(effect.iterations), 0


def _now(context: LoopContext, _: effects.Now) -> Done:
    return context.clock(), 0


PERFORM: dict[type, Callable[..., Done]] = {
    effects.NextBatch: _next_batch,
    effects.NextItem: _take,
    effects.NextRound: _next_round,
    effects.Compute: _compute,
    **dict.fromkeys(effects.REQUESTS, _request),
    effects.Start: _start,
    effects.Wait: _wait,
    effects.AllReduce: _all_reduce,
    effects.AllGather: _all_gather,
    effects.AllToAll: _all_to_all,
    effects.Put: _put,
    effects.Take: _take,
    effects.Close: _close,
    effects.Barrier: _barrier,
    effects.Progress: _progress,
    effects.Now: _now,
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
