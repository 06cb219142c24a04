"""Micro-workloads of trainers' row caches: steps of the stream go through a cache and its shards.

The caches of all trainers are filled side by side, because a step's rows are those of all of them;
what is timed is trainer 0's.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import torch

from recsim_train.calibration.own.bench import Bench, Micro, Timed, ids_of
from recsim_train.executor.net import kernels
from recsim_train.executor.shards import cache
from recsim_train.executor.shards.routing import (
    ShardSlices,
    assemble_rows,
    route_gradient,
    route_ids,
)
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.executor.values import RealIds, RealParts, RealRows
from recsim_train.executor.worker import MixCache
from recsim_train.strategy.values import Batch, Probe

OPERATIONS = frozenset(
    {
        "row_numbers", "virtual_ids", "probe", "fetch_rows", "fill", "store_rows", "cached_rows",
        "update_cached", "flush", "forward_backward", "route_ids", "assemble_rows",
        "route_gradient",
    }
)  # fmt: skip


class Caches(Micro):
    """Trainer 0's cache and the shards that fill it."""

    def __init__(self, bench: Bench) -> None:
        plan = bench.plan
        assert plan.embedding is not None
        self.bench, self.shards = bench, plan.embedding.shards
        self.worker = bench.worker(cache=MixCache(plan, 0))
        self.servers = [EmbeddingServer(plan, shard) for shard in self.shards]
        split = plan.embedding.split_tables
        self.parts = ShardSlices(bench.model, [shard.slices for shard in self.shards], split)
        self.slices = sum(len(shard.slices) for shard in self.shards)
        self._steps = cycle(enumerate(bench.by_trainer))
        flushed = max((s.unique for name, s in bench.cells if name == "flush"), default=0.0)
        self._flushed = int(flushed)
        self._spare = bench.worker(cache=MixCache(plan, 0)) if flushed else None

    def round(self, _: Batch, timed: Timed) -> None:
        (number, step), worker = next(self._steps), self.worker
        if not number:  # or, sooner or later, nothing would miss any more
            worker.cache = MixCache(self.bench.plan, 0)
        batch = step[0]
        ids, held = ids_of(batch), cache.cache_of(worker)
        count = ids.values.numel()
        self.bench.elsewhere()  # the loader's thread works on what the worker has not seen
        mine = timed("row_numbers", partial(cache.row_numbers, worker, ids), **_sizes(ids=count))
        others = [cache.row_numbers(worker, ids_of(other)).tensor for other in step[1:]]
        everyones = RealParts((mine.tensor, *others))
        together = sum(part.numel() for part in everyones.tensors)
        # how many distinct ones there are is known when it is done
        before = int(torch.unique(torch.cat(everyones.tensors)).numel())
        virtual: RealIds = timed(
            "virtual_ids",
            partial(cache.virtual_ids, worker, ids, everyones),
            **_sizes(ids=together, unique=before),
        )
        rows = virtual.values.numpy() + np.repeat(held.bases[:-1], np.diff(virtual.offsets))
        owned = held.owner.places(rows).size
        self.bench.elsewhere()  # the manager's thread, on what the loader has made
        probed: Probe = timed(
            "probe",
            partial(cache.probe, worker, virtual),
            **_sizes(ids=before, unique=owned, elements=held.map.capacity),
        )
        slots: Any = probed.slots
        fetched = self._fetch(probed.missing, timed)
        leaving, coming = slots.evicted.values.numel(), slots.filled.numel()
        left = timed(
            "fill",
            partial(cache.fill, worker, slots, fetched),
            **_sizes(ids=leaving, unique=coming),
        )
        self._store(left, timed)
        sizes = _sizes(ids=before, unique=owned)
        self.bench.elsewhere()  # the worker's thread
        table = timed("cached_rows", partial(cache.cached_rows, worker, slots), **sizes)
        net = partial(kernels.forward_backward, worker, batch, table)
        of_net = {"pooling": self.bench.pooling, "ids": count, "unique": before}
        gradients = timed("forward_backward", net, **of_net)
        update = partial(cache.update_cached, worker, slots, gradients.rows)
        timed("update_cached", update, **_sizes(ids=owned, unique=owned))
        if self._spare is not None:
            self._flush(self._spare, timed)

    def _fetch(self, missing: Any, timed: Timed) -> RealRows:
        sizes = self._client(missing)
        routed = timed("route_ids", lambda: route_ids(missing, self.parts), **sizes)
        answers = []
        for server, part in zip(self.servers, routed, strict=True):
            count = part.values.size
            call = partial(server.fetch, part.values, part.counts)
            answers.append(timed("fetch_rows", call, **_sizes(ids=count, unique=count)))
        whole = partial(assemble_rows, missing, self.parts, routed, answers)
        fetched: RealRows = timed("assemble_rows", whole, **sizes)
        return fetched

    def _store(self, rows: RealRows, timed: Timed) -> None:
        routed = route_ids(rows.ids, self.parts)
        back = partial(route_gradient, rows, self.parts, routed)
        pieces = timed("route_gradient", back, **self._client(rows.ids))
        for server, part, piece in zip(self.servers, routed, pieces, strict=True):
            count = part.values.size
            call = partial(server.store, part.values, part.counts, piece)
            timed("store_rows", call, **_sizes(ids=count, unique=count))

    def _client(self, ids: RealIds) -> dict[str, Any]:
        count = ids.values.numel()
        sizes = {"ids": count, "unique": count, "tables": self.slices, "shards": len(self.shards)}
        return {"pooling": self.bench.pooling, **sizes}

    def _flush(self, worker: Any, timed: Timed) -> None:
        held = cache.cache_of(worker)
        owner = held.owner
        own = [np.arange(a, b) for a, b in zip(owner.starts, owner.stops, strict=True)]
        held.map.probe(np.concatenate(own)[: self._flushed])
        held.make_room()
        timed("flush", partial(cache.flush, worker), **_sizes(unique=held.map.filled))


def _sizes(**sizes: float) -> dict[str, Any]:
    return {"pooling": "worker", **sizes}
