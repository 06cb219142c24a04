"""What every named operation costs, as counts of priced work.

A cost is a mapping from a price's name in the cluster profile (`config.cluster.Costs`) to how many
units of it one invocation needs. Calibration fits the prices from micro-workloads with the same
counts, so the two can not drift apart. No torch here: the kernels live in the executor under the
same names.

The counts describe our own kernels. They follow the algebra (flops of matrix products, bytes that
stream through memory, rows touched at random); constants that the algebra leaves open are absorbed
by the fitted prices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from recsim_train.config.experiment import Model, Training
from recsim_train.workload import shape

Work = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Scope:
    """What the size of one invocation depends on.

    ``batch``: examples; ``ids``: ids in the batch or, for a shard's operation, those routed to the
    shard; ``unique``: distinct (table, id) pairs among them; ``tables``: tables or slices touched;
    ``elements``: dense parameters touched; ``shards``: shards a client talks to.
    """

    model: Model
    training: Training
    pooling: Literal["server", "worker"] = "server"
    batch: float = 0.0
    ids: float = 0.0
    unique: float = 0.0
    tables: int = 0
    elements: int = 0
    shards: int = 1


def forward_backward(s: Scope) -> Work:
    """DLRM forward and backward with log loss: [batch] examples, one thread."""
    m, b = s.model, s.batch
    size = shape.value_bytes(m)
    layers = shape.layers(m)
    first_inputs = m.dense_features * layers[0][1]
    weights = sum(i * o for i, o in layers)
    outputs = sum(o for _, o in layers)
    vectors, width = len(m.tables) + 1, shape.interaction_width(m)
    flops = b * (6 * weights - 2 * first_inputs + 6 * vectors * vectors * m.embedding_dim)
    activations = b * (6 * outputs + 6 * vectors * m.embedding_dim + 4 * width + vectors * vectors)
    calls = 12 * len(layers) + 24
    work = {
        "gemm_flop": flops,
        "stream_byte": size * (activations + 3 * weights),
        "call": calls,
        "interpreter": 4 * len(layers) + 16,
    }
    if s.pooling == "worker":
        moved = size * m.embedding_dim * (s.ids + s.unique)
        return _add(
            work,
            {
                "gather_row": s.ids,
                "gather_byte": size * m.embedding_dim * s.ids,
                "stream_byte": moved,
                "call": 8,
                "interpreter": 4,
            },
        )
    return work


def _add(*parts: Work) -> Work:
    total: dict[str, float] = {}
    for part in parts:
        for name, units in part.items():
            total[name] = total.get(name, 0.0) + units
    return total


def _streams(vectors: float, calls: int) -> Callable[[Scope], Work]:
    """Element-wise work over ``elements`` values: ``vectors`` read or written per element."""

    def work(s: Scope) -> Work:
        moved = vectors * s.elements * shape.value_bytes(s.model)
        return {"stream_byte": moved, "call": calls, "interpreter": calls}

    return work


def dense_step(s: Scope) -> Work:
    """One optimizer step over ``elements`` dense parameters."""
    vectors, calls = (3, 1) if s.training.dense_optimizer == "sgd" else (8, 4)
    return _streams(vectors, calls)(s)


def deduplicate(s: Scope) -> Work:
    """Sort-based unique over the batch's ids, all tables at once."""
    return {"unique_id": s.ids, "call": 4, "interpreter": 4}


def route_ids(s: Scope) -> Work:
    """Client: collect the ids of each shard into one message per shard."""
    moved = 2 * shape.ID_BYTES * s.ids
    return {"stream_byte": moved, "call": 2 * s.shards + s.tables, "interpreter": 2 * s.shards}


def _vectors(s: Scope) -> float:
    """Embedding vectors that travel: pooled bags or unique rows."""
    return s.tables * s.batch if s.pooling == "server" else s.unique


def assemble_rows(s: Scope) -> Work:
    """Client: put the shards' answers together, in table order."""
    moved = 2 * shape.row_bytes(s.model) * _vectors(s)
    return {"stream_byte": moved, "call": 2 * s.shards + s.tables, "interpreter": 2 * s.shards}


def route_gradient(s: Scope) -> Work:
    """Client: collect the gradients of each shard into one message per shard."""
    return assemble_rows(s)


def lookup_pooled(s: Scope) -> Work:
    """Shard: read ``ids`` rows, sum them per bag."""
    row = shape.row_bytes(s.model)
    return {
        "gather_row": s.ids,
        "gather_byte": row * s.ids,
        "stream_byte": row * s.tables * s.batch + 2 * shape.ID_BYTES * s.ids,
        "call": 4,
        "interpreter": 4,
    }


def lookup_rows(s: Scope) -> Work:
    """Shard: read the rows of unique ids."""
    row = shape.row_bytes(s.model)
    return {
        "gather_row": s.unique,
        "gather_byte": row * s.unique,
        "stream_byte": row * s.unique + 2 * shape.ID_BYTES * s.unique,
        "call": 4,
        "interpreter": 4,
    }


def _apply_rows(s: Scope, rows: float) -> Work:
    """Optimizer step on ``rows`` distinct rows."""
    row = shape.row_bytes(s.model)
    calls = 2 if s.training.sparse_optimizer == "sgd" else 8
    return {
        "scatter_row": rows,
        "scatter_byte": row * rows,
        "stream_byte": row * rows * (1 if s.training.sparse_optimizer == "sgd" else 4),
        "call": calls,
        "interpreter": calls,
    }


def update_pooled(s: Scope) -> Work:
    """Shard: spread pooled gradients over the bags' ids, sum duplicates, apply."""
    row = shape.row_bytes(s.model)
    spread = {
        "unique_id": s.ids,
        "gather_row": s.ids,
        "gather_byte": row * s.ids,
        "stream_byte": row * (s.tables * s.batch + 2 * s.ids),
        "call": 6,
        "interpreter": 6,
    }
    return _add(spread, _apply_rows(s, s.unique))


def update_rows(s: Scope) -> Work:
    """Shard: apply gradients of unique rows. ``ids`` above ``unique``: several clients' rows
    are summed first."""
    row = shape.row_bytes(s.model)
    if s.ids <= s.unique:
        return _apply_rows(s, s.unique)
    merge = {"unique_id": s.ids, "stream_byte": 3 * row * s.ids, "call": 4, "interpreter": 4}
    return _add(merge, _apply_rows(s, s.unique))


OPERATIONS: dict[str, Callable[[Scope], Work]] = {
    # local, asked for by strategies
    "deduplicate": deduplicate,
    "forward_backward": forward_backward,
    "apply": dense_step,
    "load": _streams(2, 1),
    "snapshot": _streams(2, 1),
    "subtract": _streams(3, 1),
    "accumulate": _streams(3, 1),
    "drain": _streams(3, 2),
    # the client's side of Lookup and Update
    "route_ids": route_ids,
    "assemble_rows": assemble_rows,
    "route_gradient": route_gradient,
    # served by shards
    "lookup_pooled": lookup_pooled,
    "lookup_rows": lookup_rows,
    "update_pooled": update_pooled,
    "update_rows": update_rows,
    "dense_read": _streams(2, 1),
    "dense_apply": dense_step,
    "dense_elastic": _streams(7, 3),
}
"""Every operation by name. The executor has one kernel for each."""


def cost(name: str, scope: Scope) -> Work:
    """Counts of priced work for one invocation of the operation ``name``.

    Raises KeyError for an unknown operation.
    """
    return OPERATIONS[name](scope)


def seconds(work: Work, prices: Mapping[str, float]) -> tuple[float, float]:
    """(all seconds, those that hold the interpreter lock) of some work on one idle core.

    ``prices``: seconds per unit, by cost name.
    """
    held = sum(work.get(name, 0.0) * prices[name] for name in LOCK_HELD)
    return sum(units * prices[name] for name, units in work.items()), held


LOCK_HELD = ("interpreter", "effect", "request", "synthesize_row")
"""Prices whose seconds hold the process's interpreter lock."""
