"""The DLRM as torch modules over one flat parameter vector.

All worker threads of a trainer step on the same storage (Hogwild), yet each has modules and a
gradient buffer of its own: sharing one module would make autograd raise on concurrent steps.
Initial values depend on (seed, table, row) and (seed, layer) only, never on the placement.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from recsim_train.config.experiment import Model
from recsim_train.workload import shape

BLOCK = 65_536
"""Rows of one block of a table: each is drawn from a generator of its own, so that a shard can
draw exactly the rows that it holds."""


def dtype_of(model: Model) -> torch.dtype:
    """The torch type of parameters and activations."""
    return torch.float64 if model.dtype == "float64" else torch.float32


def initial_dense(model: Model, seed: int) -> Tensor:
    """Initial flat parameters [parameters].

    Weights are normal(0, sqrt(2 / (in + out))), biases normal(0, sqrt(1 / out)).

    The distributions are those of the public DLRM code (arXiv 1906.00091).
    """
    parts = []
    for index, (inputs, outputs) in enumerate(shape.layers(model)):
        draw = np.random.default_rng((seed, 1, index))
        parts.append(draw.normal(0.0, np.sqrt(2.0 / (inputs + outputs)), outputs * inputs))
        parts.append(draw.normal(0.0, np.sqrt(1.0 / outputs), outputs))
    return torch.from_numpy(np.concatenate(parts)).to(dtype_of(model))


def initial_rows(model: Model, seed: int, table: int, start: int, stop: int) -> Tensor:
    """Initial rows ``start`` to ``stop`` of a table [rows, dim], uniform within 1/sqrt(n)."""
    bound = 1.0 / np.sqrt(model.tables[table].rows)
    rows = torch.empty((stop - start, model.embedding_dim), dtype=dtype_of(model))
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = block * BLOCK
        low, high = max(start, first), min(stop, first + BLOCK)
        draw = np.random.default_rng((seed, 2, table, block))
        values = draw.uniform(-bound, bound, (high - first, model.embedding_dim))
        rows[low - start : high - start] = torch.from_numpy(values[low - first :])
    return rows


class DenseNet(nn.Module):
    """Bottom MLP, dot interaction, top MLP, as views of ``parameters`` and ``gradient``.

    ``parameters``: flat [parameters], shared by all threads of a trainer; ``gradient``: flat, of
    this thread alone.
    """

    def __init__(self, model: Model, parameters: Tensor) -> None:
        super().__init__()
        self.model = model
        self.gradient = torch.zeros_like(parameters)
        self.weights: list[tuple[nn.Parameter, nn.Parameter]] = []
        # `.data` shares the storage but not autograd's version counter: a step of another thread
        # between this one's forward and backward is what Hogwild means, not an error.
        own = parameters.data
        position = 0
        for inputs, outputs in shape.layers(model):
            weight, position = self._view(own, position, (outputs, inputs))
            bias, position = self._view(own, position, (outputs,))
            self.weights.append((weight, bias))
        self.bottom = len(shape.bottom_layers(model))
        vectors = len(model.tables) + 1
        # One flat index: indexing with two tensors makes the backward pass four times dearer.
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1)
        self.pairs = rows * vectors + columns

    def _view(self, flat: Tensor, position: int, size: tuple[int, ...]) -> tuple[nn.Parameter, int]:
        count = int(np.prod(size))
        parameter = nn.Parameter(flat[position : position + count].view(size))
        parameter.grad = self.gradient[position : position + count].view(size)
        return parameter, position + count

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Logits [batch] from dense features [batch, features] and pooled [tables, batch, dim]."""
        x = dense
        for weight, bias in self.weights[: self.bottom]:
            x = torch.relu(nn.functional.linear(x, weight, bias))
        vectors = torch.cat([x.unsqueeze(0), pooled]).transpose(0, 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        z = torch.cat([x, products.flatten(1).index_select(1, self.pairs)], dim=1)
        for weight, bias in self.weights[self.bottom : -1]:
            z = torch.relu(nn.functional.linear(z, weight, bias))
        weight, bias = self.weights[-1]
        return nn.functional.linear(z, weight, bias).squeeze(1)
