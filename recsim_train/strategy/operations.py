"""Named pieces of local work that a strategy may ask for with `Compute`.

An operation is only a name and a type. What it costs is said in `recsim_train.workload`, how it is
really done in `recsim_train.executor`; a test holds the three lists together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from recsim_train.strategy.values import Dense, Gradients, Ids

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
INTERPOLATE: Operation[None] = Operation(
    "interpolate",
    "(dense, share): replica += share * (value - replica), in place, so that concurrent steps "
    "survive",
)
BLOCK_STEP: Operation[Dense] = Operation(
    "block_step",
    "(mean, rate, momentum) -> this loop's global model after D = momentum * D + rate * (mean - "
    "model), model += D",
)
ACCUMULATE: Operation[None] = Operation(
    "accumulate", "(dense gradient): add to this loop's accumulator"
)
DRAIN: Operation[Dense] = Operation(
    "drain", "() -> this loop's accumulated gradient; the accumulator is zero afterwards"
)

OPERATIONS: tuple[Operation[object], ...] = (
    DEDUPLICATE,
    FORWARD_BACKWARD,
    APPLY,
    LOAD,
    SNAPSHOT,
    SUBTRACT,
    INTERPOLATE,
    BLOCK_STEP,
    ACCUMULATE,
    DRAIN,
)
