"""One kernel for each operation of `recsim_train.workload.operations`, under the same name.

Kernels are plain functions of tensors: no processes, no messages. Calibration times them as they
are.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from recsim_train.executor import gathers
from recsim_train.executor.routing import Routed, lengths_of
from recsim_train.executor.rows import Numbers
from recsim_train.executor.state import EACH_ITS_OWN, DenseState, EmbeddingState
from recsim_train.executor.values import RealDense, RealFeatures, RealIds, RealRows
from recsim_train.executor.worker import Worker
from recsim_train.strategy.values import Batch, Gradients


def pool(rows: Tensor, ids: RealIds) -> tuple[Tensor, Numbers]:
    """(sums of unique rows [unique, dim] per bag [tables, batch, dim], the bag of each id: see
    `gathers.pool`)."""
    assert ids.inverse is not None
    assert ids.batch_ids is not None
    source = ids.batch_ids
    sums, bags = gathers.pool(
        rows.numpy(),
        ids.inverse.numpy(),
        np.diff(source.offsets),
        np.array([length is not None for length in source.lengths]),
        lengths_of(source),
        source.batch,
    )
    return torch.from_numpy(sums).view(len(source.lengths), source.batch, -1), bags


def forward_backward(worker: Worker, batch: Batch, rows: RealRows) -> Gradients:
    """Mean log loss of the batch, its gradients; the loss is left in ``worker.loss``."""
    features = batch.features
    assert isinstance(features, RealFeatures)
    worker.net.new_gradient()
    pooled = rows.tensor.detach()
    if worker.pooling == "worker":
        pooled, bags = pool(pooled, rows.ids)
    pooled.requires_grad_()
    logits = worker.net.forward(features.dense, pooled)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, features.labels)
    loss.backward()  # type: ignore[no-untyped-call]
    worker.loss = float(loss.detach())
    gradient = pooled.grad
    assert gradient is not None
    if worker.pooling == "worker":
        assert rows.ids.inverse is not None
        lines, places = gradient.contiguous().flatten(0, 1).numpy(), rows.ids.inverse.numpy()
        gradient = torch.from_numpy(gathers.add_up(lines, places, bags, len(rows.tensor)))
    return Gradients(RealDense(worker.net.gradient), RealRows(gradient, rows.ids))


def deduplicate(worker: Worker, ids: RealIds) -> RealIds:
    """Sorted unique ids per table, and the way back to the batch."""
    found = gathers.distinct(ids.values.numpy(), np.array(ids.offsets))
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
    """(pooled vectors [slices, batch, dim], the ids' places, the bag of each: `gathers.pool`)."""
    asked = routed.values, routed.counts, state.bases, state.step
    bags_are = routed.varying, routed.lengths, routed.batch
    sums, places, bags = gathers.look_up(state.rows.numpy(), *asked, *bags_are)
    return torch.from_numpy(sums).view(len(routed.counts), routed.batch, -1), places, bags


def lookup_rows(state: EmbeddingState, routed: Routed) -> tuple[Tensor, Numbers]:
    """(rows [ids, dim], their places)."""
    places = state.local(routed.values, routed.counts)
    return torch.from_numpy(gathers.gather(state.rows.numpy(), places)), places


def update_pooled(state: EmbeddingState, places: Numbers, bags: Numbers, gradient: Tensor) -> None:
    """Apply gradients of pooled vectors [slices, batch, dim] to the bags' rows."""
    state.take_step(places, gradient.reshape(-1, gradient.shape[-1]), bags)


def gradient_rows(bags: Numbers, gradient: Tensor) -> Tensor:
    """Of each id [ids, dim], from the gradient of what a lookup has answered."""
    flat = gradient.reshape(-1, gradient.shape[-1])
    return flat.index_select(0, torch.from_numpy(bags)) if bags.size else flat


def update_rows(state: EmbeddingState, places: Numbers, gradient: Tensor) -> None:
    """Apply gradients of rows [ids, dim]."""
    state.take_step(places, gradient, EACH_ITS_OWN)


def dense_read(state: DenseState) -> Tensor:
    """A copy of the shard's elements: the answer must not change while it is sent."""
    return state.values.clone()


def dense_apply(state: DenseState, gradient: Tensor) -> None:
    """One optimizer step of the central copy."""
    state.optimizer.step(state.values, gradient)
