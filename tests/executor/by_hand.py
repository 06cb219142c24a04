"""A DLRM's training written out: plain torch, one process, nothing of the product but its data.

The net: an MLP over dense features, dot products of all pairs of its result and the tables' bags,
an MLP over both; log loss; SGD or Adagrad. Parameters lie in one flat vector, layer by layer,
weight [out, in] before bias [out].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-8


@dataclass
class Given:
    """One batch: features [examples, n], labels [examples], per table the ids of each example."""

    features: Tensor
    labels: Tensor
    bags: list[list[Tensor]]


def together(batches: list[Given]) -> Given:
    """Several batches as one."""
    return Given(
        torch.cat([b.features for b in batches]),
        torch.cat([b.labels for b in batches]),
        [[ids for b in batches for ids in b.bags[t]] for t in range(len(batches[0].bags))],
    )


def layer_sizes(
    features: int, tables: int, dim: int, bottom: tuple[int, ...], top: tuple[int, ...]
) -> list[tuple[int, int]]:
    """(inputs, outputs) of every layer in order."""
    below = (features, *bottom)
    above = (dim + (tables + 1) * tables // 2, *top)
    return [*zip(below, below[1:], strict=False), *zip(above, above[1:], strict=False)]


def loss(w: Tensor, tables: list[Tensor], batch: Given, bottom: tuple[int, ...],
         top: tuple[int, ...]) -> Tensor:  # fmt: skip
    """Mean log loss of a batch."""
    pooled = [torch.stack([table[ids].sum(0) for ids in bags])
              for table, bags in zip(tables, batch.bags, strict=True)]  # fmt: skip
    sizes = layer_sizes(batch.features.shape[1], len(tables), tables[0].shape[1], bottom, top)
    position = 0
    x = batch.features
    for number, (inputs, out) in enumerate(sizes):
        if number == len(bottom):
            vectors = [x, *pooled]
            pairs = [
                (vectors[i] * vectors[j]).sum(1) for i in range(len(vectors)) for j in range(i)
            ]
            x = torch.cat([x, torch.stack(pairs, 1)], 1)
        weight = w[position : position + inputs * out].view(out, inputs)
        position += inputs * out
        x = x @ weight.T + w[position : position + out]
        position += out
        if number < len(sizes) - 1:
            x = x.clamp(min=0)
    assert position == w.numel()
    click = torch.sigmoid(x[:, 0])
    return -(batch.labels * click.log() + (1 - batch.labels) * (1 - click).log()).mean()


def gradients(w: Tensor, tables: list[Tensor], batch: Given, bottom: tuple[int, ...],
              top: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Of the mean loss, with respect to the parameters and every table."""
    leaf = w.clone().requires_grad_()
    rows = [table.clone().requires_grad_() for table in tables]
    found = torch.autograd.grad(loss(leaf, rows, batch, bottom, top), [leaf, *rows])
    return found[0], list(found[1:])


class Dense:
    """SGD or Adagrad on a vector: each owner of a copy has one."""

    def __init__(self, like: Tensor, rate: float, adagrad: bool) -> None:
        self.rate, self.sums = rate, torch.zeros_like(like) if adagrad else None

    def step(self, w: Tensor, gradient: Tensor) -> None:
        if self.sums is None:
            w -= self.rate * gradient
        else:
            self.sums += gradient**2
            w -= self.rate * gradient / (self.sums**0.5 + EPSILON)


class Rows:
    """SGD or row-wise Adagrad on all tables."""

    def __init__(self, tables: list[Tensor], rate: float, adagrad: bool) -> None:
        self.tables, self.rate = tables, rate
        self.sums = [torch.zeros(len(t), dtype=t.dtype) for t in tables] if adagrad else None

    def step(self, gradient: list[Tensor]) -> None:
        for number, (table, g) in enumerate(zip(self.tables, gradient, strict=True)):
            scale = torch.ones(len(table), dtype=table.dtype)
            if self.sums is not None:
                self.sums[number] += (g**2).sum(1) / g.shape[1]
                scale = self.sums[number] ** 0.5 + EPSILON
            table.sub_(self.rate * g / scale[:, None])
