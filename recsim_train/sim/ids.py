"""What the simulator asks of the data: how many ids each batch brings to each shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ShardIds(Protocol):
    """Ids of one batch that fall on one shard."""

    @property
    def ids(self) -> int:
        """With repetitions."""

    @property
    def unique(self) -> int:
        """Distinct (table, id) pairs."""

    @property
    def lengths(self) -> int:
        """Bag lengths that travel with them."""


class Counts(Protocol):
    """Counts of a plan's id stream, such as ``recsim_train.data.counts`` makes them."""

    def shard_counts(self, position: int, iteration: int) -> Sequence[ShardIds]:
        """Per embedding shard: batch ``iteration`` of the training loop at ``position``."""

    def batch_counts(self, position: int, iteration: int) -> tuple[int, int]:
        """(ids, unique) of that whole batch."""
