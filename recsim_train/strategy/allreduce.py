"""Synchronous data parallelism by all-reduce: the control that everybody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    TRAINERS,
    Group,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import Compute, batches
from recsim_train.strategy.operations import APPLY
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import learn


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
    compression: Compression = part(NoCompression, help=Compression.summary)

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("worker"),),
            services=(self.compression.embedding(self.pooling, "together"),),
            groups=(Group(TRAINERS, loop="worker"),),
            thresholded="all_gather" if self.compression.sparse else None,
        )

    def problems(self) -> list[str]:
        return self.compression.problems(self.pooling)

    async def worker(self) -> None:
        async for batch in batches():
            gradient = await learn(batch, self.pooling)
            mean = await self.compression.all_reduce(gradient, TRAINERS, batch.number)
            await Compute(APPLY, mean)
