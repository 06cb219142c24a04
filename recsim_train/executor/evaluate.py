"""Held-out log loss, AUC and normalised entropy of the final weights."""

from __future__ import annotations

import torch

from recsim_train.data.stream import held_out
from recsim_train.executor import kernels, metrics
from recsim_train.executor.feed import to_batch
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.values import RealFeatures, RealIds
from recsim_train.placement.plan import Plan

EVAL_BATCH = 1024


def evaluate(plan: Plan, context: LoopContext) -> dict[str, float | None]:
    """Score the held-out rows with the replica and the shards' rows; nothing is recorded."""
    spec = plan.experiment
    if not spec.data.eval_rows:
        return {"loss": None, "auc": None, "normalized_entropy": None}
    scores, labels = [], []
    assert context.embedding is not None
    for found in held_out(spec.model, spec.data, EVAL_BATCH):
        batch = to_batch(spec.model, found)
        assert isinstance(batch.ids, RealIds)
        assert isinstance(batch.features, RealFeatures)
        ids = batch.ids
        if context.worker.pooling == "worker":
            ids = kernels.deduplicate(context.worker, ids)
        rows, _ = context.embedding.lookup(ids, -1)()
        with torch.no_grad():
            pooled = rows.tensor
            if context.worker.pooling == "worker":
                pooled, _ = kernels.pool(pooled, rows.ids)
            scores.append(context.worker.net.forward(batch.features.dense, pooled))
        labels.append(batch.features.labels)
    logits, truth = torch.cat(scores), torch.cat(labels)
    loss = metrics.log_loss(logits, truth)
    return {
        "loss": loss,
        "auc": metrics.auc(logits, truth),
        "normalized_entropy": metrics.normalized_entropy(loss, truth),
    }
