"""Kernels of synchronisation: what moves a replica or the central copy towards another."""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.executor.model import initial_dense
from recsim_train.executor.state import DenseState
from recsim_train.executor.values import RealDense
from recsim_train.executor.worker import Block, Worker
from recsim_train.placement.program import TaggedNet


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
        worker.block = Block(start, torch.zeros_like(start))
    block = worker.block
    block.momentum.mul_(momentum).add_(mean.tensor.sub(block.model), alpha=rate)
    block.model.add_(block.momentum)
    return RealDense(block.model.clone(), mean.start)


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
