"""Compression in the simulator: what is sparse or masked, as sizes."""

from __future__ import annotations

from recsim_train.sim.ghosts import GhostBlock
from recsim_train.sim.pricing import Pricing, Seconds
from recsim_train.strategy.values import Masked, Sparse
from recsim_train.workload import compression, shape
from recsim_train.workload.compression import (
    ACTIVATION_GRADIENTS,
    ACTIVATIONS,
    Tallies,
    Tally,
)


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
