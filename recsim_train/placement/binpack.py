"""Bin packing of embedding rows onto shards: split what is too large, then pack the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from recsim_train.config.cluster import USUAL
from recsim_train.config.experiment import Experiment, Model, Placement, Training
from recsim_train.placement.plan import TableSlice
from recsim_train.placement.program import column_range
from recsim_train.workload import shape
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.scope import Scope

_WEIGHTS: Mapping[str, float] = {
    **{name: usual.seconds for name, usual in USUAL.items()},
    **dict.fromkeys(("call", "interpreter"), 0.0),
}
"""Of prices, relative to each other (a random row access against a streamed byte): placement must
be the same in both worlds and for every profile, so it never depends on one machine's calibration.
Calls count nothing: each table has as many of them."""

_UNRELATED = {"steps": 1, "warmup_steps": 0, "threads": 1}
"""Settings of training that do not matter here: plans that differ in them have the same shards."""


class Need(NamedTuple):
    """What a table needs of its shard, or a shard's tables of it, as shares of all tables'."""

    size: float
    """Bytes."""
    time: float
    """Seconds of lookups and updates."""

    def plus(self, other: Need, share: float = 1.0) -> Need:
        """This, and a share of another one."""
        return Need(self.size + share * other.size, self.time + share * other.time)


def table_needs(model: Model, training: Training, placement: Placement) -> list[Need]:
    """What is balanced, per table; with ``cost: bytes`` both are the bytes."""
    b = training.batch_size

    def time(table: int) -> float:
        ids = b * shape.mean_ids(model, table)
        scope = Scope(model, training, batch=b, ids=ids, unique=ids, tables=1)
        work = cost("lookup_pooled", scope), cost("update_pooled", scope)
        return sum(seconds(part, _WEIGHTS)[0] for part in work)

    def shares(of: Callable[[int], float]) -> list[float]:
        values = [of(table) for table in range(len(model.tables))]
        total = sum(values)
        return [value / total for value in values]

    sizes = shares(lambda table: model.tables[table].rows)
    times = sizes if placement.cost == "bytes" else shares(time)
    return [Need(*pair) for pair in zip(sizes, times, strict=True)]


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
        # a shard beyond a table's last row has no row of it, but a slice as the others have
        return tuple(
            tuple(TableSlice(t, min(shard, spec.rows), spec.rows, shards) for t, spec in tables)
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

    A table that needs more than ``placement.split_rows_above`` fair shares of bytes or of time is
    split by rows over all shards; the others go, largest need first, to the shard whose larger need
    is then the least (longest processing time first, Graham 1969, for two needs at once).
    """
    rules = experiment.training.model_copy(update=_UNRELATED)
    return _packed(experiment.model, rules, experiment.placement, shards, whole_tables)


@lru_cache(maxsize=64)
def _packed(
    model: Model, training: Training, placement: Placement, shards: int, whole_tables: bool
) -> tuple[tuple[TableSlice, ...], ...]:
    needs = table_needs(model, training, placement)
    # what is a fair share but for rounding does not exceed it
    limit = placement.split_rows_above / shards * (1 + 1e-9)
    content: list[list[TableSlice]] = [[] for _ in range(shards)]
    held = [Need(0.0, 0.0)] * shards
    whole = []
    for table, need in enumerate(needs):
        rows = model.tables[table].rows
        if shards > 1 and max(need) > limit and rows >= shards and not whole_tables:
            for shard, (start, stop) in enumerate(row_cuts(rows, shards)):
                content[shard].append(TableSlice(table, start, stop))
                held[shard] = held[shard].plus(need, 1 / shards)
        else:
            whole.append(table)

    def fullness(shard: int, need: Need) -> tuple[float, float]:
        then = held[shard].plus(need)
        return max(then), sum(then)

    for table in sorted(whole, key=lambda t: (-max(needs[t]), -sum(needs[t]), t)):
        need = needs[table]
        best = min(range(shards), key=lambda shard: (*fullness(shard, need), shard))
        content[best].append(TableSlice(table, 0, model.tables[table].rows))
        held[best] = held[best].plus(need)
    return tuple(tuple(sorted(slices)) for slices in content)
