"""The profile of a stream's ids: distinct ids per batch, skew, reuse, hit rates of caches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.experiment import Data, Model
from recsim_train.data.batch import ids_by_table
from recsim_train.data.mixcache import CacheTooSmall, Numbers, SlotMap, first_rows, table_rows
from recsim_train.data.stream import open_stream

_HOT_SHARE = 0.01


def profile_stream(model: Model, data: Data, batch_size: int, batches: int) -> dict[str, Any]:
    """Statistics of the stream's first batches, as JSON values.

    Per table: ``beyond`` (share of its ids that lie beyond its rows), ``ids_per_batch`` and
    ``unique_per_batch`` (means), ``hottest_share`` (share of all
    lookups that go to the most frequent 1 % of the ids seen), ``zipf`` (exponent fitted to
    the frequencies of the ids seen more than once; None where too few are) and ``reused`` (share of
    a batch's distinct ids that the batch before had too; None with one batch).
    ``cache``: ``two_steps`` (most distinct rows of two batches in a row) and ``sizes``, the share
    of a batch's distinct rows that a cache of ``cache_rows`` rows would have; with one batch none.
    Raises as `recsim_train.data.stream.open_stream`.
    """
    tables = [_Table() for _ in model.tables]
    rates = HitRates(model, batches)
    bases = first_rows(table_rows(model))[:-1]
    with open_stream(
        model, data, batch_size=batch_size, positions=(0,), total=1, iterations=batches
    ) as stream:
        for fed in stream:
            met = []
            for table, base, ids in zip(tables, bases, ids_by_table(model, fed.batch), strict=True):
                met.append(base + table.add(ids))
            rates.add(np.concatenate(met))
        stream.check()
        found = stream.malformed.beyond_rows(table_rows(model))
        beyond = {one.table: round(one.share, 4) for one in found}
        return {
            "source": data.path or "generator",
            "batch_size": batch_size,
            "batches": batches,
            "epochs": stream.epochs,
            "malformed": stream.malformed.total,
            "ids_per_batch": sum(table.mean_ids for table in tables),
            "unique_per_batch": sum(table.mean_unique for table in tables),
            "cache": rates.summary(),
            "tables": [
                {"table": t, "rows": spec.rows, "beyond": beyond.get(t, 0.0), **table.summary()}
                for t, (spec, table) in enumerate(zip(model.tables, tables, strict=True))
            ],
        }


class _Table:
    """One table's ids so far; memory grows with the distinct ones."""

    def __init__(self) -> None:
        self._batches = self._ids = self._unique = self._kept = self._compared = 0
        self._before: NDArray[np.int64] | None = None
        self._seen = np.zeros(0, dtype=np.int64)
        self._times = np.zeros(0, dtype=np.int64)

    def add(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the distinct ones."""
        unique, times = np.unique(ids, return_counts=True)
        self._batches += 1
        self._ids += len(ids)
        self._unique += len(unique)
        if self._before is not None:
            self._kept += len(np.intersect1d(unique, self._before, assume_unique=True))
            self._compared += len(unique)
        self._before = unique
        self._seen, place = np.unique(np.concatenate([self._seen, unique]), return_inverse=True)
        weights = np.concatenate([self._times, times])
        self._times = np.bincount(place, weights=weights).astype(np.int64)
        return unique

    @property
    def mean_ids(self) -> float:
        return self._ids / self._batches if self._batches else 0.0

    @property
    def mean_unique(self) -> float:
        return self._unique / self._batches if self._batches else 0.0

    def summary(self) -> dict[str, float | int | None]:
        ordered = np.sort(self._times)[::-1]
        hot = max(1, round(len(ordered) * _HOT_SHARE))
        return {
            "ids_per_batch": self.mean_ids,
            "unique_per_batch": self.mean_unique,
            "unique_seen": len(ordered),
            "hottest_share": round(float(ordered[:hot].sum()) / self._ids, 4) if self._ids else 0.0,
            "zipf": _zipf_exponent(ordered),
            "reused": round(self._kept / self._compared, 4) if self._compared else None,
        }


def _zipf_exponent(ordered: NDArray[np.int64]) -> float | None:
    """Slope of log frequency over log rank, each rank weighted by 1 / rank."""
    frequent = ordered[ordered > 1]
    if len(frequent) < 3:
        return None
    ranks = np.arange(1, len(frequent) + 1, dtype=np.float64)
    weights = 1.0 / np.sqrt(ranks)
    slope = float(np.polyfit(np.log(ranks), np.log(frequent), 1, w=weights)[0])
    return round(-slope, 3)


_SIZES = 8
_HEADROOM = 1.1
"""The smallest size over what the first two batches need: later ones may need a little more."""


class HitRates:
    """Caches of doubling sizes, all fed with the same batches; one trainer owns every row.

    Rates are of the second half of the batches: before, caches are still being filled.
    """

    def __init__(self, model: Model, batches: int) -> None:
        self._rows = sum(table_rows(model))
        self._first_counted = batches // 2
        self._maps: list[SlotMap | None] = []
        self._capacities: list[int] = []
        self._probed = 0
        self._hits: list[int] = []
        self._seen = 0
        self._held_back: Numbers | None = None
        self.two_steps = 0
        """Most rows that two batches in a row need: the smallest cache that works."""
        self._before = np.zeros(0, dtype=np.int64)

    def add(self, rows: Numbers) -> None:
        """The distinct, sorted row numbers of the next batch."""
        both = len(np.union1d(rows, self._before))
        self.two_steps = max(self.two_steps, both)
        self._before = rows
        if self._held_back is None and not self._maps:
            self._held_back = rows
            return
        if self._held_back is not None:
            self._start(both)
            first, self._held_back = self._held_back, None
            self._probe(first)
        self._probe(rows)

    def _start(self, need: int) -> None:
        size = min(_round_up(need * _HEADROOM), self._rows)
        while size < self._rows and len(self._capacities) < _SIZES - 1:
            self._capacities.append(size)
            size *= 2
        self._capacities.append(min(size, self._rows))
        self._maps = [SlotMap(capacity, self._rows) for capacity in self._capacities]
        self._hits = [0] * len(self._maps)

    def _probe(self, rows: Numbers) -> None:
        counted = self._seen >= self._first_counted
        self._seen += 1
        self._probed += len(rows) if counted else 0
        for place, slots in enumerate(self._maps):
            if slots is None:
                continue
            try:
                missing = int(np.count_nonzero(slots.probe(rows).missing))
            except CacheTooSmall:
                self._maps[place] = None
                continue
            self._hits[place] += len(rows) - missing if counted else 0

    def summary(self) -> dict[str, object]:
        """As JSON; a rate is None where the cache could not hold two batches."""
        return {
            "two_steps": self.two_steps,
            "sizes": [
                {
                    "cache_rows": capacity,
                    "hit_rate": None if slots is None else round(hits / self._probed, 4),
                }
                for capacity, slots, hits in zip(
                    self._capacities, self._maps, self._hits, strict=True
                )
            ],
        }


def _round_up(value: float) -> int:
    """To two significant digits."""
    unit = int(10.0 ** max(0, math.floor(math.log10(max(value, 1.0))) - 1))
    return math.ceil(value / unit) * unit
