"""Masks of pooled embeddings and other activations: DCT's second half (arXiv 2010.08899).

Every row of [rows, width] keeps its largest entries, and gradients exist at those only.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.executor.books import booked
from recsim_train.executor.link.tensors import as_bytes, split_bytes
from recsim_train.executor.net.model import dtype_of
from recsim_train.workload.compression import (
    Mask,
    MaskOver,
    Tallies,
    Tally,
    kept,
    position_bytes,
)

_SHIFT = 1 << 15
"""Places of 0 to 65,535 travel as int16 around zero."""
_PLACES = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
"""By the bytes of a place."""


class RealMasked(NamedTuple):
    """``values`` [rows, k] at ``places`` int64 [rows, k]; ``tensor``: both as bytes that travel."""

    tensor: Tensor
    values: Tensor
    places: Tensor


def mask_rows(block: Tensor, share: float) -> RealMasked:
    """The largest entries of every row of [rows, width], by size."""
    width, size = block.shape[1], position_bytes(block.shape[1])
    places = block.abs().topk(kept(width, share), dim=1, sorted=False).indices
    values = block.gather(1, places)
    short = (places - _SHIFT if size == 2 else places).to(_PLACES[size])
    return RealMasked(as_bytes(values, short), values, places)


def unpack_mask(payload: Tensor, rows: int, width: int, kind: torch.dtype) -> RealMasked:
    """The inverse of `mask_rows` for bytes that have arrived."""
    size = position_bytes(width)
    count = payload.numel() // (kind.itemsize + size)
    values, short = split_bytes(payload, (count, kind), (count, _PLACES[size]))
    places = short.to(torch.int64).view(rows, -1)
    places = places + _SHIFT if size == 2 else places
    return RealMasked(payload, values.view(rows, -1), places)


def spread(values: Tensor, places: Tensor, width: int) -> Tensor:
    """[rows, width] with ``values`` at ``places`` and zeros elsewhere."""
    return values.new_zeros((values.shape[0], width)).scatter_(1, places, values)


class VectorMask:
    """The mask of one shard's pooled vectors [slices, batch, dim]: what `workload.compression.Mask`
    says, done with tensors. A line is one table's vector of one example, or all of an example's."""

    def __init__(self, model: Model, slices: int, share: float, over: MaskOver) -> None:
        self.slices, self.share, self.over = slices, share, over
        self.shape = Mask.of(slices, model.row_width, share, over)
        self._kind = dtype_of(model)

    def bytes(self, batch: int) -> int:
        """Of an answer."""
        return batch * self.shape.bytes(self._kind.itemsize)

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

    @booked("mask")
    def mask(self, vectors: Tensor) -> RealMasked:
        """What is kept of pooled vectors."""
        return mask_rows(self.lines(vectors), self.share)

    @booked("unmask")
    def read(self, payload: Tensor, batch: int) -> RealMasked:
        """The same at the client, from the bytes of an answer."""
        return unpack_mask(payload, batch * self.shape.lines, self.shape.width, self._kind)

    @booked("unmask")
    def unmask(self, masked: RealMasked) -> Tensor:
        """Pooled vectors with zeros."""
        return self.vectors(spread(masked.values, masked.places, self.shape.width))

    @booked("pick")
    def pick(self, gradient: Tensor, places: Tensor) -> Tensor:
        """A gradient's values at the kept places [lines, k]."""
        return self.lines(gradient).gather(1, places)

    @booked("unpick")
    def unpick(self, values: Tensor, places: Tensor) -> Tensor:
        """The gradient of the pooled vectors."""
        return self.vectors(spread(values, places, self.shape.width))


def count(tallies: Tallies, name: str, whole: Tensor, kept_values: Tensor, sent: Tensor) -> None:
    """Add to a tally what was there, what was kept, and what travelled: the tensors themselves."""
    tallies.setdefault(name, Tally()).add(
        whole.numel(), kept_values.numel(), whole.nbytes, sent.nbytes
    )
