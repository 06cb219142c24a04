"""DES: Distributed Equivalent Substitution (arXiv 1909.04823, SIGIR 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    TRAINERS,
    EmbeddingService,
    Group,
    JobSize,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import AllReduce, Compute, batches
from recsim_train.strategy.net import NetRequest
from recsim_train.strategy.operations import LOAD, NET_WHOLE
from recsim_train.strategy.steps import learn_cut


@dataclass
class DES(Strategy):
    """Sparse weights stay with their owner; partial results travel.

    Every worker owns a slice of the sparse model and processes the same global batch, using only
    the ids that it owns. Operators rich in weights are replaced by sub-operators beside these
    weights, whose partial results are summed in one buffer; the small rest of the net follows.
    Weights, gradients and optimizer state of the sparse model never leave their owner. Fully
    synchronous.

    Found: the substitution and its equivalence. The lock-step execution is a reconstruction.
    """

    kind: ClassVar[str] = "des"
    summary: ClassVar[str] = "synchronous, partial results instead of weights (DES)"
    source: ClassVar[str] = "arXiv 1909.04823 (execution: a reconstruction)"
    lock_step: ClassVar[bool] = True

    partition: Literal["auto", "field", "hash", "column"] = option(
        "auto",
        help="how the sparse model is split: whole tables, ids by remainder, or columns; auto: "
        "field where there are tables enough for all trainers, else hash",
    )
    top: Literal["replicated", "split"] = option(
        "replicated", help="the rest of the net: on the whole batch everywhere, or on own examples"
    )

    def follow(self, job: JobSize) -> dict[str, object]:
        if self.partition != "auto":
            return {}
        return {"partition": "field" if job.trainers <= len(job.tables) else "hash"}

    def topology(self, threads: int) -> Topology:
        partition = "field" if self.partition == "auto" else self.partition
        return Topology(
            loops=(Loop("worker", batch="global"),),
            services=(EmbeddingService(access="own", partition=partition),),
            groups=(Group(TRAINERS, loop="worker"),),
            net=NetRequest("substitute", partition=partition, top=self.top),
        )

    async def worker(self) -> None:
        async for batch in batches():
            # own rows in, partial results summed at the cut, own rows' gradients back
            await learn_cut(self.place.net, batch, TRAINERS)
        self.trained = await AllReduce(await Compute(NET_WHOLE), TRAINERS, "sum")

    async def finish(self) -> None:
        await Compute(LOAD, self.trained)
