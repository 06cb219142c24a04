"""Named pieces of local work that a strategy may ask for with `Compute`.

An operation is only a name and a type. What it costs is said in `recsim_train.workload`, how it is
really done in `recsim_train.executor`; a test holds the three lists together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from recsim_train.strategy.values import Block, Dense, Gradients, Ids, Probe, Rows

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Operation(Generic[T_co]):
    """A named operation whose result has type ``T_co``."""

    name: str
    summary: str


DEDUPLICATE: Operation[Ids] = Operation(
    "deduplicate", "(ids) -> unique ids per table, with the way back to the batch"
)
FORWARD_BACKWARD: Operation[Gradients] = Operation(
    "forward_backward", "(batch, rows) -> gradients of the mean log loss of the batch"
)
APPLY: Operation[None] = Operation(
    "apply", "(dense gradient): one local optimizer step on this host's replica"
)
LOAD: Operation[None] = Operation("load", "(dense): overwrite this host's replica")
SNAPSHOT: Operation[Dense] = Operation("snapshot", "() -> a copy of this host's replica")
SUBTRACT: Operation[None] = Operation(
    "subtract", "(dense): replica -= value, in place, so that concurrent steps survive"
)
ACCUMULATE: Operation[None] = Operation(
    "accumulate", "(dense gradient): add to this loop's accumulator"
)
DRAIN: Operation[Dense] = Operation(
    "drain", "() -> this loop's accumulated gradient; the accumulator is zero afterwards"
)
ROW_NUMBERS: Operation[Block] = Operation(
    "row_numbers", "(ids) -> each id's row number over all tables, as it travels"
)
VIRTUAL_IDS: Operation[Ids] = Operation(
    "virtual_ids",
    "(ids, all trainers' row numbers) -> their sorted union, the batch as places in it",
)
PROBE: Operation[Probe] = Operation(
    "probe", "(virtual ids) -> slots of this trainer's own rows; those that are missing get one"
)
FILL: Operation[Rows] = Operation(
    "fill", "(slots, fetched rows): put them into the cache -> the rows that had to leave"
)
CACHED_ROWS: Operation[Rows] = Operation(
    "cached_rows", "(slots) -> one row per virtual id: this trainer's own ones, zeros elsewhere"
)
UPDATE_CACHED: Operation[None] = Operation(
    "update_cached", "(slots, gradient): the rows' optimizer steps on this trainer's own rows"
)
FLUSH: Operation[Rows] = Operation(
    "flush", "() -> all cached rows, to be stored; the cache is empty afterwards"
)

OPERATIONS: tuple[Operation[object], ...] = (
    DEDUPLICATE,
    FORWARD_BACKWARD,
    APPLY,
    LOAD,
    SNAPSHOT,
    SUBTRACT,
    ACCUMULATE,
    DRAIN,
    ROW_NUMBERS,
    VIRTUAL_IDS,
    PROBE,
    FILL,
    CACHED_ROWS,
    UPDATE_CACHED,
    FLUSH,
)
