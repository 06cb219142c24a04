"""The seeded generator: Zipf-skewed ids, skewed counts, labels from a planted teacher.

Every row is a pure function of (model's tables, settings, row number): nothing is drawn in
sequence, so any batch can be made directly, and the text it writes holds the rows it feeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.experiment import Model, Synthetic
from recsim_train.config.formats import CATEGORY_COLUMNS, INTEGER_COLUMNS
from recsim_train.data import draws
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.draws import Zipf
from recsim_train.data.teacher import Bag, Teacher

Rows = NDArray[np.int64]

MISSING_COUNT = 0.10
"""Share of missing integers."""
MISSING_ID = 0.03
"""Share of missing categories, in tables of one id per example."""
_ID, _ID_MISSING, _LENGTH, _PERMUTE, _HEX = range(1, 6)
_COUNT, _COUNT_MISSING, _COUNT_SHAPE, _SLOT = range(6, 10)
_PILOT_ROWS = 16_384
_PILOT_START = 1 << 40
"""The teacher is settled on rows that no stream reaches."""
_FILLER_ROWS = 1000
"""Categories of the text's columns that the model has no table for."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples before they are encoded."""

    labels: NDArray[np.float32]
    """[n]."""
    counts: Rows
    """[features, n], 0 where missing."""
    missing: NDArray[np.bool_]
    """[features, n]."""
    bags: tuple[Bag, ...]
    """Per table."""


class IdColumn:
    """One table's distribution of ids: 0 is the missing value, popular ids lie anywhere."""

    def __init__(self, seed: int, table: int, rows: int, zipf: float) -> None:
        self.seed, self.table, self.rows = seed, table, rows
        self.absent = draws.key(seed, _ID_MISSING, table)
        """The stream that says whether a row's only id is missing."""
        self.lengths = draws.key(seed, _LENGTH, table)
        """The stream that says how many ids a row has of those that it may have."""
        self.others = rows - 1
        if self.others == 0:
            return
        self.zipf = Zipf(self.others, zipf)
        # an affine map with a multiplier near the golden ratio's share is a permutation that
        # takes no memory and spreads neighbouring ranks over the whole table
        multiplier = max(1, round(self.others * 0.6180339887498949))
        while math.gcd(multiplier, self.others) != 1:
            multiplier += 1
        self.multiplier = multiplier
        self.offset = draws.key(seed, _PERMUTE, table) % self.others

    def streams(self, ids: int) -> draws.Bits:
        """The streams of numbers from which each of a row's ``ids`` ids are drawn."""
        if ids == 1:
            return draws.keys(self.seed, _ID, 0, last=[self.table])
        return draws.keys(self.seed, _SLOT, self.table, last=range(ids))

    def draw(self, uniforms: NDArray[np.float64]) -> tuple[Rows, Rows]:
        """(ids, ranks) of some lookups, none of them missing unless the table has one row."""
        if self.others == 0:
            nothing = np.zeros(uniforms.shape, dtype=np.int64)
            return nothing, nothing.copy()
        ranks = self.zipf.ranks(uniforms)
        return self.ids_of(ranks), ranks

    def ids_of(self, ranks: Rows) -> Rows:
        """The ids of some ranks."""
        ids = ranks * self.multiplier
        ids += self.offset
        # numpy vectorises division by a scalar, but not the remainder
        ids -= ids // self.others * self.others
        ids += 1
        return ids

    def hexadecimals(self, ids: Rows) -> NDArray[np.uint64]:
        """The 32-bit category of each id > 0, such that hashing to this table gives the id."""
        copies = (1 << 32) // self.others
        copy = draws.bits(draws.key(self.seed, _HEX, self.table), ids) % np.uint64(copies)
        return (ids - 1).astype(np.uint64) + np.uint64(self.others) * copy


class Generator:
    """Examples of one model by row number."""

    def __init__(self, model: Model, synthetic: Synthetic) -> None:
        self.model, self.synthetic = model, synthetic
        seed = synthetic.seed
        self._columns = [
            IdColumn(seed, t, table.rows, synthetic.zipf) for t, table in enumerate(model.tables)
        ]
        self._fillers = [
            IdColumn(seed, t, _FILLER_ROWS, synthetic.zipf)
            for t in range(len(model.tables), CATEGORY_COLUMNS)
        ]
        shapes = np.arange(model.dense_features, dtype=np.int64)
        self._centres = 0.5 + 3.0 * draws.uniform(draws.key(seed, _COUNT_SHAPE, 0), shapes)
        self._spreads = 0.7 + 0.7 * draws.uniform(draws.key(seed, _COUNT_SHAPE, 1), shapes)

    @cached_property
    def _teacher(self) -> Teacher:
        """Of labels: whoever wants ids only does without the second it takes with many tables."""
        model, synthetic = self.model, self.synthetic
        teacher = Teacher(synthetic.seed, len(model.tables), model.dense_features)
        pilot = np.arange(_PILOT_START, _PILOT_START + _PILOT_ROWS, dtype=np.int64)
        counts, _ = self._counts(pilot, model.dense_features)
        dense = dense_values(counts).astype(np.float64)
        teacher.settle(dense, self._bags(pilot), synthetic.click_rate)
        return teacher

    def prepare_labels(self) -> None:
        """Now, and not with the first batch, whose time may count."""
        _ = self._teacher

    def batch(self, rows: Rows) -> NumpyBatch:
        """The rows with these numbers (any order, repeats allowed) as a batch."""
        return next(self.batches(rows, len(rows)))

    def batches(self, rows: Rows, size: int, *, ids_only: bool = False) -> Iterator[NumpyBatch]:
        """Consecutive batches of ``size`` of the rows with these numbers, made together.

        ``ids_only``: labels and dense features are zeros.
        """
        if ids_only:
            labels = np.zeros(len(rows), dtype=np.float32)
            dense = np.zeros((self.model.dense_features, len(rows)), dtype=np.float32)
            bags = self._bags(rows)
        else:
            examples = self.examples(rows)
            labels, dense, bags = examples.labels, dense_values(examples.counts), examples.bags
        ends = [None if bag.lengths is None else np.cumsum(bag.lengths) for bag in bags]
        nothing = np.zeros(0, dtype=np.int64)
        for first in range(0, len(rows), size):
            last = min(first + size, len(rows))
            ids, lengths = [nothing], [nothing]
            for bag, stops in zip(bags, ends, strict=True):
                if bag.lengths is None or stops is None:
                    each = len(bag.ids) // len(rows)
                    ids.append(bag.ids[first * each : last * each])
                else:
                    start = stops[first - 1] if first else 0
                    ids.append(bag.ids[start : stops[last - 1]])
                    lengths.append(bag.lengths[first:last])
            yield NumpyBatch(
                labels=labels[first:last],
                dense=np.ascontiguousarray(dense[:, first:last].T),
                ids=np.concatenate(ids),
                lengths=np.concatenate(lengths).astype(np.int32),
            )

    def examples(self, rows: Rows) -> Examples:
        """The rows with these numbers before they are encoded."""
        counts, missing = self._counts(rows, self.model.dense_features)
        bags = self._bags(rows)
        odds = self._teacher.log_odds(dense_values(counts).astype(np.float64), bags)
        return Examples(self._teacher.labels(odds, rows), counts, missing, bags)

    def text_columns(self, rows: Rows) -> tuple[Examples, NDArray[np.uint64], NDArray[np.bool_]]:
        """Rows as Criteo text has them: (13 counts ..., categories [26, n], present [26, n])."""
        examples = self.examples(rows)
        n, features = len(rows), self.model.dense_features
        if features < INTEGER_COLUMNS:
            seed = self.synthetic.seed
            shapes = np.arange(features, INTEGER_COLUMNS, dtype=np.int64)
            extra = draws.bits(draws.key(seed, _COUNT_SHAPE, 2), shapes[:, None] + 64 * rows)
            counts = np.concatenate([examples.counts, (extra % np.uint64(50)).astype(np.int64)])
            missing = np.concatenate([examples.missing, np.zeros(extra.shape, dtype=np.bool_)])
            examples = Examples(examples.labels, counts, missing, examples.bags)
        categories = np.zeros((CATEGORY_COLUMNS, n), dtype=np.uint64)
        present = np.zeros((CATEGORY_COLUMNS, n), dtype=np.bool_)
        columns = [*self._columns, *self._fillers]
        bags = (*examples.bags, *self._singles(self._fillers, rows))
        for t, (column, bag) in enumerate(zip(columns, bags, strict=True)):
            present[t] = bag.ids > 0
            if column.others:
                np.copyto(categories[t], column.hexadecimals(bag.ids), where=present[t])
        return examples, categories, present

    def _counts(self, rows: Rows, features: int) -> tuple[Rows, NDArray[np.bool_]]:
        """(counts, missing), both [features, n]: log-normal counts."""
        seed, each = self.synthetic.seed, range(features)
        sizes = draws.near_gaussian(draws.keys(seed, _COUNT, last=each)[:, None], rows)
        sizes *= self._spreads[:, None]
        sizes += self._centres[:, None]
        counts = np.exp(sizes, out=sizes).astype(np.int64)
        # the second integer of the Criteo data may be negative
        counts[1:2] -= 3
        streams = draws.keys(seed, _COUNT_MISSING, last=each)[:, None]
        missing = draws.uniform(streams, rows) < MISSING_COUNT
        counts[missing] = 0
        return counts, missing

    def _bags(self, rows: Rows) -> tuple[Bag, ...]:
        tables = self.model.tables
        single = [t for t, table in enumerate(tables) if table.ids == 1]
        bags = dict(
            zip(single, self._singles([self._columns[t] for t in single], rows), strict=True)
        )
        for t, table in enumerate(tables):
            if t not in bags:
                bags[t] = self._several(t, rows)
            elif table.variable:
                bags[t] = Bag(bags[t].ids, bags[t].ranks, np.ones_like(rows))
        return tuple(bags[t] for t in range(len(tables)))

    def _singles(self, columns: Sequence[IdColumn], rows: Rows) -> Iterator[Bag]:
        """One id per row and column, some of them missing."""
        streams = [column.streams(1) for column in columns]
        places = draws.uniform(np.array(streams, dtype=np.uint64).reshape(-1, 1), rows)
        absent = np.array([column.absent for column in columns], dtype=np.uint64)
        chances = draws.uniform(absent[:, None], rows)
        missing = chances < MISSING_ID
        for column, uniforms, gone in zip(columns, places, missing, strict=True):
            ids, ranks = column.draw(uniforms)
            ids[gone] = 0
            ranks[gone] = 0
            yield Bag(ids, ranks, None)

    def _several(self, t: int, rows: Rows) -> Bag:
        """Bags of several ids per row of table ``t``."""
        column, most = self._columns[t], self.model.tables[t].ids
        ids, ranks = column.draw(draws.uniform(column.streams(most), rows[:, None]))
        if not self.model.tables[t].variable:
            return Bag(ids.reshape(-1), ranks.reshape(-1), None)
        share = draws.uniform(column.lengths, rows)
        lengths = 1 + (share * most).astype(np.int64)
        kept = np.arange(most) < lengths[:, None]
        return Bag(ids[kept], ranks[kept], lengths)


def dense_values(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """log(x + 1) of counts of any shape; negative counts are taken as 0.

    A missing count is passed as 0, which is also its value.
    """
    values = np.maximum(counts, 0).astype(np.float32)
    values += np.float32(1.0)
    return np.log(values, out=values)
