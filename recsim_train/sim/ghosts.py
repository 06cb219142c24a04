"""Values that have a size and no content: what the simulator hands to strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recsim_train.strategy.values import (
    Block,
    Dense,
    Features,
    Ids,
    Parts,
    Rows,
    Slots,
    Sparse,
    Tape,
)

Ghost = tuple[object, dict[str, Any]]
"""What an operation comes to: its answer, and the keywords of `Pricing.operation`."""


@dataclass(slots=True, eq=False)
class GhostBlock(Block):
    """``size`` bytes that cross the network as they are."""

    size: int


@dataclass(slots=True, eq=False)
class GhostDense(Dense):
    """Dense parameters or their gradient, or a part of them: [elements] in ``size`` bytes.

    ``start``: where a part lies in the central copy. ``maker``: the loop whose backward pass
    has made it, in memory from which that loop may send it without copying it; else nobody.
    """

    elements: int
    size: int
    start: int = 0
    maker: str = ""


@dataclass(slots=True, eq=False)
class GhostSparse(Sparse):
    """Entries of a dense vector that pass a threshold of this ``share``: ``size`` bytes."""

    size: int
    share: float


@dataclass(slots=True, eq=False)
class GhostParts(Parts):
    """Bytes for, or from, each member of a group."""

    sizes: tuple[int, ...]


@dataclass(slots=True, eq=False)
class GhostIds(Ids):
    """The ids of one batch: those of the stream, or each once per table (``distinct``).

    ``position``, ``batch``: the training loop's place in the stream and its batch's number there.
    """

    position: int
    batch: int
    ids: int
    unique: int
    distinct: bool = False


@dataclass(slots=True, eq=False)
class GhostRows(Rows):
    """The answer of a lookup of ``ids``, or its gradient."""

    ids: GhostIds
    gradient: bool = False


@dataclass(slots=True, eq=False)
class GhostTable(GhostRows):
    """One row for each virtual id, or its gradient, in ``size`` bytes."""

    size: int = 0


@dataclass(slots=True, eq=False)
class GhostSlots(Slots):
    """One step in a trainer's cache: the batch's virtual ids."""

    ids: GhostIds


@dataclass(slots=True, eq=False)
class GhostPart(Ids):
    """Distinct ids of which each embedding shard holds so many."""

    by_shard: tuple[int, ...]


@dataclass(slots=True, eq=False)
class GhostStored(Rows):
    """Rows with their optimizer's state, of which each embedding shard holds so many."""

    by_shard: tuple[int, ...]


@dataclass(slots=True, eq=False)
class GhostFeatures(Features):
    """Dense features and labels of ``size`` examples."""

    size: int


@dataclass(slots=True, eq=False)
class GhostPass(Tape):
    """One batch on its way through one host's part of a cut net."""

    ids: GhostIds
