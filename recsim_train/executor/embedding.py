"""A shard of the embedding tables: one fused tensor of rows, its optimizer, its kernels.

All slices of the shard lie in one tensor [rows, dim], so that a request is a handful of tensor
operators whatever the number of tables. Threads use a shard at once without a lock (Hogwild).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from recsim_train.config.experiment import Model, Training
from recsim_train.executor.model import fill_rows
from recsim_train.executor.values import torch_dtype
from recsim_train.placement.plan import TableSlice

EPSILON = 1e-8
"""Added to the root of Adagrad's accumulator."""


class EmbeddingState:
    """Rows of some table slices with their optimizer state."""

    def __init__(
        self,
        model: Model,
        training: Training,
        slices: Sequence[TableSlice],
        split: frozenset[int],
        seed: int,
    ) -> None:
        self.slices = tuple(slices)
        self.dim = model.embedding_dim
        self.lr = training.sparse_lr
        self.adagrad = training.sparse_optimizer == "rowwise_adagrad"
        starts = [0, *accumulate(s.rows for s in slices)]
        self.starts = starts
        """First fused row of every slice, and the total: [slices + 1]."""
        self.shift = torch.tensor(
            [base - s.start for base, s in zip(starts, slices, strict=False)], dtype=torch.int64
        )
        """What turns an id of a slice's table into a fused row: int64 [slices]."""
        self.stop = torch.tensor(starts[1:], dtype=torch.int64)
        self.ragged = [s.table in split or model.tables[s.table].variable for s in slices]
        """Whether a slice's requests carry lengths."""
        self.hotness = [model.tables[s.table].ids for s in slices]
        self.single = not any(self.ragged) and all(ids == 1 for ids in self.hotness)
        self.weight = torch.empty((starts[-1], self.dim), dtype=torch_dtype(model))
        for base, part in zip(starts, slices, strict=False):
            fill_rows(
                self.weight[base : base + part.rows], model, seed, part.table, part.start
            )
        rows = starts[-1] if self.adagrad else 0
        self.accumulator = torch.zeros(rows, dtype=self.weight.dtype)

    def slice_rows(self, place: int) -> Tensor:
        """Rows of one slice, a view [rows, dim]."""
        return self.weight[self.starts[place] : self.starts[place + 1]]

    def fused(self, ids: Tensor, counts: Tensor) -> Tensor:
        """Fused rows of ids given slice by slice, int64 [ids]; ``counts`` int64 [slices].

        Raises ValueError where an id is outside its slice.
        """
        rows = ids + self.shift.repeat_interleave(counts, output_size=ids.numel())
        if rows.numel() and (int(rows.min()) < 0 or int(rows.max()) >= self.starts[-1]):
            raise ValueError(f"an id is outside its table: {int(ids.min())} to {int(ids.max())}")
        return rows


@dataclass(slots=True, eq=False)
class PooledRequest:
    """What a shard remembers of a pooled lookup until its gradient comes."""

    rows: Tensor
    """Fused rows, int64 [ids], slice by slice."""
    bags: Tensor | None
    """Bag of every id, int64 [ids]; None where every bag holds one id."""


def lookup_pooled(
    state: EmbeddingState, ids: Tensor, lengths: Tensor, batch: int
) -> tuple[Tensor, PooledRequest]:
    """Sums of bags, [slices, batch, dim].

    ``ids``: int64, slice by slice, sample by sample; ``lengths``: int32 [ragged slices * batch].
    """
    slices = len(state.slices)
    if state.single:
        rows = state.fused(ids, torch.full((slices,), batch, dtype=torch.int64))
        # embedding_bag reads rows faster than index_select does.
        values = functional.embedding_bag(rows.view(-1, 1), state.weight, mode="sum")
        return values.view(slices, batch, state.dim), PooledRequest(rows, None)
    bag_lengths = _bag_lengths(state, lengths, batch)
    rows = state.fused(ids, bag_lengths.view(slices, batch).sum(1))
    offsets = bag_lengths.cumsum(0) - bag_lengths
    values = functional.embedding_bag(rows, state.weight, offsets, mode="sum")
    bags = torch.arange(slices * batch).repeat_interleave(bag_lengths, output_size=rows.numel())
    return values.view(slices, batch, state.dim), PooledRequest(rows, bags)


def _bag_lengths(state: EmbeddingState, lengths: Tensor, batch: int) -> Tensor:
    """Ids per bag, int64 [slices * batch]."""
    out = torch.empty((len(state.slices), batch), dtype=torch.int64)
    given = lengths.view(-1, batch)
    at = 0
    for place, ragged in enumerate(state.ragged):
        if ragged:
            out[place] = given[at]
            at += 1
        else:
            out[place] = state.hotness[place]
    return out.view(-1)


def lookup_rows(state: EmbeddingState, ids: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """(rows [ids, dim], fused rows int64 [ids]) of distinct ids, ``counts`` int64 [slices]."""
    rows = state.fused(ids, counts)
    if not rows.numel():
        return state.weight.new_empty((0, state.dim)), rows
    return functional.embedding_bag(rows.view(-1, 1), state.weight, mode="sum"), rows


def sum_by_row(
    rows: Tensor, gradient: Tensor, places: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(distinct rows ascending, sums [distinct, dim]) of gradients of repeated rows.

    ``gradient`` [n, dim]; ``places``: which of its lines belongs to each of ``rows``, None: its
    own. Sums are in request order, so results do not depend on anything else.
    """
    ordered, order = torch.sort(rows, stable=True)
    distinct, counts = torch.unique_consecutive(ordered, return_counts=True)
    offsets = counts.cumsum(0) - counts
    lines = order if places is None else places.index_select(0, order)
    return distinct, functional.embedding_bag(lines, gradient, offsets, mode="sum")


def apply_rows(state: EmbeddingState, rows: Tensor, gradient: Tensor) -> None:
    """One optimizer step on distinct fused rows with gradient [rows, dim]."""
    if not rows.numel():
        return
    if state.adagrad:
        state.accumulator.index_add_(0, rows, gradient.square().mean(1))
        scale = state.accumulator.index_select(0, rows).sqrt_().add_(EPSILON)
        step = gradient.div(scale.unsqueeze(1)).mul_(-state.lr)
    else:
        step = gradient * -state.lr
    # With an expanded index scatter_add_ is several times as fast as index_add_ on rows.
    state.weight.scatter_add_(0, rows.unsqueeze(1).expand_as(step), step)


def update_pooled(
    state: EmbeddingState,
    requests: Sequence[PooledRequest],
    gradients: Sequence[Tensor],
    scale: float = 1.0,
) -> None:
    """Spread gradients of bags [slices, batch, dim] over their ids, sum duplicates, apply.

    Several requests are applied as one sum, times ``scale``.
    """
    flat = [gradient.reshape(-1, state.dim) for gradient in gradients]
    if len(flat) == 1:
        rows, gradient, places = requests[0].rows, flat[0], requests[0].bags
    else:
        rows = torch.cat([request.rows for request in requests])
        gradient = torch.cat(flat)
        firsts = [0, *accumulate(part.shape[0] for part in flat)]
        places = torch.cat(
            [
                (torch.arange(r.rows.numel()) if r.bags is None else r.bags) + first
                for r, first in zip(requests, firsts, strict=False)
            ]
        )
    distinct, sums = sum_by_row(rows, gradient, places)
    apply_rows(state, distinct, sums if scale == 1.0 else sums.mul_(scale))


def update_rows(
    state: EmbeddingState,
    rows: Sequence[Tensor],
    gradients: Sequence[Tensor],
    scale: float = 1.0,
) -> None:
    """Apply gradients [rows, dim] of distinct fused rows; several clients' are summed first."""
    if len(rows) == 1:
        gradient = gradients[0] if scale == 1.0 else gradients[0] * scale
        apply_rows(state, rows[0], gradient)
        return
    distinct, sums = sum_by_row(torch.cat(list(rows)), torch.cat(list(gradients)), None)
    apply_rows(state, distinct, sums if scale == 1.0 else sums.mul_(scale))
