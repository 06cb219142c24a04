"""Dynamic Communication Thresholding (arXiv 2010.08899) of dense vectors, and what travels.

Of gradients what is left out waits in a residual of each loop. Differences of states have none:
what is left out is still there in the next difference. Entries are taken out and put together again
in one compiled pass over the values, outside of the interpreter's lock.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.executor.link.tensors import as_bytes, split_bytes
from recsim_train.executor.net.rows import Floats, Numbers, exact
from recsim_train.executor.values import RealBlock, RealDense, RealParts
from recsim_train.executor.worker import DenseState, Residual, Worker
from recsim_train.strategy.values import Sparse
from recsim_train.workload.compression import (
    DIFFERENCES,
    GRADIENTS,
    INDEX_BYTES,
    Tally,
    kept,
    layout,
)

_BLOCK = 64
"""Values that are looked at together: few blocks hold one that passes."""


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
    return _above(residual, residual.left(value.tensor), value.tensor, GRADIENTS)


def sparsify_difference(worker: Worker, value: RealDense) -> RealSparse:
    """Entries of at least tau leave; the others stay where they are, in the states."""
    return _above(worker.residual, value.tensor, value.tensor, DIFFERENCES)


@functools.cache
def _cuts(model: Model) -> tuple[Numbers, Numbers]:
    """Where tensors begin and end, int64 [tensors, 2]: the thresholded, and those that are not."""
    found = layout(model)
    large, small = (np.array(cuts, np.int64).reshape(-1, 2) for cuts in (found.large, found.small))
    return large, small


def _above(residual: Residual, total: Tensor, added: Tensor, tallied: str) -> RealSparse:
    """Entries at the threshold and all of the small tensors: see `take`."""
    large, small = _cuts(residual.model)
    held = total.numpy()
    taus = np.array(residual.taus, held.dtype)
    leave = tallied == GRADIENTS
    taken = take(held, added.contiguous().numpy(), large, taus, small, leave)
    whole, places, values = map(torch.from_numpy, taken)
    packed = pack_sparse(whole, places, values)
    residual.tallies.setdefault(tallied, Tally()).add(
        total.numel(),
        values.numel() + whole.numel(),
        total.nbytes,
        packed.numel(),
    )
    return RealSparse(packed, whole, places, values)


def densify(worker: Worker, parts: RealParts | RealSparse) -> RealDense:
    """The mean of all members' vectors, added in member order; of one vector, itself."""
    members = (parts.tensor,) if isinstance(parts, RealSparse) else parts.tensors
    model, like = worker.replica.model, worker.replica.parameters
    _, small = _cuts(model)
    fixed = int((small[:, 1] - small[:, 0]).sum())
    total = torch.zeros_like(like)
    for part in members:
        entries = part.numel() - fixed * like.element_size()
        count = entries // (like.element_size() + INDEX_BYTES)
        sent = (fixed, like.dtype), (count, like.dtype), (count, torch.int32)
        whole, values, places = (x.numpy() for x in split_bytes(part, *sent))
        put(total.numpy(), whole, small, places, values)
    return RealDense(total.div_(len(members)) if len(members) > 1 else total)


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
    if optimizer.moving:
        moved = places >= central.numel() - optimizer.moving
        central[places[moved]] -= optimizer.share * values[moved]
        places, values = places[~moved], values[~moved]
    part = central.index_select(0, places)
    stateless = optimizer.training.dense_optimizer == "sgd"
    state_there = optimizer.state if stateless else optimizer.state.index_select(0, places)
    local = type(optimizer)(optimizer.training, state_there)
    local.step(part, values)
    if not stateless:
        optimizer.state.index_copy_(0, places, local.state)
    central.index_copy_(0, places, part)


def sparse_add(state: DenseState, places: Tensor, values: Tensor) -> None:
    """central += values at ``places``."""
    state.values.index_add_(0, places, values)


@exact
def _pick(
    piece: Floats,
    first: int,
    stop: int,
    tau: float,
    leave: bool,
    at: int,
    places: NDArray[np.int32],
    values: Floats,
    count: int,
) -> int:
    """Take from piece[first:stop], which begins ``at`` a place of the whole; how many there are."""
    for i in range(first, stop):
        value = piece[i]
        if not abs(value) < tau and value != 0:
            places[count], values[count] = at + i, value
            count += 1
            if leave:
                piece[i] = 0
    return count


@exact
def take(
    total: Floats, added: Floats, large: Numbers, taus: Floats, small: Numbers, leave: bool
) -> tuple[Floats, Numbers, Floats]:
    """(values of the small tensors, places of the large ones' entries of at least tau, these).

    ``large``, ``small`` [tensors, 2]: where tensors begin and end. ``leave``: ``added`` is added to
    ``total`` first, and what is taken leaves zeros there; else ``total`` stays as it is. Zeros are
    never taken, even where tau is zero; what is not a number is, so that it does not hide.
    """
    places, values = np.empty(total.size, np.int32), np.empty(total.size, total.dtype)
    count = 0
    for tensor in range(large.shape[0]):
        begin, stop, tau = large[tensor, 0], large[tensor, 1], taus[tensor]
        # counted from zero and in blocks of a size that is known, it runs in wide registers
        piece = total[begin:stop]
        if leave:
            more = added[begin:stop]
            for i in range(piece.size):
                piece[i] += more[i]
        rest = piece.size - piece.size % _BLOCK
        for block in range(0, rest, _BLOCK):
            passing = np.int32(0)
            for i in range(_BLOCK):
                passing += np.int32(0) if abs(piece[block + i]) < tau else np.int32(1)
            if passing:
                end = block + _BLOCK
                count = _pick(piece, block, end, tau, leave, begin, places, values, count)
        count = _pick(piece, rest, piece.size, tau, leave, begin, places, values, count)
    whole = np.empty((small[:, 1] - small[:, 0]).sum(), total.dtype)
    at = 0
    for tensor in range(small.shape[0]):
        for i in range(small[tensor, 0], small[tensor, 1]):
            whole[at] = total[i] + added[i] if leave else total[i]
            if leave:
                total[i] = 0
            at += 1
    return whole, places[:count].astype(np.int64), values[:count].copy()


@exact
def put(
    total: Floats, whole: Floats, small: Numbers, places: NDArray[np.int32], values: Floats
) -> None:
    """total += what `take` has taken. Raises IndexError for a place outside."""
    for n in range(places.size):
        place = places[n]
        if place < 0 or place >= total.size:
            raise IndexError("an entry lies outside of the vector")
        total[place] += values[n]
    at = 0
    for tensor in range(small.shape[0]):
        for i in range(small[tensor, 0], small[tensor, 1]):
            total[i] += whole[at]
            at += 1


def warm() -> None:
    """Have both on float32 compiled, or loaded."""
    flat, cut = np.zeros(1, np.float32), np.array([[0, 1]])
    whole, _, values = take(flat, flat, cut, flat, cut[:0], True)
    put(flat, whole, cut[:0], np.zeros(0, np.int32), values)
