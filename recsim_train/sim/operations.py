"""Operations in the simulator: sizes in, sizes out, and what their cost depends on.

Every entry of `GHOSTS` takes the trainer, the loop and the operation's arguments, and returns the
answer, a value without content, and the keywords of `Pricing.operation`. Nothing is looked at.

How many entries pass a threshold depends on the values once it is no longer fresh. Stated
assumption: as many as when it was taken, k of each tensor. That holds where the sizes have settled;
before, while the residual (or the difference) still fills, more pass (see
docs/reference/strategies.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from recsim_train.data.mixcache import CacheTooSmall
from recsim_train.sim.ghosts import (
    Ghost,
    GhostDense,
    GhostIds,
    GhostParts,
    GhostRows,
    GhostSparse,
    GhostTable,
)
from recsim_train.sim.loop import LoopState
from recsim_train.sim.messages.cache import CacheRuntime
from recsim_train.sim.trainer import NetRuntime, Trainer
from recsim_train.strategy.blame import StrategyError
from recsim_train.strategy.values import Batch, Gradients
from recsim_train.workload import shape
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
    value, small = shape.value_bytes(at.world.model), at.world.layout.small_elements
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
    "net_forward": _cut(NetRuntime.forward),
    "net_receive": _cut(NetRuntime.receive),
    "net_backward": _cut(NetRuntime.backward),
    "net_return": _cut(NetRuntime.take_back),
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
