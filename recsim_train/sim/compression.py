"""Compression in the simulator: sizes and prices of what is kept; nothing is looked at.

How many entries pass a threshold depends on the values once it is no longer fresh. Stated
assumption: as many as when it was taken, k of each tensor. That holds where the sizes have settled;
before, while the residual (or the difference) still fills, more pass (see
docs/strategies.md). Masks keep exactly k of each row.
"""

from __future__ import annotations

from collections import Counter
from types import UnionType
from typing import TYPE_CHECKING

from recsim_train.config.experiment import Model
from recsim_train.sim.ghosts import GhostBlock, GhostDense, GhostParts
from recsim_train.sim.loop import LoopState
from recsim_train.sim.pricing import Pricing, Seconds
from recsim_train.strategy.values import Masked, Sparse
from recsim_train.workload import compression, shape
from recsim_train.workload.compression import (
    ACTIVATION_GRADIENTS,
    ACTIVATIONS,
    DIFFERENCES,
    GRADIENTS,
    INDEX_BYTES,
    Tallies,
    Tally,
    position_bytes,
)

if TYPE_CHECKING:
    from recsim_train.sim.runtime import Runtime


class GhostSparse(GhostBlock, Sparse):
    """Entries of a dense vector that pass a threshold."""

    __slots__ = ("share",)

    def __init__(self, size: int, share: float) -> None:
        super().__init__(size)
        self.share = share


class GhostMasked(GhostBlock, Masked):
    """``kept`` of ``rows`` * ``width`` values; ``size`` with or without their places."""

    __slots__ = ("kept", "rows")

    def __init__(self, size: int, rows: int, width: int, kept: int) -> None:
        super().__init__(size, width)
        self.rows = rows
        self.kept = kept


_THRESHOLDS = ("threshold", "threshold_difference")
_TALLIED = {"sparsify": GRADIENTS, "sparsify_difference": DIFFERENCES}
_DENSE = (*_THRESHOLDS, *_TALLIED, "densify")
ARGUMENTS: dict[str, tuple[type | UnionType, ...]] = {
    "threshold": (GhostDense, float),
    "sparsify": (GhostDense,),
    "threshold_difference": (GhostDense, float),
    "sparsify_difference": (GhostDense,),
    "densify": (GhostParts | GhostSparse,),
    "mask": (GhostBlock, float),
    "unmask": (GhostMasked,),
    "pick": (GhostBlock, GhostMasked),
    "unpick": (GhostBlock, GhostMasked),
}


def perform(
    runtime: Runtime, loop: LoopState, name: str, arguments: tuple[object, ...]
) -> tuple[Seconds, object]:
    """(seconds, answer) of one of the operations above."""
    pricing, model = runtime.pricing, runtime.world.model
    if name in _DENSE:
        return _dense(pricing, model, loop, name, arguments)
    value = shape.value_bytes(model)
    if name == "mask":
        block, share = arguments
        assert isinstance(block, GhostBlock)
        assert isinstance(share, float)
        width = block.width or block.size // value
        rows = block.size // (value * width)
        kept = rows * compression.kept(width, share)
        size = kept * (value + position_bytes(width))
        answer: GhostBlock = GhostMasked(size, rows, width, kept)
    else:
        masked = arguments[-1]
        assert isinstance(masked, GhostMasked)
        rows, width, kept = masked.rows, masked.width, masked.kept
        whole = GhostBlock(rows * width * value, width)
        answer = GhostMasked(kept * value, rows, width, kept) if name == "pick" else whole
    return pricing.operation(name, elements=rows * width, kept=kept), answer


def _dense(
    pricing: Pricing, model: Model, loop: LoopState, name: str, arguments: tuple[object, ...]
) -> tuple[Seconds, object]:
    layout, value = compression.layout(model), shape.value_bytes(model)
    total = shape.dense_parameters(model)
    tensors, large = len(layout.large), total - layout.small_elements
    if name == "densify":
        (parts,) = arguments
        if isinstance(parts, GhostSparse):
            parts = GhostParts((parts.size,))
        assert isinstance(parts, GhostParts)
        whole = layout.small_elements * value
        entries = sum(
            (size - whole) // (value + INDEX_BYTES) * count
            for size, count in Counter(parts.sizes).items()
        )
        kept = entries + layout.small_elements * len(parts.sizes)
        seconds = pricing.operation(name, elements=total, kept=kept, shards=len(parts.sizes))
        return seconds, GhostDense(total, total * value)
    if name in _THRESHOLDS:
        share = arguments[1]
        assert isinstance(share, float)
        loop.share = share
        return pricing.operation(name, elements=large, tables=tensors), None
    entries = layout.kept(loop.share)
    size = sparse_bytes(model, loop.share, 0, total)
    tally = loop.tallies.setdefault(_TALLIED[name], Tally())
    tally.add(total, entries + layout.small_elements, total * value, size)
    kept = entries + layout.small_elements
    seconds = pricing.operation(name, elements=total, kept=kept, tables=tensors)
    return seconds, GhostSparse(size, loop.share)


def sparse_bytes(model: Model, share: float, start: int, stop: int) -> int:
    """Expected bytes of elements ``start`` to ``stop`` of a thresholded vector."""
    value = shape.value_bytes(model)
    whole, entries = compression.layout(model).within(share, start, stop)
    return whole * value + entries * (value + INDEX_BYTES)


class PooledMask:
    """What a mask makes of one shard's pooled values of a batch."""

    def __init__(
        self, pricing: Pricing, slices: int, share: float, over: compression.MaskOver
    ) -> None:
        model, batch = pricing.experiment.model, pricing.examples
        self._pricing = pricing
        mask = compression.Mask.of(slices, model.row_width, share, over)
        self._value = shape.value_bytes(model)
        self._values, self._kept = batch * mask.values, batch * mask.all_kept
        self.answer = batch * mask.bytes(self._value)
        """Bytes of an answer."""
        self.gradient = self._kept * self._value
        """Bytes of its gradient: no places."""

    def seconds(self, operation: str) -> Seconds:
        """Of "mask", "unmask", "pick" or "unpick"."""
        return self._pricing.operation(operation, elements=self._values, kept=self._kept)

    def count(self, tallies: Tallies, *, gradient: bool) -> None:
        """Add one answer, or one gradient, to a loop's tallies."""
        name = ACTIVATION_GRADIENTS if gradient else ACTIVATIONS
        sent = self.gradient if gradient else self.answer
        tally = tallies.setdefault(name, Tally())
        tally.add(self._values, self._kept, self._values * self._value, sent)
