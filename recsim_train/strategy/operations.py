"""Named pieces of local work that a strategy may ask for with `Compute`.

An operation is only a name and a type. What it costs is said in `recsim_train.workload`, how it is
really done in `recsim_train.executor`; a test holds the three lists together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from recsim_train.strategy.values import Block, Dense, Gradients, Ids, Masked, Sparse

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
THRESHOLD: Operation[None] = Operation(
    "threshold",
    "(dense, share): per tensor, the size that a share of residual + value reaches or exceeds",
)
SPARSIFY: Operation[Sparse] = Operation(
    "sparsify", "(dense) -> entries of residual + value at the threshold; the rest is the residual"
)
DENSIFY: Operation[Dense] = Operation("densify", "(parts) -> the mean of sparse vectors")
MASK: Operation[Masked] = Operation(
    "mask", "(block, share) -> the largest entries of every row, with their places"
)
UNMASK: Operation[Block] = Operation(
    "unmask", "(masked) -> the block with zeros where nothing was kept"
)
PICK: Operation[Masked] = Operation(
    "pick", "(block, masked) -> the block's entries at the kept places, without the places"
)
UNPICK: Operation[Block] = Operation(
    "unpick", "(picked, masked) -> the picked entries at the kept places, zeros elsewhere"
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
    THRESHOLD,
    SPARSIFY,
    DENSIFY,
    MASK,
    UNMASK,
    PICK,
    UNPICK,
)
