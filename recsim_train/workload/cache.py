"""Costs of the operations of a trainer's row cache; see `recsim_train.workload.operations`."""

from __future__ import annotations

from recsim_train.workload import shape
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.scope import Scope


def row_numbers(s: Scope) -> Work:
    """Each of ``ids`` ids plus its table's first row."""
    return {"stream_byte": 5 * shape.ID_BYTES * s.ids, "call": 14, "interpreter": 6}


def virtual_ids(s: Scope) -> Work:
    """Sort the ``ids`` ids of all trainers, find the batch's own among the ``unique`` ones."""
    own = s.batch * sum(shape.mean_ids(s.model, t) for t in range(len(s.model.tables)))
    return {
        "unique_id": s.ids,
        "gather_row": own,
        "stream_byte": shape.ID_BYTES * (4 * s.ids + 5 * s.unique + 6 * own),
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
