"""Dense parameters: a replica or a shard, its optimizer, its kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.config.experiment import Training
from recsim_train.executor.embedding import EPSILON


class DenseState:
    """A vector of dense parameters with its optimizer; threads share it without a lock."""

    def __init__(self, values: Tensor, training: Training) -> None:
        self.values = values
        """[elements]."""
        self.lr = training.dense_lr
        self.adagrad = training.dense_optimizer == "adagrad"
        self.accumulator = torch.zeros_like(values) if self.adagrad else values.new_zeros(0)


def apply(state: DenseState, gradient: Tensor) -> None:
    """One optimizer step with a gradient [elements]."""
    if not state.adagrad:
        state.values.add_(gradient, alpha=-state.lr)
        return
    state.accumulator.addcmul_(gradient, gradient)
    scale = state.accumulator.sqrt().add_(EPSILON)
    state.values.addcdiv_(gradient, scale, value=-state.lr)


def load(state: DenseState, values: Tensor) -> None:
    """Overwrite the parameters."""
    state.values.copy_(values)


def read(state: DenseState) -> Tensor:
    """A copy of the parameters, [elements]."""
    return state.values.clone()


def subtract(state: DenseState, values: Tensor) -> None:
    """Parameters -= values, in place: concurrent steps survive."""
    state.values.sub_(values)


def accumulate(total: Tensor, gradient: Tensor) -> None:
    """Add a gradient to a loop's accumulator [elements]."""
    total.add_(gradient)


def drain(total: Tensor) -> Tensor:
    """The accumulated gradient; the accumulator is zero afterwards."""
    out = total.clone()
    total.zero_()
    return out


def elastic(state: DenseState, values: Tensor, alpha: float) -> Tensor:
    """Elastic averaging: d = alpha * (values - parameters) of the old values, parameters += d.

    Returns d [elements]. EASGD (Zhang et al. 2015), eq. 5 and 6.
    """
    difference = values.sub(state.values).mul_(alpha)
    state.values.add_(difference)
    return difference
