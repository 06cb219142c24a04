"""Bin packing of embedding rows onto shards: split what is too large, then pack the rest."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from recsim_train.config.experiment import Experiment
from recsim_train.placement.plan import TableSlice
from recsim_train.placement.program import column_range
from recsim_train.workload import shape
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.scope import Scope

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
    "hashed_id": 2e-8,
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


def cut_tables(
    experiment: Experiment, shards: int, partition: str
) -> tuple[tuple[TableSlice, ...], ...]:
    """Slices of each shard, in table order, as the embedding service wants its tables cut.

    balanced: see `pack_tables`; field: the same, with whole tables only; hash: id modulo the number
    of shards; column: each shard has some columns of every row, the last one those beyond
    embedding_dim too.
    """
    model = experiment.model
    tables = list(enumerate(model.tables))
    if partition == "hash":
        return tuple(
            tuple(
                TableSlice(t, shard, spec.rows, shards) for t, spec in tables if spec.rows > shard
            )
            for shard in range(shards)
        )
    if partition == "column":
        ranges = [column_range(model.embedding_dim, shards, shard) for shard in range(shards)]
        ranges[-1] = (ranges[-1][0], model.row_width)
        return tuple(
            tuple(TableSlice(t, 0, spec.rows, 1, *columns) for t, spec in tables)
            for columns in ranges
        )
    return pack_tables(experiment, shards, whole_tables=partition == "field")


def pack_tables(
    experiment: Experiment, shards: int, *, whole_tables: bool = False
) -> tuple[tuple[TableSlice, ...], ...]:
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
        if shards > 1 and weight > limit and rows >= shards and not whole_tables:
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
