"""Synchronous data parallelism by all-reduce: the control that everybody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    EMBEDDING,
    TRAINERS,
    EmbeddingService,
    Group,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import AllReduce, Compute, Lookup, Update, batches
from recsim_train.strategy.operations import APPLY, DEDUPLICATE, FORWARD_BACKWARD


@dataclass
class AllReduceSGD(Strategy):
    """Replicated dense parameters, sharded embeddings, every step synchronous.

    All trainers' embedding gradients are applied together and acknowledged, and dense gradients are
    averaged before the step, so n trainers with batch b compute what one would with batch n*b.
    """

    kind: ClassVar[str] = "allreduce"
    summary: ClassVar[str] = "synchronous data parallelism by all-reduce"
    source: ClassVar[str] = "the hybrid parallelism of DLRM (arXiv 1906.00091)"
    lock_step: ClassVar[bool] = True

    pooling: Literal["server", "worker"] = option(
        "server", help="where embedding bags are summed: pooled vectors or unique rows travel"
    )

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("worker", self.worker),),
            services=(EmbeddingService(pooling=self.pooling, apply="together"),),
            groups=(Group(TRAINERS, loop="worker"),),
        )

    async def worker(self) -> None:
        async for batch in batches():
            ids = batch.ids
            if self.pooling == "worker":
                ids = await Compute(DEDUPLICATE, ids)
            rows = await Lookup(EMBEDDING, ids)
            gradients = await Compute(FORWARD_BACKWARD, batch, rows)
            await Update(EMBEDDING, gradients.rows)
            await Compute(APPLY, await AllReduce(gradients.dense, TRAINERS))
