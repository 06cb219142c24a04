"""Which embedding rows live on which shard: split what is too large, then pack the rest."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from recsim_train.config.experiment import Experiment
from recsim_train.placement.plan import TableSlice
from recsim_train.workload import shape
from recsim_train.workload.operations import Scope, cost, seconds

MODELLED_SHARE = 0.5
"""How the two needs of a table are weighed: half its share of time, half its share of memory."""

TYPICAL_PRICES: Mapping[str, float] = {
    "call": 0.0,
    "interpreter": 0.0,
    "stream_byte": 1e-10,
    "gather_row": 3e-8,
    "gather_byte": 1e-10,
    "scatter_row": 3e-8,
    "scatter_byte": 1e-10,
    "unique_id": 3e-8,
    "gemm_flop": 0.0,
    "effect": 0.0,
    "request": 0.0,
    "synthesize_row": 0.0,
}
"""Relative weights only (a random row access against a streamed byte): placement must be the same
in both worlds and for every profile, so it never depends on one machine's calibration."""


def table_seconds(experiment: Experiment, table: int) -> float:
    """Modelled seconds that one batch's lookup and update of a table take on a server."""
    model, b = experiment.model, experiment.training.batch_size
    ids = b * shape.mean_ids(model, table)
    scope = Scope(model, experiment.training, batch=b, ids=ids, unique=ids, tables=1)
    work = (cost("lookup_pooled", scope), cost("update_pooled", scope))
    return sum(seconds(part, TYPICAL_PRICES)[0] for part in work)


def table_weights(experiment: Experiment) -> list[float]:
    """What is balanced, per table; the weights sum to 1."""
    tables = range(len(experiment.model.tables))
    total_rows = sum(t.rows for t in experiment.model.tables)
    size = [t.rows / total_rows for t in experiment.model.tables]
    if experiment.placement.cost == "bytes":
        return size
    time = [table_seconds(experiment, t) for t in tables]
    total = sum(time)
    return [
        MODELLED_SHARE * t / total + (1 - MODELLED_SHARE) * s
        for t, s in zip(time, size, strict=True)
    ]


def row_cuts(rows: int, parts: int) -> list[tuple[int, int]]:
    """``parts`` consecutive ranges over ``rows`` whose lengths differ by at most one."""
    return [(rows * i // parts, rows * (i + 1) // parts) for i in range(parts)]


def pack_tables(experiment: Experiment, shards: int) -> tuple[tuple[TableSlice, ...], ...]:
    """Slices of each shard, in table order.

    A table whose weight exceeds ``placement.split_rows_above`` fair shares is split by rows over
    all shards; the others go, heaviest first, to the least loaded shard (longest processing time
    first: Graham 1969).
    """
    model = experiment.model
    weights = table_weights(experiment)
    limit = experiment.placement.split_rows_above / shards
    content: list[list[TableSlice]] = [[] for _ in range(shards)]
    load = [0.0] * shards
    whole = []
    for table, weight in enumerate(weights):
        rows = model.tables[table].rows
        if shards > 1 and weight > limit and rows >= shards:
            for shard, (start, stop) in enumerate(row_cuts(rows, shards)):
                content[shard].append(TableSlice(table, start, stop))
                load[shard] += weight / shards
        else:
            whole.append(table)
    heap = [(load[shard], shard) for shard in range(shards)]
    heapq.heapify(heap)
    for table in sorted(whole, key=lambda t: (-weights[t], t)):
        held, shard = heapq.heappop(heap)
        content[shard].append(TableSlice(table, 0, model.tables[table].rows))
        heapq.heappush(heap, (held + weights[table], shard))
    return tuple(tuple(sorted(slices)) for slices in content)
