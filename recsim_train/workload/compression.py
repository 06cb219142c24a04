"""Sizes of compressed messages (DCT): how much is kept, in which form it travels, what is counted.

One place for both worlds: the executor keeps what these functions say, the simulator sizes what it
would keep.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from recsim_train.config.experiment import Model
from recsim_train.trace.facts import Compressed
from recsim_train.workload import shape

SMALL = 256
"""Tensors with fewer elements travel whole: their indices would cost more than they save."""
STALE_FACTOR = 2.0
"""Stated before any comparison: with thresholds that are not always fresh, a payload may be up to
so many times as large, or as small, as the k entries that are assumed."""
INDEX_BYTES = 4
"""A place in the flat dense vector travels as int32."""
MaskOver = Literal["table", "sample"]
"""Which values of an example compete for their places: each table's by themselves, or all."""


def kept(count: int, share: float) -> int:
    """How many of ``count`` values a share keeps: floor(count * share), but at least one.

    A share such as 29 % is no binary fraction: what is whole up to rounding counts as whole.
    """
    return max(1, math.floor(count * share * (1 + 1e-12)))


def position_bytes(width: int) -> int:
    """Bytes of a place in a row of ``width`` values."""
    return 1 if width <= 1 << 8 else 2 if width <= 1 << 16 else 4


@dataclass(frozen=True, slots=True)
class Mask:
    """What a mask makes of one example's pooled values at a shard: of each of ``lines`` lines of
    ``width`` values the ``kept`` largest travel."""

    lines: int
    width: int
    kept: int

    @classmethod
    def of(cls, slices: int, row_width: int, share: float, over: MaskOver) -> Mask:
        """Of a shard with so many tables or parts of tables."""
        lines, width = (slices, row_width) if over == "table" else (1, slices * row_width)
        return cls(lines, width, kept(width, share))

    @property
    def values(self) -> int:
        return self.lines * self.width

    @property
    def all_kept(self) -> int:
        """Values that travel."""
        return self.lines * self.kept

    def bytes(self, value_bytes: int) -> int:
        """Of these, with their places."""
        return self.all_kept * (value_bytes + position_bytes(self.width))


@dataclass(frozen=True, slots=True)
class Layout:
    """The flat dense vector's tensors as (start, stop), in order."""

    large: tuple[tuple[int, int], ...]
    """Those that are thresholded, each by itself."""
    small: tuple[tuple[int, int], ...]
    """Those that travel whole."""

    @property
    def small_elements(self) -> int:
        return sum(stop - start for start, stop in self.small)

    def kept(self, share: float) -> int:
        """Entries of the thresholded tensors that a fresh threshold lets pass."""
        return sum(kept(stop - start, share) for start, stop in self.large)

    def within(self, share: float, start: int, stop: int) -> tuple[int, int]:
        """(whole values, expected entries) of elements ``start`` to ``stop``.

        A tensor that is cut has its entries spread evenly. Rounded so that parts sum to the whole.
        """
        whole = sum(max(0, min(b, stop) - max(a, start)) for a, b in self.small)
        return whole, self._entries_before(share, stop) - self._entries_before(share, start)

    def _entries_before(self, share: float, place: int) -> int:
        return sum(kept(b - a, share) * max(0, min(b, place) - a) // (b - a) for a, b in self.large)


@functools.cache
def layout(model: Model) -> Layout:
    """Which tensors of the dense parameters are thresholded."""
    cuts = list(pairwise(accumulate(shape.dense_tensors(model), initial=0)))
    large = tuple((a, b) for a, b in cuts if b - a >= SMALL)
    return Layout(large, tuple((a, b) for a, b in cuts if b - a < SMALL))


@dataclass(slots=True)
class Tally:
    """What a compression had to send and what it sent, over all iterations of a run."""

    values: int = 0
    kept: int = 0
    dense_bytes: int = 0
    sent_bytes: int = 0
    """Indices included."""

    def add(self, values: int, kept: int, dense_bytes: int, sent_bytes: int) -> None:
        """Count one message or several."""
        self.values += values
        self.kept += kept
        self.dense_bytes += dense_bytes
        self.sent_bytes += sent_bytes

    def figures(self) -> Compressed:
        """With the share that was kept and the two ratios: in values, on the wire."""
        return Compressed(
            values=self.values,
            kept=self.kept,
            dense_bytes=self.dense_bytes,
            sent_bytes=self.sent_bytes,
            density=self.kept / self.values if self.values else 1.0,
            value_compression=self.values / self.kept if self.kept else 1.0,
            wire_compression=self.dense_bytes / self.sent_bytes if self.sent_bytes else 1.0,
        )


Tallies = dict[str, Tally]
"""By what was compressed: one of the four names below."""
GRADIENTS, DIFFERENCES = "gradients", "differences"
ACTIVATIONS, ACTIVATION_GRADIENTS = "activations", "activation_gradients"


def compressed(tallies: Iterable[Mapping[str, Tally]]) -> dict[str, Compressed]:
    """What several loops' tallies come to."""
    total: Tallies = {}
    for several in tallies:
        for name, tally in several.items():
            into = total.setdefault(name, Tally())
            into.add(tally.values, tally.kept, tally.dense_bytes, tally.sent_bytes)
    return {name: total[name].figures() for name in sorted(total)}
