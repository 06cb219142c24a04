"""One kernel for each operation of `recsim_train.workload.operations`, under the same name.

Kernels are plain functions of tensors: no processes, no messages. Calibration times them as they
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.executor.model import dtype_of
from recsim_train.executor.state import DenseState, EmbeddingState
from recsim_train.executor.values import RealDense, RealFeatures, RealIds, RealRows
from recsim_train.executor.worker import Worker
from recsim_train.placement.plan import TableSlice
from recsim_train.strategy.values import Batch, Gradients


def pool(rows: Tensor, ids: RealIds, tables: int) -> Tensor:
    """Sum unique rows [unique, dim] into bags: [tables, batch, dim]."""
    assert ids.inverse is not None
    assert ids.batch_ids is not None
    source = ids.batch_ids
    if all(length is None for length in source.lengths) and source.values.numel() == (
        tables * source.batch
    ):
        return rows.index_select(0, ids.inverse).view(tables, source.batch, -1)
    starts = bag_starts(
        [(source.offsets[t + 1] - source.offsets[t], source.lengths[t]) for t in range(tables)],
        source.batch,
    )
    bags = torch.nn.functional.embedding_bag(ids.inverse, rows, starts, mode="sum")
    return bags.view(tables, source.batch, -1)


def bag_starts(parts: Sequence[tuple[int, Tensor | None]], batch: int) -> Tensor:
    """Where each bag starts in the concatenated ids: int64 [parts * batch]."""
    counts = [
        torch.full((batch,), count // batch, dtype=torch.int64)
        if lengths is None
        else lengths.to(torch.int64)
        for count, lengths in parts
    ]
    sizes = torch.cat(counts)
    return sizes.cumsum(0) - sizes


def forward_backward(worker: Worker, batch: Batch, rows: RealRows) -> Gradients:
    """Mean log loss of the batch, its gradients; the loss is left in ``worker.loss``."""
    features = batch.features
    assert isinstance(features, RealFeatures)
    worker.net.new_gradient()
    leaf = rows.tensor.detach().requires_grad_()
    tables = len(worker.replica.model.tables)
    pooled = leaf if worker.pooling == "server" else pool(leaf, rows.ids, tables)
    logits = worker.net.forward(features.dense, pooled)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, features.labels)
    loss.backward()  # type: ignore[no-untyped-call]
    worker.loss = float(loss.detach())
    assert leaf.grad is not None
    return Gradients(RealDense(worker.net.gradient), RealRows(leaf.grad, rows.ids))


def deduplicate(worker: Worker, ids: RealIds) -> RealIds:
    """Sorted unique ids per table, and the way back to the batch."""
    model = worker.replica.model
    sizes = [ids.offsets[t + 1] - ids.offsets[t] for t in range(len(model.tables))]
    base = torch.tensor([0, *(t.rows for t in model.tables)], dtype=torch.int64).cumsum(0)
    shift = torch.repeat_interleave(base[:-1], torch.tensor(sizes))
    unique, inverse = torch.unique(ids.values + shift, return_inverse=True)
    cuts = torch.searchsorted(unique, base)
    counts = cuts[1:] - cuts[:-1]
    values = unique - torch.repeat_interleave(base[:-1], counts)
    none = (None,) * len(model.tables)
    return RealIds(values, tuple(cuts.tolist()), none, ids.batch, inverse, ids)


def apply(worker: Worker, gradient: RealDense) -> None:
    """One optimizer step on the replica."""
    worker.replica.optimizer.step(worker.replica.parameters, gradient.tensor)


def load(worker: Worker, value: RealDense) -> None:
    """Overwrite the replica."""
    worker.replica.parameters.copy_(value.tensor)


def snapshot(worker: Worker) -> RealDense:
    """A copy of the replica."""
    return RealDense(worker.replica.parameters.clone())


def subtract(worker: Worker, value: RealDense) -> None:
    """replica -= value, in place: concurrent steps of other threads survive."""
    worker.replica.parameters.sub_(value.tensor)


def accumulate(worker: Worker, gradient: RealDense) -> None:
    """Add to this loop's accumulator."""
    if worker.accumulated is None:
        worker.accumulated = torch.zeros_like(gradient.tensor)
    worker.accumulated.add_(gradient.tensor)


def drain(worker: Worker) -> RealDense:
    """The accumulated gradient; the accumulator is zero afterwards."""
    assert worker.accumulated is not None
    total = worker.accumulated.clone()
    worker.accumulated.zero_()
    return RealDense(total)


def lookup_pooled(
    state: EmbeddingState, local: Tensor, starts: Tensor | None, batch: int
) -> Tensor:
    """Pooled vectors [slices, batch, dim]; ``starts`` None: every bag holds one id."""
    shape = (len(state.slices), batch, state.rows.shape[1])
    if starts is None:
        return state.rows.index_select(0, local).view(shape)
    return torch.nn.functional.embedding_bag(local, state.rows, starts, mode="sum").view(shape)


def lookup_rows(state: EmbeddingState, local: Tensor) -> Tensor:
    """Rows [ids, dim]."""
    return state.rows.index_select(0, local)


def update_pooled(
    state: EmbeddingState, local: Tensor, starts: Tensor | None, gradient: Tensor
) -> None:
    """Apply gradients of pooled vectors [slices, batch, dim] to the bags' rows."""
    bags = None if starts is None else bag_of(local, starts)
    state.take_step(local, gradient.reshape(-1, gradient.shape[-1]), bags)


def bag_of(local: Tensor, starts: Tensor) -> Tensor:
    """Of each id: int64 [ids]."""
    ends = torch.cat([starts[1:], torch.tensor([local.numel()])])
    return torch.repeat_interleave(ends - starts)


def gradient_rows(local: Tensor, starts: Tensor | None, gradient: Tensor) -> Tensor:
    """Of each id [ids, dim], from the gradient of what a lookup has answered."""
    flat = gradient.reshape(-1, gradient.shape[-1])
    return flat if starts is None else flat.index_select(0, bag_of(local, starts))


def update_rows(state: EmbeddingState, local: Tensor, gradient: Tensor) -> None:
    """Apply gradients of rows [ids, dim]."""
    state.take_step(local, gradient)


def dense_read(state: DenseState, values: Tensor) -> None:
    """Copy the elements to ``values``; to another process they are sent from where they are."""
    values.copy_(state.values)


def dense_apply(state: DenseState, gradient: Tensor) -> None:
    """One optimizer step of the central copy."""
    state.optimizer.step(state.values, gradient)


def route_ids(ids: RealIds, slices: Sequence[TableSlice], split: frozenset[int]) -> Routed:
    """The part of a batch's ids that one shard answers, slice by slice."""
    parts: list[Tensor] = []
    lengths: list[Tensor | None] = []
    for part in slices:
        values = ids.table(part.table)
        length = ids.lengths[part.table]
        if part.table in split:
            inside = (values >= part.start) & (values < part.stop)
            if part.step > 1:
                inside &= values % part.step == part.start
            if ids.inverse is None:
                length = _lengths_inside(inside, length, ids.batch)
            values = values[inside]
        parts.append(values)
        lengths.append(length)
    return Routed(torch.cat(parts), tuple(p.numel() for p in parts), tuple(lengths), ids.batch)


def _lengths_inside(inside: Tensor, lengths: Tensor | None, batch: int) -> Tensor:
    if lengths is None:
        return inside.view(batch, -1).sum(1, dtype=torch.int32)
    bag = torch.repeat_interleave(torch.arange(batch), lengths)
    return torch.zeros(batch, dtype=torch.int32).index_add_(0, bag, inside.to(torch.int32))


@dataclass(frozen=True, slots=True)
class Routed:
    """Ids for one shard: ``values`` slice by slice, ``counts`` per slice, ``lengths`` where bags
    vary."""

    values: Tensor
    counts: tuple[int, ...]
    lengths: tuple[Tensor | None, ...]
    batch: int

    def starts(self) -> Tensor | None:
        """Bag starts for `lookup_pooled`; None where every bag holds one id."""
        if all(x is None for x in self.lengths) and self.values.numel() == (
            len(self.counts) * self.batch
        ):
            return None
        return bag_starts(list(zip(self.counts, self.lengths, strict=True)), self.batch)


def assemble_rows(
    model: Model, ids: RealIds, parts: Sequence[tuple[Sequence[TableSlice], Sequence[int], Tensor]]
) -> RealRows:
    """The shards' answers in table order; partial sums of a split table are added.

    ``parts``: per shard its slices, the ids of each, and its answer.
    """
    if ids.inverse is None:
        if any(part.last for slices, _, _ in parts for part in slices):
            return RealRows(torch.cat([vectors for _, _, vectors in parts], dim=2), ids)
        pooled: list[Tensor | None] = [None] * len(model.tables)
        for slices, _, vectors_of_shard in parts:
            for part, vectors in zip(slices, vectors_of_shard, strict=True):
                held = pooled[part.table]
                pooled[part.table] = vectors if held is None else held + vectors
        return RealRows(torch.stack([p for p in pooled if p is not None]), ids)
    # as wide as the answers: rows may bring their optimizer's state along
    rows = torch.empty((ids.values.numel(), parts[0][2].shape[1]), dtype=dtype_of(model))
    for (_, place), answer in zip(_places(ids, [p[:2] for p in parts]), parts, strict=True):
        position = 0
        for start, count in place:
            rows[start : start + count] = answer[2][position : position + count]
            position += count
    return RealRows(rows, ids)


def _places(
    ids: RealIds, parts: Sequence[tuple[Sequence[TableSlice], Sequence[int]]]
) -> list[tuple[int, list[tuple[int, int]]]]:
    """Per shard: (start, count) of each slice's unique ids within the batch's unique ids.

    Ids are sorted within a table, so a slice's ids are one run.
    """
    done = [0] * (len(ids.offsets) - 1)
    found = []
    order = sorted(
        ((part.table, part.start), shard, place)
        for shard, (slices, _) in enumerate(parts)
        for place, part in enumerate(slices)
    )
    runs: dict[tuple[int, int], tuple[int, int]] = {}
    for (table, _), shard, place in order:
        count = parts[shard][1][place]
        runs[shard, place] = (ids.offsets[table] + done[table], count)
        done[table] += count
    for shard, (slices, _) in enumerate(parts):
        found.append((shard, [runs[shard, place] for place in range(len(slices))]))
    return found


def route_gradient(
    gradient: RealRows, parts: Sequence[tuple[Sequence[TableSlice], Sequence[int]]]
) -> list[Tensor]:
    """The gradient of each shard's answer, in the answer's own form."""
    if gradient.ids.inverse is None:
        return [
            gradient.tensor.index_select(0, torch.tensor([p.table for p in slices]))
            for slices, _ in parts
        ]
    return [
        torch.cat([gradient.tensor[start : start + count] for start, count in place])
        for _, place in _places(gradient.ids, parts)
    ]
