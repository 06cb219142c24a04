"""Local SGD (arXiv 1808.07217): steps on own replicas, whose weights are averaged now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    TRAINERS,
    Group,
    Loop,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import AllReduce, Compute, Synced
from recsim_train.strategy.operations import APPLY
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import Prefetching, learn, prefetched
from recsim_train.strategy.synchronisers import Held, ModelAveraging, Round


@dataclass
class LocalSGD(Prefetching):
    """Post-local SGD: averaged gradients for the first steps, then averaged weights every H steps.

    The paper trains dense nets. That embedding rows, of which there is one copy, take one step with
    the mean of all trainers' gradients in both phases, as for `allreduce`, is ours.
    """

    kind: ClassVar[str] = "localsgd"
    summary: ClassVar[str] = "local steps, an all-reduce of the weights every H (post-local SGD)"
    source: ClassVar[str] = "post-local SGD (Lin et al. 2020, arXiv 1808.07217); embeddings: ours"
    lock_step: ClassVar[bool] = True

    every: int = option(8, help="local steps between two averages of the weights (H)", minimum=1)
    switch: int = option(
        0, help="steps at first that average gradients instead; 0: local from the start", minimum=0
    )
    pooling: Literal["server", "worker"] = option(
        "server", help="where embedding bags are summed: pooled vectors or unique rows travel"
    )
    compression: Compression = part(NoCompression, help="what is left out of pooled embeddings")

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("worker"),),
            services=(self.compression.embedding(self.pooling, "together"),),
            groups=(Group(TRAINERS, loop="worker"),),
            steady=not self.switch,
            period=self.every,
            ahead=self.prefetch,
        )

    def problems(self) -> list[str]:
        if self.compression.sparse:
            return [
                "localsgd composes compression.mode mp only: weights have no small entries to "
                "leave out"
            ]
        return self.compression.problems(self.pooling)

    async def worker(self) -> None:
        apart = 0
        async for batch in prefetched(self.pooling, self.prefetch):
            gradient = await learn(batch, self.pooling)
            if batch.number < self.switch:
                await Compute(APPLY, await AllReduce(gradient, TRAINERS))
                await Synced()
            else:
                await Compute(APPLY, gradient)
                apart = (batch.number + 1 - self.switch) % self.every
                if not apart:
                    await self.average()
        if apart:
            await self.average()

    async def average(self) -> None:
        await ModelAveraging(alpha=1.0).meet(Held(), Round(TRAINERS))
