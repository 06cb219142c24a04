"""Costs of the operations on embedding rows, at clients, at shards and in a trainer's cache; see
`recsim_train.workload.operations`."""

from __future__ import annotations

from recsim_train.workload import shape
from recsim_train.workload.arithmetic import Work, add
from recsim_train.workload.scope import Scope

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
        return {
            "stream_byte": 2 * moved,
            "call": 6 + 10 * s.shards,
            "interpreter": 3 + 4 * s.shards,
        }
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
    """Shard: read the rows of ``ids`` ids, each from far away once, sum them per bag."""
    row = shape.row_bytes(s.model)
    return add(
        _bags(s),
        {
            "gather_row": s.unique,
            "gather_byte": row * s.unique,
            "stream_byte": row * (s.ids + s.tables * s.batch),
            "call": 2,
            "interpreter": 2,
        },
    )


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


def update_cached(s: Scope) -> Work:
    """The row optimizer's step on ``unique`` cached rows."""
    return add(
        {"stream_byte": 2 * shape.row_bytes(s.model) * s.unique, "call": 3, "interpreter": 3},
        _step_on_rows(s, s.unique, s.unique),
    )


def row_numbers(s: Scope) -> Work:
    """Each of ``ids`` ids plus its table's first row."""
    return {"stream_byte": 5 * shape.ID_BYTES * s.ids, "call": 14, "interpreter": 6}


def virtual_ids(s: Scope) -> Work:
    """The distinct ones of the ``ids`` ids of all trainers, and where each is among them."""
    return {
        "unique_id": s.ids,
        "stream_byte": shape.ID_BYTES * (4 * s.ids + 5 * s.unique),
        "call": 30,
        "interpreter": 20,
    }


def probe(s: Scope) -> Work:
    """Which of ``unique`` own rows are in the ``elements`` slots of a cache; ``ids``: the virtual
    ids, among which they are found."""
    return {
        "gather_row": s.unique,
        "scatter_row": s.unique,
        "stream_byte": shape.ID_BYTES * (4 * s.ids + 8 * s.unique + 2 * s.elements),
        "call": 60,
        "interpreter": 40,
    }


def _moved_rows(s: Scope, gathered: float, scattered: float) -> Work:
    """Rows with their optimizer's state out of a table, and into one."""
    row = shape.stored_row_bytes(s.model, s.training)
    return {
        "gather_row": gathered,
        "gather_byte": row * gathered,
        "scatter_row": scattered,
        "scatter_byte": row * scattered,
        "stream_byte": 2 * row * gathered + 2 * row * scattered,
        "call": 8 * (gathered > 0) + 8 * (scattered > 0) + 6,
        "interpreter": 10,
    }


def fill(s: Scope) -> Work:
    """``ids`` rows leave the cache, ``unique`` ones come into it."""
    return _moved_rows(s, s.ids, s.unique)


def cached_rows(s: Scope) -> Work:
    """``unique`` cached rows into a table of ``ids`` rows that is zero elsewhere."""
    row = shape.row_bytes(s.model)
    return {
        "gather_row": s.unique,
        "gather_byte": row * s.unique,
        "stream_byte": row * (s.ids + 3 * s.unique),
        "call": 6,
        "interpreter": 6,
    }


def fetch_rows(s: Scope) -> Work:
    """Shard: read ``unique`` rows with their optimizer's state."""
    return _moved_rows(s, s.unique, 0)


def store_rows(s: Scope) -> Work:
    """Shard: overwrite ``unique`` rows and their optimizer's state."""
    return _moved_rows(s, 0, s.unique)
