"""Steps that strategies share, and lookups that are sent some batches ahead of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from recsim_train.strategy.base import EMBEDDING, Strategy, option
from recsim_train.strategy.effects import (
    AllReduce,
    Compute,
    Handle,
    Lookup,
    NextBatch,
    Start,
    Update,
    Wait,
)
from recsim_train.strategy.net import Net, through
from recsim_train.strategy.operations import DEDUPLICATE, FORWARD_BACKWARD, NET_APPLY
from recsim_train.strategy.values import Batch, Dense, Ids, Rows

Pooling = Literal["server", "worker"]
MOST_AHEAD = 8
"""Batches; both ends keep what a lookup has left until its update."""


@dataclass(kw_only=True)
class Prefetching(Strategy):
    """A base of strategies whose workers may look up rows ahead."""

    prefetch: int = option(
        0,
        help="batches whose lookup is sent before the present one is computed (d): it does not see "
        "the last d updates of its own loop; 0: each lookup sees them all",
        minimum=0,
        maximum=MOST_AHEAD,
    )

    def notes(self) -> list[str]:
        if not self.prefetch:
            return []
        last = "update" if self.prefetch == 1 else f"{self.prefetch} updates"
        return [f"prefetch={self.prefetch}: a lookup does not see the last {last} of its own loop"]


@dataclass(frozen=True, slots=True, eq=False)
class AskedAhead(Batch):
    """A batch whose rows are on their way, or there."""

    asked: Handle[Rows]


async def ids_of(batch: Batch, pooling: Pooling) -> Ids:
    """The ids whose rows a batch needs, as the tables are asked for them."""
    return batch.ids if pooling == "server" else await Compute(DEDUPLICATE, batch.ids)


async def rows_of(batch: Batch, pooling: Pooling) -> Rows:
    """A batch's embeddings: those that were asked for ahead, or as they are now."""
    if isinstance(batch, AskedAhead):
        rows: Rows = await Wait(batch.asked)
        return rows
    return await Lookup(EMBEDDING, await ids_of(batch, pooling))


class prefetched:  # noqa: N801 - reads as a word: `async for batch in prefetched(...)`
    """``async for batch in prefetched(pooling, ahead)``: every mini-batch of this loop, in stream
    order, with the lookups of the next ``ahead`` ones sent; 0: as `batches`."""

    def __init__(self, pooling: Pooling, ahead: int) -> None:
        self._pooling, self._ahead = pooling, ahead
        self._due: deque[Batch] = deque()
        self._ended = False

    def __aiter__(self) -> prefetched:
        return self

    async def __anext__(self) -> Batch:
        await self._take(early=False)
        while len(self._due) <= self._ahead and await self._take(early=True):
            pass
        if not self._due:
            raise StopAsyncIteration
        return self._due.popleft()

    async def _take(self, *, early: bool) -> bool:
        """Whether there was one."""
        if self._ended and early:
            return False
        held = len(self._due)
        batch = await NextBatch(early, held)
        if not isinstance(batch, Batch):
            self._ended = batch is None
            return False
        if self._ahead:
            asked = await Start(Lookup(EMBEDDING, await ids_of(batch, self._pooling)), ahead=held)
            self._due.append(AskedAhead(batch.size, batch.ids, batch.features, batch.number, asked))
        else:
            self._due.append(batch)
        return True


async def learn(batch: Batch, pooling: Literal["server", "worker"]) -> Dense:
    """Look up, compute, send the embeddings' gradient; the dense gradient is the answer."""
    rows = await rows_of(batch, pooling)
    gradients = await Compute(FORWARD_BACKWARD, batch, rows)
    await Update(EMBEDDING, gradients.rows)
    return gradients.dense


async def learn_cut(net: Net, batch: Batch, group: str) -> None:
    """One synchronous step of a group's cut net: look up, pass, update rows and parameters."""
    rows = await rows_of(batch, "server")
    gradients = await through(net, batch, rows, group)
    await Update(EMBEDDING, gradients.rows)
    shared = gradients.shared
    if net.shares:
        shared = await AllReduce(shared, group, "sum")
    await Compute(NET_APPLY, gradients, shared)
