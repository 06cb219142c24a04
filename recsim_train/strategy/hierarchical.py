"""Hierarchical Training (KDD 2021, doi 10.1145/3447548.3467084): groups of hosts act as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    DENSE,
    DenseService,
    EmbeddingService,
    Group,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import (
    Agree,
    AllReduce,
    Compute,
    Exchange,
    Pull,
    Synced,
    batches,
)
from recsim_train.strategy.net import NetRequest
from recsim_train.strategy.operations import (
    BLOCK_STEP,
    LOAD,
    NET_ANSWERED,
    NET_MOVE,
    NET_TOWARDS,
    NET_WHOLE,
)
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import learn_cut

HOSTS, OWNERS, GROUP = "hosts", "owners", "group"
"""One replica's workers; hosts with one part of it, of all replicas; one replica's last loops."""


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

    outer: Literal["none", "easgd", "ma", "bmuf"] = option(
        "none", help="how groups are synchronised with each other; none: there is one group only"
    )
    sync: Literal["shadow", "foreground"] = option(
        "shadow", help="outer synchronisation in a background thread, or every k iterations"
    )
    every: int = option(5, help="foreground: iterations between two outer syncs (k)", minimum=1)
    alpha: float = option(
        0.5, help="share of the way towards the synchronised weights", minimum=0.0, maximum=1.0
    )
    block_lr: float = option(1.0, help="bmuf: step of the global model", minimum=0.0)
    block_momentum: float = option(
        0.875, help="bmuf: momentum of that step (0: none)", minimum=0.0, maximum=1.0
    )
    compression: Compression = part(
        NoCompression, help="what is left out of activations at cuts and of pooled embeddings"
    )

    def __post_init__(self) -> None:
        self.ended = False
        self.beside = self.outer != "none" and self.sync == "shadow"

    def topology(self, threads: int) -> Topology:
        loops, last = [Loop("worker", self.worker)], "worker"
        if self.beside:
            loops, last = [*loops, Loop("shadow", self.shadow, consumes_batches=False)], "shadow"
        keep, over = self.compression.keep, self.compression.over
        # a group acts as one trainer: its hosts' gradients make one step, whatever other groups do
        embedding = EmbeddingService(apply="together", group=self.hosts, keep=keep, mask=over)
        return Topology(
            loops=tuple(loops),
            services=(embedding, DenseService()) if self.outer == "easgd" else (embedding,),
            groups=(
                Group(HOSTS, loop="worker", size=self.hosts),
                Group(OWNERS, loop=last, size=self.hosts, across=True),
                Group(GROUP, loop=last, size=self.hosts),
            ),
            net=NetRequest(
                "tags",
                hosts=self.hosts,
                pins=self.tags,
                precision=self.precision,
                keep=keep,
                mask=over,
                outer=self.outer != "none",
                flops=self.flops,
                bandwidth=self.bandwidth,
            ),
        )

    def problems(self) -> list[str]:
        if self.compression.sparse:
            return [
                "hierarchical composes compression.mode mp only: what its hosts share are parts of "
                "one net, and a threshold is kept for whole tensors"
            ]
        if self.compression.keep is not None and self.precision != "full":
            return ["compression.mode mp sends full values at its places: use precision full"]
        return self.compression.problems("server")

    async def worker(self) -> None:
        iteration = 0
        async for batch in batches():
            await learn_cut(self.place.net, batch, HOSTS)
            iteration += 1
            if self.outer != "none" and not self.beside and iteration % self.every == 0:
                await self.synchronise(last=False)
        self.ended = True
        if not self.beside:
            if self.outer != "none":
                await self.synchronise(last=True)
            await self.assemble()

    async def shadow(self) -> None:
        last = False
        while not last:
            last = await Agree(self.ended, None if self.outer == "easgd" else OWNERS)
            await self.synchronise(last)
        await self.assemble()

    async def synchronise(self, last: bool) -> None:
        """One round with the hosts of other groups that answer for the same part of the net."""
        mine = await Compute(NET_ANSWERED)
        if self.outer == "easgd":
            await Compute(NET_MOVE, await Exchange(DENSE, mine, self.alpha))
        else:
            common = await AllReduce(mine, OWNERS)
            if self.outer == "bmuf":
                common = await Compute(BLOCK_STEP, common, self.block_lr, self.block_momentum)
            share = 1.0 if last else self.alpha
            await Compute(NET_MOVE, await Compute(NET_TOWARDS, common, share))
        await Synced()

    async def assemble(self) -> None:
        """The whole net from what each host of the group answers for."""
        self.trained = await AllReduce(await Compute(NET_WHOLE), GROUP, "sum")

    async def finish(self) -> None:
        central = self.outer == "easgd"
        await Compute(LOAD, await Pull(DENSE) if central else self.trained)
