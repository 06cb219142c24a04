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
    LocalQueue,
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
    Pull,
    Put,
    Synced,
    Take,
    batches,
)
from recsim_train.strategy.operations import APPLY, BLOCK_STEP, INTERPOLATE, LOAD, SNAPSHOT
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import elastic_exchange, learn

STOPPED = "stopped"
"""Queue from the workers to the meeting: True at a stop, False after the last batch."""
GO = ("go, even", "go, odd")
"""Queues back. Two, so that a fast worker can not take the last meeting's word to a slow one."""


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

    algorithm: Literal["easgd", "ma", "bmuf"] = option(
        "easgd", help="elastic averaging, model averaging or block momentum"
    )
    sync: Literal["shadow", "foreground"] = option(
        "shadow", help="in a background thread, or in the workers every k iterations"
    )
    every: int = option(
        5, help="foreground: iterations of one worker between two syncs (k)", minimum=1
    )
    alpha: float = option(
        0.5, help="share of the way towards the synchronised weights", minimum=0.0, maximum=1.0
    )
    central: Literal["old", "new"] = option(
        "old", help="easgd: the central value that the replica's step uses, before or after its own"
    )
    block_lr: float = option(1.0, help="bmuf: step of the global model", minimum=0.0)
    block_momentum: float = option(
        0.875, help="bmuf: momentum of that step (0: none)", minimum=0.0, maximum=1.0
    )
    pooling: Literal["server", "worker"] = option(
        "server", help="where embedding bags are summed: pooled vectors or unique rows travel"
    )

    compression: Compression = part(NoCompression, help=Compression.summary)

    def __post_init__(self) -> None:
        self.threads = 1
        self.ended: list[None] = []  # one entry per worker; threads may append at once

    def topology(self, threads: int) -> Topology:
        self.threads = threads
        embedding = EmbeddingService(
            pooling=self.pooling, keep=self.compression.keep, mask=self.compression.over
        )
        thresholded = "push" if self.compression.sparse else None
        if self.sync == "shadow":
            worker = Loop("worker", self.worker, copies=threads)
            beside = Loop("shadow", self.shadow, consumes_batches=False)
        else:
            worker = Loop("worker", self.stopping_worker, copies=threads)
            beside = Loop("meeting", self.meeting, consumes_batches=False)
        if self.algorithm == "easgd":
            loops = (worker, beside) if self.sync == "shadow" else (worker,)
            services = (embedding, DenseService())
            return Topology(loops, services=services, thresholded=thresholded, residual=False)
        return Topology(
            loops=(worker, beside),
            services=(embedding,),
            groups=(Group(TRAINERS, loop=beside.name),),
            queues=()
            if self.sync == "shadow"
            else tuple(LocalQueue(name, threads) for name in (STOPPED, *GO)),
        )

    def problems(self) -> list[str]:
        found = self.compression.problems(self.pooling)
        if self.compression.sparse and self.algorithm != "easgd":
            found.append(
                f"{self.algorithm} averages the parameters themselves, which have no small entries "
                "to leave out: use algorithm easgd, or compression.mode mp"
            )
        if self.compression.sparse and self.central == "new":
            found.append("central new is unknown to a worker that sends parts of a difference")
        return found

    async def worker(self) -> None:
        async for batch in batches():
            await Compute(APPLY, await learn(batch, self.pooling))
        self.ended.append(None)

    async def shadow(self) -> None:
        last, number = False, 0
        while not last:
            finished = len(self.ended) == self.threads
            last = await Agree(finished, None if self.algorithm == "easgd" else TRAINERS)
            await self.synchronise(last, number)
            number += 1

    async def synchronise(self, last: bool, number: int) -> None:
        """One round. The last one leaves every replica of ma and bmuf at the common weights."""
        if self.algorithm == "easgd":
            await elastic_exchange(self.alpha, self.central, self.compression, number)
            return
        common = await AllReduce(await Compute(SNAPSHOT), TRAINERS)
        if self.algorithm == "bmuf":
            common = await Compute(BLOCK_STEP, common, self.block_lr, self.block_momentum)
        await Compute(INTERPOLATE, common, 1.0 if last else self.alpha)
        await Synced()

    async def stopping_worker(self) -> None:
        iteration = 0
        async for batch in batches():
            await Compute(APPLY, await learn(batch, self.pooling))
            iteration += 1
            if iteration % self.every == 0:
                await self.stop(iteration // self.every)
        if self.algorithm != "easgd":
            await Put(STOPPED, False)

    async def stop(self, number: int) -> None:
        if self.algorithm == "easgd":
            await elastic_exchange(self.alpha, self.central, self.compression, number - 1)
            return
        await Put(STOPPED, True)
        await Take(GO[number % 2])

    async def meeting(self) -> None:
        """Synchronise whenever all workers that still run have stopped.

        A trainer whose workers have ended goes on meeting the others, who may have more to do.
        """
        running, number, last = self.threads, 0, False
        while not last:
            last = await Agree(running == 0, TRAINERS)
            number += 1
            running = sum([await Take(STOPPED) for _ in range(running)])
            await self.synchronise(last, number)
            for _ in range(running):
                await Put(GO[number % 2], None)

    async def finish(self) -> None:
        if self.algorithm == "easgd":
            await Compute(LOAD, await Pull(DENSE))
