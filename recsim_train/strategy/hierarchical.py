"""Hierarchical Training (KDD 2021, doi 10.1145/3447548.3467084): groups of hosts act as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    DENSE,
    DenseService,
    Group,
    JobSize,
    LocalBarrier,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import AllReduce, Barrier, Compute, Pull
from recsim_train.strategy.net import NetRequest
from recsim_train.strategy.operations import LOAD, NET_WHOLE
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import Prefetching, learn_cut, prefetched
from recsim_train.strategy.synchronisers import GAP, Auto, HeldPart, Meetings, Synchroniser

MOST_HOSTS = 8
"""Of a group whose size is not chosen. All hosts of a group wait for each other at every cut, G
batches make one step, and the owner of an operator receives what G hosts send."""


@dataclass
class Tagging(Strategy):
    """A base of strategies whose groups share a net: how large groups are, what tags go by."""

    hosts: int = option(
        0,
        help=f"hosts of one group (G); 0: the largest divisor of the trainers up to {MOST_HOSTS}; "
        "with a chosen outer all trainers where it is none, else one that leaves two groups",
        minimum=0,
    )
    tags: str = option("", help='pinned tags, such as "top.0=1, bottom.0=dp"; others by cost')
    precision: Literal["full", "float16", "bfloat16"] = option(
        "full", help="type of activations and their gradients at cuts"
    )
    flops: float = option(
        8e10, help="assumed flops per second of one thread, for choosing tags", minimum=1.0
    )
    bandwidth: float = option(
        3.125e9, help="assumed bytes per second of a host's link, for choosing tags", minimum=1.0
    )
    latency: float = option(
        1e-4,
        help="assumed seconds of a collective's step beside its bytes, for choosing tags",
        minimum=0.0,
    )

    def sizes(self, job: JobSize, outer: Synchroniser) -> dict[str, object]:
        """What the job's size decides: hosts of one group, and how groups meet (``outer``)."""
        found: dict[str, object] = {}
        hosts = self.hosts
        if not hosts and outer.kind == "none":
            found["hosts"] = hosts = job.trainers
        elif not hosts:
            most = min(MOST_HOSTS, job.trainers)
            if outer.meets and job.trainers > 1:
                most = min(most, job.trainers // 2)  # it was chosen for several groups
            found["hosts"] = hosts = max(n for n in range(1, most + 1) if job.trainers % n == 0)
        if outer.kind == "auto":
            several = "easgd" if job.dense_servers else "ma"
            found["outer"] = "none" if hosts == job.trainers else several
        return found

    def request(self, compression: Compression, outer: Synchroniser, every: int) -> NetRequest:
        """What placement is asked for; groups are synchronised ``every`` so many iterations."""
        return NetRequest(
            "tags",
            hosts=self.hosts,
            pins=self.tags,
            precision=self.precision,
            keep=compression.keep,
            mask=compression.over,
            outer=outer.meets,
            central=outer.on_servers,
            every=every,
            flops=self.flops,
            bandwidth=self.bandwidth,
            latency=self.latency,
        )

    def misfits(self, compression: Compression) -> list[str]:
        """What does not fit this compression, one sentence each."""
        if compression.sparse:
            return [
                f"{self.kind} composes compression.mode mp only: what its hosts share are parts of "
                "one net, and a threshold is kept for whole tensors"
            ]
        if compression.keep is not None and self.precision != "full":
            return ["compression.mode mp sends full values at its places: use precision full"]
        return compression.problems("server")


HOSTS, OWNERS, GROUP = "hosts", "owners", "group"
"""One replica's workers; hosts with one part of it, of all replicas; one replica's workers as they
put the whole net together at the end."""
SYNCHRONISED = "synchronised"


@dataclass
class Hierarchical(Tagging, Prefetching):
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

    outer: Synchroniser = part(
        Auto,
        help="how groups meet; auto: none for one group, else easgd, or ma where there is no dense "
        "server",
    )
    sync: Literal["shadow", "foreground"] = option(
        "shadow", help="outer synchronisation in a background thread, or every k iterations"
    )
    every: int = option(
        5,
        help="foreground: iterations between two outer syncs (k); for choosing tags the same is "
        "assumed of a shadow",
        minimum=1,
    )
    gap: int = option(4, help=f"shadow: {GAP}", minimum=0)
    compression: Compression = part(
        NoCompression, help="what is left out of activations at cuts and of pooled embeddings"
    )

    def __post_init__(self) -> None:
        self.meetings = Meetings(self.outer, OWNERS, HeldPart(), gap=self.gap)
        self.beside = self.outer.meets and self.sync == "shadow"
        self.central = self.outer.on_servers

    def follow(self, job: JobSize) -> dict[str, object]:
        return self.sizes(job, self.outer)

    def topology(self, threads: int) -> Topology:
        # a group acts as one trainer: its hosts' gradients make one step, whatever other groups do
        embedding = self.compression.embedding(apply="together", group=self.hosts)
        shadow = (Loop("shadow", consumes_batches=False),) if self.beside else ()
        owners: tuple[Group, ...] = ()
        if self.outer.meets and not self.central:  # on servers nobody waits for others
            loop = "shadow" if shadow else "worker"
            owners = (Group(OWNERS, loop, size=self.hosts, across=True),)
        return Topology(
            loops=(Loop("worker"), *shadow),
            services=(embedding, DenseService()) if self.central else (embedding,),
            groups=(
                Group(HOSTS, loop="worker", size=self.hosts),
                *owners,
                Group(GROUP, loop="worker", size=self.hosts),
            ),
            barriers=(LocalBarrier(SYNCHRONISED, ("worker", "shadow")),) if shadow else (),
            net=self.request(self.compression, self.outer, self.every),
            period=1 if self.beside or not self.outer.meets else self.every,
            ahead=self.prefetch,
        )

    def problems(self) -> list[str]:
        return self.misfits(self.compression)

    async def worker(self) -> None:
        foreground = self.outer.meets and not self.beside
        async for batch in prefetched("server", self.prefetch):
            await learn_cut(self.place.net, batch, HOSTS)
            if foreground and (batch.number + 1) % self.every == 0:
                await self.meetings.meet()
        self.meetings.worker_ended()
        if self.beside:
            await Barrier(SYNCHRONISED)
        elif foreground:
            await self.meetings.meet(last=True)
        if not self.central:  # whose copy on the servers is whole
            self.trained = await AllReduce(await Compute(NET_WHOLE), GROUP, "sum")

    async def shadow(self) -> None:
        """Rounds with the hosts of other groups that answer for the same part of the net."""
        await self.meetings.shadow(workers=1)
        await Barrier(SYNCHRONISED)

    async def finish(self) -> None:
        await Compute(LOAD, await Pull(DENSE) if self.central else self.trained)
