"""Values that have a size and no content: what the simulator hands to strategies."""

from __future__ import annotations

from typing import Any

from recsim_train.strategy.values import Block, Dense, Features, Ids, Parts, Rows, Slots

Ghost = tuple[object, dict[str, Any]]
"""What an operation comes to: its answer, and the keywords of `Pricing.operation`."""


class GhostBlock(Block):
    """``size`` bytes that cross the network as they are, in rows of ``width`` values (0: one)."""

    __slots__ = ("size", "width")

    def __init__(self, size: int, width: int = 0) -> None:
        self.size = size
        self.width = width


class GhostDense(Dense):
    """Dense parameters or their gradient, or a part of them: [elements] in ``size`` bytes.

    ``start``: where a part lies in the central copy.
    """

    __slots__ = ("elements", "size", "start")

    def __init__(self, elements: int, size: int, start: int = 0) -> None:
        self.elements = elements
        self.size = size
        self.start = start


class GhostParts(Parts):
    """Bytes for, or from, each member of a group."""

    __slots__ = ("sizes",)

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes


class GhostIds(Ids):
    """The ids of one batch: those of the stream, or each once per table (``distinct``).

    ``position``, ``batch``: the training loop's place in the stream and its batch's number there.
    """

    __slots__ = ("batch", "distinct", "ids", "position", "unique")

    def __init__(
        self, position: int, batch: int, ids: int, unique: int, distinct: bool = False
    ) -> None:
        self.position = position
        self.batch = batch
        self.ids = ids
        self.unique = unique
        self.distinct = distinct


class GhostRows(Rows):
    """The answer of a lookup of ``ids``, or its gradient."""

    __slots__ = ("gradient", "ids")

    def __init__(self, ids: GhostIds, gradient: bool = False) -> None:
        self.ids = ids
        self.gradient = gradient

    def as_gradient(self) -> GhostRows:
        """The gradient of these rows."""
        return GhostRows(self.ids, gradient=True)


class GhostTable(GhostRows):
    """One row for each virtual id, or its gradient, in ``size`` bytes."""

    __slots__ = ("size",)

    def __init__(self, ids: GhostIds, size: int) -> None:
        super().__init__(ids)
        self.size = size

    def as_gradient(self) -> GhostTable:
        return self


class GhostSlots(Slots):
    """One step in a trainer's cache: the batch's virtual ids."""

    __slots__ = ("ids",)

    def __init__(self, ids: GhostIds) -> None:
        self.ids = ids


class GhostPart(Ids):
    """Distinct ids of which each embedding shard holds so many."""

    __slots__ = ("by_shard",)

    def __init__(self, by_shard: tuple[int, ...]) -> None:
        self.by_shard = by_shard


class GhostStored(Rows):
    """Rows with their optimizer's state, of which each embedding shard holds so many."""

    __slots__ = ("by_shard",)

    def __init__(self, by_shard: tuple[int, ...]) -> None:
        self.by_shard = by_shard


class GhostFeatures(Features):
    """Dense features and labels of ``size`` examples."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size
