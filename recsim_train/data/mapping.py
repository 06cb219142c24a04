"""Rows of a log as examples of a model: one record batch at a time, a column at a time."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of
from numpy.typing import NDArray

from recsim_train.config.columns import Categorical, Layout
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.kernels import (
    AS_THEY_ARE,
    HASHED,
    MALFORMED,
    MISSING,
    OUTSIDE,
    REMAINDERS,
    number_rows,
    some_bags,
    text_rows,
)

MARK = "__malformed"
"""The column in which a conversion left what was wrong with a row's text; null: nothing."""
SAID, _SHOWN = 1000, 60
"""Rows of a kind whose lack is put into words; characters of a value that are shown."""
KINDS = ("mark", "label", "number", "id")
"""What may be wrong with a row; the first that applies is counted. Code k is KINDS[k - 1]."""
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[nN]a[nN]$"

Ids = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Mapped:
    """Rows, well-formed ones and others.

    ``dense`` [features, n]; ``single``: the ids of the tables that take one [tables, n]; ``bags``:
    of the others, in order, ids and where each row's end [n + 1].
    """

    labels: NDArray[np.float32]
    dense: NDArray[np.float32]
    single: Ids
    bags: list[tuple[Ids, Ids]]
    kinds: NDArray[np.int8]
    """0 of well-formed ones, else what is wrong."""
    origins: Ids
    """Their numbers in the log."""

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def joined(cls, several: Sequence[Mapped]) -> Mapped:
        """One after the other."""
        if len(several) == 1:
            return several[0]
        bags = []
        for parts in zip(*(one.bags for one in several), strict=True):
            sizes = np.concatenate([np.diff(ends) for _, ends in parts])
            bags.append((np.concatenate([ids for ids, _ in parts]), _ends(sizes)))
        return cls(
            np.concatenate([one.labels for one in several]),
            np.concatenate([one.dense for one in several], axis=1),
            np.concatenate([one.single for one in several], axis=1),
            bags,
            np.concatenate([one.kinds for one in several]),
            np.concatenate([one.origins for one in several]),
        )

    def part(self, begin: int, stop: int) -> Mapped:
        """Rows of those without bags, in the same memory."""
        here = slice(begin, stop)
        return Mapped(
            self.labels[here], self.dense[:, here], self.single[:, here], [], self.kinds[here],
            self.origins[here],
        )  # fmt: skip

    def take(self, rows: Ids) -> Mapped:
        """Some of them, in this order."""
        bags = [some_bags(ids, ends, rows) for ids, ends in self.bags]
        return Mapped(
            self.labels[rows], self.dense.T.take(rows, 0).T, self.single.T.take(rows, 0).T, bags,
            self.kinds[rows], self.origins[rows],
        )  # fmt: skip

    def batch(self, tables: Sequence[bool]) -> NumpyBatch:
        """All of them. ``tables``: of each, whether its ids are bags."""
        ids, lengths, at, bags = [], [], 0, iter(self.bags)
        for bag, alike in groupby(tables):
            count = len(list(alike))
            if bag:
                for values, ends in islice(bags, count):
                    ids.append(values)
                    lengths.append(np.diff(ends))
            else:
                ids.append(self.single[at : at + count].reshape(-1))
                at += count
        return NumpyBatch(
            labels=self.labels,
            dense=np.ascontiguousarray(self.dense.T),
            ids=ids[0] if len(ids) == 1 else np.concatenate(ids),
            lengths=np.concatenate(lengths).astype(np.int32) if lengths else _NO_LENGTHS,
        )


_NO_LENGTHS = np.zeros(0, np.int32)


def _ends(sizes: Ids) -> Ids:
    return np.concatenate([[0], np.cumsum(sizes)])


class Mapper:
    """Makes examples of record batches that have a layout's columns."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.bags = [column.most > 0 for column in layout.categorical]
        self.beyond = np.zeros((len(layout.categorical), 2), np.uint64)
        """By table: ids outside of it, or so large that they share a row; and the largest."""
        self.said: dict[str, dict[int, str]] = {}
        """By kind, what is wrong with some of its rows, by their numbers in the log."""

    @np.errstate(over="ignore", invalid="ignore")  # what is too large is not finite: malformed
    def fill(self, room: Mapped, batch: pa.RecordBatch, first: int) -> list[tuple[Ids, Ids]]:
        """Put all rows into a room of as many, of which the first is the log's row ``first``; their
        bags: ids, and how many each row has."""
        layout, n, kinds = self.layout, batch.num_rows, room.kinds
        kinds[:] = 0
        room.origins[:] = first + np.arange(n)

        def bad(kind: int, name: str, rows: NDArray[np.bool_]) -> None:
            if rows.any() and (new := np.flatnonzero(rows & (kinds == 0))).size:
                kinds[new] = kind
                self._say(batch, KINDS[kind - 1], name, first, new)

        if MARK in batch.schema.names and (marks := batch.column(MARK)).null_count < n:
            bad(1, MARK, valid(marks))
        labels, fine = numbers_of(batch.column(layout.label))
        bad(2, layout.label, ~((labels == 0.0) | (labels == 1.0)))
        room.labels[:] = labels
        for row, column in zip(room.dense, layout.numeric, strict=True):
            row[:], fine = numbers_of(batch.column(column.name), column.fill)
            if not np.isfinite(row.sum()) or fine is not None:
                bad(3, column.name, ~(np.isfinite(row) & (True if fine is None else fine)))
            if column.log:
                np.maximum(row, 0.0, out=row)
                np.log(np.add(row, 1.0, out=row), out=row)
        rows, bags = iter(room.single), []
        for table, spec in enumerate(layout.categorical):
            values, ids, sizes = batch.column(spec.name), _NO_IDS, _NO_IDS
            if spec.most:
                values, sizes = bags_of(values, spec)
                ids = np.empty(len(values), np.int64)
            else:
                ids = next(rows)
            least = rows_of(values, spec, ids, self.beyond[table])
            if least < 0 or (spec.most and not ids.all()):  # some are wrong, or missing in a list
                owner = np.repeat(np.arange(n), sizes) if spec.most else np.arange(n)
                wrong = owner[(ids == MALFORMED) | ((ids == OUTSIDE) & spec.strict)]
                bad(4, spec.name, np.bincount(wrong, minlength=n) > 0)
                if spec.most:
                    here = ids != MISSING
                    ids, sizes = ids[here], np.bincount(owner[here], minlength=n)
                np.maximum(ids, 0, out=ids)
            if spec.most:
                bags.append((ids, sizes))
        return bags

    def _say(self, batch: pa.RecordBatch, kind: str, name: str, first: int, rows: Ids) -> None:
        """Remember what is wrong with the first rows that lack in one way."""
        said = self.said.setdefault(kind, {})
        for row in rows[: max(0, SAID - len(said))].tolist():
            value = batch.column(name)[row].as_py()
            shown = json.dumps(value, default=str)
            short = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
            said[first + row] = value if name == MARK else f"column {name!r}: {short}"


class Room:
    """Memory for rows, which a mapper fills some at a time; used again and again.

    It is filled column by column, and holds row by row: rows are taken from it in any order.
    """

    def __init__(self, mapper: Mapper, size: int) -> None:
        self._mapper, features = mapper, len(mapper.layout.numeric)
        self._whole = Mapped(
            np.empty(size, np.float32), np.empty((size, features), np.float32).T,
            np.empty((size, mapper.bags.count(False)), np.int64).T, [], np.empty(size, np.int8),
            np.empty(size, np.int64),
        )  # fmt: skip
        self._bags: list[list[tuple[Ids, Ids]]] = []
        self.rows = 0
        """So many are filled."""

    def add(self, first: int, batch: pa.RecordBatch) -> None:
        """Fill it further. ``first``: as of `Mapper.fill`."""
        stop = self.rows + batch.num_rows
        rows = self._whole.part(self.rows, stop)
        columns = replace(
            rows,
            dense=np.empty(rows.dense.shape, np.float32),
            single=np.empty(rows.single.shape, np.int64),
        )
        self._bags.append(self._mapper.fill(columns, batch, first))
        rows.dense[:], rows.single[:] = columns.dense, columns.single
        self.rows = stop

    def taken(self) -> Mapped:
        """All rows; it is empty again, and they are there until it is filled anew."""
        given = self._whole.part(0, self.rows)
        for parts in zip(*self._bags, strict=True):
            ids, sizes = (np.concatenate(several) for several in zip(*parts, strict=True))
            given.bags.append((ids, _ends(sizes)))
        self._bags, self.rows = [], 0
        return given


def valid(column: pa.Array) -> NDArray[np.bool_]:
    """Which values are there."""
    n, bits = len(column), column.buffers()[0]
    if not column.null_count or bits is None:
        return np.full(n, column.null_count == 0)
    first = column.offset // 8
    spread = np.unpackbits(
        np.frombuffer(bits, np.uint8)[first : (column.offset + n + 7) // 8], bitorder="little"
    )
    return spread[column.offset % 8 :][:n].view(np.bool_)


def values_of(column: pa.Array) -> NDArray[Any]:
    """[n]: the numbers of a column as they lie in memory, anything in place of missing ones."""
    kind: Any = column.type.to_pandas_dtype()
    return np.frombuffer(column.buffers()[1], kind)[column.offset :][: len(column)]


def numbers_of(
    column: pa.Array, fill: float = np.nan
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """[n]: a column's numbers, ``fill`` where one is missing; which were any, None for all."""
    column, fine = plain(column), None
    if is_text(column.type):
        column, fine = _parsed(column)
    if not (of.is_integer(column.type) or of.is_floating(column.type)):
        column = column.cast(pa.float64(), safe=False)  # long decimals lose digits
    numbers = values_of(column)
    # one look at the sum says whether any is missing
    if column.null_count or (of.is_floating(column.type) and np.isnan(numbers.sum())):
        there = valid(column) & ~np.isnan(numbers)
        numbers = np.where(there, numbers, fill)
    return numbers, fine


def _parsed(column: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Text as numbers; empty text is missing."""
    text = column.cast(pa.large_utf8())
    text = pc.if_else(pc.equal(text, ""), None, text)
    try:
        return text.cast(pa.float64()), None
    except pa.ArrowInvalid:
        text = pc.utf8_trim_whitespace(text)
        good = pc.fill_null(pc.match_substring_regex(text, _NUMBER), True)
        numbers = pc.if_else(good, text, None).cast(pa.float64())
        return numbers, good.to_numpy(zero_copy_only=False)


def rows_of(values: pa.Array, spec: Categorical, rows: Ids, beyond: NDArray[np.uint64]) -> int:
    """Of each value its row in the table, `MISSING`, `MALFORMED` or `OUTSIDE`, into ``rows`` [n];
    the least of them. ``beyond``: as of `Mapper`."""
    values, buckets = plain(values), spec.rows - 1
    there, how = valid(values), _HOW[spec.mapping]
    if is_text(values.type):
        least: int = text_rows(*text_of(values), there, buckets, how == HASHED, rows, beyond)
        return least
    kind = values.type
    fine = None
    if of.is_floating(kind):
        real = values_of(values)
        there = there & ~np.isnan(real)
        fine = (real == np.floor(real)) & (np.abs(real) < _WHOLE)
        numbers = np.where(fine & there, real, 0.0).astype(np.int64)
    elif of.is_boolean(kind):
        numbers = values_of(values.cast(pa.int8())).astype(np.int64)
    else:
        numbers = values_of(values)
        numbers = numbers.view(np.int64) if numbers.itemsize == 8 else numbers.astype(np.int64)
    signed = not of.is_unsigned_integer(kind)
    least = number_rows(numbers, there, signed, buckets, how, rows, beyond)
    if fine is not None and (wrong := there & ~fine).any():
        rows[wrong] = MALFORMED
        least = min(least, MALFORMED)
    return least


_HOW = {"hash": HASHED, "buckets": AS_THEY_ARE, "remainder": REMAINDERS}
_WHOLE = 2.0**53
"""Below, whole numbers are told from fractions."""


def bags_of(values: pa.Array, spec: Categorical) -> tuple[pa.Array, Ids]:
    """The first ids of all rows' lists, one after the other, and how many each row has; of a list
    that is missing none."""
    if is_text(plain(values).type):
        text = plain(values).cast(pa.utf8())
        values = pc.split_pattern(pc.if_else(pc.equal(text, ""), None, text), spec.separator)
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    sizes, ids = sizes.astype(np.int64), values.flatten()
    if sizes.max(initial=0) > spec.most:
        places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        ids, sizes = ids.filter(pa.array(places < spec.most)), np.minimum(sizes, spec.most)
    return ids, sizes


def plain(column: pa.Array) -> pa.Array:
    """The same values, without a dictionary; of a column of nothing, numbers that are missing."""
    if of.is_dictionary(column.type):
        return column.dictionary_decode()
    return column.cast(pa.float64()) if of.is_null(column.type) else column


@functools.lru_cache
def is_text(kind: pa.DataType) -> bool:
    """Whether values are text, or bytes that are taken for text."""
    tests = of.is_string, of.is_large_string, of.is_binary, of.is_large_binary
    return any(test(kind) for test in tests)


def text_of(column: pa.Array) -> tuple[NDArray[np.uint8], Ids]:
    """The bytes of all texts, and where each ends [n + 1]."""
    large = of.is_large_string(column.type) or of.is_large_binary(column.type)
    _, ends, data = column.buffers()
    width = np.int64 if large else np.int32
    places = np.frombuffer(ends, width, len(column) + 1, column.offset * np.dtype(width).itemsize)
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_TEXT
    return text, places.astype(np.int64, copy=False)


_NO_TEXT, _NO_IDS = np.zeros(1, np.uint8), np.zeros(0, np.int64)
