"""DLRM's interaction of features (arXiv 1906.00091, section 2.1.3), compiled, with its gradient.

Torch's batched product makes all n^2 products of an example's n vectors, of which n (n - 1) / 2 are
used, and its gradient is two such products between copies; here only those that are used are made.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsim_train.executor.net.rows import Floats, compiled
from recsim_train.executor.pools import side_by_side


@compiled
def _products(first: Floats, others: Floats, out: Floats, begin: int, end: int) -> None:
    """first [batch, dim], others [vectors, batch, dim] -> out [batch, dim + pairs]: the first
    vector, then the products of each vector with all before it. Of examples ``begin`` to ``end``.
    """
    dim = first.shape[1]
    vectors = np.empty((others.shape[0] + 1, dim), first.dtype)
    for b in range(begin, end):
        for k in range(dim):
            vectors[0, k] = out[b, k] = first[b, k]
        for v in range(others.shape[0]):
            for k in range(dim):
                vectors[v + 1, k] = others[v, b, k]
        at = dim
        for i in range(1, vectors.shape[0]):
            for j in range(i):
                total = first.dtype.type(0)
                for k in range(dim):
                    total += vectors[i, k] * vectors[j, k]
                out[b, at] = total
                at += 1


@compiled
def _gradients(
    first: Floats,
    others: Floats,
    gradient: Floats,
    of_first: Floats,
    of_others: Floats,
    begin: int,
    end: int,
) -> None:
    """The gradient of `_products`' out [batch, dim + pairs] -> those of what it has read."""
    dim = first.shape[1]
    vectors = np.empty((others.shape[0] + 1, dim), first.dtype)
    found = np.empty_like(vectors)
    for b in range(begin, end):
        for k in range(dim):
            vectors[0, k], found[0, k] = first[b, k], gradient[b, k]
        for v in range(others.shape[0]):
            for k in range(dim):
                vectors[v + 1, k], found[v + 1, k] = others[v, b, k], 0
        at = dim
        for i in range(1, vectors.shape[0]):
            for j in range(i):
                share = gradient[b, at]
                at += 1
                for k in range(dim):
                    found[i, k] += share * vectors[j, k]
                    found[j, k] += share * vectors[i, k]
        for k in range(dim):
            of_first[b, k] = found[0, k]
        for v in range(others.shape[0]):
            for k in range(dim):
                of_others[v, b, k] = found[v + 1, k]


class _Interaction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, others: Tensor) -> Tensor:
        first, others = first.contiguous(), others.contiguous()
        pairs = others.shape[0] * (others.shape[0] + 1) // 2
        out = first.new_empty((first.shape[0], first.shape[1] + pairs))
        arrays = first.detach().numpy(), others.detach().numpy(), out.numpy()
        side_by_side(partial(_products, *arrays), first.shape[0])
        ctx.save_for_backward(first, others)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        first, others = ctx.saved_tensors
        found = torch.empty_like(first), torch.empty_like(others)
        read = first.detach().numpy(), others.detach().numpy(), gradient.contiguous().numpy()
        arrays = (*read, found[0].numpy(), found[1].numpy())
        side_by_side(partial(_gradients, *arrays), first.shape[0])
        return found


def interact(first: Tensor, others: Tensor) -> Tensor:
    """[batch, dim + pairs]: ``first`` [batch, dim], then the dot products of it and ``others``
    [vectors, batch, dim]: of each vector with all before it."""
    found: Tensor = _Interaction.apply(first, others)  # type: ignore[no-untyped-call]
    return found


def warm() -> None:
    """As `recsim_train.executor.net.rows.warm`. Without autograd, which might start threads."""
    first, others, out = (np.zeros(shape, np.float32) for shape in ((1, 1), (1, 1, 1), (1, 2)))
    _products(first, others, out, 0, 1)
    _gradients(first, others, out, first, others, 0, 1)
