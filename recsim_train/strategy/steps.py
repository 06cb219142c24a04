"""Steps that several strategies take in the same way."""

from __future__ import annotations

from typing import Literal

from recsim_train.strategy.base import DENSE, EMBEDDING
from recsim_train.strategy.compression import Compression
from recsim_train.strategy.effects import (
    AllReduce,
    Compute,
    Exchange,
    Lookup,
    Pull,
    Synced,
    Update,
)
from recsim_train.strategy.net import Net, through
from recsim_train.strategy.operations import (
    DEDUPLICATE,
    FORWARD_BACKWARD,
    NET_APPLY,
    SNAPSHOT,
    SUBTRACT,
    TOWARDS,
)
from recsim_train.strategy.values import Batch, Dense


async def learn(batch: Batch, pooling: Literal["server", "worker"]) -> Dense:
    """Look up, compute, send the embeddings' gradient; the dense gradient is the answer."""
    ids = batch.ids
    if pooling == "worker":
        ids = await Compute(DEDUPLICATE, ids)
    gradients = await Compute(FORWARD_BACKWARD, batch, await Lookup(EMBEDDING, ids))
    await Update(EMBEDDING, gradients.rows)
    return gradients.dense


async def elastic_exchange(
    alpha: float,
    central: Literal["old", "new"] = "old",
    compression: Compression | None = None,
    number: int = 0,
) -> None:
    """Pull replica and central copy towards each other; concurrent steps of others survive.

    Only differences have small entries to leave out. With a sparse ``compression`` the loop
    therefore fetches the central copy, and both sides move by those entries of the difference that
    are sent; the others stay apart and are in the next difference. ``number`` counts this loop's
    exchanges.
    """
    if compression is not None and compression.sparse:
        difference = await Compute(TOWARDS, await Pull(DENSE), alpha)
        moved = await compression.add(DENSE, difference, number)
    else:
        moved = await Exchange(DENSE, await Compute(SNAPSHOT), alpha, central)
    await Compute(SUBTRACT, moved)
    await Synced()


async def learn_cut(net: Net, batch: Batch, group: str) -> None:
    """One synchronous step of a group's cut net: look up, pass, update rows and parameters."""
    rows = await Lookup(EMBEDDING, batch.ids)
    gradients = await through(net, batch, rows, group)
    await Update(EMBEDDING, gradients.rows)
    shared = gradients.shared
    if net.shares:
        shared = await AllReduce(shared, group, "sum")
    await Compute(NET_APPLY, gradients, shared)
