"""Costs of the operators of a model's graph, as counts of priced work. No torch.

The counts follow the algebra: flops of matrix products, bytes that stream through memory, calls.

What one unit is. A multiplication with its addition is two flops. A layer [inputs, out] makes three
matrix products of 2 * inputs * out flops per example: one forward; two backward, for the gradients
of its weights and of its inputs, so that backward is twice forward; a layer on the dense features
has no use for the latter and makes two in all. Products narrower than 16 count as 16 wide. The
interaction makes one dot product of 2 * dim flops for each pair of vectors, and backward two times
as much for the gradients of both; an example's vectors are copied into a small block first, their
gradients out of one. Bytes are those of element-wise work, whose vectors count each time they are
read or written; operands of matrix products count for the weights only, which are read twice and
whose gradient is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from recsim_train.config.experiment import Model
from recsim_train.workload.graph import FEATURES, graph_of

K = TypeVar("K")
Work = Mapping[str, float]

_REGISTER = 16
"""Matrix products narrower than this take the time of this width."""
_VALUE_BYTES = {"float32": 4, "float64": 8}

# autograd records each call in a node of its own; its backward pass holds no lock
LOSS: Work = {"call": 1.5 * 43, "interpreter": 10}
"""Log loss and the start of the backward pass."""

_ELEMENTWISE = {"concat": (4, 9), "fm": (9, 18), "sum": (3, 6), "cross": (14, 18), "add": (4, 6)}
"""(numbers read or written per input number, calls), forward and backward."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One operator's work on ``examples`` examples; ``share``: of its inputs, where it is split."""

    operator: str
    examples: float
    phase: Literal["both", "forward", "backward"] = "both"
    share: float = 1.0


def add(*parts: Mapping[K, float]) -> dict[K, float]:
    """The sum of several pieces of work, or of other amounts by name."""
    total: dict[K, float] = {}
    for part in parts:
        for name, units in part.items():
            total[name] = total.get(name, 0.0) + units
    return total


def operator_work(model: Model, piece: Piece) -> Work:
    """Forward, backward or both of one operator of the model's graph."""
    graph, b, size = graph_of(model), piece.examples, _VALUE_BYTES[model.dtype]
    operator = graph.operator(piece.operator)
    inputs, out = graph.inputs(operator) * piece.share, operator.width
    # of three passes over the same data one is forward
    part = {"both": 1.0, "forward": 1 / 3, "backward": 2 / 3}[piece.phase]
    spoken = 0.0 if piece.phase == "backward" else 1.0
    if operator.kind == "linear":
        wide = max(inputs, _REGISTER) * max(out, _REGISTER)
        # forward, and the gradients of weights and inputs; those of features are not needed
        products = 4 if operator.inputs[0] == FEATURES else 6
        products = {"both": products, "forward": 2, "backward": products - 2}[piece.phase]
        return {
            "gemm_flop": b * products * wide,
            "stream_byte": part * size * (b * 6 * out + 3 * inputs * out),
            "call": part * 1.5 * 38,
            "interpreter": spoken * 2,
        }
    if operator.kind == "dot":
        vectors, dim = graph.tables + 1, graph.dim * piece.share
        pairs = vectors * (vectors - 1) // 2
        # our own code, in Python down to the compiled loop, also where autograd calls it
        passes = {"both": 2, "forward": 1, "backward": 1}[piece.phase]
        return {
            "dot_product": part * 3 * b * pairs,
            "dot_flop": part * b * 6 * pairs * dim,
            "stream_byte": size * b * (part * 6 * vectors * dim + passes * out),
            "call": passes * 20,
            "interpreter": passes * 14,
        }
    if operator.kind == "module":
        return _module_work(model, piece)
    streams, calls = _ELEMENTWISE[operator.kind]
    return {
        "stream_byte": part * size * b * (streams * inputs + 3 * out),
        "call": part * 1.5 * calls,
        "interpreter": spoken * calls / 3,
    }


_CALLS = 9.5
"""Calls that an operator of torch is taken for: six, forward and backward, make a layer's 57."""


def _module_work(model: Model, piece: Piece) -> Work:
    """Of a net that is a module, by what was counted of its passes."""
    assert model.described is not None
    described, work = model.described, dict[str, float]()
    for phase, counts in (("forward", described.forward), ("backward", described.backward)):
        if piece.phase in ("both", phase):
            counted = {
                "gemm_flop": piece.examples * counts.flops,
                "stream_byte": piece.examples * counts.bytes + counts.fixed_bytes,
                "call": _CALLS * counts.operators,
                "interpreter": float(counts.operators * (phase == "forward")),
            }
            work = add(work, counted)
    return work
