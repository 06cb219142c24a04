"""Rows of a log as examples of a model: one record batch at a time, a column at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of
from numpy.typing import NDArray

from recsim_train.config.columns import Categorical, Layout, Numeric
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.hashing import MALFORMED, MISSING, OUTSIDE, number_rows, text_rows

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

    ``single``: the ids of the tables that take one [tables, n]; ``bags``: of the others, in order,
    ids and where each row's end [n + 1].
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
            np.concatenate([one.dense for one in several]),
            np.concatenate([one.single for one in several], axis=1),
            bags,
            np.concatenate([one.kinds for one in several]),
            np.concatenate([one.origins for one in several]),
        )

    def take(self, rows: Ids) -> Mapped:
        """Some of them, in this order."""
        bags = []
        for ids, ends in self.bags:
            starts = ends[rows]
            sizes = ends[rows + 1] - starts
            stops = _ends(sizes)
            bags.append((ids[np.repeat(starts - stops[:-1], sizes) + np.arange(stops[-1])], stops))
        return Mapped(
            self.labels[rows], self.dense[rows], self.single[:, rows], bags, self.kinds[rows],
            self.origins[rows],
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
            dense=self.dense,
            ids=ids[0] if len(ids) == 1 else np.concatenate(ids),
            lengths=np.concatenate(lengths).astype(np.int32) if lengths else _NO_LENGTHS,
        )


_NO_LENGTHS = np.zeros(0, np.int32)


def _ends(sizes: Ids) -> Ids:
    return np.concatenate([[0], np.cumsum(sizes)])


@dataclass(slots=True)
class Beyond:
    """Of one table: ids that lie outside of it or share a row with others because they are too
    large; and the largest."""

    count: int = 0
    largest: int = 0


class Mapper:
    """Makes examples of record batches that have a layout's columns."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.bags = [column.most > 0 for column in layout.categorical]
        self.beyond = [Beyond() for _ in layout.categorical]
        self.said: dict[str, dict[int, str]] = {}
        """By kind, what is wrong with some of its rows, by their numbers in the log."""

    def __call__(self, batch: pa.RecordBatch, first: int) -> Mapped:
        """All rows, of which the first is the log's row ``first``."""
        layout, n = self.layout, batch.num_rows
        kinds = np.zeros(n, np.int8)

        def bad(kind: int, name: str, rows: NDArray[np.bool_]) -> None:
            if rows.any() and (new := np.flatnonzero(rows & (kinds == 0))).size:
                kinds[new] = kind
                self._say(batch, KINDS[kind - 1], name, first, new)

        if MARK in batch.schema.names:
            bad(1, MARK, valid(batch.column(MARK)))
        labels, fine = label_of(batch.column(layout.label))
        bad(2, layout.label, ~fine)
        dense = np.empty((n, len(layout.numeric)), np.float32)
        for place, column in enumerate(layout.numeric):
            dense[:, place], fine = feature_of(batch.column(column.name), column)
            bad(3, column.name, ~fine)
        single = np.empty((self.bags.count(False), n), np.int64)
        rows, bags = iter(single), []
        for table, spec in enumerate(layout.categorical):
            values = batch.column(spec.name)
            if not spec.most:
                ids = next(rows)
                rows_of(values, spec, ids, self.beyond[table])
                bad(4, spec.name, ids == MALFORMED)
                np.maximum(ids, 0, out=ids)
                continue
            inside, sizes = bags_of(values, spec)
            ids = np.empty(len(inside), np.int64)
            rows_of(inside, spec, ids, self.beyond[table])
            owner = np.repeat(np.arange(n), sizes)
            bad(4, spec.name, np.bincount(owner[ids == MALFORMED], minlength=n) > 0)
            sizes = np.bincount(owner[ids != MISSING], minlength=n)
            bags.append((np.maximum(ids[ids != MISSING], 0), _ends(sizes)))
        return Mapped(labels, dense, single, bags, kinds, first + np.arange(n))

    def _say(self, batch: pa.RecordBatch, kind: str, name: str, first: int, rows: Ids) -> None:
        """Remember what is wrong with the first rows that lack in one way."""
        said = self.said.setdefault(kind, {})
        for row in rows[: max(0, SAID - len(said))].tolist():
            value = batch.column(name)[row].as_py()
            shown = json.dumps(value, default=str)
            short = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
            said[first + row] = value if name == MARK else f"column {name!r}: {short}"


def valid(column: pa.Array) -> NDArray[np.bool_]:
    """Which values are there."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    found: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def label_of(column: pa.Array) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """[n]: labels, and which of them are 0 or 1."""
    numbers, fine = numbers_of(column)
    return numbers.astype(np.float32), fine & ((numbers == 0.0) | (numbers == 1.0))


def feature_of(column: pa.Array, spec: Numeric) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """[n]: a feature, and which values were numbers or missing."""
    numbers, fine = numbers_of(column)
    if np.isnan(numbers.min(initial=0.0)):
        numbers = np.where(np.isnan(numbers), spec.fill, numbers)
    feature = numbers.astype(np.float32)
    if spec.log:
        feature = np.log1p(np.maximum(feature, 0.0, out=feature), out=feature)
    return feature, fine & np.isfinite(feature)


def numbers_of(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """[n]: a column's numbers, NaN where one is missing; which of them were none."""
    fine = np.ones(len(column), np.bool_)
    column = plain(column)
    if is_text(column.type):
        column, fine = _parsed(column)
    if not column.null_count and of.is_floating(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.float64), fine
    # not safe: whole numbers of more than 53 bits are rounded
    real = column.cast(pa.float64(), safe=False)
    found: NDArray[np.float64] = real.to_numpy(zero_copy_only=False)
    return found, fine


def _parsed(column: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Text as numbers; empty text is missing."""
    text = column.cast(pa.large_utf8())
    text = pc.if_else(pc.equal(text, ""), None, text)
    try:
        return text.cast(pa.float64()), np.ones(len(column), np.bool_)
    except pa.ArrowInvalid:
        text = pc.utf8_trim_whitespace(text)
        good = pc.fill_null(pc.match_substring_regex(text, _NUMBER), True)
        numbers = pc.if_else(good, text, None).cast(pa.float64())
        return numbers, good.to_numpy(zero_copy_only=False)


def rows_of(values: pa.Array, spec: Categorical, rows: Ids, beyond: Beyond) -> None:
    """Of each value its row in the table, `MISSING`, `MALFORMED` or `OUTSIDE`, into ``rows`` [n].

    Numbers outside of the table or too large for it, which may be, are added to ``beyond``.
    """
    values, buckets, hashed = plain(values), spec.rows - 1, spec.mapping == "hash"
    if of.is_uint64(values.type) and hashed:
        values = values.cast(pa.utf8())
    there = valid(values)
    if is_text(values.type):
        text_rows(*text_of(values), there, buckets, hashed, rows)
        large, outside = _NO_NUMBERS, rows == OUTSIDE
    else:
        numbers, there, fine = whole_numbers(values, there)
        large = numbers.astype(np.uint64, copy=False)  # negative ones are beyond any table
        most = np.uint64(max(buckets, 1))
        outside = large >= most
        if hashed:
            number_rows(numbers.astype(np.int64, copy=False), buckets, rows)
            outside[:] = False
        elif spec.mapping == "remainder":
            np.add((large % most).view(np.int64), np.sign(buckets), out=rows)
        else:
            rows[:] = np.where(outside, OUTSIDE, large.view(np.int64) + 1)
        if fine is not None:
            rows[~fine] = MALFORMED
        if not there.all():
            rows[~there] = MISSING
            outside &= there
    if (count := np.count_nonzero(outside)) and spec.strict:
        rows[outside] = MALFORMED
    elif count:
        largest = int(large[outside].max()) if large.size else buckets
        beyond.count, beyond.largest = beyond.count + int(count), max(beyond.largest, largest)


def whole_numbers(
    values: pa.Array, there: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_] | None]:
    """[n]: integers, 0 in place of missing ones; which are there; and which of them were whole,
    None for all."""
    if of.is_floating(values.type):
        real = values.to_numpy(zero_copy_only=False)
        there = there & ~np.isnan(real)
        fine = ~there | ((real == np.floor(real)) & (np.abs(real) < 2.0**53))
        return np.where(fine & there, real, 0.0).astype(np.int64), there, fine
    if of.is_boolean(values.type):
        values = values.cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, 0)
    return values.to_numpy(zero_copy_only=False), there, None


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


_NO_TEXT, _NO_NUMBERS = np.zeros(1, np.uint8), np.zeros(0, np.uint64)
