"""The counter of ids: how many, and how many different ones, a batch has in each part of a table;
of those that the generator draws, or of a batch that is there.

What is drawn are the generator's own ids, bit by bit (`recsim_train.data.generator`, whose speed is
what a real run has, and is priced by), but no batch is made of them: tables are drawn one at a
time, by compiled code. What comes of a table depends on its rows and on where it is cut, not on who
holds the parts. So it is remembered, for other plans of the same model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_train.compiled import kept
from recsim_train.data import draws
from recsim_train.data.generator import MISSING_ID, IdColumn, Rows

Counts = NDArray[np.int32]

_GUIDE = 1 << 13
"""Equal parts of [0, 1), of each of which it is known where the search for a rank begins."""
_TOGETHER = 8192
"""Rows that are drawn at a time."""
_LEAST_ROOM = 16
_MISSING, _BEYOND, _MISSING_BEYOND = 0, -1, -2
"""What stands for ids that are missing, or not found by the table's edges; others are ranks + 1."""
_REMEMBERED, _REMEMBERED_BYTES = 1 << 14, 1 << 12
"""Counts that are remembered, and how large each may be."""
_GOLDEN, _FIRST, _SECOND = np.uint64(draws.GOLDEN), np.uint64(draws.FIRST), np.uint64(draws.SECOND)


class TablePart(NamedTuple):
    """Rows ``start`` to ``stop`` (exclusive) of a table, each ``step``-th of them."""

    start: int
    stop: int
    step: int = 1


class AskedTable(NamedTuple):
    """Whose ids are counted, in which batches."""

    number: int
    """Of the table in its model."""
    rows: int
    ids: int
    variable: bool
    parts: tuple[TablePart, ...]
    """Ranges that follow each other, or all remainders of one step, in order: the whole table."""
    seed: int
    zipf: float
    batch: int
    first: int
    """The generator's row with which the stream begins."""
    length: int
    """Rows after which it begins anew."""


_remembered: OrderedDict[tuple[AskedTable, int], Counts] = OrderedDict()


class DrawnCounts:
    """Counts of some tables in the batches of one stream."""

    def __init__(self, tables: Sequence[AskedTable]) -> None:
        self._tables = tables
        batch = max((asked.batch for asked in tables), default=1)
        most = max((asked.ids for asked in tables), default=1)
        self.together = max(1, _TOGETHER // batch)
        """Batches of a piece."""
        size = self.together * batch
        self._ends = np.empty(size, dtype=np.int64)
        self._found, self._uniforms = np.empty(size * most, dtype=np.int64), np.empty(size * most)
        self._seen = np.empty(_LEAST_ROOM + 4 * batch * most, dtype=np.int64)

    def piece(self, number: int) -> list[Counts]:
        """Of each table [batches, parts, 2]: (ids, different ones) of the stream's batches from
        ``number`` * `together` on."""
        return [self._remembered(asked, number) for asked in self._tables]

    def _remembered(self, asked: AskedTable, number: int) -> Counts:
        key = asked, number
        counts = _remembered.pop(key, None)
        if counts is None:
            counts = self._drawn(asked, number)
        if counts.nbytes <= _REMEMBERED_BYTES:
            _remembered[key] = counts
            if len(_remembered) > _REMEMBERED:
                _remembered.popitem(last=False)
        return counts

    def _drawn(self, asked: AskedTable, number: int) -> Counts:
        parts, batch, ends = asked.parts, asked.batch, self._ends
        column, streams, edges, guide = _law(
            asked.seed, asked.number, asked.rows, asked.ids, asked.zipf
        )
        rows = np.arange(number * len(ends), (number + 1) * len(ends))
        rows = rows % asked.length + asked.first
        beyond = _draw(
            rows,
            streams,
            np.array([column.lengths][: asked.variable and asked.ids > 1], dtype=np.uint64),
            np.uint64(column.absent),
            # a table of one row has the id that a missing one has
            2.0 if column.others == 0 else MISSING_ID if asked.ids == 1 else 0.0,
            edges,
            guide,
            self._found,
            self._uniforms,
            ends,
        )
        # by numpy, as the generator: another logarithm may round otherwise
        far = column.zipf.beyond(self._uniforms[:beyond]) if beyond else ends[:0]
        counts = np.zeros((self.together, len(parts), 2), dtype=np.int32)
        _count(
            self._found,
            ends[batch - 1 :: batch],
            far,
            (column.others, column.multiplier, column.offset) if column.others else (1, 0, 0),
            _starts(parts),
            self._seen,
            counts,
        )
        return counts


def _starts(parts: Sequence[TablePart]) -> Rows:
    """Where parts begin that are ranges, and where the last one ends; of others nothing."""
    starts = [part.start for part in parts if part.step == 1]
    return np.array([*starts, parts[-1].stop] if starts else [], dtype=np.int64)


def count_ids(ids: Rows, rows: int, parts: Sequence[TablePart]) -> Counts:
    """[1, parts, 2]: (ids, different ones) among a batch's ids of a table of so many rows."""
    counts = np.zeros((1, len(parts), 2), dtype=np.int32)
    seen = np.empty(_LEAST_ROOM + 4 * len(ids), dtype=np.int64)
    # an id is its rank + 1, none lies beyond what can be looked up
    _count(
        ids, np.array([len(ids)]), ids[:0], (max(1, rows - 1), 1, 0), _starts(parts), seen, counts
    )
    return counts


@lru_cache(maxsize=4096)
def expected_in_table(asked: AskedTable) -> NDArray[np.float64]:
    """[parts, 2]: the expected (ids, different ones) of a batch."""
    lookups = asked.batch * ((asked.ids + 1) / 2 if asked.variable else asked.ids)
    column, *_ = _law(asked.seed, asked.number, asked.rows, asked.ids, asked.zipf)
    counts = np.zeros((len(asked.parts), 2))
    there = 0.0 if column.others == 0 else lookups * (1.0 - MISSING_ID * (asked.ids == 1))
    if there < lookups:
        absent = 1.0 if column.others == 0 else -np.expm1(lookups * np.log1p(-MISSING_ID))
        counts[0] = lookups - there, absent
    if column.others:
        whose, mass, rest = _cut(
            asked.seed, asked.number, asked.rows, asked.ids, asked.zipf, asked.parts
        )
        seen, others = column.zipf.expected_seen(there)
        counts[:, 0] += there * mass
        counts[:, 1] += np.bincount(whose, seen, len(asked.parts)) + rest * others
    return np.minimum(counts, counts[:, :1])


@lru_cache(maxsize=1024)
def _cut(
    seed: int, number: int, rows: int, ids: int, zipf: float, parts: tuple[TablePart, ...]
) -> tuple[NDArray[np.int64], draws.Floats, draws.Floats]:
    """(In which part each of the first ranks lies; each part's share of all draws, and of all other
    ranks, which lie anywhere)."""
    column, *_ = _law(seed, number, rows, ids, zipf)
    masses, starts = column.zipf.masses, [part.start for part in parts]
    found = column.ids_of(np.arange(len(masses)))
    ranges = parts[0].step == 1
    whose = np.searchsorted(starts, found, side="right") - 1 if ranges else found % len(starts)
    first, mass = (np.bincount(whose, w, len(starts)) for w in (None, masses))
    rest = np.array([len(range(*part)) for part in parts]) - first.astype(np.float64)
    rest /= max(1.0, rest.sum())
    return whose, mass + rest * (1.0 - masses.sum()), rest


class _Law(NamedTuple):
    """What is drawn from, of one table."""

    column: IdColumn
    streams: draws.Bits
    edges: draws.Floats
    """Of `Zipf`; then one that nothing reaches."""
    guide: NDArray[np.int16]


@lru_cache(maxsize=1024)
def _law(seed: int, number: int, rows: int, ids: int, zipf: float) -> _Law:
    column = IdColumn(seed, number, rows, zipf)
    edges = column.zipf.edges if column.others else np.ones(1)
    guide = np.searchsorted(edges, np.arange(_GUIDE) / _GUIDE, side="right").astype(np.int16)
    return _Law(column, column.streams(ids), np.append(edges, np.inf), guide)


def _hashed(x: np.uint64) -> float:
    """As `recsim_train.data.draws.uniform` makes numbers of sums of keys and counters."""
    x ^= x >> np.uint64(30)
    x *= _FIRST
    x ^= x >> np.uint64(27)
    x *= _SECOND
    x ^= x >> np.uint64(31)
    return np.float64(x >> np.uint64(11)) * 2.0**-53


def _draw(
    rows: Rows,
    streams: draws.Bits,
    lengths: draws.Bits,
    absent: np.uint64,
    missing: float,
    edges: draws.Floats,
    guide: NDArray[np.int16],
    found: Rows,
    uniforms: draws.Floats,
    ends: Rows,
) -> int:
    """Draw the ids of some rows, into ``found``. How many lie beyond the ``edges``; their uniforms
    are the first ones then.

    ``lengths``: the stream of bags' lengths, if these vary; ``ends``: where each row's ids end.
    """
    most, size = np.int64(len(streams)), len(edges) - 1
    sums = found.view(np.uint64)
    place = np.int64(0)
    for r in range(len(rows)):
        counter, count = np.uint64(rows[r]) * _GOLDEN, most
        if len(lengths):
            count = np.int64(1) + np.int64(_hashed(counter + lengths[0]) * most)
        for k in range(count):
            sums[place + k] = counter + streams[k]
        place += count
        ends[r] = place
    for i in range(place):  # one as another: several at once
        uniforms[i] = _hashed(sums[i])
    beyond = 0
    for i in range(place):
        uniform = uniforms[i]
        rank = np.int64(guide[int(uniform * _GUIDE)])
        while edges[rank] <= uniform:
            rank += 1
        uniforms[beyond] = uniform
        beyond += rank == size
        found[i] = rank + 1 if rank < size else _BEYOND
    if missing > 0.0:
        for i in range(place):
            if _hashed(np.uint64(rows[i // most]) * _GOLDEN + absent) < missing:
                found[i] = _MISSING if found[i] > 0 else _MISSING_BEYOND
    return beyond


def _count(
    found: Rows,
    ends: Rows,
    far: Rows,
    spread: tuple[int, int, int],
    starts: Rows,
    seen: Rows,
    counts: Counts,
) -> None:
    """Count the ids of batches that end where ``ends`` says, by part of the table.

    ``far``: ranks beyond the edges, in order; ``spread``: what `IdColumn` makes ids of ranks with;
    ``starts``: of the parts, if they are ranges, and where they end; ``seen``: room for
    four times a batch's ids, and for `_LEAST_ROOM`.
    """
    others, multiplier, offset = spread
    parts, inverse = counts.shape[1], 1.0 / others
    scale = parts / starts[-1] if len(starts) else 0.0
    place, passed = np.int64(0), 0
    for b in range(len(ends)):
        ids = ends[b] - place
        room = _LEAST_ROOM
        while room < 2 * ids:
            room *= 2
        direct, mask = others < room, np.uint64(room - 1)
        seen[: others + 1 if direct else room] = -1
        unique = np.int64(0)
        while place < ends[b]:
            key = found[place]
            place += 1
            if key < 0:
                key = far[passed] + 1 if key == _BEYOND else np.int64(_MISSING)
                passed += 1
            if direct:
                slot = np.uint64(key)
            else:
                slot = np.uint64(key) * _GOLDEN >> np.uint64(32) & mask
                while seen[slot] != key and seen[slot] >= 0:
                    slot = slot + np.uint64(1) & mask
            new = np.int64(seen[slot] != key)
            seen[slot] = key
            if parts == 1:
                unique += new
                continue
            number = np.int64(0)
            if key > 0:  # the remainder, without a division
                number = (key - 1) * multiplier + offset
                number -= np.int64(np.floor(number * inverse)) * others
                number += others * (np.int64(number < 0) - np.int64(number >= others)) + 1
            if len(starts):
                part = int(number * scale)
                while starts[part] > number:
                    part -= 1
                while starts[part + 1] <= number:
                    part += 1
            else:
                part = int(number % parts)
            counts[b, part, 0] += 1
            counts[b, part, 1] += new
        if parts == 1:
            counts[b, 0, 0], counts[b, 0, 1] = ids, unique


_hashed = kept(_hashed, inline="always")
_draw, _count = kept(_draw, nogil=True), kept(_count, nogil=True)
