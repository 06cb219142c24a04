"""Kernels on a trainer's cache of embedding rows, and those that hand rows out of a shard and in.

The manager fills slots while the worker steps on others: the two never touch one slot at a time,
because a strategy lets only rows leave whose last step is over.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from recsim_train.executor.net.kernels import update_rows
from recsim_train.executor.net.rows import Numbers
from recsim_train.executor.values import RealBlock, RealIds, RealParts, RealRows
from recsim_train.executor.worker import EmbeddingState, MixCache, RealSlots, Worker
from recsim_train.strategy.values import Probe


def cache_of(worker: Worker) -> MixCache:
    """The cache of the worker's trainer."""
    assert worker.cache is not None, "the strategy's topology asks for no cache"
    return worker.cache


def row_numbers(worker: Worker, ids: RealIds) -> RealBlock:
    """Each id as the number of its row over all tables: int64 [ids]."""
    bases = torch.from_numpy(cache_of(worker).bases[:-1])
    sizes = torch.tensor(ids.offsets).diff()
    return RealBlock(ids.values + torch.repeat_interleave(bases, sizes))


def virtual_ids(worker: Worker, ids: RealIds, everyones: RealParts) -> RealIds:
    """The sorted union of all trainers' row numbers, and the batch's ids as places in it."""
    cache = cache_of(worker)
    union, places = torch.unique(torch.cat(everyones.tensors), return_inverse=True)
    own = places.split([part.numel() for part in everyones.tensors])[cache.trainer]
    found = cache.ids(union.numpy())
    return RealIds(found.values, found.offsets, found.lengths, ids.batch, own, ids)


def probe(worker: Worker, ids: RealIds) -> Probe:
    """Slots of this trainer's own rows. Raises CacheTooSmall."""
    cache = cache_of(worker)
    rows = ids.values.numpy() + np.repeat(cache.bases[:-1], np.diff(ids.offsets))
    places = cache.owner.places(rows)
    own = rows[places]
    found = cache.map.probe(own)
    missing = own[found.missing]
    cache.count(len(own), len(missing), len(found.evicted))
    slots = RealSlots(
        ids,
        torch.from_numpy(places),
        torch.from_numpy(found.slots),
        torch.from_numpy(found.slots[found.missing]),
        cache.ids(found.evicted),
        torch.from_numpy(found.evicted_slots),
    )
    return Probe(slots, cache.ids(missing))


def fill(worker: Worker, slots: RealSlots, fetched: RealRows) -> RealRows:
    """Put fetched rows into their slots; the rows that were there, with state."""
    cache = cache_of(worker)
    leaving = fetch_rows(cache.held, slots.evicted_slots)
    cache.make_room()
    store_rows(cache.held, slots.filled, fetched.tensor)
    return RealRows(leaving, slots.evicted)


def cached_rows(worker: Worker, slots: RealSlots) -> RealRows:
    """[virtual ids, dim]: this trainer's own rows, zeros elsewhere."""
    held = cache_of(worker).held
    table = held.rows.new_zeros((slots.ids.values.numel(), held.rows.shape[1]))
    table.index_copy_(0, slots.places, held.rows.index_select(0, slots.slots))
    return RealRows(table, slots.ids)


def update_cached(worker: Worker, slots: RealSlots, gradient: RealRows) -> None:
    """One step of the row optimizer on this trainer's own rows."""
    own = gradient.tensor.index_select(0, slots.places)
    update_rows(cache_of(worker).held, slots.slots.numpy(), own)


def flush(worker: Worker) -> RealRows:
    """All cached rows with their state; the cache is empty afterwards."""
    cache = cache_of(worker)
    return _taken(cache, *cache.map.flush())


def held_rows(cache: MixCache) -> RealRows:
    """All cached rows with their state, which stay there."""
    return _taken(cache, *cache.map.held())


def _taken(cache: MixCache, rows: Numbers, slots: Numbers) -> RealRows:
    return RealRows(fetch_rows(cache.held, torch.from_numpy(slots)), cache.ids(rows))


def fetch_rows(state: EmbeddingState, local: Tensor) -> Tensor:
    """Rows and, where the optimizer has one, its state as a last column: [ids, dim (+ 1)]."""
    rows = state.rows.index_select(0, local)
    if state.training.sparse_optimizer == "sgd":
        return rows
    return torch.cat([rows, state.state.index_select(0, local).unsqueeze(1)], dim=1)


def store_rows(state: EmbeddingState, local: Tensor, values: Tensor) -> None:
    """The inverse of `fetch_rows`."""
    dim = state.rows.shape[1]
    state.rows.index_copy_(0, local, values[:, :dim])
    if state.training.sparse_optimizer != "sgd":
        state.state.index_copy_(0, local, values[:, dim])
