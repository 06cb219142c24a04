"""Sizes that follow from a model's shape: layers, parameters, bytes, and what a training step moves
through the caches."""

from __future__ import annotations

from math import prod

from recsim_train.config.experiment import Model, Training
from recsim_train.workload.arithmetic import Piece, Work, add, operator_work
from recsim_train.workload.graph import graph_of

ID_BYTES = 8
LENGTH_BYTES = 4
LABEL_BYTES = 4
FEATURE_BYTES = 4


def value_bytes(model: Model) -> int:
    """Bytes of one parameter or activation."""
    return 8 if model.dtype == "float64" else 4


def dense_parameters(model: Model) -> int:
    """Number of dense parameters: those of all operators."""
    return graph_of(model).elements


def dense_tensors(model: Model) -> list[int]:
    """Elements of each dense tensor (weights, biases), in the order of the flat parameters."""
    return [prod(shape) for o in graph_of(model).operators for shape in o.parameters]


def moving(model: Model, start: int, stop: int) -> int:
    """How many of the dense parameters ``start`` to ``stop`` are buffers of a module, which are
    moved and not stepped: the last ones are."""
    buffers = model.described.buffers if model.described is not None else ()
    first = dense_parameters(model) - sum(prod(one.shape) for one in buffers)
    return max(0, stop - max(start, first))


def row_bytes(model: Model) -> int:
    """Bytes of one embedding row, without optimizer state."""
    return model.row_width * value_bytes(model)


def stored_row_bytes(model: Model, training: Training) -> int:
    """Bytes of one embedding row with its optimizer's state (row-wise: one value a row)."""
    stateless = training.sparse_optimizer == "sgd"
    return row_bytes(model) + (0 if stateless else value_bytes(model))


def mean_ids(model: Model, table: int) -> float:
    """Mean ids per example of a table: bags of a variable table hold 1 to ``ids`` ids, if nothing
    else is known."""
    spec = model.tables[table]
    if spec.mean_ids is not None:
        return spec.mean_ids
    return (1 + spec.ids) / 2 if spec.variable else float(spec.ids)


def many(model: Model) -> bool:
    """Whether bags hold more than one id."""
    return any(table.ids > 1 or table.variable for table in model.tables)


def net_work(model: Model, examples: float) -> Work:
    """Of the net's passes, forward and backward, over so many examples."""
    return add(*(operator_work(model, Piece(o.name, examples)) for o in graph_of(model).operators))


def moved_bytes(model: Model, examples: float) -> float:
    """Bytes read and written by one step: by the net in order, and rows, which are read for the
    forward pass, then read and written by their update."""
    ids = examples * sum(mean_ids(model, table) for table in range(len(model.tables)))
    return net_work(model, examples).get("stream_byte", 0.0) + 3 * ids * row_bytes(model)
