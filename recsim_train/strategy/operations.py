"""Named pieces of local work that a strategy may ask for with `Compute`.

An operation is only a name and a type. What it costs is said in `recsim_train.workload`, how it is
really done in `recsim_train.executor`; a test holds the three lists together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from recsim_train.strategy.values import (
    Block,
    Dense,
    Gradients,
    Ids,
    Masked,
    NetGradients,
    Parts,
    Probe,
    Rows,
    Sparse,
    Tape,
)

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
TOWARDS: Operation[Dense] = Operation(
    "towards", "(dense, share) -> share * (replica - value): the way from the replica to the value"
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
THRESHOLD_DIFFERENCE: Operation[None] = Operation(
    "threshold_difference",
    "(dense, share): per tensor, the size that a share of a difference reaches or exceeds",
)
SPARSIFY_DIFFERENCE: Operation[Sparse] = Operation(
    "sparsify_difference",
    "(dense) -> entries of a difference of states at the threshold; no residual, since the states "
    "themselves hold the rest",
)
DENSIFY: Operation[Dense] = Operation(
    "densify", "(parts, or one sparse vector) -> the mean of sparse vectors"
)
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

NET_OPEN: Operation[Tape] = Operation(
    "net_open", "(batch, rows) -> a pass through this host's part of the net"
)
NET_FORWARD: Operation[Block | Parts] = Operation(
    "net_forward", "(pass, cut) -> run the segment before a cut; what crosses it"
)
NET_RECEIVE: Operation[None] = Operation("net_receive", "(pass, cut, what arrived)")
NET_BACKWARD: Operation[Block | Parts] = Operation(
    "net_backward", "(pass, cut) -> backward of the segment after a cut; gradients that cross back"
)
NET_RETURN: Operation[None] = Operation("net_return", "(pass, cut, gradients that arrived)")
NET_GRADIENTS: Operation[NetGradients] = Operation(
    "net_gradients", "(pass) -> backward of the first segment; all gradients of this host"
)
NET_APPLY: Operation[None] = Operation(
    "net_apply", "(gradients, their summed shared part): one local optimizer step"
)
NET_WHOLE: Operation[Dense] = Operation(
    "net_whole", "() -> the parameters that this host answers for, zero elsewhere [parameters]"
)
NET_ANSWERED: Operation[Dense] = Operation(
    "net_answered", "() -> a copy of the parameters that this host answers for to other groups"
)
NET_TOWARDS: Operation[Dense] = Operation(
    "net_towards", "(dense, share) -> share * (what this host answers for - value)"
)
NET_MOVE: Operation[None] = Operation(
    "net_move", "(difference): what this host answers for -= value; shared parts with the next step"
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
    TOWARDS,
    INTERPOLATE,
    BLOCK_STEP,
    ACCUMULATE,
    DRAIN,
    NET_OPEN,
    NET_FORWARD,
    NET_RECEIVE,
    NET_BACKWARD,
    NET_RETURN,
    NET_GRADIENTS,
    NET_APPLY,
    NET_WHOLE,
    NET_ANSWERED,
    NET_TOWARDS,
    NET_MOVE,
    THRESHOLD,
    SPARSIFY,
    THRESHOLD_DIFFERENCE,
    SPARSIFY_DIFFERENCE,
    DENSIFY,
    MASK,
    UNMASK,
    PICK,
    UNPICK,
    ROW_NUMBERS,
    VIRTUAL_IDS,
    PROBE,
    FILL,
    CACHED_ROWS,
    UPDATE_CACHED,
    FLUSH,
)
