"""The dense part of a model as a graph of operators: shapes, parameters, arithmetic. No torch.

Theory of operation
-------------------
A graph is a list of operators in an order in which they can run. Each has one output of ``width``
numbers per example and reads the outputs of others, or a source: ``features`` (the dense inputs),
``pooled`` (one vector per table, tables * dim numbers) and ``wide`` (one weight per table, where
the model has a linear part: it travels as the last column of each embedding row). The last
operator is the logit. Parameters lie in one flat vector, operator by operator.

Everything that cuts, places, prices or runs a model reads this graph and nothing else of it.

Models: DLRM (arXiv 1906.00091), Wide & Deep (arXiv 1606.07792), DeepFM (arXiv 1703.04247), Deep &
Cross (arXiv 1708.05123).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Literal

from recsim_train.config.experiment import Model, PassCounts

FEATURES, POOLED, WIDE = "features", "pooled", "wide"
SOURCES = (FEATURES, POOLED, WIDE)

OperatorKind = Literal["linear", "dot", "concat", "fm", "sum", "cross", "add", "module"]
MODULE = "net"
"""The only operator of a net that is a module."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    linear: x W^T + b, weight [width, inputs] and bias [width]; dot: the first input beside the dot
    products of all pairs of it and the tables' vectors; concat: inputs side by side; fm: half of
    |sum of vectors|^2 - sum of |vector|^2; sum: of all inputs' numbers; cross: x0 (x w) + b + x of
    inputs (x0, x), w and b [width]; add: of inputs of one width. ``relu`` follows. module: whatever
    a user's code makes of all that it reads; its buffers stand behind its parameters.
    """

    name: str
    kind: OperatorKind
    inputs: tuple[str, ...]
    width: int
    relu: bool = False
    parameters: tuple[tuple[int, ...], ...] = ()

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(prod(shape) for shape in self.parameters)


@dataclass(frozen=True, slots=True)
class Graph:
    """A model's dense part."""

    sources: Mapping[str, int]
    """Width of each source that is used."""
    operators: tuple[Operator, ...]
    tables: int
    dim: int
    names: tuple[str, ...] = ()
    """A module's own, of its parameters and buffers."""
    counted: tuple[PassCounts, PassCounts] | None = None
    """Of a module, forward and backward."""

    def width(self, name: str) -> int:
        """Numbers per example of a source or an operator's output."""
        return self.sources[name] if name in self.sources else self.operator(name).width

    def operator(self, name: str) -> Operator:
        """An operator by its name."""
        return next(operator for operator in self.operators if operator.name == name)

    def inputs(self, operator: Operator) -> int:
        """Numbers per example that an operator reads."""
        return sum(self.width(name) for name in operator.inputs)

    @property
    def logit(self) -> str:
        """The last operator."""
        return self.operators[-1].name

    @property
    def elements(self) -> int:
        """Number of parameters of all operators."""
        return sum(operator.elements for operator in self.operators)

    def offsets(self) -> dict[str, int]:
        """Where each operator's parameters start in the flat vector."""
        starts = accumulate((operator.elements for operator in self.operators), initial=0)
        return dict(zip((operator.name for operator in self.operators), starts, strict=False))

    def tensors(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """By name, where each parameter starts in the flat vector, and its shape."""
        shapes = {
            f"{operator.name}.{name}": shape
            for operator in self.operators
            for name, shape in zip(
                self.names or ("weight", "bias"), operator.parameters, strict=False
            )
        }
        starts = accumulate(map(prod, shapes.values()), initial=0)
        return dict(zip(shapes, zip(starts, shapes.values(), strict=False), strict=True))


class _Builder:
    def __init__(self, model: Model) -> None:
        tables, dim = len(model.tables), model.embedding_dim
        self.sources = {FEATURES: model.dense_features, POOLED: tables * dim}
        if model.has_wide:
            self.sources[WIDE] = tables
        self.operators: list[Operator] = []

    def width(self, name: str) -> int:
        return {**self.sources, **{o.name: o.width for o in self.operators}}[name]

    def add(
        self, name: str, kind: OperatorKind, *inputs: str, width: int, relu: bool = False
    ) -> str:
        shapes: tuple[tuple[int, ...], ...] = ()
        if kind == "linear":
            shapes = ((width, self.width(inputs[0])), (width,))
        elif kind == "cross":
            shapes = ((width,), (width,))
        self.operators.append(Operator(name, kind, inputs, width, relu, shapes))
        return name

    def mlp(self, name: str, x: str, widths: tuple[int, ...], *, logit: bool) -> str:
        """Linear layers with ReLU, the last one without where it is the logit."""
        for index, width in enumerate(widths):
            relu = not logit or index < len(widths) - 1
            x = self.add(f"{name}.{index}", "linear", x, width=width, relu=relu)
        return x

    def concat(self, name: str, *inputs: str) -> str:
        return self.add(name, "concat", *inputs, width=sum(map(self.width, inputs)))


@functools.lru_cache(maxsize=64)
def graph_of(model: Model) -> Graph:
    """The graph of a model."""
    b = _Builder(model)
    if model.kind == "dlrm":
        x = b.mlp("bottom", FEATURES, model.bottom_mlp, logit=False)
        vectors = len(model.tables) + 1
        width = model.embedding_dim + vectors * (vectors - 1) // 2
        z = b.add("interaction", "dot", x, POOLED, width=width)
        b.mlp("top", z, model.top_mlp, logit=True)
    elif model.described is not None:
        held = (*model.described.parameters, *model.described.buffers)
        shapes = tuple(one.shape for one in held)
        b.operators.append(Operator(MODULE, "module", (FEATURES, POOLED), 1, parameters=shapes))
        names = tuple(one.name for one in held)
        counted = model.described.forward, model.described.backward
        shape = len(model.tables), model.embedding_dim
        return Graph(b.sources, tuple(b.operators), *shape, names, counted)
    elif model.kind == "dcn":
        x = layer = b.concat("input", POOLED, FEATURES)
        for index in range(model.cross_layers):
            layer = b.add(f"cross.{index}", "cross", x, layer, width=b.width(x))
        deep = b.mlp("deep", x, model.top_mlp[:-1], logit=False)
        b.add("logit", "linear", b.concat("towers", layer, deep), width=1)
    else:
        x = b.concat("input", POOLED, FEATURES)
        parts = [
            b.add("wide.sum", "sum", WIDE, width=1),
            b.add("wide.features", "linear", FEATURES, width=1),
        ]
        if model.kind == "deepfm":
            parts.append(b.add("fm", "fm", POOLED, width=1))
        parts.append(b.mlp("deep", x, model.top_mlp, logit=True))
        b.add("logit", "add", *parts, width=1)
    return Graph(b.sources, tuple(b.operators), len(model.tables), model.embedding_dim)
