"""Lookup and update of rows over several shards against loops over bags, and initial values."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from recsim_train.config.experiment import (
    Experiment,
    Model,
    Placement,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.executor.link.tensors import as_bytes
from recsim_train.executor.net import kernels
from recsim_train.executor.net import rows as row_kernels
from recsim_train.executor.net.model import BLOCK, initial_dense, initial_rows
from recsim_train.executor.shards.routing import ShardSlices, assemble_rows, route_ids
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.executor.shards.wire import LookupRequest
from recsim_train.executor.values import RealFeatures, RealIds, RealRows
from recsim_train.executor.worker import EACH_ITS_OWN, EmbeddingState, Replica, Worker
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import TableSlice
from recsim_train.strategy.values import Batch

TABLES = (
    Table(rows=7),
    Table(rows=10, ids=3),
    Table(rows=6, ids=4, variable=True),
    Table(rows=9, ids=2),
)
MODEL = Model(embedding_dim=2, bottom_mlp=(3, 2), top_mlp=(2, 1), tables=TABLES, dtype="float64")
BATCH = 5
SHARDS = (
    (TableSlice(0, 0, 7), TableSlice(1, 0, 4), TableSlice(2, 0, 2)),
    (TableSlice(1, 4, 10), TableSlice(2, 2, 6), TableSlice(3, 0, 9)),
)
SPLIT = frozenset({1, 2})
BAGS = (
    [[0], [6], [0], [3], [6]],
    [[0, 4, 4], [3, 9, 0], [5, 5, 5], [1, 2, 3], [4, 0, 9]],
    [[1], [0, 2, 5, 5], [2, 1], [0], [5, 0, 1]],
    [[0, 8], [8, 8], [1, 2], [0, 0], [7, 1]],
)
"""By table and example. First and last rows of tables and of shards are among them."""


def batch_ids() -> RealIds:
    flat = [[i for bag in bags for i in bag] for bags in BAGS]
    offsets = np.cumsum([0, *map(len, flat)]).tolist()
    lengths = torch.tensor([len(bag) for bag in BAGS[2]], dtype=torch.int32)
    return RealIds(
        torch.tensor([i for ids in flat for i in ids]),
        tuple(offsets),
        (None, None, lengths, None),
        BATCH,
    )


def states(optimizer: str = "sgd") -> list[EmbeddingState]:
    training = Training(sparse_lr=0.5, sparse_optimizer=optimizer)
    return [EmbeddingState(MODEL, training, 3, slices) for slices in SHARDS]


def whole(found: list[EmbeddingState]) -> list[np.ndarray]:
    """Every table from the shards' slices."""
    tables = [np.full((table.rows, 2), np.nan) for table in TABLES]
    for state in found:
        position = 0
        for part in state.slices:
            tables[part.table][part.start : part.stop] = state.rows[
                position : position + part.rows
            ].numpy()
            position += part.rows
    return tables


PARTS = ShardSlices(MODEL, SHARDS, SPLIT)


def test_pooled_vectors_are_the_sums_of_bags() -> None:
    ids, found = batch_ids(), states()
    routed = route_ids(ids, PARTS)
    answers = [kernels.lookup_pooled(*asked)[0] for asked in zip(found, routed, strict=True)]
    pooled = assemble_rows(ids, PARTS, routed, answers).tensor
    assert pooled.shape == (4, BATCH, 2)
    for table, rows in enumerate(whole(found)):
        for example, bag in enumerate(BAGS[table]):
            np.testing.assert_allclose(pooled[table, example], rows[bag].sum(0), atol=1e-14)


def test_unique_rows_pool_to_the_same_sums() -> None:
    ids, found = batch_ids(), states()
    worker = Worker(Replica(MODEL, Training(), 3), "worker")
    unique = kernels.deduplicate(worker, ids)
    for table, bags in enumerate(BAGS):
        assert unique.table(table).tolist() == sorted({i for bag in bags for i in bag})
    routed = route_ids(unique, PARTS)
    answers = [kernels.lookup_rows(*asked)[0] for asked in zip(found, routed, strict=True)]
    arrived = assemble_rows(unique, PARTS, routed, answers).tensor
    pooled, _ = kernels.pool(arrived, unique)
    for table, rows in enumerate(whole(found)):
        for example, bag in enumerate(BAGS[table]):
            np.testing.assert_allclose(pooled[table, example], rows[bag].sum(0), atol=1e-14)


def test_a_shard_in_another_process_learns_which_ids_are_one_bag() -> None:
    """Lengths travel for variable bags, and for every bag of a table whose rows are split."""
    choice = StrategyChoice(kind="flat_ps")
    spec = Experiment(
        name="split",
        model=MODEL,
        roles=Roles(embedding_servers=2),
        placement=Placement(split_rows_above=0.2),
        strategies=(choice,),
    )
    plan, ids = build_plan(spec, choice), batch_ids()
    assert plan.embedding is not None
    assert plan.embedding.split_tables & {1, 3}  # bags of one size
    shards = plan.embedding.shards
    parts = ShardSlices(MODEL, [shard.slices for shard in shards], plan.embedding.split_tables)
    for shard, routed in zip(shards, route_ids(ids, parts), strict=True):
        server = EmbeddingServer(plan, shard)
        request = LookupRequest(0, BATCH, routed.sizes)
        payload = as_bytes(*request.parts(routed))
        arrived = request.unpack(server.rules, payload)
        assert len(arrived.lengths) == BATCH * arrived.varying.sum() > 0
        for there, here in zip(server.lookup(arrived), server.lookup(routed), strict=True):
            np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_a_row_steps_by_the_sum_of_its_gradients(optimizer: str) -> None:
    ids, found = batch_ids(), states(optimizer)
    tables = whole(found)
    moments = [np.zeros(table.rows) for table in TABLES]
    for step in range(3):
        gradient = torch.from_numpy(np.random.default_rng(step).normal(size=(4, BATCH, 2)))
        for state, routed in zip(found, route_ids(ids, PARTS), strict=True):
            own = gradient[[part.table for part in state.slices]]
            _, places, bags = kernels.lookup_pooled(state, routed)
            kernels.update_pooled(state, places, bags, own)
        for table, bags in enumerate(BAGS):
            sums = np.zeros_like(tables[table])
            for example, bag in enumerate(bags):
                for row in bag:
                    sums[row] += gradient[table, example].numpy()
            size = 1.0
            if optimizer == "rowwise_adagrad":
                moments[table] += (sums[:, 0] ** 2 + sums[:, 1] ** 2) / 2
                size = (1 / (np.sqrt(moments[table]) + 1e-8))[:, None]
            tables[table] -= 0.5 * sums * size
    for rows, wanted in zip(whole(found), tables, strict=True):
        np.testing.assert_allclose(rows, wanted, rtol=1e-12, atol=1e-13)


def test_bags_and_single_ids_of_several_clients_make_one_step() -> None:
    state = states()[0]
    before = state.rows.numpy().copy()
    places, bags = np.array([3, 0, 3, 5]), np.array([1, 0, 1, 2])
    of_bags, of_ids = np.random.default_rng(1).normal(size=(2, 3, 2))
    alone = np.array([5, 3, 1])
    kernels.update_together(
        state,
        [
            (places, bags, torch.from_numpy(of_bags.reshape(1, 3, 2))),
            (alone, EACH_ITS_OWN, torch.from_numpy(of_ids)),
        ],
    )
    sums = np.zeros_like(before)
    for place, bag in zip(places, bags, strict=True):
        sums[place] += of_bags[bag]
    for place, gradient in zip(alone, of_ids, strict=True):
        sums[place] += gradient
    np.testing.assert_allclose(state.rows.numpy(), before - 0.5 * sums / 2, rtol=1e-12)


def test_rows_step_together_with_the_mean_of_all_trainers() -> None:
    choice = StrategyChoice(kind="allreduce")
    spec = Experiment(
        name="together",
        model=MODEL,
        roles=Roles(trainers=3, embedding_servers=1),
        training=Training(sparse_optimizer="sgd", sparse_lr=0.5),
        strategies=(choice,),
    )
    plan = build_plan(spec, choice)
    assert plan.embedding is not None
    server = EmbeddingServer(plan, plan.embedding.shards[0])
    before = server.state.rows.clone()

    def update(trainer: int) -> None:
        rows = np.array([trainer, 4])  # one of its own, one that all have
        server.update(trainer, rows, EACH_ITS_OWN, torch.full((2, 2), 3.0 + trainer).double())

    threads = [threading.Thread(target=update, args=(trainer,)) for trainer in (2, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    moved = (before - server.state.rows)[:, 0] / 0.5
    wanted = [3.0 / 3, 4.0 / 3, 5.0 / 3, 0.0, (3.0 + 4.0 + 5.0) / 3]
    assert moved[:5].tolist() == pytest.approx(wanted)
    assert not moved[5:].any()


def test_the_loss_is_the_mean_over_the_batch() -> None:
    draw = torch.Generator().manual_seed(2)
    dense = torch.randn(BATCH, 13, generator=draw, dtype=torch.float64)
    labels = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    pooled = torch.randn(4, BATCH, 2, generator=draw, dtype=torch.float64)
    worker = Worker(Replica(MODEL, Training(), 3), "server")
    ids, features = batch_ids(), RealFeatures(dense, labels)
    kernels.forward_backward(worker, Batch(BATCH, ids, features, 0), RealRows(pooled, ids))
    with torch.no_grad():
        chance = 1 / (1 + np.exp(-worker.net.forward(dense, pooled).numpy()))
    wanted = -np.mean(np.log(np.where(labels.numpy() > 0.5, chance, 1 - chance)))
    assert worker.loss == pytest.approx(wanted, rel=1e-12)


def test_rows_do_not_depend_on_the_shard_that_draws_them() -> None:
    model = MODEL.model_copy(update={"tables": (Table(rows=2 * BLOCK + 50),)})
    everything = initial_rows(model, 5, 0, 0, 2 * BLOCK + 50)
    cuts = [0, 10, BLOCK - 3, BLOCK + 7, 2 * BLOCK, 2 * BLOCK + 50]
    for start, stop in zip(cuts, cuts[1:], strict=False):
        assert torch.equal(initial_rows(model, 5, 0, start, stop), everything[start:stop])
    bound = (2 * BLOCK + 50) ** -0.5
    assert 0.999 * bound < float(everything.abs().max()) <= bound
    assert float(everything.std()) == pytest.approx(bound / 3**0.5, rel=0.01)


def test_initial_weights_spread_as_in_the_public_code() -> None:
    """Weights by both sides of a layer, biases by its outputs (arXiv 1906.00091's code)."""
    model = MODEL.model_copy(update={"bottom_mlp": (900, 400, 2), "top_mlp": (300, 1)})
    flat, position = initial_dense(model, 5), 0
    for inputs, outputs in ((13, 900), (900, 400)):
        weights = flat[position : position + inputs * outputs]
        biases = flat[position + inputs * outputs : position + (inputs + 1) * outputs]
        position += (inputs + 1) * outputs
        # 4 standard errors of a standard deviation: 4 / sqrt(2 n)
        assert float(weights.std()) == pytest.approx(
            (2 / (inputs + outputs)) ** 0.5, rel=4 / (2 * weights.numel()) ** 0.5
        )
        assert float(biases.std()) == pytest.approx(
            outputs**-0.5, rel=4 / (2 * biases.numel()) ** 0.5
        )


def test_a_tables_first_id_is_not_the_last_one_of_the_table_before() -> None:
    ids, offsets = np.array([5, 3, 5, 7, 5, 0]), np.array([0, 3, 5, 6])
    found, cuts, inverse = row_kernels.distinct(ids, offsets)
    assert found.tolist() == [3, 5, 5, 7, 0]
    assert cuts.tolist() == [0, 2, 4, 5]
    assert inverse.tolist() == [1, 0, 1, 3, 2, 4]
