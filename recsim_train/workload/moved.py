"""What a training step moves through the caches."""

from __future__ import annotations

from recsim_train.config.experiment import Model
from recsim_train.workload.arithmetic import Piece, Work, add, operator_work
from recsim_train.workload.graph import graph_of
from recsim_train.workload.shape import mean_ids, row_bytes


def net_work(model: Model, examples: float) -> Work:
    """Of the net's passes, forward and backward, over so many examples."""
    return add(*(operator_work(model, Piece(o.name, examples)) for o in graph_of(model).operators))


def moved_bytes(model: Model, examples: float) -> float:
    """Bytes read and written by one step: by the net in order, and rows, which are read for the
    forward pass, then read and written by their update."""
    ids = examples * sum(mean_ids(model, table) for table in range(len(model.tables)))
    return net_work(model, examples).get("stream_byte", 0.0) + 3 * ids * row_bytes(model)
