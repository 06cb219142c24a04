"""Both optimizers against their formulas, and what threads that share one may not lose."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recsim_train.config.experiment import (
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.executor.net import kernels, sparse
from recsim_train.executor.shards.services import DenseServer, EmbeddingServer
from recsim_train.executor.shards.stubs import DenseStub, Near
from recsim_train.executor.values import RealDense
from recsim_train.executor.worker import (
    EACH_ITS_OWN,
    DenseOptimizer,
    DenseState,
    EmbeddingState,
    Replica,
)
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Instance, Plan, TableSlice
from recsim_train.sim.host.memory import memory_of_all
from recsim_train.workload.shape import dense_parameters

MODEL = Model(
    embedding_dim=3, bottom_mlp=(5, 3), top_mlp=(4, 1), tables=(Table(rows=7),), dtype="float64"
)
SIZE = dense_parameters(MODEL)
LR, EPSILON = 0.3, 1e-8
ADAGRAD = Training(dense_optimizer="adagrad", dense_lr=LR, sparse_lr=LR)
STEPS = 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def close(found: Tensor, wanted: Any) -> None:
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-13)


# ---------------------------------------------------------------- dense Adagrad


@pytest.mark.parametrize("tiny", [1.0, 1e-8])
def test_dense_adagrad_is_torchs_and_the_formula(tiny: float) -> None:
    """state += g^2; w -= lr g / (sqrt(state) + eps), also where gradients are as small as eps."""
    start = drawn(SIZE)
    mine = start.clone()
    optimizer = DenseOptimizer.of(ADAGRAD, mine)
    theirs = torch.nn.Parameter(start.clone())
    reference = torch.optim.Adagrad([theirs], lr=LR, eps=EPSILON, initial_accumulator_value=0.0)
    w, state = start.numpy().copy(), np.zeros(SIZE)
    for step in range(STEPS):
        gradient = tiny * drawn(SIZE, seed=step + 1)
        optimizer.step(mine, gradient)
        theirs.grad = gradient.clone()
        reference.step()
        g = gradient.numpy()
        state = state + g**2
        w = w - LR * g / (np.sqrt(state) + EPSILON)
    close(mine, theirs.detach().numpy())
    close(mine, w)
    assert np.abs(w - start.numpy()).max() > 0.1 * LR


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_a_sparse_gradient_steps_as_the_same_one_with_zeros(optimizer: str) -> None:
    training = ADAGRAD.model_copy(update={"dense_optimizer": optimizer})
    state = DenseState(MODEL, training, 1, 0, SIZE)
    w, sums = state.values.numpy().copy(), np.zeros(SIZE)
    for step in range(STEPS):
        places = torch.from_numpy(np.random.default_rng(step).permutation(SIZE)[:9])
        values = drawn(9, seed=step)
        sparse.sparse_apply(state, places, values)
        g = np.zeros(SIZE)
        g[places.numpy()] = values.numpy()
        sums = sums + g**2
        w = w - LR * g / (np.sqrt(sums) + EPSILON if optimizer == "adagrad" else 1.0)
    close(state.values, w)


# ---------------------------------------------------------------- row-wise Adagrad


def table() -> EmbeddingState:
    return EmbeddingState(MODEL, ADAGRAD, 1, (TableSlice(0, 0, 7),))


def by_formula(rows: np.ndarray, state: np.ndarray, ids: list[int], gradients: np.ndarray) -> None:
    """fbgemm's EXACT_ROWWISE_ADAGRAD: the gradients of one row are summed, its state grows by
    the mean over the row of their squares, its step is divided by that state's root."""
    for row in sorted(set(ids)):
        total = sum(gradients[at] for at, other in enumerate(ids) if other == row)
        state[row] += sum(x * x for x in total) / len(total)
        rows[row] -= LR * total / (state[row] ** 0.5 + EPSILON)


BATCHES = [[2, 5, 0], [5, 5, 1, 5], [2, 1, 2, 6], [0, 0], [5, 2]]


@pytest.mark.parametrize("tiny", [1.0, 1e-8])
@pytest.mark.parametrize("way", ["rows", "pooled", "together"])
def test_rowwise_adagrad_is_the_published_formula(way: str, tiny: float) -> None:
    held = table()
    start = held.rows.numpy().copy()
    rows, state = start.copy(), np.zeros(7)
    choice = StrategyChoice(kind="allreduce")
    spec = Experiment(name="t", model=MODEL, training=ADAGRAD, strategies=(choice,))
    plan = build_plan(spec, choice)
    assert plan.embedding is not None
    server = EmbeddingServer(plan, plan.embedding.shards[0])
    server.state = held
    for step, ids in enumerate(BATCHES):
        gradient = tiny * drawn(len(ids), 3, seed=step)
        by_formula(rows, state, ids, gradient.numpy())
        local = np.array(ids)
        if way == "rows":
            kernels.update_rows(held, local, gradient)
        elif way == "pooled":  # bags of one id
            kernels.update_pooled(held, local, EACH_ITS_OWN, gradient.unsqueeze(0))
        else:
            server.update(0, local, EACH_ITS_OWN, gradient.unsqueeze(0))
    close(held.rows, rows)
    np.testing.assert_allclose(held.state.numpy(), state, rtol=1e-13, atol=0)
    assert np.abs(rows - start).max() > 0.1 * LR
    np.testing.assert_array_equal(rows[3:5], start[3:5])


def test_a_bags_gradient_goes_to_each_of_its_ids() -> None:
    held = table()
    rows, state = held.rows.numpy().copy(), np.zeros(7)
    gradient = drawn(2, 3)
    ids = [1, 4, 4, 2, 1]  # two bags of 2 and 3 ids; one id twice in a bag, one in both
    by_formula(rows, state, ids, gradient.numpy()[[0, 0, 1, 1, 1]])
    bags = np.array([0, 0, 1, 1, 1])
    kernels.update_pooled(held, np.array(ids), bags, gradient.unsqueeze(0))
    close(held.rows, rows)
    np.testing.assert_allclose(held.state.numpy(), state, rtol=1e-13, atol=0)


# ---------------------------------------------------------------- threads


def central_plan(training: Training, trainers: int = 2) -> Plan:
    choice = StrategyChoice(kind="flat_ps")
    roles = Roles(trainers=trainers, dense_servers=1, embedding_servers=1)
    spec = Experiment(name="t", model=MODEL, roles=roles, training=training, strategies=(choice,))
    return build_plan(spec, choice)


@pytest.mark.parametrize("of", ["replica", "shard"])
def test_the_first_steps_of_two_threads_both_enter_the_state(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one's comes while the first one still makes the state, if it does."""
    if of == "replica":
        replica = Replica(MODEL, ADAGRAD, 1)
        w, optimizer = replica.parameters, replica.optimizer
    else:
        shard = DenseState(MODEL, ADAGRAD, 1, 0, SIZE)
        w, optimizer = shard.values, shard.optimizer
    first, second = drawn(SIZE, seed=1), drawn(SIZE, seed=2)
    make, inside = torch.zeros_like, []

    def interrupted(*arguments: Any, **options: Any) -> Tensor:
        made = make(*arguments, **options)
        if not inside:
            inside.append(True)
            optimizer.step(w, second)
        return made

    monkeypatch.setattr(torch, "zeros_like", interrupted)
    optimizer.step(w, first)
    if not inside:
        optimizer.step(w, second)
    assert optimizer.state is not None
    close(optimizer.state, first.numpy() ** 2 + second.numpy() ** 2)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_memory_is_taken_before_the_first_step_as_predicted(optimizer: str) -> None:
    training = ADAGRAD.model_copy(update={"dense_optimizer": optimizer})
    plan = central_plan(training)
    assert plan.dense is not None
    server = DenseServer(plan, plan.dense.shards[0])
    held = [server.state.values, server.state.optimizer.state]
    taken = sum(x.numel() * x.element_size() for x in held if x is not None)
    assert taken == memory_of_all(plan, [(Instance("dense_server", 0), 0.0)])[0].parts["dense"]
    replica = Replica(MODEL, training, 1)
    kept = [replica.parameters, replica.optimizer.state]
    taken = sum(x.numel() * x.element_size() for x in kept if x is not None)
    copies = 2 if optimizer == "adagrad" else 1
    assert taken == copies * SIZE * 8


class Slow(torch.Tensor):
    """A request's content whose first use by ``after`` lets somebody else go on for a while."""

    after: Callable[..., Any]
    meanwhile: Callable[[], None] | None = None

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        if function is cls.after and cls.meanwhile is not None:
            other, cls.meanwhile = cls.meanwhile, None
            other()
        return result


def interleaved(stub: DenseStub, after: Any, first: Any, second: Callable[[], Any]) -> None:
    """Let ``second`` run, in a thread, in the middle of ``first``, as far as it can."""
    thread = threading.Thread(target=second, daemon=True)

    def meanwhile() -> None:
        thread.start()
        thread.join(1.0)  # as it is told to wait its turn it does not end here

    Slow.after, Slow.meanwhile = after, meanwhile
    first()
    thread.join(10.0)
    assert not thread.is_alive()


def stub_of(plan: Plan) -> tuple[DenseStub, DenseServer]:
    assert plan.dense is not None
    (shard,) = plan.dense.shards
    server = DenseServer(plan, shard)

    return DenseStub([Near(server, 0)], server.state.values), server


@pytest.mark.parametrize("new", [False, True])
def test_elastic_exchanges_take_turns(new: bool) -> None:
    """Each difference is from the copy as it is when its turn comes, and enters it whole: what the
    replicas give up, the copy gains."""
    stub, server = stub_of(central_plan(ADAGRAD))
    c = server.state.values.numpy().copy()
    first, second, alpha = drawn(SIZE, seed=1), drawn(SIZE, seed=2), 0.8
    answers: dict[str, Tensor] = {}

    def exchange(name: str, w: Tensor) -> None:
        answers[name] = stub.exchange(RealDense(w), alpha, 0, new=new)()[0].tensor

    interleaved(
        stub,
        torch.Tensor.sub,
        lambda: exchange("first", first.as_subclass(Slow)),
        lambda: exchange("second", second),
    )
    for name, w in (("first", first), ("second", second)):
        difference = alpha * (w.numpy() - c)
        c = c + difference
        answer = answers[name].as_subclass(Tensor)
        close(answer, (1 - alpha) * difference if new else difference)
    close(server.state.values, c)


def test_steps_at_a_shard_take_turns() -> None:
    stub, server = stub_of(central_plan(ADAGRAD))
    c, sums = server.state.values.numpy().copy(), np.zeros(SIZE)
    first, second = drawn(SIZE, seed=1), drawn(SIZE, seed=2)
    interleaved(
        stub,
        torch.Tensor.addcmul_,
        lambda: stub.push(RealDense(first.as_subclass(Slow)), 0),
        lambda: stub.push(RealDense(second), 0),
    )
    for g in (first.numpy(), second.numpy()):
        sums = sums + g**2
        c = c - LR * g / (np.sqrt(sums) + EPSILON)
    close(server.state.values, c)
