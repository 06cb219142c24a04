"""The answer to each effect in the simulated world: who is asked, and what comes back.

Every function is a process that returns (answer, payload bytes that this side sends). What it costs
is said in services.py, collectives.py and cache.py, and for operations in operations.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recsim_train.sim.engine import Event, Steps, once
from recsim_train.sim.ghosts import GhostFeatures, GhostIds
from recsim_train.sim.loop import LoopState
from recsim_train.sim.messages import cache
from recsim_train.sim.operations import GHOSTS
from recsim_train.sim.pricing import plus
from recsim_train.sim.trainer import Trainer
from recsim_train.sim.world import SENT
from recsim_train.strategy import effects
from recsim_train.strategy.effects import END, Effect
from recsim_train.strategy.values import Batch


def _next_batch(at: Trainer, loop: LoopState, effect: effects.NextBatch) -> Steps:
    assert loop.queue is not None
    yield _own(at, loop, effect)
    if (number := loop.taken) >= at.iterations:
        return None, 0
    loop.taken += 1
    loop.waiting = "a batch from its reader queue"
    yield from at.world.wait_for_others(loop, once(loop.queue.get))
    ids, unique = at.world.counts.batch_counts(loop.position, number)
    size = at.plan.examples
    ghost = GhostIds(loop.position, number, ids, unique)
    return Batch(size, ghost, GhostFeatures(size), number), 0


def _compute(at: Trainer, loop: LoopState, effect: effects.Compute[object]) -> Steps:
    name = effect.operation.name
    answer, counts = GHOSTS[name](at, loop, *effect.arguments)
    work = plus(at.world.overhead, at.world.pricing.operation(name, **counts))
    yield at.world.work(loop, work, name)
    return answer, 0


def _start(at: Trainer, loop: LoopState, effect: effects.Start[object]) -> Steps:
    """Answers with the process that goes on where the loop waits for the request."""
    steps = PERFORM[type(effect.request)](at, loop, effect.request)
    loop.starting, loop.ahead = True, effect.ahead
    try:
        event = next(steps)
        while event is not SENT:
            event = steps.send((yield event))
    finally:
        loop.ahead = 0
    return steps, 0


def _wait(at: Trainer, loop: LoopState, effect: effects.Wait[object]) -> Steps:
    yield _own(at, loop, effect)
    return (yield from effect.handle.under_way)


def _next_round(at: Trainer, loop: LoopState, effect: effects.NextRound) -> Steps:
    if effect.group is None:
        yield _own(at, loop, effect)
        return bool(effect.last), 0
    return (yield from at.groups[effect.group].agree(loop, effect.last)), 0


def _own(at: Trainer, loop: LoopState, effect: Effect[Any]) -> Event:
    return at.world.work(loop, at.world.overhead, effect.kind)


def _until(at: Trainer, loop: LoopState, effect: Effect[Any], what: str, wait: Steps) -> Steps:
    """Wait for ``what`` others do."""
    yield _own(at, loop, effect)
    loop.waiting = what
    return (yield from at.world.wait_for_others(loop, wait)), 0


def _take(at: Trainer, loop: LoopState, effect: effects.Take | effects.NextItem) -> Steps:
    what = f"an item of queue {effect.queue!r}"
    return _until(at, loop, effect, what, at.queues[effect.queue].take())


def _put(at: Trainer, loop: LoopState, effect: effects.Put | effects.Close, item: object) -> Steps:
    what = f"room in queue {effect.queue!r}"
    return _until(at, loop, effect, what, at.queues[effect.queue].put(item))


def _now(at: Trainer, loop: LoopState, effect: effects.Now) -> Steps:
    yield _own(at, loop, effect)
    return at.world.engine.now, 0


PERFORM: dict[type, Callable[..., Steps]] = {
    effects.NextBatch: _next_batch,
    effects.NextItem: _take,
    effects.NextRound: _next_round,
    effects.Compute: _compute,
    effects.Lookup: lambda at, loop, ask: at.embedding[ask.service].lookup(loop, ask.ids),
    effects.Update: lambda at, loop, ask: at.embedding[ask.service].update(loop, ask.gradient),
    effects.Fetch: lambda at, loop, ask: cache.fetch(at.embedding[ask.service], loop, ask.ids),
    effects.Store: lambda at, loop, ask: cache.store(at.embedding[ask.service], loop, ask.rows),
    effects.Pull: lambda at, loop, ask: at.dense[ask.service].pull(loop),
    effects.Push: lambda at, loop, ask: at.dense[ask.service].push(loop, ask.gradient, add=ask.add),
    effects.Exchange: lambda at, loop, ask: at.dense[ask.service].exchange(
        loop, ask.parameters, ask.central
    ),
    effects.Start: _start,
    effects.Wait: _wait,
    effects.AllReduce: lambda at, loop, ask: at.groups[ask.group].all_reduce(loop, ask.value),
    effects.AllGather: lambda at, loop, ask: at.groups[ask.group].all_gather(loop, ask.value),
    effects.AllToAll: lambda at, loop, ask: at.groups[ask.group].all_to_all(loop, ask.parts),
    effects.Put: lambda at, loop, ask: _put(at, loop, ask, ask.item),
    effects.Take: _take,
    effects.Close: lambda at, loop, ask: _put(at, loop, ask, END),
    effects.Barrier: lambda at, loop, ask: _until(
        at,
        loop,
        ask,
        f"barrier {ask.barrier!r}",
        once(at.barriers[ask.barrier].arrive),
    ),
    effects.Progress: lambda at, loop, ask: _until(
        at,
        loop,
        ask,
        f"{ask.iterations} iterations of its trainer",
        once(lambda: at.progress.reach(ask.iterations)),
    ),
    effects.Now: _now,
}
"""Of every effect but `Synced`, which the driver answers."""
