"""Steps that several strategies take in the same way."""

from __future__ import annotations

from typing import Literal

from recsim_train.strategy.base import EMBEDDING
from recsim_train.strategy.effects import (
    AllReduce,
    Compute,
    Update,
)
from recsim_train.strategy.net import Net, through
from recsim_train.strategy.operations import FORWARD_BACKWARD, NET_APPLY
from recsim_train.strategy.prefetching import rows_of
from recsim_train.strategy.values import Batch, Dense


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
