"""The way from a replica to a value, as an elastic step takes it."""

from __future__ import annotations

import torch

from recsim_train.config.experiment import Model, Table, Training
from recsim_train.executor.net.kernels import subtract, towards
from recsim_train.executor.values import RealDense
from recsim_train.executor.worker import Replica, Worker


def test_a_replica_minus_its_way_is_nearer_to_the_value() -> None:
    model = Model(
        embedding_dim=2, bottom_mlp=(3, 2), top_mlp=(2, 1), tables=(Table(rows=5),), dtype="float64"
    )
    worker = Worker(Replica(model, Training(), seed=1), "server")
    start = worker.replica.parameters.clone()
    value = torch.linspace(-1, 1, start.numel(), dtype=torch.float64)
    way = towards(worker, RealDense(value), 0.25)
    torch.testing.assert_close(way.tensor, 0.25 * start - 0.25 * value)
    assert torch.equal(worker.replica.parameters, start)
    subtract(worker, way)
    torch.testing.assert_close(worker.replica.parameters, 0.75 * start + 0.25 * value)
