"""The profile of a stream's ids: distinct ids per batch, skew, hit rates of caches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recsim_train.config.experiment import Data, Model
from recsim_train.data.batch import ids_by_table
from recsim_train.data.mixcache import CacheTooSmall, Numbers, SlotMap, first_rows, table_rows
from recsim_train.data.stream import open_stream


def profile_stream(
    model: Model, data: Data, batch_size: int, batches: int, seed: int = 1
) -> dict[str, Any]:
    """Statistics of the stream's first batches, as JSON values.

    Per table: ``ids_per_batch`` and ``unique_per_batch`` (means), ``unique_seen``, ``zipf``
    (exponent fitted to the frequencies of the ids seen more than once; None where too few are) and
    ``beyond`` (share of its ids that lie beyond its rows).
    ``cache``: ``two_steps`` (most distinct rows of two batches in a row) and ``sizes``, the share
    of a batch's distinct rows that a cache of ``cache_rows`` rows would have; with one batch none.
    Raises as `recsim_train.data.stream.open_stream`.
    """
    bases = first_rows(table_rows(model))
    unique = np.zeros(len(model.tables))
    times = [pd.Series(dtype=np.float64) for _ in model.tables]
    stream = open_stream(
        model, data, batch_size=batch_size, positions=(0,), total=1, iterations=batches, seed=seed
    )

    def rows() -> Iterator[Numbers]:
        for fed in stream:
            numbers = []
            for table, ids in enumerate(ids_by_table(model, fed.batch)):
                own, count = np.unique(ids, return_counts=True)
                unique[table] += len(own)
                times[table] = times[table].add(pd.Series(count, own), fill_value=0.0)
                numbers.append(bases[table] + own)
            yield np.concatenate(numbers)

    cache = hit_rates(model, rows())
    stream.check()
    beyond = {one.table: one.share for one in stream.malformed.beyond_rows(table_rows(model))}
    tables: list[dict[str, Any]] = [
        {
            "table": table,
            "rows": spec.rows,
            "beyond": round(beyond.get(table, 0.0), 4),
            "ids_per_batch": float(times[table].sum()) / batches,
            "unique_per_batch": unique[table] / batches,
            "unique_seen": len(times[table]),
            "zipf": zipf_exponent(times[table].to_numpy()),
        }
        for table, spec in enumerate(model.tables)
    ]
    return {
        "source": data.named(data.path) if data.path else "generator",
        "batch_size": batch_size,
        "batches": batches,
        "epochs": stream.epochs,
        "malformed": stream.malformed.total,
        "ids_per_batch": sum(table["ids_per_batch"] for table in tables),
        "unique_per_batch": sum(table["unique_per_batch"] for table in tables),
        "cache": cache,
        "tables": tables,
    }


def zipf_exponent(times: NDArray[Any]) -> float | None:
    """Slope of log frequency over log rank, each rank weighted by 1 / rank. ``times``: how often
    each id is there."""
    frequent = np.sort(times[times > 1])[::-1]
    if len(frequent) < 3:
        return None
    ranks = np.arange(1, len(frequent) + 1, dtype=np.float64)
    weights = 1.0 / np.sqrt(ranks)
    slope = float(np.polyfit(np.log(ranks), np.log(frequent), 1, w=weights)[0])
    return round(-slope, 3)


_SIZES = 8
_HEADROOM = 1.1
"""The smallest size over what the first two batches need: later ones may need a little more."""


def hit_rates(model: Model, given: Iterable[Numbers]) -> dict[str, Any]:
    """Of caches of doubling sizes, all fed with the same batches; one trainer owns every row.

    ``given``: the distinct, sorted row numbers of each batch. Rates are of the second half of them:
    before, caches are still being filled. As JSON; a rate is None where the cache could not hold
    two batches.
    """
    batches, rows_in_all = list(given), sum(table_rows(model))
    two_steps = [len(np.union1d(one, other)) for one, other in pairwise(batches)]
    sizes = [
        min(two_digits(need * _HEADROOM) << doublings, rows_in_all)
        for need in two_steps[:1]
        for doublings in range(_SIZES)
    ]
    return {
        "two_steps": max(two_steps, default=0),
        "sizes": [
            {"cache_rows": size, "hit_rate": _hit_rate(SlotMap(size, rows_in_all), batches)}
            for size in dict.fromkeys(sizes)
        ],
    }


def _hit_rate(cache: SlotMap, batches: Sequence[Numbers]) -> float | None:
    try:
        missing = [np.count_nonzero(cache.probe(rows).missing) for rows in batches]
    except CacheTooSmall:
        return None
    half = len(batches) // 2
    return round(1.0 - sum(missing[half:]) / sum(map(len, batches[half:])), 4)


def two_digits(value: float) -> int:
    """Rounded up to two significant digits."""
    unit = int(10.0 ** max(0, math.floor(math.log10(max(value, 1.0))) - 1))
    return math.ceil(value / unit) * unit
