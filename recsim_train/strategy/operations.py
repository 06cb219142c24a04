"""Named pieces of local work that a strategy may ask for with `Compute`.

An operation is declared here once: its name, what it takes, what it returns, one line of meaning.
Three tables have an entry under the same name: what it costs (`recsim_train.workload.operations`),
what sizes come out of it (`recsim_train.sim.perform`) and how it is really done
(`recsim_train.executor.operations`). A test compares them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Generic, ParamSpec, TypeVar

from recsim_train.strategy.values import (
    Batch,
    Block,
    Dense,
    Gradients,
    Ids,
    NetGradients,
    Parts,
    Probe,
    Rows,
    Slots,
    Sparse,
    Tape,
)

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


class Operation(Generic[P, T_co]):
    """A declared operation that takes ``P`` and returns ``T_co``."""

    def __init__(self, declared: Callable[P, T_co]) -> None:
        self._declared = declared
        self.name = declared.__name__.lower()
        self.summary = inspect.getdoc(declared) or ""

    def __reduce__(self) -> tuple[object, ...]:
        return _declared, (self.name,)  # another process has its own declaration

    @cached_property
    def takes(self) -> tuple[object, ...]:
        """The types of its arguments."""
        hints = typing.get_type_hints(self._declared)
        names = inspect.signature(self._declared).parameters
        return tuple((int, float) if hints[name] is float else hints[name] for name in names)

    def mistake(self, arguments: tuple[object, ...]) -> str:
        """Why it cannot work on these arguments; empty where it can."""
        takes = self.takes
        if len(arguments) == len(takes) and all(map(isinstance, arguments, takes)):  # type: ignore[arg-type]
            return ""
        given = ", ".join(type(a).__name__ for a in arguments)
        wanted = str(inspect.signature(self._declared)).partition(" ->")[0].replace("'", "")
        return f"Compute({self.name}) takes {wanted}, got ({given})"


OPERATIONS: dict[str, Operation[..., object]] = {}
"""All of them by name."""


def _declared(name: str) -> Operation[..., object]:
    return OPERATIONS[name]


def operation(declared: Callable[P, T_co]) -> Operation[P, T_co]:
    """Declare an operation: its name is the function's in lower case, its body stays empty."""
    made = Operation(declared)
    OPERATIONS[made.name] = made
    return made


@operation
def DEDUPLICATE(ids: Ids) -> Ids:
    """Unique ids per table, with the way back to the batch."""


@operation
def FORWARD_BACKWARD(batch: Batch, rows: Rows) -> Gradients:
    """Gradients of the mean log loss of the batch."""


@operation
def APPLY(gradient: Dense) -> None:
    """One local optimizer step on this host's replica."""


@operation
def LOAD(value: Dense) -> None:
    """Overwrite this host's replica."""


@operation
def SNAPSHOT() -> Dense:
    """A copy of this host's replica."""


@operation
def SUBTRACT(value: Dense) -> None:
    """replica -= value, in place, so that concurrent steps survive."""


@operation
def INTERPOLATE(value: Dense, share: float) -> None:
    """replica += share * (value - replica), in place, so that concurrent steps survive."""


@operation
def BLOCK_STEP(mean: Dense, rate: float, momentum: float) -> Dense:
    """This loop's global model, after D = momentum * D + rate * (mean - model), model += D."""


@operation
def TOWARDS(value: Dense, share: float) -> Dense:
    """share * (replica - value): the way from the value to the replica."""


@operation
def ACCUMULATE(gradient: Dense) -> None:
    """Add to this loop's accumulator."""


@operation
def DRAIN() -> Dense:
    """This loop's accumulated gradient; the accumulator is zero afterwards."""


@operation
def THRESHOLD(value: Dense, share: float) -> None:
    """Take, per tensor, the size that a share of residual + value reaches or exceeds."""


@operation
def SPARSIFY(value: Dense) -> Sparse:
    """Entries of residual + value at the threshold; the rest is the residual."""


@operation
def THRESHOLD_DIFFERENCE(difference: Dense, share: float) -> None:
    """Take, per tensor, the size that a share of a difference reaches or exceeds."""


@operation
def SPARSIFY_DIFFERENCE(difference: Dense) -> Sparse:
    """Entries of a difference of states at the threshold; no residual, since the states themselves
    hold the rest."""


@operation
def DENSIFY(parts: Parts | Sparse) -> Dense:
    """The mean of sparse vectors, or one of them in full."""


@operation
def NET_OPEN(batch: Batch, rows: Rows) -> Tape:
    """A pass through this host's part of the net."""


@operation
def NET_FORWARD(tape: Tape, cut: int) -> Block | Parts:
    """Run the segment before a cut; what crosses it."""


@operation
def NET_RECEIVE(tape: Tape, cut: int, arrived: Block | Parts) -> None:
    """Take in what crossed a cut."""


@operation
def NET_BACKWARD(tape: Tape, cut: int) -> Block | Parts:
    """Backward of the segment after a cut; gradients that cross back."""


@operation
def NET_RETURN(tape: Tape, cut: int, arrived: Block | Parts) -> None:
    """Take in gradients that crossed a cut."""


@operation
def NET_GRADIENTS(tape: Tape) -> NetGradients:
    """Backward of the first segment; all gradients of this host."""


@operation
def NET_APPLY(gradients: NetGradients, shared: Dense) -> None:
    """One local optimizer step; ``shared``: the shared part of the gradients, summed."""


@operation
def NET_WHOLE() -> Dense:
    """The parameters that this host answers for, zero elsewhere [parameters]."""


@operation
def NET_ANSWERED() -> Dense:
    """A copy of the parameters that this host answers for to other groups."""


@operation
def NET_TOWARDS(value: Dense, share: float) -> Dense:
    """share * (what this host answers for - value)."""


@operation
def NET_MOVE(difference: Dense) -> None:
    """What this host answers for -= difference; shared parts with the next step."""


@operation
def ROW_NUMBERS(ids: Ids) -> Block:
    """Each id's row number over all tables, as it travels."""


@operation
def VIRTUAL_IDS(ids: Ids, everyones: Parts) -> Ids:
    """The sorted union of all trainers' row numbers, the batch as places in it."""


@operation
def PROBE(ids: Ids) -> Probe:
    """Slots of this trainer's own rows of virtual ids; those that are missing get one."""


@operation
def FILL(slots: Slots, fetched: Rows) -> Rows:
    """Put fetched rows into the cache; the rows that had to leave."""


@operation
def CACHED_ROWS(slots: Slots) -> Rows:
    """One row per virtual id: this trainer's own ones, zeros elsewhere."""


@operation
def UPDATE_CACHED(slots: Slots, gradient: Rows) -> None:
    """The rows' optimizer steps on this trainer's own rows."""


@operation
def FLUSH() -> Rows:
    """All cached rows, to be stored; the cache is empty afterwards."""
