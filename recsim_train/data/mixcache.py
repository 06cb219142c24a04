"""The MixCache's rule, without rows: which embedding row sits in which slot of a trainer's cache.

Both worlds decide by this code: the executor keeps tensors beside it, the simulator replays it on
the ids of the stream, so that hits, misses and evictions are the same ones.

The rule (of the ScaleFreeCTR authors' released code): a row that must leave is the first one, in
slot order, that was used neither in this step nor in the one before. Filling empty slots first is
our own addition.

A row is known by its number over all tables: the rows of the tables before its own, plus its id.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model
from recsim_train.data.batch import NumpyBatch, ids_by_table
from recsim_train.placement.plan import Plan
from recsim_train.workload.shape import ID_BYTES, stored_row_bytes

Numbers = NDArray[np.int64]
NEVER = -(1 << 62)
_SLOT_BYTES = 16
"""Of a slot: which row is in it, and when it was used."""
_PLACE_BYTES = 4
"""Of a row: its slot."""


class CacheTooSmall(RunFailed):
    """A cache cannot hold the rows of two steps."""

    def __init__(self, slots: int, step: int, now: int, before: int) -> None:
        super().__init__(
            f"the cache of {slots:,} rows per trainer cannot hold two steps: step {step} needs "
            f"{now:,} rows of its own and {before:,} more of the step before; set cache_rows to at "
            f"least {now + before:,}, or use smaller batches"
        )


class Probed(NamedTuple):
    """What one step's rows meet in the cache."""

    slots: Numbers
    """[rows]: each row's slot."""
    missing: NDArray[np.bool_]
    """[rows]: whether it was not there before."""
    evicted: Numbers
    """Row numbers that left, sorted."""
    evicted_slots: Numbers
    """Where they were."""


class SlotMap:
    """The slots of one trainer's cache."""

    def __init__(self, slots: int, rows: int) -> None:
        """``slots``: capacity; 0: as many as a step needs (for a cache that keeps nothing).
        ``rows``: all rows of all tables. Memory of what is never used is not touched. Raises
        UserError where this machine has less than all of it could take."""
        size, there = rows * _PLACE_BYTES, psutil.virtual_memory().total
        if size > there:
            raise UserError(
                f"to find {rows:,} rows in a cache takes {size / 2**30:,.1f} GiB, but this machine "
                f"has {there / 2**30:,.1f} GiB: cap the tables' rows (model.max_rows)"
            )
        self.grows = slots == 0
        self.capacity = slots
        self.step = -1
        self.filled = 0
        """Slots in use: the first ones."""
        self._slot = np.zeros(rows, dtype=np.int32)  # slot + 1; 0: not in the cache
        self._row = np.zeros(slots, dtype=np.int64)
        self._used = np.full(slots, NEVER, dtype=np.int64)

    def probe(self, rows: Numbers) -> Probed:
        """Begin a step that uses these (distinct, sorted) rows; missing ones get a slot.

        Raises CacheTooSmall where they and those of the step before do not fit.
        """
        self.step += 1
        slots = self._slot[rows].astype(np.int64) - 1
        missing = slots < 0
        self._used[slots[~missing]] = self.step
        new = rows[missing]
        if self.grows and self.filled + len(new) > self.capacity:
            self._grow(self.filled + len(new))
        empty = min(len(new), self.capacity - self.filled)
        leave = np.zeros(0, dtype=np.int64)
        if empty < len(new):
            old = np.flatnonzero(self._used[: self.filled] < self.step - 1)
            leave = old[: len(new) - empty]
            if empty + len(leave) < len(new):
                before = int(np.count_nonzero(self._used == self.step - 1))
                raise CacheTooSmall(self.capacity, self.step, len(rows), before)
        places = np.concatenate([np.arange(self.filled, self.filled + empty), leave])
        self.filled += empty
        # before the slots are given away; sorted, because shards hold runs of rows
        evicted = self._row[leave]
        order = np.argsort(evicted)
        evicted, leave = evicted[order], leave[order]
        self._slot[evicted] = 0
        self._slot[new] = places + 1
        self._row[places] = new
        self._used[places] = self.step
        slots[missing] = places
        return Probed(slots, missing, evicted, leave)

    def held(self) -> tuple[Numbers, Numbers]:
        """(all cached rows, sorted, their slots)."""
        rows = self._row[: self.filled]
        order = np.argsort(rows)
        return rows[order], order

    def flush(self) -> tuple[Numbers, Numbers]:
        """As `held`; the cache is empty afterwards."""
        rows, order = self.held()
        self._slot[rows] = 0
        self._used[: self.filled] = NEVER
        self.filled = 0
        return rows, order

    def _grow(self, slots: int) -> None:
        more = slots - self.capacity
        self._row = np.concatenate([self._row, np.zeros(more, dtype=np.int64)])
        self._used = np.concatenate([self._used, np.full(more, NEVER, dtype=np.int64)])
        self.capacity = slots


@dataclass(frozen=True, slots=True)
class Ownership:
    """Row numbers of each table that one trainer owns: [starts, stops), table by table."""

    starts: Numbers
    stops: Numbers

    @staticmethod
    def of(tables: Sequence[int], trainer: int, trainers: int) -> Ownership:
        """Trainer k of n owns ids k/n to (k + 1)/n of each table; ``tables``: their rows."""
        rows = np.array(tables, dtype=np.int64)
        base = first_rows(tables)[:-1]
        cuts = [base + -(-rows * k // trainers) for k in (trainer, trainer + 1)]
        return Ownership(*cuts)

    @property
    def rows(self) -> int:
        """How many rows it owns."""
        return int((self.stops - self.starts).sum())

    def places(self, rows: Numbers) -> Numbers:
        """Where the own ones are among sorted row numbers."""
        low, high = np.searchsorted(rows, self.starts), np.searchsorted(rows, self.stops)
        count = high - low
        before = np.cumsum(count) - count
        places: Numbers = np.arange(int(count.sum())) + np.repeat(low - before, count)
        return places


def first_rows(tables: Sequence[int]) -> Numbers:
    """Number of each table's first row, and the number of all rows: [tables + 1]."""
    return np.array(list(itertools.accumulate(tables, initial=0)), dtype=np.int64)


def row_numbers(model: Model, batch: NumpyBatch, bases: Numbers) -> Numbers:
    """Each id of a batch as the number of its row over all tables."""
    return np.concatenate(
        [ids + base for ids, base in zip(ids_by_table(model, batch), bases[:-1], strict=True)]
    )


def table_rows(model: Model) -> tuple[int, ...]:
    """Rows of every table."""
    return tuple(table.rows for table in model.tables)


def ownership(plan: Plan, trainer: int) -> Ownership:
    """What a trainer of the plan owns."""
    return _owned(table_rows(plan.experiment.model), trainer, plan.experiment.roles.trainers)


_owned = lru_cache(maxsize=4096)(Ownership.of)


def slots_of(plan: Plan, trainer: int) -> int:
    """Slots of a trainer's cache, no more than it owns rows; 0: as many as a step needs."""
    cache = plan.topology.cache
    assert cache is not None
    if not cache.keep:
        return 0
    own = ownership(plan, trainer).rows
    return max(1, min(own, cache.rows or round(cache.share * own)))


def slot_map(plan: Plan, trainer: int) -> SlotMap:
    """An empty cache of a trainer of the plan."""
    return SlotMap(slots_of(plan, trainer), sum(table_rows(plan.experiment.model)))


def cached_bytes(plan: Plan, trainer: int) -> int:
    """Of all that a trainer's cache can hold, as it is written back: rows with their state, and
    their ids; 0: it has none, or one that keeps nothing."""
    if plan.topology.cache is None:
        return 0
    row = stored_row_bytes(plan.experiment.model, plan.experiment.training) + ID_BYTES
    return slots_of(plan, trainer) * row


def cache_bytes(plan: Plan, trainer: int) -> int:
    """Bytes of a trainer's cache: rows with their state, and where each own row is; 0: it has none.

    One that keeps nothing is among the batch's buffers.
    """
    if plan.topology.cache is None:
        return 0
    row = stored_row_bytes(plan.experiment.model, plan.experiment.training) + _SLOT_BYTES
    return slots_of(plan, trainer) * row + _PLACE_BYTES * ownership(plan, trainer).rows
