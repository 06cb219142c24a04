"""Caches of embedding rows: their operations, and the Fetch and Store that fill and empty them.

What hits, what misses and what must leave comes from `recsim_train.data.replay`, which runs the
executor's slot logic on the very ids of the stream.
"""

from __future__ import annotations

from recsim_train.data.replay import CacheSteps, Turnover
from recsim_train.placement.plan import EmbeddingShard
from recsim_train.sim.engine import Steps
from recsim_train.sim.ghosts import (
    Ghost,
    GhostBlock,
    GhostIds,
    GhostPart,
    GhostParts,
    GhostSlots,
    GhostStored,
    GhostTable,
)
from recsim_train.sim.messages.serving import Request
from recsim_train.sim.messages.shards import EmbeddingRuntime
from recsim_train.sim.pricing import NOTHING, Priced, plus
from recsim_train.sim.world import LoopState, World
from recsim_train.strategy.values import Probe
from recsim_train.workload import shape


class CacheRuntime:
    """The operations on the caches of all trainers."""

    def __init__(self, world: World, shards: int, replay: CacheSteps) -> None:
        self.world, self.shards, self.replay = world, shards, replay
        self._last = [-1] * len(replay.slots)
        """The step in each trainer's cache."""

    # Operations; they raise CacheTooSmall.

    def row_numbers(self, _: int, ids: GhostIds) -> Ghost:
        return GhostBlock(shape.ID_BYTES * ids.ids), {"ids": ids.ids}

    def virtual_ids(self, _: int, ids: GhostIds, everyones: GhostParts) -> Ghost:
        unique = self.replay.step(ids.batch).unique
        virtual = GhostIds(ids.position, ids.batch, ids.ids, unique, distinct=True)
        return virtual, {"ids": sum(everyones.sizes) // shape.ID_BYTES, "unique": unique}

    def probe(self, trainer: int, ids: GhostIds) -> Ghost:
        self._last[trainer] = ids.batch
        found = self._turnover(trainer, ids)
        counts = {
            "ids": ids.unique,
            "unique": found.owned,
            "elements": self.replay.slots[trainer],
        }
        return Probe(GhostSlots(ids), GhostPart(found.missing)), counts

    def fill(self, trainer: int, slots: GhostSlots, fetched: GhostStored) -> Ghost:
        leaving = self._turnover(trainer, slots.ids).evicted
        return GhostStored(leaving), {"ids": sum(leaving), "unique": sum(fetched.by_shard)}

    def cached_rows(self, trainer: int, slots: GhostSlots) -> Ghost:
        ids = slots.ids
        size = ids.unique * shape.row_bytes(self.world.model)
        return GhostTable(ids, size=size), {
            "ids": ids.unique,
            "unique": self._turnover(trainer, ids).owned,
        }

    def update_cached(self, trainer: int, slots: GhostSlots, _: GhostTable) -> Ghost:
        owned = self._turnover(trainer, slots.ids).owned
        return None, {"ids": owned, "unique": owned}

    def flush(self, trainer: int) -> Ghost:
        step = self._last[trainer]
        kept = self.replay.step(step).trainers[trainer].kept if step >= 0 else ()
        return GhostStored(kept or (0,) * self.shards), {"unique": sum(kept)}

    def _turnover(self, trainer: int, ids: GhostIds) -> Turnover:
        return self.replay.step(ids.batch).trainers[trainer]


def fetch(service: EmbeddingRuntime, loop: LoopState, ids: object) -> Steps:
    """Returns (rows, payload bytes)."""
    if not isinstance(ids, GhostPart):
        raise TypeError(f"Fetch needs the ids that a cache misses, not {type(ids).__name__}")
    payload = yield from _move(service, loop, "fetch", ids.by_shard)
    return GhostStored(ids.by_shard), payload


def store(service: EmbeddingRuntime, loop: LoopState, rows: object) -> Steps:
    """Returns (None, payload bytes)."""
    if not isinstance(rows, GhostStored):
        raise TypeError(f"Store needs rows with their state, not {type(rows).__name__}")
    return None, (yield from _move(service, loop, "store", rows.by_shard))


def _move(
    service: EmbeddingRuntime, loop: LoopState, effect: str, by_shard: tuple[int, ...]
) -> Steps:
    """Rows from or to all shards that have some of them; a store is acknowledged."""
    world = service.world
    row = shape.stored_row_bytes(world.model, world.training)
    fetches = effect == "fetch"
    up = shape.ID_BYTES if fetches else shape.ID_BYTES + row
    rows, shards = sum(by_shard), service.split(loop)

    def request(shard: EmbeddingShard) -> Request:
        count = by_shard[shard.index]
        work = world.pricing.operation(f"{effect}_rows", pooling="worker", ids=count, unique=count)
        return Request(up * count, work, row * count if fetches else 0, acknowledged=not fetches)

    def clients(operation: str) -> Priced:
        return service.clients(operation, rows, rows, len(by_shard))

    first = [clients("route_ids")] if fetches else [clients("route_ids"), clients("route_gradient")]
    asked = shards._replace(remote=[s for s in shards.remote if by_shard[s.index]])
    sent, answers = yield from service.ask(
        loop, effect, asked, request, first=first, purpose="route_ids"
    )
    back = plus(answers, clients("assemble_rows")) if fetches else answers
    if back != NOTHING:
        yield world.work(loop, back, "assemble_rows")
    return sent
