"""Steps that several strategies take in the same way."""

from __future__ import annotations

from typing import Literal

from recsim_train.strategy.base import DENSE, EMBEDDING
from recsim_train.strategy.effects import Compute, Exchange, Lookup, Update
from recsim_train.strategy.operations import DEDUPLICATE, FORWARD_BACKWARD, SNAPSHOT, SUBTRACT
from recsim_train.strategy.values import Batch, Dense


async def learn(batch: Batch, pooling: Literal["server", "worker"]) -> Dense:
    """Look up, compute, send the embeddings' gradient; the dense gradient is the answer."""
    ids = batch.ids
    if pooling == "worker":
        ids = await Compute(DEDUPLICATE, ids)
    gradients = await Compute(FORWARD_BACKWARD, batch, await Lookup(EMBEDDING, ids))
    await Update(EMBEDDING, gradients.rows)
    return gradients.dense


async def elastic_exchange(alpha: float, central: Literal["old", "new"] = "old") -> None:
    """Pull replica and central copy towards each other; concurrent steps of others survive."""
    replica = await Compute(SNAPSHOT)
    await Compute(SUBTRACT, await Exchange(DENSE, replica, alpha, central))
