"""Held-out quality: each figure is defined here, once."""

from __future__ import annotations

import math

import torch
from torch import Tensor


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
