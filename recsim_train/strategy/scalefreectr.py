"""ScaleFreeCTR: tables out of the trainers' way, a cache of rows in front, three stages at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from recsim_train.strategy.base import (
    EMBEDDING,
    TRAINERS,
    EmbeddingService,
    Group,
    JobSize,
    LocalQueue,
    Loop,
    RowCache,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import (
    AllGather,
    AllReduce,
    Close,
    Compute,
    Fetch,
    Put,
    Store,
    Take,
    batches,
    items,
)
from recsim_train.strategy.operations import (
    APPLY,
    CACHED_ROWS,
    FILL,
    FLUSH,
    FORWARD_BACKWARD,
    PROBE,
    ROW_NUMBERS,
    UPDATE_CACHED,
    VIRTUAL_IDS,
)
from recsim_train.strategy.values import Batch, Slots

LOADERS = "loaders"
VIRTUAL = "virtual"
READY = "ready"
DONE = "done"
CACHED_STEPS = 2
"""Steps whose ids the cache holds: the one that is computed and the one that is prepared."""
USUAL_SHARE = 0.1
"""Cached share of a trainer's own rows where nothing is chosen and two steps need less."""


@dataclass
class ScaleFreeCTR(Strategy):
    """Every trainer owns a range of each table's ids and caches rows of them (the MixCache).

    loader: all trainers' ids become one sorted union, the batch virtual ids 0..U-1 of it;
    manager: fetches own rows that the cache misses, writes back those that leave it, one step
    ahead; worker: all trainers' own rows sum up to the table [U, dim], a plain synchronous step
    on it follows, and owners step their cached rows with the mean gradient.

    Exactly synchronous: the cache changes what travels, never a number. The stages, the VSI
    operation and the eviction rule are the authors'; on hosts without accelerators all of it is a
    reconstruction, in which trainer memory caches the rows of embedding servers.
    """

    kind: ClassVar[str] = "scalefreectr"
    summary: ClassVar[str] = "synchronous, cached embedding rows in a 3-stage pipeline"
    source: ClassVar[str] = "ScaleFreeCTR (arXiv 2104.08542); a reconstruction for CPU hosts"
    lock_step: ClassVar[bool] = True

    cache: bool = option(True, help="keep rows; else every step fetches and writes back all of its")
    cache_rows: int = option(
        0, help="rows that a trainer's cache holds; 0: cache_share decides", minimum=0
    )
    cache_share: float = option(
        0.0,
        help="cached share of a trainer's own rows, if cache_rows is 0; 0 %: 10 %, or as many rows "
        "as two steps can need where these are more",
        minimum=0.0,
        maximum=1.0,
    )
    prefetch: int = option(2, help="batches that the loader prepares ahead of the cache", minimum=1)

    def follow(self, job: JobSize) -> dict[str, object]:
        if not self.cache or self.cache_rows or self.cache_share:
            return {}
        # Of each table at most these rows of two global batches are one trainer's own.
        needed = sum(
            min(ceil(rows / job.trainers), CACHED_STEPS * job.batch * ids)
            for rows, ids in job.tables
        )
        usual = round(USUAL_SHARE * sum(rows for rows, _ in job.tables) / job.trainers)
        return {"cache_rows": max(needed, usual)}

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(
                Loop("loader", trains=False),
                Loop("manager", consumes_batches=False, paced_by=VIRTUAL, trains=False),
                Loop("worker", consumes_batches=False, paced_by=READY),
            ),
            services=(EmbeddingService(pooling="worker"),),
            groups=(Group(LOADERS, loop="loader"), Group(TRAINERS, loop="worker")),
            queues=(
                LocalQueue(VIRTUAL, self.prefetch),
                LocalQueue(READY, 1),
                LocalQueue(DONE, CACHED_STEPS),
            ),
            cache=RowCache(self.cache_rows, self.cache_share, self.cache),
            ahead=self.prefetch,
        )

    async def loader(self) -> None:
        async for batch in batches():
            everyones = await AllGather(await Compute(ROW_NUMBERS, batch.ids), LOADERS)
            await Put(VIRTUAL, (batch, await Compute(VIRTUAL_IDS, batch.ids, everyones)))
        await Close(VIRTUAL)

    async def manager(self) -> None:
        # Rows of the last step are in the cache and stay there; what leaves it was used before,
        # so that step must be over. Without a cache the last step's rows come from the shards.
        behind = CACHED_STEPS if self.cache else 1
        step = 0
        async for batch, ids in items(VIRTUAL):
            if step >= behind:
                await Take(DONE)
            probe = await Compute(PROBE, ids)
            fetched = await Fetch(EMBEDDING, probe.missing)
            await Store(EMBEDDING, await Compute(FILL, probe.slots, fetched))
            await Put(READY, (batch, probe.slots))
            step += 1
        await Close(READY)

    async def worker(self) -> None:
        async for batch, slots in items(READY):
            await self.learn(batch, slots)
        if self.cache:
            await self.write_back()

    async def learn(self, batch: Batch, slots: Slots) -> None:
        rows = await AllReduce(await Compute(CACHED_ROWS, slots), TRAINERS, "sum")
        gradients = await Compute(FORWARD_BACKWARD, batch, rows)
        await Compute(UPDATE_CACHED, slots, await AllReduce(gradients.rows, TRAINERS))
        if not self.cache:
            await self.write_back()
        await Put(DONE, True)
        await Compute(APPLY, await AllReduce(gradients.dense, TRAINERS))

    async def write_back(self) -> None:
        await Store(EMBEDDING, await Compute(FLUSH))
