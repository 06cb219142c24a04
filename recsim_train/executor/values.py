"""The values of the real world: opaque to strategies, tensors for the runtime."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from recsim_train.strategy.values import Block, Dense, Features, Ids, Parts, Rows


@dataclass(frozen=True, slots=True, eq=False)
class RealBlock(Block):
    """Numbers that cross the network as they are, such as activations [examples, width]."""

    tensor: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RealParts(Parts):
    """One tensor for, or from, each member of a group."""

    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RealDense(Dense):
    """A flat vector over the dense parameters, [parameters], or a part of it.

    ``start``: where a part lies in the central copy.
    """

    tensor: Tensor
    start: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RealFeatures(Features):
    """Dense features [batch, features] and labels [batch]."""

    dense: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RealIds(Ids):
    """Ids of one batch, table by table.

    ``values``: int64, table-major. ``lengths``: per table None (every bag holds exactly the
    table's number of ids) or int32 [batch]. ``offsets``: start of each table in ``values``,
    [tables + 1]. After de-duplication ``inverse`` leads from each id's place in the batch to its
    unique row (over all tables), and ``batch_ids`` are the ids before.
    """

    values: Tensor
    offsets: tuple[int, ...]
    lengths: tuple[Tensor | None, ...]
    batch: int
    inverse: Tensor | None = None
    batch_ids: RealIds | None = None

    def table(self, index: int) -> Tensor:
        """Ids of one table."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class RealRows(Rows):
    """Pooled vectors [tables, batch, dim], or rows of unique ids [unique, dim], and their ids."""

    tensor: Tensor
    ids: RealIds
