"""Dynamic Communication Thresholding (arXiv 2010.08899) of dense vectors, and what travels.

Of gradients what is left out waits in a residual of each loop. Differences of states have none:
what is left out is still there in the next difference.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.executor.bits import as_bytes, split_bytes
from recsim_train.executor.state import DenseState
from recsim_train.executor.values import RealBlock, RealDense, RealParts
from recsim_train.executor.worker import Residual, Worker
from recsim_train.strategy.values import Sparse
from recsim_train.workload.compression import (
    DIFFERENCES,
    GRADIENTS,
    INDEX_BYTES,
    Tally,
    kept,
    layout,
)


@dataclass(frozen=True, slots=True, eq=False)
class RealSparse(RealBlock, Sparse):
    """``whole``: values of the tensors that travel whole; ``places``: sorted places of the other
    entries in the flat vector, int64 [entries]; ``values``: [entries]. ``tensor``: all as bytes."""

    whole: Tensor
    places: Tensor
    values: Tensor


@functools.cache
def whole_places(model: Model, start: int, stop: int) -> Tensor:
    """Places of the elements between ``start`` and ``stop`` that travel whole, int64."""
    ranges = [
        torch.arange(max(a, start), min(b, stop))
        for a, b in layout(model).small
        if b > start and a < stop
    ]
    return torch.cat([torch.empty(0, dtype=torch.int64), *ranges])


def pack_sparse(whole: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """The bytes that travel: values, then int32 places."""
    return as_bytes(whole, values, places.to(torch.int32))


def unpack_sparse(payload: Tensor, whole: int, entries: int, kind: torch.dtype) -> RealSparse:
    """The inverse, for so many values of whole tensors and so many entries.

    Raises ValueError where the payload has another size.
    """
    sent = (whole, kind), (entries, kind), (entries, torch.int32)
    fixed, values, places = split_bytes(payload, *sent)
    return RealSparse(payload, fixed, places.to(torch.int64), values)


def threshold(worker: Worker, value: RealDense, share: float) -> None:
    """Per tensor, the k-th largest size in residual + value."""
    _take_thresholds(
        worker.residual, (worker.residual.left(value.tensor) + value.tensor).abs_(), share
    )


def threshold_difference(worker: Worker, value: RealDense, share: float) -> None:
    """Per tensor, the k-th largest size in a difference of states."""
    _take_thresholds(worker.residual, value.tensor.abs(), share)


def _take_thresholds(residual: Residual, sizes: Tensor, share: float) -> None:
    residual.taus = [
        float(sizes[a:b].topk(kept(b - a, share), sorted=False).values.min())
        for a, b in layout(residual.model).large
    ]


def sparsify(worker: Worker, value: RealDense) -> RealSparse:
    """G = residual + value; entries of at least tau leave, the rest is the new residual.

    Sent and left entries are disjoint parts of G, so that their sum is G to the last bit.
    """
    residual = worker.residual
    total = residual.left(value.tensor).add_(value.tensor)
    sent = _above(residual, total, GRADIENTS)
    total.index_fill_(0, sent.places, 0.0)
    total.index_fill_(0, whole_places(residual.model, 0, total.numel()), 0.0)
    return sent


def sparsify_difference(worker: Worker, value: RealDense) -> RealSparse:
    """Entries of at least tau leave; the others stay where they are, in the states."""
    return _above(worker.residual, value.tensor, DIFFERENCES)


def _above(residual: Residual, total: Tensor, tallied: str) -> RealSparse:
    """Entries at the threshold and all of the small tensors.

    Zeros are never sent, even where tau is zero; what is not a number is, so that it does not hide.
    """
    sizes = total.abs().numpy()
    found = [np.empty(0, dtype=np.int64)]
    for (a, b), tau in zip(layout(residual.model).large, residual.taus, strict=True):
        below = sizes[a:b] <= 0 if tau == 0 else sizes[a:b] < tau
        found.append(np.flatnonzero(~below) + a)
    places = torch.from_numpy(np.concatenate(found))
    fixed = whole_places(residual.model, 0, total.numel())
    values, whole = total.index_select(0, places), total.index_select(0, fixed)
    packed = pack_sparse(whole, places, values)
    residual.tallies.setdefault(tallied, Tally()).add(
        total.numel(),
        values.numel() + whole.numel(),
        total.numel() * total.element_size(),
        packed.numel(),
    )
    return RealSparse(packed, whole, places, values)


def densify(worker: Worker, parts: RealParts | RealSparse) -> RealDense:
    """The mean of all members' vectors, added in member order; of one vector, itself."""
    if isinstance(parts, RealSparse):
        parts = RealParts((parts.tensor,))
    model, like = worker.replica.model, worker.replica.parameters
    fixed = whole_places(model, 0, like.numel())
    total = torch.zeros_like(like)
    each = like.element_size() + INDEX_BYTES
    for part in parts.tensors:
        count = (part.numel() - fixed.numel() * like.element_size()) // each
        read = unpack_sparse(part, fixed.numel(), count, like.dtype)
        total.index_add_(0, read.places, read.values).index_add_(0, fixed, read.whole)
    return RealDense(total.div_(len(parts.tensors)))


def cut_sparse(model: Model, value: RealSparse, start: int, stop: int) -> RealSparse:
    """What a shard of elements ``start`` to ``stop`` gets, places counted from its start."""
    # Places are sorted, so that a shard's are one run.
    low, high = torch.searchsorted(value.places, torch.tensor([start, stop])).tolist()
    places, values = value.places[low:high] - start, value.values[low:high]
    before = whole_places(model, 0, start).numel()
    whole = value.whole[before : before + whole_places(model, start, stop).numel()]
    return RealSparse(pack_sparse(whole, places, values), whole, places, values)


def all_entries(model: Model, part: RealSparse, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """(places, values) of all that `cut_sparse` has left, whole tensors first."""
    fixed = whole_places(model, start, stop) - start
    return torch.cat([fixed, part.places]), torch.cat([part.whole, part.values])


def sparse_apply(state: DenseState, places: Tensor, values: Tensor) -> None:
    """One optimizer step of the central copy at ``places``: elsewhere the gradient is zero, and
    neither SGD nor Adagrad moves anything there."""
    central, optimizer = state.values, state.optimizer
    part = central.index_select(0, places)
    if optimizer.training.dense_optimizer == "sgd":
        optimizer.step(part, values)
    else:
        local = type(optimizer)(optimizer.training, optimizer.state.index_select(0, places))
        local.step(part, values)
        optimizer.state.index_copy_(0, places, local.state)
    central.index_copy_(0, places, part)


def sparse_add(state: DenseState, places: Tensor, values: Tensor) -> None:
    """central += values at ``places``."""
    state.values.index_add_(0, places, values)
