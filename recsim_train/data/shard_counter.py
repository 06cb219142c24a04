"""The counter of ids by embedding shard: of a batch, or of tables that were counted one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.experiment import Synthetic
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.drawn import AskedTable, TablePart
from recsim_train.data.mixcache import first_rows, row_numbers, table_rows
from recsim_train.placement.plan import EmbeddingShard, Plan

_Number = TypeVar("_Number", np.int32, np.float64)


class ShardCounter:
    """Counts ids by the shards of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._model, embedding = plan.experiment.model, plan.embedding
        self._first = first_rows(table_rows(self._model))
        self._shards: tuple[EmbeddingShard, ...] = embedding.shards if embedding else ()
        slices = [(place, s) for place, shard in enumerate(self._shards) for s in shard.slices]
        self._slices = [s for _, s in slices]
        self._owner = np.array([place for place, _ in slices], dtype=np.int64)
        self._starts = np.array([self._first[s.table] + s.start for _, s in slices], np.int64)
        self._stops = np.array([self._first[s.table] + s.stop for _, s in slices], np.int64)
        self._by_remainder = any(s.step > 1 for _, s in slices)
        self.lengths = [0] * len(self._shards)
        if embedding and embedding.service.pooling == "server":
            variable = {t for t, table in enumerate(self._model.tables) if table.variable}
            told = variable | set(embedding.split_tables)
            self.lengths = [
                plan.examples * sum(s.table in told for s in shard.slices) for shard in self._shards
            ]

    def count(self, batch: NumpyBatch) -> NDArray[np.int64]:
        """[shards + 1, 2]: (ids, unique) of a batch by shard, and of the whole one last."""
        # one sort for all tables
        places = np.sort(row_numbers(self._model, batch, self._first))
        unique = places[np.diff(places, prepend=-1) != 0]
        shards = len(self._shards)
        counts = np.zeros((shards + 1, 2), dtype=np.int64)
        counts[-1] = len(places), len(unique)
        if self._by_remainder:
            per_table = np.diff(np.searchsorted(unique, self._first))
            own_ids = unique - np.repeat(self._first[:-1], per_table)
            for column, ids in enumerate((batch.ids, own_ids)):
                counts[:-1, column] = np.bincount(ids % shards, minlength=shards)
            return counts
        for column, values in enumerate((places, unique)):
            inside = np.searchsorted(values, self._stops) - np.searchsorted(values, self._starts)
            np.add.at(counts[:, column], self._owner, inside)
        return counts

    def asked(self, synthetic: Synthetic, batch: int, first: int, rows: int) -> list[AskedTable]:
        """What is counted in each table's draws, of a stream of ``rows`` rows from ``first`` on."""
        tables = enumerate(zip(self._model.tables, self._parts, strict=True))
        stream = synthetic.seed, synthetic.zipf, batch, first, rows
        return [
            AskedTable(number, table.rows, table.ids, table.variable, parts, *stream)
            for number, (table, parts) in tables
        ]

    @cached_property
    def _parts(self) -> list[tuple[TablePart, ...]]:
        """Of each table, as its slices cut it."""
        cuts: list[set[TablePart]] = [set() for _ in self._model.tables]
        for s in self._slices:
            if s.step == 1:
                cuts[s.table].add(TablePart(s.start, s.stop))
            elif not cuts[s.table]:  # all remainders at once: others have the same step
                cuts[s.table] |= {TablePart(start, s.stop, s.step) for start in range(s.step)}
        whole = [(TablePart(0, table.rows),) for table in self._model.tables]
        return [tuple(sorted(cut)) or all_ for cut, all_ in zip(cuts, whole, strict=True)]

    @cached_property
    def _places(self) -> list[int]:
        """Where each slice's part is among those of all tables."""
        order = [(t, part.start) for t, parts in enumerate(self._parts) for part in parts]
        places = {part: place for place, part in enumerate(order)}
        return [places[s.table, s.start] for s in self._slices]

    def joined(self, tables: Sequence[NDArray[_Number]]) -> NDArray[_Number]:
        """[batches, shards + 1, 2]: as `count`, from the counts of each table's parts."""
        parts: NDArray[_Number] = np.concatenate(tables, axis=1).transpose(1, 0, 2)
        counts = np.zeros((len(self._shards) + 1, *parts.shape[1:]), dtype=parts.dtype)
        counts[-1] = parts.sum(axis=0)
        np.add.at(counts, self._owner, parts[self._places])
        return counts.transpose(1, 0, 2)
