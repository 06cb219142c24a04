"""Sizes of compressed messages (DCT): how much is kept, in which form it travels, what is counted;
and the costs of the operations that compress (see `recsim_train.workload.operations`).

One place for both worlds: the executor keeps what these functions say, the simulator sizes what it
would keep.

A threshold is found by quickselect, which handles two to 3.4 pairs of (value, place) for each
value, depending on how many are kept (Knuth, The Art of Computer Programming 3, 5.2.2): counted as
three. Where the threshold is known, values only stream past it.
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
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.scope import Op, Scope
from recsim_train.workload.threads import streams

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
class DenseLayout:
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
def layout(model: Model) -> DenseLayout:
    """Which tensors of the dense parameters are thresholded."""
    cuts = list(pairwise(accumulate(shape.dense_tensors(model), initial=0)))
    large = tuple((a, b) for a, b in cuts if b - a >= SMALL)
    return DenseLayout(large, tuple((a, b) for a, b in cuts if b - a < SMALL))


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


_SELECT = 3
_NEIGHBOURS = 64
"""Values that are compared together."""
_POSITION = 8
"""Bytes of a place in memory."""


def threshold(s: Scope) -> Work:
    """``elements`` values in ``tables`` tensors: their sum with the residual, then a selection."""
    return {
        "stream_byte": 5 * shape.value_bytes(s.model) * s.elements,
        "index_element": _SELECT * s.elements,
        "call": 4 * s.tables + 4,
        "interpreter": 4 * s.tables + 3,
    }


def _taken(s: Scope) -> float:
    """Values that are looked at one by one: those that are kept, and their neighbours."""
    return 0.5 * min(s.elements, _NEIGHBOURS * s.kept) + 4 * s.kept


def sparsify(s: Scope) -> Work:
    """``elements`` values pass known thresholds, ``kept`` of them are taken out."""
    value = shape.value_bytes(s.model)
    return {
        # the sum with the residual, and the comparison
        "stream_byte": 4 * value * s.elements + 3 * (value + INDEX_BYTES) * s.kept,
        "index_element": _taken(s),
        "call": 38,
        "interpreter": 16,
    }


def threshold_difference(s: Scope) -> Work:
    """As `threshold`, without the sum with a residual."""
    return {
        "stream_byte": 2 * shape.value_bytes(s.model) * s.elements,
        "index_element": _SELECT * s.elements,
        "call": 4 * s.tables + 3,
        "interpreter": 4 * s.tables + 2,
    }


def sparsify_difference(s: Scope) -> Work:
    """As `sparsify`, but nothing is added before and nothing set to zero afterwards."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": value * s.elements + 3 * (value + INDEX_BYTES) * s.kept,
        "index_element": _taken(s),
        "call": 37,
        "interpreter": 15,
    }


def densify(s: Scope) -> Work:
    """``shards`` members' vectors, ``kept`` entries in all, into one of ``elements``."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": 3 * value * s.elements + 2 * (value + INDEX_BYTES) * s.kept,
        "index_element": s.kept,
        "call": 24 * s.shards + 6,
        "interpreter": 6 * s.shards + 4,
    }


def sparse_apply(s: Scope) -> Work:
    """Shard: one optimizer step at ``kept`` places."""
    plain = s.training.dense_optimizer == "sgd"
    streams = 3 if plain else 18  # as for a whole vector
    return {
        "stream_byte": streams * shape.value_bytes(s.model) * s.kept,
        "index_element": (2 if plain else 4) * s.kept,
        "call": 4 if plain else 14,
        "interpreter": 5 if plain else 11,
    }


def mask(s: Scope) -> Work:
    """The ``kept`` largest of ``elements`` values, row by row, put together to travel."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": 4 * value * s.elements + 2 * (value + _POSITION) * s.kept,
        "index_element": _SELECT * s.elements + s.kept,
        "call": 14,
        "interpreter": 12,
    }


def unmask(s: Scope) -> Work:
    """``kept`` values back into ``elements``."""
    value = shape.value_bytes(s.model)
    return {
        "stream_byte": 3 * value * s.elements + 2 * (value + _POSITION) * s.kept,
        "index_element": s.kept,
        "call": 12,
        "interpreter": 10,
    }


def pick(s: Scope) -> Work:
    """``kept`` of ``elements`` values at known places."""
    return {
        "stream_byte": 2 * shape.value_bytes(s.model) * s.elements,
        "index_element": s.kept,
        "call": 4,
        "interpreter": 4,
    }


COMPRESSION: dict[str, Op] = {
    "threshold": Op(threshold, streams(threshold, 2), fit="dense"),
    "sparsify": Op(sparsify, fit="dense"),
    "threshold_difference": Op(threshold_difference, streams(threshold_difference, 1), fit="dense"),
    "sparsify_difference": Op(sparsify_difference, fit="dense"),
    "densify": Op(densify, streams(densify, 2), fit="dense"),
    "mask": Op(mask, fit="dense"),
    "unmask": Op(unmask, fit="dense"),
    "pick": Op(pick, fit="dense"),
    "unpick": Op(unmask, fit="dense"),
    "sparse_apply": Op(sparse_apply, fit="dense"),
}
