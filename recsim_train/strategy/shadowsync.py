"""ShadowSync: synchronisation beside training instead of within it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    DENSE,
    TRAINERS,
    DenseService,
    Group,
    LocalBarrier,
    Loop,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import Compute, Pull
from recsim_train.strategy.operations import APPLY, LOAD
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import Prefetching, learn, prefetched
from recsim_train.strategy.synchronisers import GAP, Easgd, Meetings, Synchroniser

STOP = "stop"


@dataclass
class ShadowSync(Prefetching):
    """Hogwild workers that never synchronise, and one shadow thread that does nothing else.

    Between the beginnings of two rounds it leaves a ``gap``; the paper's goes round without pause.

    easgd: elastic averaging with a central copy on dense servers; no trainer waits for another.
    ma: all trainers' shadows average their replicas and interpolate towards the mean.
    bmuf: the mean moves a global model by a block step with momentum; replicas follow that one.

    ``sync: foreground`` are the twins that stop workers every k iterations: for easgd each worker
    by itself (FR-EASGD-k), for ma and bmuf all workers of all trainers together.
    """

    kind: ClassVar[str] = "shadowsync"
    summary: ClassVar[str] = "background synchronisation (S-EASGD, S-MA, S-BMUF) and its FR-k twins"
    source: ClassVar[str] = (
        "ShadowSync (arXiv 2003.03477); the rules' exact form, the gap, the end of training and "
        "how workers stop for a foreground average are our reconstruction"
    )

    algorithm: Synchroniser = part(
        Easgd, help="how replicas meet", fits=lambda chosen: chosen.meets
    )
    sync: Literal["shadow", "foreground"] = option(
        "shadow", help="in a background thread, or in the workers every k iterations"
    )
    every: int = option(
        5, help="foreground: iterations of one worker between two syncs (k)", minimum=1
    )
    gap: int = option(4, help=f"shadow: {GAP}", minimum=0)
    pooling: Literal["server", "worker"] = option(
        "server", help="where embedding bags are summed: pooled vectors or unique rows travel"
    )
    compression: Compression = part(NoCompression, help=Compression.summary)

    def __post_init__(self) -> None:
        self.meetings = Meetings(
            self.algorithm, TRAINERS, compression=self.compression, gap=self.gap
        )

    def topology(self, threads: int) -> Topology:
        embedding = self.compression.embedding(self.pooling)
        worker = Loop("worker", copies=threads)
        period = self.every if self.sync == "foreground" else 1
        if self.algorithm.on_servers:
            shadow = (Loop("shadow", consumes_batches=False),) if self.sync == "shadow" else ()
            return Topology(
                loops=(worker, *shadow),
                services=(embedding, DenseService()),
                thresholded="push" if self.compression.sparse else None,
                residual=False,
                period=period,
                ahead=self.prefetch,
            )
        beside = "shadow" if self.sync == "shadow" else "meeting"
        stop = (LocalBarrier(STOP, ("worker", "meeting")),) if beside == "meeting" else ()
        return Topology(
            loops=(worker, Loop(beside, consumes_batches=False)),
            services=(embedding,),
            groups=(Group(TRAINERS, loop=beside),),
            barriers=stop,
            period=period,
            ahead=self.prefetch,
        )

    def problems(self) -> list[str]:
        return [
            *self.compression.problems(self.pooling),
            *self.algorithm.problems(self.compression),
        ]

    async def worker(self) -> None:
        async for batch in prefetched(self.pooling, self.prefetch):
            await Compute(APPLY, await learn(batch, self.pooling))
            number, rest = divmod(batch.number + 1, self.every)
            if self.sync == "foreground" and not rest:
                await self.meetings.stop(number - 1, STOP)
        self.meetings.worker_ended()

    async def shadow(self) -> None:
        await self.meetings.shadow(self.place.threads)

    async def meeting(self) -> None:
        await self.meetings.meeting(self.place.threads, STOP)

    async def finish(self) -> None:
        if self.algorithm.on_servers:
            await Compute(LOAD, await Pull(DENSE))
