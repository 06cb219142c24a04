"""Hierarchical Training (KDD 2021, doi 10.1145/3447548.3467084): groups of hosts act as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    EMBEDDING,
    EmbeddingService,
    Group,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import AllReduce, Compute, Lookup, Update, batches
from recsim_train.strategy.net import NetRequest, through
from recsim_train.strategy.operations import LOAD, NET_APPLY, NET_WHOLE

HOSTS = "hosts"


@dataclass
class Hierarchical(Strategy):
    """A group of hosts is one replica: data and model parallelism for the net within the group.

    Tagging decides which host runs which operator, a transformation cuts the net along the tags
    and inserts the messages; both happen in placement, before the run. Embeddings live on embedding
    servers.

    Found: the two layers and the parallelism within groups. All below that is a reconstruction.
    """

    kind: ClassVar[str] = "hierarchical"
    summary: ClassVar[str] = "groups of hosts act as one trainer, the net is cut along tags"
    source: ClassVar[str] = "doi 10.1145/3447548.3467084 (inner workings: a reconstruction)"
    lock_step: ClassVar[bool] = True

    hosts: int = option(2, help="hosts of one group (G)", minimum=1)
    tags: str = option("", help='pinned tags, such as "top.0=1, bottom.0=dp"; others by cost')
    precision: Literal["full", "float16", "bfloat16"] = option(
        "full", help="type of activations and their gradients at cuts"
    )
    flops: float = option(
        1e10, help="assumed flops per second of a host, for choosing tags", minimum=1.0
    )
    bandwidth: float = option(
        3.125e9, help="assumed bytes per second of a host's link, for choosing tags", minimum=1.0
    )

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("worker", self.worker),),
            services=(EmbeddingService(apply="together"),),
            groups=(Group(HOSTS, loop="worker", size=self.hosts),),
            net=NetRequest(
                "tags",
                hosts=self.hosts,
                pins=self.tags,
                precision=self.precision,
                flops=self.flops,
                bandwidth=self.bandwidth,
            ),
        )

    async def worker(self) -> None:
        async for batch in batches():
            rows = await Lookup(EMBEDDING, batch.ids)
            gradients = await through(self.place.net, batch, rows, HOSTS)
            await Update(EMBEDDING, gradients.rows)
            shared = gradients.shared
            if self.place.net.shares:
                shared = await AllReduce(shared, HOSTS, "sum")
            await Compute(NET_APPLY, gradients, shared)
        self.trained = await AllReduce(await Compute(NET_WHOLE), HOSTS, "sum")

    async def finish(self) -> None:
        await Compute(LOAD, self.trained)
