"""Flat parameter server: the asynchronous baseline that the later systems start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    DENSE,
    TRAINERS,
    DenseService,
    Loop,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import Compute, Pull
from recsim_train.strategy.operations import ACCUMULATE, APPLY, DRAIN, LOAD
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import Prefetching, learn, prefetched
from recsim_train.strategy.synchronisers import Easgd, Held, Round
from recsim_train.strategy.values import Batch


@dataclass
class FlatPS(Prefetching):
    """Hogwild trainers against embedding servers and dense servers; no trainer waits for another.

    downpour (Dean et al. 2012): pull the central weights, compute, push the gradient; with
    ``every`` = k the worker steps on its replica and pulls and pushes each k-th iteration; what it
    has gathered since the last push follows after its last batch.
    easgd (Zhang et al. 2015; FR-EASGD-k in arXiv 2003.03477): the worker steps on its replica and
    each k-th iteration stops to exchange an elastic difference with the central copy.
    """

    kind: ClassVar[str] = "flat_ps"
    summary: ClassVar[str] = "asynchronous parameter server (Downpour or FR-EASGD-k)"
    source: ClassVar[str] = "Downpour SGD (Dean et al. 2012); EASGD (Zhang et al. 2015)"

    mode: Literal["downpour", "easgd"] = option(
        "downpour", help="how the dense parameters are synchronised"
    )
    every: int = option(1, help="iterations of one worker between dense exchanges (k)", minimum=1)
    alpha: float = option(
        0.5, help="easgd: elastic step, share of the difference", minimum=0.0, maximum=1.0
    )
    pooling: Literal["server", "worker"] = option(
        "server", help="where embedding bags are summed: pooled vectors or unique rows travel"
    )
    compression: Compression = part(NoCompression, help=Compression.summary)

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("worker", copies=threads),),
            services=(self.compression.embedding(self.pooling), DenseService()),
            thresholded="push" if self.compression.sparse else None,
            residual=self.mode == "downpour",
            period=self.every,
            ahead=self.prefetch,
        )

    def problems(self) -> list[str]:
        return self.compression.problems(self.pooling)

    async def worker(self) -> None:
        step = self.downpour_step if self.mode == "downpour" else self.easgd_step
        done = 0
        async for batch in prefetched(self.pooling, self.prefetch):
            await step(batch)
            done = batch.number + 1
        if self.mode == "downpour" and done % self.every:
            await self.push_accumulated(done // self.every)

    async def downpour_step(self, batch: Batch) -> None:
        if batch.number % self.every == 0:
            await Compute(LOAD, await Pull(DENSE))
        gradient = await learn(batch, self.pooling)
        if self.every == 1:
            await self.compression.push(DENSE, gradient, batch.number)
            return
        await Compute(APPLY, gradient)
        await Compute(ACCUMULATE, gradient)
        if batch.number % self.every == self.every - 1:
            await self.push_accumulated(batch.number // self.every)

    async def push_accumulated(self, number: int) -> None:
        await self.compression.push(DENSE, await Compute(DRAIN), number)

    async def easgd_step(self, batch: Batch) -> None:
        await Compute(APPLY, await learn(batch, self.pooling))
        if batch.number % self.every == self.every - 1:
            own = Round(TRAINERS, number=batch.number // self.every, compression=self.compression)
            await Easgd(self.alpha).meet(Held(), own)

    async def finish(self) -> None:
        await Compute(LOAD, await Pull(DENSE))
