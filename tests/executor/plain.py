"""Single-process autograd with plain SGD on whole tables: what cut nets are held against."""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.config.experiment import Model
from recsim_train.data.stream import open_stream
from recsim_train.executor.feed import to_batch
from recsim_train.executor.net.model import DenseNet, initial_dense, initial_rows
from recsim_train.executor.values import RealFeatures, RealIds
from recsim_train.executor.worker import DenseOptimizer
from tests.executor.net_group import GLOBAL_BATCH, Case

Trained = tuple[list[float], list[Tensor], Tensor]
"""(loss of every step, rows of every table, flat dense parameters)."""


def plain_training(case: Case) -> Trained:
    """Train a case's model on the global batch in this process."""
    spec = case.whole()
    model: Model = spec.model
    tables = [
        initial_rows(model, spec.seed, t, 0, table.rows).requires_grad_()
        for t, table in enumerate(model.tables)
    ]
    flat = initial_dense(model, spec.seed)
    net = DenseNet(model, flat)
    optimizer = DenseOptimizer.of(spec.training, flat)
    losses = []
    stream = open_stream(
        model,
        spec.data,
        batch_size=GLOBAL_BATCH,
        positions=(0,),
        total=1,
        iterations=spec.training.steps,
        seed=spec.seed,
    )
    for fed in stream:
        batch = to_batch(model, fed.batch)
        assert isinstance(batch.ids, RealIds)
        assert isinstance(batch.features, RealFeatures)
        pooled = []
        for t, table in enumerate(tables):
            ids, lengths = batch.ids.table(t), batch.ids.lengths[t]
            if lengths is None:
                lengths = torch.full((GLOBAL_BATCH,), model.tables[t].ids)
            bags = table[ids].split(lengths.tolist())
            pooled.append(torch.stack([bag.sum(0) for bag in bags]))
        logits = net.forward(batch.features.dense, torch.stack(pooled))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.features.labels)
        net.gradient.zero_()
        loss.backward()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            optimizer.step(flat, net.gradient)
            for table in tables:
                assert table.grad is not None
                table.sub_(spec.training.sparse_lr * table.grad)
                table.grad = None
    return losses, [table.detach().double() for table in tables], flat


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())
