"""The evaluation of what was learned, on held-out rows, and its figures."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from recsim_train.data.stream import held_out
from recsim_train.executor.feed import to_batch
from recsim_train.executor.net import kernels
from recsim_train.executor.runtime import LoopContext
from recsim_train.executor.values import RealFeatures, RealIds
from recsim_train.placement.plan import Plan


def log_loss(logits: Tensor, labels: Tensor) -> float:
    """Mean of -log(probability given to the true label), natural logarithm.

    NaN where a logit is not finite: that is an overflow, whatever the label.
    """
    if not logits.isfinite().all():
        return math.nan
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.double(), labels.double())
    return float(loss)


def auc(scores: Tensor, labels: Tensor) -> float | None:
    """Probability that a positive scores above a negative, ties counted half (Mann-Whitney U).

    None where one class is absent, or a score is not finite: such scores have no order.
    """
    if not scores.isfinite().all():
        return None
    positive = labels > 0.5
    positives, total = int(positive.sum()), labels.numel()
    negatives = total - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    mean_rank = last - (counts.double() - 1) / 2
    ranks = mean_rank[inverse][positive].sum().item()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def normalized_entropy(loss: float, labels: Tensor) -> float | None:
    """Log loss over the entropy of the labels' own rate: 1 is the best constant predictor.

    None where one class is absent, or the loss is not finite.
    """
    if not math.isfinite(loss):
        return None
    rate = float(labels.double().mean())
    if rate in (0.0, 1.0):
        return None
    return loss / -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))


EVAL_BATCH = 1024


def evaluate(plan: Plan, context: LoopContext) -> dict[str, float | None]:
    """Score the held-out rows with the replica and the shards' rows; nothing is recorded."""
    spec = plan.experiment
    if not spec.data.holds_out:
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
    loss = log_loss(logits, truth)
    return {
        "loss": loss,
        "auc": auc(logits, truth),
        "normalized_entropy": normalized_entropy(loss, truth),
    }
