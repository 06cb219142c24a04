"""DCT on elastic averaging: a difference of states carries its own memory, so that it contracts.

The strategies' own exchange runs on the executor's own kernels, replica after replica, without any
training. The deviation is computed here, in plain numpy: squared distances of all replicas and of
the central copy from their common mean, which no exchange may move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from recsim_train.config.experiment import Model, Table, Training
from recsim_train.executor.net import sparse
from recsim_train.executor.net.sparse import RealSparse
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.values import RealDense
from recsim_train.executor.worker import DenseState, Replica, Worker
from recsim_train.strategy import effects
from recsim_train.strategy.compression import DCT
from recsim_train.strategy.synchronisers import Easgd, Held, Round
from recsim_train.workload.compression import layout
from recsim_train.workload.shape import dense_parameters

MODEL = Model(
    embedding_dim=8,
    bottom_mlp=(64, 8),
    top_mlp=(64, 1),
    tables=tuple(Table(rows=9) for _ in range(4)),
    dtype="float64",
)
TOTAL = dense_parameters(MODEL)
REPLICAS = 3


def world() -> tuple[list[Worker], DenseState]:
    """Replicas that have drifted apart from the central copy."""
    draw = torch.Generator().manual_seed(7)
    workers = [Worker(Replica(MODEL, Training(), seed=3), "server") for _ in range(REPLICAS)]
    for worker in workers:
        drift = torch.randn(TOTAL, generator=draw, dtype=torch.float64)
        worker.replica.parameters.add_(drift)
    return workers, DenseState(MODEL, Training(), 3, 0, TOTAL)


def exchange(worker: Worker, central: DenseState, dct: DCT, alpha: float, number: int) -> None:
    program: Any = Easgd(alpha).meet(Held(), Round("nobody", False, number, dct))
    answer: Any = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration:
            return
        answer = None
        match effect:
            case effects.Compute(operation=operation, arguments=arguments):
                answer = KERNELS[operation.name](worker, *arguments)
            case effects.Pull():
                answer = RealDense(central.values.clone())
            case effects.Push(gradient=RealSparse() as sent, add=True):
                part = sparse.cut_sparse(MODEL, sent, 0, TOTAL)
                sparse.sparse_add(central, *sparse.all_entries(MODEL, part, 0, TOTAL))


def states(workers: Sequence[Worker], central: DenseState) -> np.ndarray:
    return np.stack([*(w.replica.parameters.numpy() for w in workers), central.values.numpy()])


def deviation(found: np.ndarray) -> float:
    return float(np.square(found - found.mean(0)).sum())


@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_the_deviation_contracts_at_one_per_cent(alpha: float) -> None:
    workers, central = world()
    start = states(workers, central)
    dct, last = DCT(density=0.01, refresh=1), deviation(start)
    for number in range(1500):
        for worker in workers:
            exchange(worker, central, dct, alpha, number)
        now = deviation(states(workers, central))
        assert now <= last * (1 + 1e-12)
        last = now
    assert last < 0.01 * deviation(start)
    np.testing.assert_allclose(states(workers, central).mean(0), start.mean(0), atol=1e-9)


def test_no_exchange_drives_replicas_apart_where_thresholds_are_stale() -> None:
    """The defaults: a threshold at exchanges 0, 1, 2, 4 ..., old ones in between."""
    workers, central = world()
    first = last = deviation(states(workers, central))
    for number in range(300):
        for worker in workers:
            exchange(worker, central, DCT(), 0.5, number)
        now = deviation(states(workers, central))
        assert now <= last * (1 + 1e-12)
        last = now
    assert last < 0.9 * first


def test_what_is_sent_of_a_difference_is_its_largest_entries_and_nothing_is_kept() -> None:
    (worker, *_), central = world()
    difference = KERNELS["towards"](worker, RealDense(central.values), 0.5)
    assert isinstance(difference, RealDense)
    before = difference.tensor.clone()
    sparse.threshold_difference(worker, difference, 0.05)
    sent = [sparse.sparsify_difference(worker, difference) for _ in range(2)]
    assert torch.equal(difference.tensor, before)
    assert worker.residual.error is None
    assert torch.equal(sent[0].tensor, sent[1].tensor)
    assert torch.equal(sent[0].values, before[sent[0].places])
    sizes = before.abs()
    sizes[sparse.whole_places(MODEL, 0, TOTAL)] = 0
    for a, b in layout(MODEL).large:
        inside = sent[0].places[(sent[0].places >= a) & (sent[0].places < b)]
        assert inside.numel() == int(0.05 * (b - a))
        sizes[inside] = 0
        assert float(sizes[a:b].max()) <= float(before[inside].abs().min())
    assert set(worker.residual.tallies) == {"differences"}
