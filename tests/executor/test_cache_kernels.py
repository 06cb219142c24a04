"""One trainer's cache over a table that a dictionary stands for: rows leave and come with state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsim_train.config.experiment import (
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.executor.shards import cache
from recsim_train.executor.values import RealIds, RealParts, RealRows
from recsim_train.executor.worker import MixCache, Replica, Worker
from recsim_train.placement.build import build_plan

ROWS = (40, 25)
STEPS, BATCH, LR = 12, 6, 0.25


def new_worker(optimizer: str) -> Worker:
    choice = StrategyChoice(kind="scalefreectr", options={"cache_rows": 26})
    spec = Experiment(
        name="cache",
        model=Model(
            embedding_dim=2,
            bottom_mlp=(3, 2),
            top_mlp=(2, 1),
            tables=tuple(Table(rows=n) for n in ROWS),
            dtype="float64",
        ),
        roles=Roles(trainers=1, embedding_servers=1),
        training=Training(batch_size=BATCH, sparse_lr=LR, sparse_optimizer=optimizer),
        strategies=(choice,),
    )
    rows = MixCache(build_plan(spec, choice), 0)
    return Worker(Replica(spec.model, spec.training, 1), "worker", rows=rows)


def numbers(ids: RealIds) -> list[int]:
    """Rows of both tables, one after the other."""
    return [*ids.table(0).tolist(), *(ROWS[0] + i for i in ids.table(1).tolist())]


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_rows_are_what_they_would_be_without_a_cache(optimizer: str) -> None:
    draw, worker = np.random.default_rng(4), new_worker(optimizer)
    plain = draw.normal(size=(sum(ROWS), 2))
    moments = np.zeros(sum(ROWS))
    state = optimizer == "rowwise_adagrad"
    table = {row: [*plain[row], *([0.0] if state else [])] for row in range(sum(ROWS))}

    def write_back(rows: RealRows) -> int:
        left = numbers(rows.ids)
        table.update(zip(left, rows.tensor.tolist(), strict=True))
        return len(left)

    evicted = 0
    for _ in range(STEPS):
        drawn = [np.sort(draw.choice(n, BATCH, replace=False)) for n in ROWS]
        values = torch.from_numpy(np.concatenate(drawn))
        batch = RealIds(values, (0, BATCH, 2 * BATCH), (None, None), BATCH)
        everyones = RealParts((cache.row_numbers(worker, batch).tensor,))
        ids = cache.virtual_ids(worker, batch, everyones)
        used = numbers(ids)
        assert sorted(used) == used == [*drawn[0], *(ROWS[0] + drawn[1])]
        found = cache.probe(worker, ids)
        fetched = torch.tensor([table[row] for row in numbers(found.missing)]).double()
        fetched = fetched.view(-1, 2 + state)
        evicted += write_back(cache.fill(worker, found.slots, RealRows(fetched, found.missing)))
        np.testing.assert_allclose(
            cache.cached_rows(worker, found.slots).tensor, plain[used], rtol=1e-12
        )
        gradient = draw.normal(size=(len(used), 2))
        cache.update_cached(worker, found.slots, RealRows(torch.from_numpy(gradient), ids))
        size = np.ones(len(used))
        if state:
            moments[used] += (gradient[:, 0] ** 2 + gradient[:, 1] ** 2) / 2
            size = 1 / (np.sqrt(moments[used]) + 1e-8)
        plain[used] -= LR * gradient * size[:, None]
    assert evicted > 20
    assert write_back(cache.flush(worker)) > 0
    wanted = np.column_stack([plain, moments]) if state else plain
    np.testing.assert_allclose([table[row] for row in range(sum(ROWS))], wanted, rtol=1e-12)
