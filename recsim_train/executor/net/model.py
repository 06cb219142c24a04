"""A model's operators in torch, over one flat parameter vector.

All worker threads of a trainer step on the same storage (Hogwild), yet each has views and a
gradient buffer of its own: sharing one module would make autograd raise on concurrent steps.
Initial values depend on (seed, table, row) and (seed, layer) only, never on the placement.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recsim_train.config.experiment import Model
from recsim_train.executor.net.interaction import interact
from recsim_train.executor.net.modules import initial
from recsim_train.executor.values import RealBlock, RealParts
from recsim_train.strategy.values import NetGradients, Tape
from recsim_train.workload.graph import FEATURES, POOLED, Operator, graph_of

BLOCK = 65_536
"""Rows of one block of a table: each is drawn from a generator of its own, so that a shard can
draw exactly the rows that it holds."""


def dtype_of(model: Model) -> torch.dtype:
    """The torch type of parameters and activations."""
    return torch.float64 if model.dtype == "float64" else torch.float32


def initial_dense(model: Model, seed: int) -> Tensor:
    """Initial flat parameters [parameters]; a module's are what its function gives them.

    Linear weights are normal(0, sqrt(2 / (in + out))), biases normal(0, sqrt(1 / out)), as in the
    public DLRM code (arXiv 1906.00091); a cross layer's weights normal(0, sqrt(1 / width)), its
    biases zero.
    """
    if model.module is not None:
        return initial(model, seed)
    parts = [np.empty(0)]
    holders = [operator for operator in graph_of(model).operators if operator.parameters]
    for index, operator in enumerate(holders):
        draw = np.random.default_rng((seed, 1, index))
        outputs = operator.width
        if operator.kind == "cross":
            parts += [draw.normal(0.0, np.sqrt(1.0 / outputs), outputs), np.zeros(outputs)]
        else:
            inputs = operator.parameters[0][1]
            parts.append(draw.normal(0.0, np.sqrt(2.0 / (inputs + outputs)), outputs * inputs))
            parts.append(draw.normal(0.0, np.sqrt(1.0 / outputs), outputs))
    return torch.from_numpy(np.concatenate(parts)).to(dtype_of(model))


def initial_rows(model: Model, seed: int, table: int, start: int, stop: int) -> Tensor:
    """Initial rows ``start`` to ``stop`` of a table [rows, dim], uniform within 1/sqrt(n)."""
    bound = 1.0 / np.sqrt(model.tables[table].rows)
    rows = torch.empty((stop - start, model.row_width), dtype=dtype_of(model))
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = block * BLOCK
        low, high = max(start, first), min(stop, first + BLOCK)
        draw = np.random.default_rng((seed, 2, table, block))
        values = draw.uniform(-bound, bound, (high - first, model.row_width))
        rows[low - start : high - start] = torch.from_numpy(values[low - first :])
    return rows


class Sources(NamedTuple):
    """What a net reads: features [batch, width]; pooled vectors and linear weights by table,
    [tables, batch, dim] and [tables, batch] (None where the model has no linear part)."""

    features: Tensor
    pooled: Tensor
    wide: Tensor | None

    @staticmethod
    def of(model: Model, features: Tensor, pooled: Tensor) -> Sources:
        """From what a lookup gives: [tables, batch, row_width]."""
        if not model.has_wide:
            return Sources(features, pooled, None)
        return Sources(features, pooled[..., :-1], pooled[..., -1])

    def value(self, name: str) -> Tensor:
        """A source's numbers, [batch, width]."""
        if name == FEATURES:
            return self.features
        if name == POOLED:
            return self.pooled.transpose(0, 1).flatten(1)
        assert self.wide is not None
        return self.wide.transpose(0, 1)


class TrainableNet(ABC):
    """A net over flat parameters that all threads of a trainer share."""

    _held: Sequence[nn.Parameter]
    """Views of them, in their order."""

    def begin(self, number: int) -> None:  # noqa: B027 - most draw nothing
        """Before a training pass of the batch with this number."""

    @abstractmethod
    def forward(self, features: Tensor, pooled: Tensor) -> Tensor:
        """Logits [batch] from features [batch, width] and pooled [tables, batch, row_width]."""

    def moved(self) -> list[Tensor]:
        """What stands behind the parameters' gradient."""
        return []

    def gradients(self, loss: Tensor, *inputs: Tensor, room: Tensor | None = None) -> list[Tensor]:
        """Of a loss by all parameters, flat in ``room`` or else in memory of its own, and by each
        of the inputs."""
        # adding to a gradient of zeros would move its bytes three times more
        found = torch.autograd.grad(loss, [*self._held, *inputs], materialize_grads=True)
        parts = [*found[: len(self._held)], *self.moved()]
        return [torch.cat([part.flatten() for part in parts], out=room), *found[len(self._held) :]]


class DenseNet(TrainableNet):
    """The operators of a model's graph as views of flat parameters and of a flat gradient.

    ``parameters``: flat [parameters], shared by all threads of a trainer; ``gradient``: flat, of
    this thread alone. ``names``: the operators that are held here, whose parameters ``parameters``
    holds in this order; None: all.
    """

    def __init__(
        self, model: Model, parameters: Tensor, names: Sequence[str] | None = None
    ) -> None:
        self.model, self.graph = model, graph_of(model)
        self.gradient = torch.zeros_like(parameters)
        held = [o.name for o in self.graph.operators] if names is None else names
        # `.data` shares the storage but not autograd's version counter: a step of another thread
        # between this one's forward and backward is what Hogwild means, not an error.
        own = parameters.data
        sizes = {name: self.graph.operator(name).parameters for name in held}
        pieces = iter(torch.split(own, [prod(size) for each in sizes.values() for size in each]))
        self.weights = {
            name: tuple(nn.Parameter(next(pieces).view(size)) for size in each)
            for name, each in sizes.items()
        }
        self._held = [*itertools.chain.from_iterable(self.weights.values())]
        self.new_gradient()

    def new_gradient(self) -> None:
        """A gradient of zeros in memory of its own: the last one may be on its way elsewhere."""
        self.gradient = torch.zeros_like(self.gradient)
        pieces = torch.split(self.gradient, [parameter.numel() for parameter in self._held])
        for parameter, piece in zip(self._held, pieces, strict=True):
            parameter.grad = piece.view(parameter.shape)

    def forward(self, features: Tensor, pooled: Tensor) -> Tensor:
        """As of `TrainableNet`."""
        sources = Sources.of(self.model, features, pooled)
        values: dict[str, Tensor] = {}
        for operator in self.graph.operators:
            values[operator.name] = self.run(operator, values, sources)
        return values[self.graph.logit].squeeze(1)

    def run(self, operator: Operator, values: Mapping[str, Tensor], sources: Sources) -> Tensor:
        """One operator's output [batch, width]."""

        def value(name: str) -> Tensor:
            return values[name] if name in values else sources.value(name)

        match operator.kind:
            case "linear":
                weight, bias = self.weights[operator.name]
                out = nn.functional.linear(value(operator.inputs[0]), weight, bias)
            case "dot":
                out = interact(value(operator.inputs[0]), sources.pooled)
            case "concat":
                out = torch.cat([value(name) for name in operator.inputs], dim=1)
            case "fm":
                total = sources.pooled.sum(0)
                out = (total.square() - sources.pooled.square().sum(0)).sum(1, keepdim=True) / 2
            case "sum":
                out = value(operator.inputs[0]).sum(1, keepdim=True)
            case "cross":
                weight, bias = self.weights[operator.name]
                first, x = map(value, operator.inputs)
                out = first * (x @ weight).unsqueeze(1) + bias + x
            case "add":
                out = torch.stack([value(name) for name in operator.inputs]).sum(0)
        return torch.relu(out) if operator.relu else out


def click_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean log loss of logits [examples]."""
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


def gradient_at(leaf: Tensor | None) -> Tensor:
    """What backward passes have left at a leaf of them."""
    assert leaf is not None
    assert leaf.grad is not None
    return leaf.grad


class Pass(Tape, ABC):
    """Forward and backward of one batch at one host, a segment at a time."""

    loss: float | None = None
    """Mean log loss of the examples that this host answers for; None: it answers for none."""

    @abstractmethod
    def forward(self, cut: int) -> RealParts | RealBlock:
        """Run the segment before a cut; what crosses it."""

    @abstractmethod
    def receive(self, cut: int, arrived: RealParts | RealBlock) -> None:
        """Take what has crossed."""

    @abstractmethod
    def backward(self, cut: int) -> RealParts | RealBlock:
        """Backward of the segment after a cut; gradients that cross back."""

    @abstractmethod
    def take_back(self, cut: int, arrived: RealParts | RealBlock) -> None:
        """Take gradients that have crossed."""

    @abstractmethod
    def gradients(self) -> NetGradients:
        """Backward of the first segment; everything that this host has learned."""
