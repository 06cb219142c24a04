"""Values that flow through a strategy: opaque on purpose.

The simulator's values have a size and no content, the executor's hold tensors. A strategy that
branched on one would behave differently in the two worlds, so every value refuses to be compared
or converted. Branch on your own state, on `Now`, or on the end of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn


class OpaqueValueError(TypeError):
    """A strategy tried to look inside a value."""


class Opaque:
    """Base of all values: no truth, no order, no number, no length, no iteration."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise OpaqueValueError(
            f"a strategy may not branch on a tensor: this {type(self).__name__} has no content here"
        )

    __bool__ = __float__ = __int__ = __index__ = _refuse
    __len__ = __iter__ = __contains__ = __getitem__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = _refuse
    __ne__ = _refuse
    __hash__ = object.__hash__


class Block(Opaque):
    """Numbers that cross the network as they are."""

    __slots__ = ()


class Parts(Opaque):
    """One block for, or from, each member of a group, in member order."""

    __slots__ = ()


class Dense(Block):
    """A vector over the dense parameters, [parameters], or a part of it."""

    __slots__ = ()


class Sparse(Block):
    """The entries of a dense vector that are worth sending, with their places."""

    __slots__ = ()


class Ids(Opaque):
    """Categorical ids of one mini-batch, for every table."""

    __slots__ = ()


class Rows(Block):
    """Embeddings (or their gradients) for one mini-batch: pooled vectors or rows of unique ids."""

    __slots__ = ()


class Tape(Opaque):
    """One pass of one host through its part of a net."""

    __slots__ = ()


class Features(Opaque):
    """Dense features [batch, dense_features] and labels [batch]."""

    __slots__ = ()


class Slots(Opaque):
    """Where a trainer's cache holds the rows of one step, and whom they replace there."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A cache's answer to the ids of one step: their slots, and the ids whose rows must come."""

    slots: Slots
    missing: Ids


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One mini-batch of ``size`` examples.

    ``number``: of its loop's batches, from 0 at the job's beginning. By it a program knows which
    iteration it is in, also where it goes on from a checkpoint.
    """

    size: int
    ids: Ids
    features: Features
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """What a backward pass leaves: the dense parameters' gradient and the embeddings'."""

    dense: Dense
    rows: Rows


@dataclass(frozen=True, slots=True, eq=False)
class NetGradients:
    """What a pass through a cut net leaves at one host.

    ``own``: the gradient of this host's dense parameters, complete but for ``shared``: that part of
    it which must be summed over the group.
    """

    own: Dense
    shared: Dense
    rows: Rows
