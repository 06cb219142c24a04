"""Costs of all named operations, as counts of priced work.

A cost is a mapping from a price's name in the cluster profile (`config.cluster.Costs`) to how many
units of it one invocation needs. Calibration fits the prices from micro-workloads with the same
counts, so the two cannot drift apart. No torch here: the kernels live in the executor under the
same names.

The counts describe our own kernels. They follow the algebra (flops of matrix products, bytes that
stream through memory, rows touched at random); constants that the algebra leaves open are absorbed
by the fitted prices. What one unit is: `recsim_train.workload.arithmetic` for a net's passes; of
element-wise work each vector that a kernel reads and each that it writes counts once, also where
both are one, so that `x += y` moves three; of a gather a row is counted once, of an update too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recsim_train.workload import cache, shape
from recsim_train.workload.arithmetic import LOSS, Piece, Work, add, operator_work
from recsim_train.workload.compress_costs import COMPRESSION
from recsim_train.workload.graph import graph_of
from recsim_train.workload.reading import reading
from recsim_train.workload.scope import Scope


def forward_backward(s: Scope) -> Work:
    """Forward and backward of the whole net with log loss: [batch] examples, one thread."""
    pieces = [Piece(operator.name, s.batch) for operator in graph_of(s.model).operators]
    work = add(LOSS, *(operator_work(s.model, piece) for piece in pieces))
    if s.pooling == "server":
        return work
    # the rows have just arrived, so that picking them is cheap: summed per bag, and their gradient
    # out of the bags' again; of each id its place is read, and its bag where that holds several
    row, bags = shape.row_bytes(s.model), s.tables * s.batch
    places = 2 * shape.ID_BYTES * s.ids * (3 if shape.many(s.model) else 1)
    picked = {
        "index_element": 2 * s.ids,
        "stream_byte": row * (4 * s.ids + bags + s.unique) + places,
        "call": 30,
        "interpreter": 14,
    }
    return add(work, picked)


def _streams(vectors: float, interpreter: int, calls: int) -> Callable[[Scope], Work]:
    """Element-wise work over ``elements`` values: ``vectors`` read or written per element."""

    def work(s: Scope) -> Work:
        moved = vectors * s.elements * shape.value_bytes(s.model)
        return {"stream_byte": moved, "call": calls, "interpreter": interpreter}

    return work


# square roots and divisions take the time of several more values
_SGD, _ADAGRAD = _streams(3, 2, 1), _streams(18, 5, 8)


def dense_step(s: Scope) -> Work:
    """One optimizer step over ``elements`` dense parameters."""
    return (_SGD if s.training.dense_optimizer == "sgd" else _ADAGRAD)(s)


_DIGITS, _COUNTERS = 2, 256
"""Passes of a sort over a table's ids, and what each counts anew."""


def deduplicate(s: Scope) -> Work:
    """Sort-based unique over the batch's ids, all tables in one pass."""
    counters = 3 * _DIGITS * _COUNTERS * shape.ID_BYTES * s.tables
    moved = 4 * shape.ID_BYTES * s.ids + counters
    return {"unique_id": s.ids, "stream_byte": moved, "call": 18, "interpreter": 9}


def route_ids(s: Scope) -> Work:
    """Client: collect the ids of each shard into one message per shard."""
    lengths = sum(table.variable for table in s.model.tables) if s.pooling == "server" else 0
    return {
        "stream_byte": 2 * shape.ID_BYTES * s.ids,
        "call": 14 + 14 * s.shards + lengths,
        "interpreter": 8 + 6 * s.shards + lengths / 4,
    }


def _vectors(s: Scope) -> float:
    """Embedding vectors that travel: pooled bags or unique rows."""
    return s.tables * s.batch if s.pooling == "server" else s.unique


def assemble_rows(s: Scope) -> Work:
    """Client: put the shards' answers together, in table order."""
    pooled = s.pooling == "server"
    return {
        "stream_byte": 2 * shape.row_bytes(s.model) * _vectors(s),
        "call": (12 if pooled else 16) + 10 * s.shards,
        "interpreter": (6 if pooled else 8) + 5 * s.shards,
    }


def route_gradient(s: Scope) -> Work:
    """Client: collect the gradients of each shard into one message per shard."""
    vectors = _vectors(s)
    moved = shape.row_bytes(s.model) * vectors
    if s.pooling == "server":
        calls = {"call": 6 + 10 * s.shards, "interpreter": 3 + 4 * s.shards}
        return {"stream_byte": 2 * moved, **calls}
    # rows are put together, then joined with their ids
    return {
        "stream_byte": 4 * moved + 2 * shape.ID_BYTES * vectors,
        "call": 16 + 14 * s.shards,
        "interpreter": 8 + 6 * s.shards,
    }


def _bags(s: Scope) -> Work:
    """Which row of the shard each id is and, of several, in which bag, where each bag starts."""
    work = {"stream_byte": 3 * shape.ID_BYTES * s.ids, "call": 14, "interpreter": 6}
    if not shape.many(s.model):
        return work
    bags = shape.ID_BYTES * (s.ids + 2 * s.tables * s.batch)
    return add(work, {"stream_byte": bags, "call": 10, "interpreter": 5})


def lookup_pooled(s: Scope) -> Work:
    """Shard: read ``ids`` rows, sum them per bag."""
    row = shape.row_bytes(s.model)
    rows = {
        "gather_row": s.ids,
        "gather_byte": row * s.ids,
        "stream_byte": row * s.tables * s.batch,
        "call": 2,
        "interpreter": 2,
    }
    return add(_bags(s), rows)


def lookup_rows(s: Scope) -> Work:
    """Shard: read the rows of unique ids."""
    row = shape.row_bytes(s.model)
    return {
        "gather_row": s.unique,
        "gather_byte": row * s.unique,
        "stream_byte": row * s.unique + 3 * shape.ID_BYTES * s.unique,
        "call": 8,
        "interpreter": 6,
    }


def _step_on_rows(s: Scope, ids: float, lines: float) -> Work:
    """The row optimizer's step: SGD's on each row that ``ids`` ids name, Adagrad's on each distinct
    one, found by a hash table. ``lines``: of the gradient, read once."""
    row, plain = shape.row_bytes(s.model), s.training.sparse_optimizer == "sgd"
    touched = ids if plain else s.unique
    work = {
        "scatter_row": touched,
        "scatter_byte": row * touched,
        "stream_byte": row * lines + shape.ID_BYTES * ids,
        "call": 10,
        "interpreter": 5,
    }
    return work if plain else {**work, "hashed_id": ids}


def update_pooled(s: Scope) -> Work:
    """Shard: apply the gradients of bags to the rows that their ids name."""
    step = _step_on_rows(s, s.ids, s.tables * s.batch)
    # of each id its bag, and the bag's gradient again
    return add(step, {"stream_byte": shape.ID_BYTES * s.ids}) if shape.many(s.model) else step


def update_rows(s: Scope) -> Work:
    """Shard: apply gradients of rows. ``ids`` above ``unique``: those of several clients."""
    return _step_on_rows(s, max(s.ids, s.unique), max(s.ids, s.unique))


def _segment(s: Scope) -> Work:
    """Some operators of a net, and what they leave for a cut or take from one."""
    moved = 4 * s.numbers * shape.value_bytes(s.model)
    packing = {"stream_byte": moved, "call": 12, "interpreter": 6 + 2 * len(s.pieces)}
    return add(packing, *(operator_work(s.model, piece) for piece in s.pieces))


def _last_segment(s: Scope) -> Work:
    return add(LOSS, _segment(s))


def update_cached(s: Scope) -> Work:
    """The row optimizer's step on ``unique`` cached rows."""
    picked = {"stream_byte": 2 * shape.row_bytes(s.model) * s.unique, "call": 3, "interpreter": 3}
    return add(picked, _step_on_rows(s, s.unique, s.unique))


_ENTRY: Work = {"interpreter": 5}
"""Every operation comes after another one, whose code is in the caches instead of its own."""


COSTS: dict[str, Callable[[Scope], Work]] = {
    # of readers, ahead of loops
    "reading": reading,
    # local, asked for by strategies
    "deduplicate": deduplicate,
    "forward_backward": forward_backward,
    "apply": dense_step,
    "load": _streams(2, 2, 1),
    "snapshot": _streams(2, 2, 3),
    "subtract": _streams(3, 2, 1),
    "towards": _streams(5, 4, 5),
    "interpolate": _streams(3, 2, 1),
    "block_step": _streams(13, 7, 10),
    "accumulate": _streams(3, 2, 1),
    "drain": _streams(3, 3, 4),
    # on a net that is cut over hosts
    "net_open": _segment,
    "net_forward": _segment,
    "net_receive": _segment,
    "net_backward": _last_segment,
    "net_return": _segment,
    "net_gradients": _segment,
    "net_apply": dense_step,
    "net_whole": _streams(3, 6, 8),
    # as if all of it were shared by the group, so that kept-back moves are subtracted from it
    "net_answered": _streams(5, 5, 6),
    "net_towards": _streams(10, 8, 9),
    "net_move": _streams(3, 5, 5),
    "row_numbers": cache.row_numbers,
    "virtual_ids": cache.virtual_ids,
    "probe": cache.probe,
    "fill": cache.fill,
    "cached_rows": cache.cached_rows,
    "update_cached": update_cached,
    "flush": cache.fetch_rows,
    # the client's side of Lookup and Update
    "route_ids": route_ids,
    "assemble_rows": assemble_rows,
    "route_gradient": route_gradient,
    # on both sides of requests that are rounded: as dear as a copy of the wide numbers
    "narrow": _streams(2, 2, 4),
    "widen": _streams(2, 2, 4),
    # served by shards
    "lookup_pooled": lookup_pooled,
    "lookup_rows": lookup_rows,
    "update_pooled": update_pooled,
    "update_rows": update_rows,
    "fetch_rows": cache.fetch_rows,
    "store_rows": cache.store_rows,
    "dense_read": _streams(2, 2, 1),
    "dense_apply": dense_step,
    "dense_elastic": _streams(8, 4, 7),
    "dense_elastic_new": _streams(10, 5, 8),
    # what a compression does on either side
    **COMPRESSION,
}
"""Of every operation by name: those that strategies ask for, those of services and of readers. The
executor has one kernel for each."""


def cost(name: str, scope: Scope) -> Work:
    """Counts of priced work for one invocation of the operation ``name``.

    Raises KeyError for an unknown operation.
    """
    return add(COSTS[name](scope), _ENTRY)


def seconds(
    work: Work, prices: Mapping[str, float], *, queued: bool = False
) -> tuple[float, float]:
    """(all seconds, those that hold the interpreter lock) of some work on one idle core.

    ``prices``: seconds per unit, by cost name. ``queued``: whether threads queue for the lock. A
    call out of Python gives it up, and has it back at once where it ends before a thread that waits
    has woken, ``handover`` seconds later on the mean. Both times vary: exponentially distributed
    ones of means c and h give the shorter of the two a mean of c h / (c + h), for which the lock is
    as good as held.
    """
    total = sum(units * prices[name] for name, units in work.items())
    held = sum(work[name] * prices[name] for name in LOCK_HELD if name in work)
    calls = work.get("interpreter", 0.0)
    if calls:
        held += calls * prices["interpreter"]
        outside = max(0.0, total - held)
        if queued and outside > 0.0:
            waking = calls * prices["handover"]
            held += outside * waking / (outside + waking)
    return total, min(total, held)


COOLED = (
    "effect", "asking", "request", "row_request", "message", "gloo_message", "collective_message",
)  # fmt: skip
"""Prices of what the work between two of them makes dearer
(`recsim_train.config.cluster.Cooling`)."""
LOCK_HELD = ("effect", "asking", "request", "row_request", "feed_batch")
"""Prices whose seconds hold the process's interpreter lock, besides calls out of Python."""
