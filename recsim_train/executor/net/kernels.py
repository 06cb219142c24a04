"""One kernel for each operation of `recsim_train.workload.operations`, under the same name.

Kernels are plain functions of tensors: no processes, no messages. Calibration times them as they
are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recsim_train.executor.net.model import click_loss, initial_dense
from recsim_train.executor.net.rows import Numbers, add_up, bags_of, distinct, gather, look_up
from recsim_train.executor.shards.routing import Routed, lengths_of
from recsim_train.executor.values import RealDense, RealFeatures, RealIds, RealRows
from recsim_train.executor.worker import EACH_ITS_OWN, DenseState, EmbeddingState, Worker
from recsim_train.placement.program import TaggedNet
from recsim_train.strategy.values import Batch, Gradients


def pool(rows: Tensor, ids: RealIds) -> tuple[Tensor, Numbers]:
    """(sums of unique rows [unique, dim] per bag [tables, batch, dim], the bag of each id: see
    `rows.bags_of`; empty where each id has its own)."""
    assert ids.inverse is not None
    assert ids.batch_ids is not None
    source = ids.batch_ids
    counts = np.diff(source.offsets)
    varying = np.array([length is not None for length in source.lengths])
    shape = len(counts), source.batch, -1
    if _single(counts, varying, source.batch):
        return torch.from_numpy(gather(rows.numpy(), ids.inverse.numpy())).view(shape), EACH_ITS_OWN
    sums, bags = _sums(rows, ids.inverse.numpy(), counts, varying, lengths_of(source), source.batch)
    return sums.view(shape), bags


def _single(counts: Numbers, varying: NDArray[np.bool_], batch: int) -> bool:
    """Whether every bag holds one id."""
    return bool((counts == batch).all()) and not varying.any()


def _sums(
    rows: Tensor,
    places: Numbers,
    counts: Numbers,
    varying: NDArray[np.bool_],
    lengths: NDArray[np.int32],
    batch: int,
) -> tuple[Tensor, Numbers]:
    starts, bags = bags_of(places.size, counts, varying, lengths, batch)
    picked = torch.from_numpy(places), rows, torch.from_numpy(starts)
    return torch.nn.functional.embedding_bag(*picked, mode="sum"), bags


def forward_backward(worker: Worker, batch: Batch, rows: RealRows) -> Gradients:
    """Mean log loss of the batch, its gradients; the loss is left in ``worker.loss``."""
    features = batch.features
    assert isinstance(features, RealFeatures)
    pooled = rows.tensor.detach()
    if worker.pooling == "worker":
        pooled, bags = pool(pooled, rows.ids)
    pooled.requires_grad_()
    worker.net.begin(batch.number)
    logits = worker.net.forward(features.dense, pooled)
    loss = click_loss(logits, features.labels)
    flat, gradient = worker.net.gradients(loss, pooled, room=worker.room())
    worker.loss = float(loss.detach())
    if worker.pooling == "worker":
        assert rows.ids.inverse is not None
        lines, places = gradient.contiguous().flatten(0, 1).numpy(), rows.ids.inverse.numpy()
        gradient = torch.from_numpy(add_up(lines, places, bags, len(rows.tensor)))
    return Gradients(RealDense(flat), RealRows(gradient, rows.ids))


def deduplicate(worker: Worker, ids: RealIds) -> RealIds:
    """Sorted unique ids per table, and the way back to the batch."""
    found = distinct(ids.values.numpy(), np.array(ids.offsets))
    values, cuts, inverse = map(torch.from_numpy, found)
    none = (None,) * len(ids.lengths)
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


def lookup_pooled(state: EmbeddingState, routed: Routed) -> tuple[Tensor, Numbers, Numbers]:
    """(pooled vectors [slices, batch, dim], the ids' places, the bag of each: as `pool`)."""
    shape = len(routed.counts), routed.batch, -1
    if _single(routed.counts, routed.varying, routed.batch):
        rows, places = lookup_rows(state, routed)
        return rows.view(shape), places, EACH_ITS_OWN
    places = state.local(routed.values, routed.counts)
    sums, bags = _sums(
        state.rows, places, routed.counts, routed.varying, routed.lengths, routed.batch
    )
    return sums.view(shape), places, bags


def lookup_rows(state: EmbeddingState, routed: Routed) -> tuple[Tensor, Numbers]:
    """(rows [ids, dim], their places)."""
    asked = routed.values, routed.counts, state.bases, state.step
    rows, places = look_up(state.rows.numpy(), *asked)
    return torch.from_numpy(rows), places


def update_pooled(state: EmbeddingState, places: Numbers, bags: Numbers, gradient: Tensor) -> None:
    """Apply gradients of pooled vectors [slices, batch, dim] to the bags' rows."""
    state.take_step(places, gradient.reshape(-1, gradient.shape[-1]), bags)


Part = tuple[Numbers, Numbers, Tensor]
"""One client's part of an update: places, bags and gradient as of `update_pooled`."""


def update_together(state: EmbeddingState, parts: Sequence[Part]) -> None:
    """Apply the mean of several clients' gradients once."""
    lines = [gradient.reshape(-1, gradient.shape[-1]) for _, _, gradient in parts]
    mean = torch.cat(lines).div_(len(parts))
    places, bags = np.concatenate([places for places, _, _ in parts]), EACH_ITS_OWN
    if any(own.size for _, own, _ in parts):
        starts = np.cumsum([0, *map(len, lines[:-1])])
        bags = np.concatenate(
            [
                start + (own if own.size else np.arange(rows.size))
                for start, (rows, own, _) in zip(starts, parts, strict=True)
            ]
        )
    update_pooled(state, places, bags, mean)


def update_rows(state: EmbeddingState, places: Numbers, gradient: Tensor) -> None:
    """Apply gradients of rows [ids, dim]."""
    state.take_step(places, gradient, EACH_ITS_OWN)


def dense_read(state: DenseState, values: Tensor) -> None:
    """Copy the elements to ``values``; to another process they are sent from where they are."""
    values.copy_(state.values)


def dense_apply(state: DenseState, gradient: Tensor) -> None:
    """One optimizer step of the central copy."""
    state.optimizer.step(state.values, gradient)


def interpolate(worker: Worker, value: RealDense, share: float) -> None:
    """replica += share * (value - replica), in place: overwriting would lose what other threads
    have added since ``value`` was computed."""
    worker.replica.parameters.lerp_(value.tensor, share)


def towards(worker: Worker, value: RealDense, share: float) -> RealDense:
    """share * (replica - value)."""
    return RealDense(worker.replica.parameters.sub(value.tensor).mul_(share))


def block_step(worker: Worker, mean: RealDense, rate: float, momentum: float) -> RealDense:
    """D = momentum * D + rate * (mean - model); model += D; a copy of the model.

    The model starts where all replicas do, so that every trainer holds the same one.
    """
    if worker.block is None:
        start = initial_dense(worker.replica.model, worker.replica.seed)
        if isinstance(worker.program, TaggedNet):
            parts = [start[a:b] for a, b in worker.program.answered(worker.host)]
            start = torch.cat([*parts, start[:0]])
        worker.block = start, torch.zeros_like(start)
    model, move = worker.block
    move.mul_(momentum).add_(mean.tensor.sub(model), alpha=rate)
    model.add_(move)
    return RealDense(model.clone(), mean.start)


def dense_elastic(state: DenseState, parameters: Tensor, alpha: float, start: int = 0) -> Tensor:
    """d = alpha * (w - c) from the old values; c += d; the answer is d (EASGD).

    ``start``: which of the shard's elements the first parameter is.
    """
    central = state.values[start : start + parameters.numel()]
    difference = parameters.sub(central).mul_(alpha)
    central.add_(difference)
    return difference


def dense_elastic_new(
    state: DenseState, parameters: Tensor, alpha: float, start: int = 0
) -> Tensor:
    """As `dense_elastic`, but the answer is alpha * (w - c) with the new c: (1 - alpha) * d."""
    return dense_elastic(state, parameters, alpha, start).mul_(1.0 - alpha)
