"""The answer to each effect in the simulated world: who is asked, and what comes back.

Every entry of `PERFORM` is a process that returns (answer, payload bytes that this side sends).
What it costs is said in services.py, collectives.py and cache.py, and for operations here: sizes
in, sizes out, and what the cost depends on. Every entry of `GHOSTS` takes the trainer, the loop and
the operation's arguments, and returns the answer, a value without content, and the keywords of
`Pricing.operation`. Nothing is looked at.

How many entries pass a threshold depends on the values once it is no longer fresh. Stated
assumption: as many as when it was taken, k of each tensor. That holds where the sizes have settled;
before, while the residual (or the difference) still fills, more pass (see
docs/reference/strategies.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from recsim_train.data.mixcache import CacheTooSmall
from recsim_train.sim.engine import Event, Steps, once
from recsim_train.sim.ghosts import (
    Ghost,
    GhostDense,
    GhostFeatures,
    GhostIds,
    GhostParts,
    GhostRows,
    GhostSparse,
    GhostTable,
)
from recsim_train.sim.messages import cache
from recsim_train.sim.messages.cache import CacheRuntime
from recsim_train.sim.pricing import plus
from recsim_train.sim.trainer import NetRuntime, Trainer
from recsim_train.sim.world import SENT, LoopState
from recsim_train.strategy import effects
from recsim_train.strategy.blame import StrategyError
from recsim_train.strategy.effects import END, Effect
from recsim_train.strategy.values import Batch, Gradients
from recsim_train.workload.compression import DIFFERENCES, GRADIENTS, INDEX_BYTES, Tally

# ---------------------------------------------------------------- on batches and the replica


def _deduplicate(_: Trainer, __: LoopState, ids: GhostIds) -> Ghost:
    return replace(ids, distinct=True), {"ids": ids.ids}


def _forward_backward(at: Trainer, loop: LoopState, _: Batch, rows: GhostRows) -> Ghost:
    counts = {
        "pooling": at.plan.embedding.service.pooling if at.plan.embedding else "server",
        "ids": rows.ids.ids,
        "unique": rows.ids.unique,
    }
    back = rows if isinstance(rows, GhostTable) else GhostRows(rows.ids, gradient=True)
    return Gradients(replace(at.whole, maker=loop.name), back), counts


def _streaming(at: Trainer, _: LoopState, *__: object) -> Ghost:
    """A pass over the replica that leaves nothing."""
    return None, {"elements": at.whole.elements}


def _vector(at: Trainer, _: LoopState, *__: object) -> Ghost:
    """A pass over the replica that leaves a vector of its size."""
    return at.whole, {"elements": at.whole.elements}


def _block_step(_: Trainer, __: LoopState, mean: GhostDense, ___: float, ____: float) -> Ghost:
    return GhostDense(mean.elements, mean.size, mean.start), {"elements": mean.elements}


# ---------------------------------------------------------------- compression


def _threshold(at: Trainer, loop: LoopState, _: GhostDense, share: float) -> Ghost:
    layout = at.world.layout
    loop.share = share
    large = at.whole.elements - layout.small_elements
    return None, {"elements": large, "tables": len(layout.large)}


def _sparsify(tallied: str) -> Callable[..., Ghost]:
    def ghost(at: Trainer, loop: LoopState, _: GhostDense) -> Ghost:
        layout, whole = at.world.layout, at.whole
        size = at.world.sparse_bytes(loop.share, 0, whole.elements)
        kept = layout.kept(loop.share) + layout.small_elements
        loop.tallies.setdefault(tallied, Tally()).add(whole.elements, kept, whole.size, size)
        counts = {"elements": whole.elements, "kept": kept, "tables": len(layout.large)}
        return GhostSparse(size, loop.share), counts

    return ghost


def _densify(at: Trainer, _: LoopState, parts: GhostParts | GhostSparse) -> Ghost:
    sizes = (parts.size,) if isinstance(parts, GhostSparse) else parts.sizes
    value, small = at.world.value_bytes, at.world.layout.small_elements
    entries = sum(
        (size - small * value) // (value + INDEX_BYTES) * count
        for size, count in Counter(sizes).items()
    )
    kept = entries + small * len(sizes)
    return at.whole, {"elements": at.whole.elements, "kept": kept, "shards": len(sizes)}


# ---------------------------------------------------------------- a cut net, a cache of rows


def _cut(ghost: Callable[..., Ghost]) -> Callable[..., Ghost]:
    """An operation on this host's part of the net."""

    def of(at: Trainer, _: LoopState, *arguments: object) -> Ghost:
        if at.net is None:
            raise TypeError("the strategy's topology asks for no net")
        return ghost(at.net, *arguments)

    return of


def _cached(ghost: Callable[..., Ghost]) -> Callable[..., Ghost]:
    """An operation on this trainer's cache."""

    def of(at: Trainer, loop: LoopState, *arguments: object) -> Ghost:
        if at.cache is None:
            raise TypeError("the strategy's topology asks for no cache")
        try:
            answer, counts = ghost(at.cache, at.index, *arguments)
        except CacheTooSmall as error:
            raise StrategyError(f"{loop.process.name} failed: {error}") from None
        return answer, {"pooling": "worker", **counts}

    return of


GHOSTS: dict[str, Callable[..., Ghost]] = {
    "deduplicate": _deduplicate,
    "forward_backward": _forward_backward,
    "apply": _streaming,
    "load": _streaming,
    "snapshot": _vector,
    "subtract": _streaming,
    "towards": _vector,
    "interpolate": _streaming,
    "block_step": _block_step,
    "accumulate": _streaming,
    "drain": _vector,
    "threshold": _threshold,
    "sparsify": _sparsify(GRADIENTS),
    "threshold_difference": _threshold,
    "sparsify_difference": _sparsify(DIFFERENCES),
    "densify": _densify,
    "net_open": _cut(NetRuntime.open),
    "net_forward": _cut(lambda net, _, cut: net.send("net_forward", cut)),
    "net_receive": _cut(lambda net, _, cut, __: net.receive("net_receive", cut)),
    "net_backward": _cut(lambda net, _, cut: net.send("net_backward", cut)),
    "net_return": _cut(lambda net, _, cut, __: net.receive("net_return", cut)),
    "net_gradients": _cut(NetRuntime.gradients),
    "net_apply": _cut(NetRuntime.apply),
    "net_whole": _cut(NetRuntime.whole),
    "net_answered": _cut(NetRuntime.answered),
    "net_towards": _cut(NetRuntime.answered),
    "net_move": _cut(NetRuntime.move),
    "row_numbers": _cached(CacheRuntime.row_numbers),
    "virtual_ids": _cached(CacheRuntime.virtual_ids),
    "probe": _cached(CacheRuntime.probe),
    "fill": _cached(CacheRuntime.fill),
    "cached_rows": _cached(CacheRuntime.cached_rows),
    "update_cached": _cached(CacheRuntime.update_cached),
    "flush": _cached(CacheRuntime.flush),
}
"""By the operation's name."""


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
