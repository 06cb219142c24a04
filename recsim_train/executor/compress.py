"""Kernels of Dynamic Communication Thresholding (arXiv 2010.08899) and the forms that travel.

Dense gradients: what is left out waits in a residual of each loop. Differences of states have none:
what is left out is still there in the next difference. Pooled embeddings and other activations
[rows, width]: every row keeps its largest entries, and gradients exist at those only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.executor.values import RealBlock, RealDense, RealParts
from recsim_train.strategy.values import Masked, Sparse
from recsim_train.workload import shape
from recsim_train.workload.compression import (
    DIFFERENCES,
    GRADIENTS,
    INDEX_BYTES,
    Mask,
    MaskOver,
    Tallies,
    Tally,
    kept,
    layout,
    position_bytes,
)

if TYPE_CHECKING:
    from recsim_train.executor.kernels import DenseState, Worker

_SHIFT = 1 << 15
"""Places of 0 to 65,535 travel as int16 around zero."""
_PLACES = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
"""By the bytes of a place."""


def _bytes(*tensors: Tensor) -> Tensor:
    """Several tensors' content, one after the other: uint8."""
    # Of one element or none, a contiguous tensor may have any stride; a view as bytes wants one.
    flat = [t.contiguous().as_strided((t.numel(),), (1,)) for t in tensors]
    return torch.cat([t.view(torch.uint8) for t in flat])


def _typed(part: Tensor, kind: torch.dtype) -> Tensor:
    """Bytes as numbers: a copy, because numbers must start at a multiple of their size."""
    return part.clone(memory_format=torch.contiguous_format).view(kind)


# ---------------------------------------------------------------- dense gradients


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
    return _bytes(whole, values, places.to(torch.int32))


def unpack_sparse(payload: Tensor, count: int, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """(whole, places, values) of ``count`` entries from bytes."""
    cut = payload.numel() - count * INDEX_BYTES
    numbers = _typed(payload[:cut], kind)
    places = _typed(payload[cut:], torch.int32).to(torch.int64)
    middle = numbers.numel() - count
    return numbers[:middle], places, numbers[middle:]


@dataclass(slots=True)
class Residual:
    """What one loop has not sent of its gradients yet, and the thresholds that it goes by."""

    model: Model
    error: Tensor | None = None
    """[dense parameters]; zero where nothing is left; None where differences are sent."""
    taus: list[float] = field(default_factory=list)
    """One for each thresholded tensor."""
    tallies: Tallies = field(default_factory=dict)

    def left(self, like: Tensor) -> Tensor:
        """The residual, made at first use."""
        if self.error is None:
            self.error = torch.zeros_like(like)
        return self.error


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
        whole, places, values = unpack_sparse(part, count, like.dtype)
        total.index_add_(0, places, values).index_add_(0, fixed, whole)
    return RealDense(total.div_(len(parts.tensors)))


@dataclass(frozen=True, slots=True)
class SparsePart:
    """What one dense shard gets of a sparse vector; places count from the shard's start."""

    places: Tensor
    values: Tensor
    payload: Tensor
    """As it travels."""
    entries: int
    """Entries with a place of their own in the payload."""


def cut_sparse(model: Model, value: RealSparse, start: int, stop: int) -> SparsePart:
    """The part of elements ``start`` to ``stop``: places are sorted, so entries are one run."""
    low, high = torch.searchsorted(value.places, torch.tensor([start, stop])).tolist()
    places, values = value.places[low:high] - start, value.values[low:high]
    fixed, before = whole_places(model, start, stop), whole_places(model, 0, start).numel()
    whole = value.whole[before : before + fixed.numel()]
    payload = pack_sparse(whole, places, values)
    everything = torch.cat([fixed - start, places]), torch.cat([whole, values])
    return SparsePart(*everything, payload, high - low)


def read_sparse(
    model: Model, payload: Tensor, entries: int, start: int, stop: int
) -> tuple[Tensor, Tensor]:
    """(places from the shard's start, values) of a shard's payload."""
    kind = torch.float64 if shape.value_bytes(model) == 8 else torch.float32
    whole, places, values = unpack_sparse(payload, entries, kind)
    fixed = whole_places(model, start, stop) - start
    return torch.cat([fixed, places]), torch.cat([whole, values])


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


# ---------------------------------------------------------------- masks of activations


@dataclass(frozen=True, slots=True, eq=False)
class RealMasked(RealBlock, Masked):
    """``values`` [rows, k] at ``places`` int64 [rows, k] of rows of ``width``; ``tensor``: the
    bytes that travel, without the places where the other side knows them."""

    values: Tensor
    places: Tensor
    width: int


def mask_rows(block: Tensor, share: float) -> RealMasked:
    """The largest entries of every row of [rows, width], by size."""
    width = block.shape[1]
    places = block.abs().topk(kept(width, share), dim=1, sorted=False).indices
    values = block.gather(1, places)
    return RealMasked(_bytes(values, _short(places, width)), values, places, width)


def _short(places: Tensor, width: int) -> Tensor:
    size = position_bytes(width)
    return (places - _SHIFT if size == 2 else places).to(_PLACES[size])


def unpack_mask(payload: Tensor, rows: int, width: int, kind: torch.dtype) -> RealMasked:
    """The inverse of `mask_rows` for bytes that have arrived."""
    size = position_bytes(width)
    cut = payload.numel() // (kind.itemsize + size) * kind.itemsize
    values = _typed(payload[:cut], kind).view(rows, -1)
    places = _typed(payload[cut:], _PLACES[size]).to(torch.int64)
    places = places + _SHIFT if size == 2 else places
    return RealMasked(payload, values, places.view(rows, -1), width)


def spread(values: Tensor, places: Tensor, width: int) -> Tensor:
    """[rows, width] with ``values`` at ``places`` and zeros elsewhere."""
    return values.new_zeros((values.shape[0], width)).scatter_(1, places, values)


def mask(worker: Worker, block: RealBlock, share: float) -> RealMasked:
    """The largest entries of every row, with their places."""
    return mask_rows(block.tensor, share)


def unmask(worker: Worker, masked: RealMasked) -> RealBlock:
    """The block with zeros where nothing was kept."""
    return RealBlock(spread(masked.values, masked.places, masked.width))


def pick(worker: Worker, block: RealBlock, masked: RealMasked) -> RealMasked:
    """A gradient's entries at the kept places: without the places, both sides know them."""
    values = block.tensor.gather(1, masked.places)
    return RealMasked(_bytes(values), values, masked.places, masked.width)


def unpick(worker: Worker, picked: RealBlock, masked: RealMasked) -> RealBlock:
    """The picked entries at the places of the mask; ``picked`` may be bytes that have arrived."""
    values = picked.tensor.clone().view(masked.values.dtype).view(masked.values.shape)
    return RealBlock(spread(values, masked.places, masked.width))


class PooledMask:
    """The mask of one shard's pooled vectors [slices, batch, dim]: what `workload.compression.Mask`
    says, done with tensors. A line is one table's vector of one example, or all of an example's."""

    def __init__(self, model: Model, slices: int, share: float, over: MaskOver) -> None:
        self.slices, self.share, self.over = slices, share, over
        self.shape = Mask.of(slices, model.row_width, share, over)
        self._value = shape.value_bytes(model)
        self._kind = torch.float64 if self._value == 8 else torch.float32

    def bytes(self, batch: int) -> int:
        """Of an answer."""
        return batch * self.shape.bytes(self._value)

    def lines(self, vectors: Tensor) -> Tensor:
        """[lines, width]."""
        if self.over == "sample":
            vectors = vectors.transpose(0, 1)
        return vectors.reshape(-1, self.shape.width)

    def vectors(self, lines: Tensor) -> Tensor:
        """[slices, batch, dim] again."""
        if self.over == "table":
            return lines.view(self.slices, -1, self.shape.width)
        return lines.view(lines.shape[0], self.slices, -1).transpose(0, 1).contiguous()

    def mask(self, vectors: Tensor) -> RealMasked:
        """What is kept of pooled vectors."""
        return mask_rows(self.lines(vectors), self.share)

    def read(self, payload: Tensor, batch: int) -> RealMasked:
        """The same at the client, from the bytes of an answer."""
        return unpack_mask(payload, batch * self.shape.lines, self.shape.width, self._kind)

    def unmask(self, masked: RealMasked) -> Tensor:
        """Pooled vectors with zeros."""
        return self.vectors(spread(masked.values, masked.places, self.shape.width))

    def pick(self, gradient: Tensor, masked: RealMasked) -> Tensor:
        """A gradient's values at the kept places [lines, k]."""
        return self.lines(gradient).gather(1, masked.places)

    def unpick(self, values: Tensor, places: Tensor) -> Tensor:
        """The gradient of the pooled vectors."""
        return self.vectors(spread(values, places, self.shape.width))


def count(tallies: Tallies, name: str, whole: Tensor, kept_values: Tensor, sent: Tensor) -> None:
    """Add to a tally what was there, what was kept, and what travelled: the tensors themselves."""
    tallies.setdefault(name, Tally()).add(
        whole.numel(),
        kept_values.numel(),
        whole.numel() * whole.element_size(),
        sent.numel() * sent.element_size(),
    )


COMPRESSION_KERNELS: dict[str, Callable[..., object]] = {
    kernel.__name__: kernel
    for kernel in (
        threshold,
        sparsify,
        threshold_difference,
        sparsify_difference,
        densify,
        mask,
        unmask,
        pick,
        unpick,
        sparse_apply,
    )
}
