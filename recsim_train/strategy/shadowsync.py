"""ShadowSync: synchronisation beside training instead of within it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from recsim_train.strategy.base import (
    DENSE,
    TRAINERS,
    DenseService,
    EmbeddingService,
    Group,
    LocalBarrier,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.effects import Barrier, Compute, Pull, batches, rounds
from recsim_train.strategy.operations import APPLY, LOAD
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import learn
from recsim_train.strategy.synchronisers import Easgd, Held, Round, Synchroniser

STOP = "stop"


@dataclass
class ShadowSync(Strategy):
    """Hogwild workers that never synchronise, and one shadow thread that does nothing else.

    easgd: elastic averaging with a central copy on dense servers; no trainer waits for another.
    ma: all trainers' shadows average their replicas and interpolate towards the mean.
    bmuf: the mean moves a global model by a block step with momentum; replicas follow that one.

    ``sync: foreground`` are the twins that stop workers every k iterations: for easgd each worker
    by itself (FR-EASGD-k), for ma and bmuf all workers of all trainers together.
    """

    kind: ClassVar[str] = "shadowsync"
    summary: ClassVar[str] = "background synchronisation (S-EASGD, S-MA, S-BMUF) and its FR-k twins"
    source: ClassVar[str] = (
        "ShadowSync (arXiv 2003.03477); the rules' exact form, the end of training and how workers "
        "stop for a foreground average are our reconstruction"
    )

    algorithm: Synchroniser = part(Easgd, help="how replicas meet")
    sync: Literal["shadow", "foreground"] = option(
        "shadow", help="in a background thread, or in the workers every k iterations"
    )
    every: int = option(
        5, help="foreground: iterations of one worker between two syncs (k)", minimum=1
    )
    pooling: Literal["server", "worker"] = option(
        "server", help="where embedding bags are summed: pooled vectors or unique rows travel"
    )
    compression: Compression = part(NoCompression, help=Compression.summary)

    def __post_init__(self) -> None:
        self.ended: list[None] = []  # one entry per worker; threads may append at once

    def topology(self, threads: int) -> Topology:
        embedding = EmbeddingService(
            pooling=self.pooling, keep=self.compression.keep, mask=self.compression.over
        )
        beside = Loop("shadow" if self.sync == "shadow" else "meeting", consumes_batches=False)
        loops: tuple[Loop, ...] = (Loop("worker", copies=threads), beside)
        if self.algorithm.on_servers:
            return Topology(
                loops=loops if self.sync == "shadow" else loops[:1],
                services=(embedding, DenseService()),
                thresholded="push" if self.compression.sparse else None,
                residual=False,
            )
        return Topology(
            loops=loops,
            services=(embedding,),
            groups=(Group(TRAINERS, loop=beside.name),),
            barriers=(LocalBarrier(STOP, ("worker", "meeting")),)
            if beside.name == "meeting"
            else (),
        )

    def problems(self) -> list[str]:
        found = self.compression.problems(self.pooling)
        if not self.algorithm.meets:
            found.append(f"algorithm {self.algorithm.kind}: expected easgd, ma or bmuf")
        return [*found, *self.algorithm.problems(self.compression)]

    async def worker(self) -> None:
        iteration = 0
        async for batch in batches():
            await Compute(APPLY, await learn(batch, self.pooling))
            iteration += 1
            if self.sync == "foreground" and iteration % self.every == 0:
                await self.stop(iteration // self.every - 1)
        self.ended.append(None)

    async def shadow(self) -> None:
        group, number = None if self.algorithm.on_servers else TRAINERS, 0
        async for last in rounds(lambda: len(self.ended) == self.place.threads, group):
            await self.synchronise(last, number)
            number += 1

    async def stop(self, number: int) -> None:
        if self.algorithm.on_servers:
            await self.synchronise(False, number)
        else:
            await Barrier(STOP)
            await Barrier(STOP)  # the meeting has synchronised in between

    async def meeting(self) -> None:
        """Synchronise whenever all workers that still run have stopped.

        A trainer whose workers have ended goes on meeting the others, who may have more to do.
        """
        self.running = self.place.threads
        async for last in rounds(lambda: self.running == 0, TRAINERS):
            self.running = await Barrier(STOP) - 1
            await self.synchronise(last)
            await Barrier(STOP)

    async def synchronise(self, last: bool, number: int = 0) -> None:
        await self.algorithm.meet(Held(), Round(TRAINERS, last, number, self.compression))

    async def finish(self) -> None:
        if self.algorithm.on_servers:
            await Compute(LOAD, await Pull(DENSE))
