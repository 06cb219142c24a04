"""The profile of a stream's ids: distinct ids per batch, skew, reuse, hit rates of caches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.experiment import Data, Model
from recsim_train.data.batch import ids_by_table
from recsim_train.data.mixcache import CacheTooSmall, Numbers, SlotMap, first_rows, table_rows
from recsim_train.data.stream import open_stream

_HOT_SHARE = 0.01


def profile_stream(
    model: Model, data: Data, batch_size: int, batches: int, seed: int = 1
) -> dict[str, Any]:
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
    bases = first_rows(table_rows(model))[:-1]
    with open_stream(
        model, data, batch_size=batch_size, positions=(0,), total=1, iterations=batches, seed=seed
    ) as stream:

        def rows() -> Iterator[Numbers]:
            for fed in stream:
                given = zip(tables, bases, ids_by_table(model, fed.batch), strict=True)
                yield np.concatenate([base + table.add(ids) for table, base, ids in given])

        cache = hit_rates(model, batches, rows())
        stream.check()
        found = stream.malformed.beyond_rows(table_rows(model))
        beyond = {one.table: round(one.share, 4) for one in found}
        return {
            "source": data.named(data.path) if data.path else "generator",
            "batch_size": batch_size,
            "batches": batches,
            "epochs": stream.epochs,
            "malformed": stream.malformed.total,
            "ids_per_batch": sum(table.mean_ids for table in tables),
            "unique_per_batch": sum(table.mean_unique for table in tables),
            "cache": cache,
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
            "zipf": zipf_exponent(ordered),
            "reused": round(self._kept / self._compared, 4) if self._compared else None,
        }


def zipf_exponent(ordered: NDArray[np.int64]) -> float | None:
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


def hit_rates(model: Model, batches: int, given: Iterator[Numbers]) -> dict[str, object]:
    """Of caches of doubling sizes, all fed with the same batches; one trainer owns every row.

    ``given``: the distinct, sorted row numbers of each of the ``batches``. Rates are of the second
    half of them: before, caches are still being filled. As JSON; a rate is None where the cache
    could not hold two batches.
    """
    rows_in_all, ahead = sum(table_rows(model)), list(islice(given, 2))
    caches: dict[int, SlotMap | None] = {}
    if len(ahead) > 1:  # both of them say how large caches must be
        sizes = _sizes(len(np.union1d(*ahead)), rows_in_all)
        caches = {size: SlotMap(size, rows_in_all) for size in sizes}
    hits, probed, two_steps = dict.fromkeys(caches, 0), 0, 0
    before = np.zeros(0, dtype=np.int64)
    for number, rows in enumerate(chain(ahead, given)):
        two_steps, before = max(two_steps, len(np.union1d(rows, before))), rows
        counted = number >= batches // 2
        probed += len(rows) if counted else 0
        for size, slots in caches.items():
            if slots is None:
                continue
            try:
                missing = int(np.count_nonzero(slots.probe(rows).missing))
            except CacheTooSmall:
                caches[size] = None
                continue
            hits[size] += len(rows) - missing if counted else 0
    rates = {
        s: None if slots is None else round(hits[s] / probed, 4) for s, slots in caches.items()
    }
    return {
        "two_steps": two_steps,
        "sizes": [{"cache_rows": size, "hit_rate": rate} for size, rate in rates.items()],
    }


def _sizes(need: int, rows: int) -> Iterator[int]:
    """Doubling ones from a little more than two batches ``need``, up to all ``rows``."""
    smallest = min(two_digits(need * _HEADROOM), rows)
    for size in (smallest << doublings for doublings in range(_SIZES)):
        yield min(size, rows)
        if size >= rows:
            return


def two_digits(value: float) -> int:
    """Rounded up to two significant digits."""
    unit = int(10.0 ** max(0, math.floor(math.log10(max(value, 1.0))) - 1))
    return math.ceil(value / unit) * unit
