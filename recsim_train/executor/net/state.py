"""What servers and caches hold: parameters or rows, with their optimizer's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recsim_train.config.experiment import Model, Training
from recsim_train.executor.net.model import dtype_of, initial_dense, initial_rows
from recsim_train.executor.net.rows import EPSILON, Numbers, adagrad, places_of, sgd
from recsim_train.placement.plan import TableSlice

EACH_ITS_OWN = np.empty(0, np.int64)
"""The bags of ids that are alone in theirs: the n-th in the n-th."""


@dataclass(slots=True)
class DenseOptimizer:
    """SGD or Adagrad (Duchi, Hazan and Singer 2011) on a flat vector, in place.

    ``state``: Adagrad's sums of squared gradients [parameters]; of SGD, nothing. It is there before
    the first step: threads that share the optimizer could each make one, and lose the other's.
    """

    training: Training
    state: Tensor

    @staticmethod
    def of(training: Training, parameters: Tensor) -> DenseOptimizer:
        """Before the first step on ``parameters``."""
        adagrad = training.dense_optimizer == "adagrad"
        return DenseOptimizer(training, torch.zeros_like(parameters if adagrad else parameters[:0]))

    def step(self, parameters: Tensor, gradient: Tensor) -> None:
        """parameters -= lr * gradient (SGD).

        Adagrad: state += gradient^2; parameters -= lr * gradient / (sqrt(state) + 1e-8).
        """
        if self.training.dense_optimizer == "sgd":
            parameters.add_(gradient, alpha=-self.training.dense_lr)
            return
        self.state.addcmul_(gradient, gradient)
        scale = self.state.sqrt().add_(EPSILON)
        parameters.addcdiv_(gradient, scale, value=-self.training.dense_lr)


class EmbeddingState:
    """The rows of one shard's slices in one tensor [rows, dim], optimizer state beside them."""

    def __init__(
        self, model: Model, training: Training, seed: int, slices: Sequence[TableSlice]
    ) -> None:
        self.model, self.training, self.slices = model, training, tuple(slices)
        width = slices[0].width(model.row_width) if slices else model.row_width
        self.rows = torch.empty((sum(s.rows for s in slices), width), dtype=dtype_of(model))
        bases, position = [], 0
        for part in slices:
            drawn = initial_rows(model, seed, part.table, part.start, part.stop)[:: part.step]
            self.rows[position : position + part.rows] = drawn[:, part.first : part.last or None]
            bases.append(position - part.start // part.step)
            position += part.rows
        self.bases = np.array(bases, np.int64)
        self.step = slices[0].step if slices else 1
        self.state = torch.zeros(position, dtype=self.rows.dtype)

    def local(self, ids: Numbers, counts: Numbers) -> Numbers:
        """Places in the shard's tensor of ids that come slice by slice."""
        return places_of(ids, counts, self.bases, self.step)

    def take_step(self, places: Numbers, gradient: Tensor, bags: Numbers) -> None:
        """SGD or exact row-wise Adagrad on the rows at these places, which may come repeatedly.

        ``gradient``: [lines, dim]; ``bags`` [ids]: the line of each id in it.
        """
        step = places, bags, gradient.contiguous().numpy(), self.training.sparse_lr
        if self.training.sparse_optimizer == "sgd":
            sgd(self.rows.numpy(), *step)
        else:
            adagrad(self.rows.numpy(), self.state.numpy(), *step)


class DenseState:
    """Elements of the central dense parameters that one shard holds."""

    def __init__(
        self,
        model: Model,
        training: Training,
        seed: int,
        start: int,
        stop: int,
        order: Tensor | None = None,
    ) -> None:
        whole = initial_dense(model, seed)
        self.values = (whole if order is None else whole[order])[start:stop].clone()
        self.optimizer = DenseOptimizer.of(training, self.values)
