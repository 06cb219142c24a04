"""Distributed training computes what one process computes: float64, norm-wise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Placement,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.executor.net.model import initial_dense, initial_rows
from recsim_train.placement.build import build_plan
from tests.executor.by_hand import Dense, Rows, gradients
from tests.executor.group_world import Fed, given
from tests.executor.keeping import execute_keeping

TABLES = (
    Table(rows=400),
    Table(rows=30),
    Table(rows=60, ids=3),
    Table(rows=50, ids=4, variable=True),
)
STEPS = 8


def experiment(
    roles: Roles,
    choice: StrategyChoice,
    *,
    batch: int,
    split: float = 10.0,
    optimizer: str = "rowwise_adagrad",
    dense: str = "sgd",
    threads: int = 1,
    width: int = 8,
) -> Experiment:
    return Experiment(
        name="equivalence",
        model=Model(
            embedding_dim=4,
            bottom_mlp=(width, 4),
            top_mlp=(width, 1),
            tables=TABLES,
            dtype="float64",
        ),
        data=Data(eval_rows=16, synthetic=Synthetic(rows=2000)),
        roles=roles,
        training=Training(
            batch_size=batch,
            threads=threads,
            steps=STEPS,
            warmup_steps=0,
            sparse_optimizer=optimizer,
            dense_optimizer=dense,
            dense_lr=0.1,
            sparse_lr=0.1,
        ),
        placement=Placement(split_rows_above=split),
        strategies=(choice,),
    )


def train(
    folder: Path,
    roles: Roles,
    *,
    batch: int,
    choice: StrategyChoice | None = None,
    split: float = 10.0,
    optimizer: str = "rowwise_adagrad",
    dense: str = "sgd",
    threads: int = 1,
    width: int = 8,
) -> tuple[dict[int, Tensor], Tensor, list[float]]:
    """(rows of every table, dense parameters, mean loss of every iteration)."""
    chosen = choice or StrategyChoice(kind="allreduce")
    spec = experiment(
        roles,
        chosen,
        batch=batch,
        split=split,
        optimizer=optimizer,
        dense=dense,
        threads=threads,
        width=width,
    )
    folder.mkdir()
    outcome = execute_keeping(build_plan(spec, chosen), folder)
    rows = {t: torch.full((table.rows, 4), torch.nan).double() for t, table in enumerate(TABLES)}
    replica = torch.empty(0)
    for path in sorted(folder.glob("*.pt")):
        state = torch.load(path, weights_only=True)
        for name, value in state.items():
            if name.startswith("embedding"):
                slices, held = value
                position = 0
                for table, start, stop, *_ in slices:
                    rows[table][start:stop] = held[position : position + stop - start]
                    position += stop - start
        if path.name == "trainer[0].pt":
            replica = state["replica"]
    losses: dict[int, list[float]] = {}
    for iteration in outcome.iterations:
        assert iteration.loss is not None
        losses.setdefault(iteration.iteration, []).append(iteration.loss)
    means = [sum(v) / len(v) for _, v in sorted(losses.items())]
    return rows, replica, means


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


Result = tuple[dict[int, Tensor], Tensor, list[float]]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train(tmp_path_factory.mktemp("one") / "run", Roles(), batch=24)


def assert_same(found: Result, wanted: Result, tolerance: float) -> None:
    for table, rows in wanted[0].items():
        assert distance(found[0][table], rows) < tolerance
    assert distance(found[1], wanted[1]) < tolerance
    assert found[2] == pytest.approx(wanted[2], rel=tolerance)


CASES = {
    "two trainers, no servers": (Roles(trainers=2), {}, 10.0),
    "three trainers, servers": (Roles(trainers=3, embedding_servers=2), {}, 10.0),
    "split tables": (Roles(trainers=2, embedding_servers=2), {}, 0.3),
    "rows travel": (Roles(trainers=2, embedding_servers=1), {"pooling": "worker"}, 10.0),
    "rows travel, split": (Roles(trainers=2), {"pooling": "worker"}, 0.3),
    "with a reader": (Roles(trainers=2, embedding_servers=1, readers=1), {}, 10.0),
}


@pytest.mark.parametrize("name", CASES)
def test_all_reduce_equals_one_process_with_the_global_batch(
    name: str, one_process: Result, tmp_path: Path
) -> None:
    roles, options, split = CASES[name]
    choice = StrategyChoice(kind="allreduce", options=options)
    batch = 24 // roles.trainers
    found = train(tmp_path / "run", roles, batch=batch, choice=choice, split=split)
    assert_same(found, one_process, 1e-12)


LARGE = {"width": 512, "optimizer": "sgd"}
"""So wide that operators really share their work among threads."""
WITHIN: dict[str, tuple[StrategyChoice, Roles]] = {
    "allreduce": (StrategyChoice(kind="allreduce"), Roles(trainers=2, embedding_servers=1)),
    "rows": (StrategyChoice(kind="allreduce", options={"pooling": "worker"}), Roles(trainers=2)),
    "localsgd": (StrategyChoice(kind="localsgd", options={"switch": STEPS}), Roles(trainers=2)),
    "scalefreectr": (
        StrategyChoice(kind="scalefreectr", options={"cache_share": 1.0}),
        Roles(trainers=2, embedding_servers=1),
    ),
    "des": (StrategyChoice(kind="des"), Roles(trainers=2)),
    "hierarchical": (
        StrategyChoice(kind="hierarchical", options={"tags": "bottom.0=0,top.0=1"}),
        Roles(trainers=2, embedding_servers=1),
    ),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train(tmp_path_factory.mktemp("large") / "run", Roles(), batch=480, **LARGE)


@pytest.mark.parametrize("name", WITHIN)
def test_threads_within_operations_change_nothing(name: str, large: Result, tmp_path: Path) -> None:
    choice, roles = WITHIN[name]
    found = train(tmp_path / "run", roles, batch=240, choice=choice, threads=2, **LARGE)
    assert_same(found, large, 1e-12)


def test_the_reference_on_one_thread_is_autograds(large: Result) -> None:
    choice = StrategyChoice(kind="allreduce")
    spec = experiment(Roles(), choice, batch=480, **LARGE)
    plan = build_plan(spec, choice)
    rows = Rows(
        [initial_rows(spec.model, spec.seed, t, 0, table.rows) for t, table in enumerate(TABLES)],
        rate=0.1,
        adagrad=False,
    )
    replica = initial_dense(spec.model, spec.seed)
    for batch in Fed(plan, 0).batches:
        fed = given(plan, batch)
        dense, sparse = gradients(replica, rows.tables, fed, (512, 4), (512, 1))
        rows.step(sparse)
        replica -= 0.1 * dense
    assert distance(large[1], replica) < 1e-12
    for t, table in enumerate(rows.tables):
        assert distance(large[0][t], table) < 1e-12


def test_the_comparison_can_fail(one_process: Result, tmp_path: Path) -> None:
    found = train(tmp_path / "run", Roles(), batch=24, optimizer="sgd")
    with pytest.raises(AssertionError):
        assert_same(found, one_process, 1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_one_downpour_worker_equals_plain_sgd(optimizer: str, tmp_path: Path) -> None:
    """Alone, pulling and pushing every iteration is sequential training, wherever shards live."""
    plain = train(tmp_path / "plain", Roles(), batch=24, optimizer=optimizer)
    choice = StrategyChoice(kind="flat_ps")
    for number, roles in enumerate((Roles(), Roles(embedding_servers=2, dense_servers=2))):
        folder = tmp_path / str(number)
        found = train(folder, roles, batch=24, choice=choice, optimizer=optimizer)
        assert_same(found, plain, 1e-12)


@pytest.mark.parametrize("servers", [0, 2])
@pytest.mark.parametrize(
    "noop",
    [{"outer": "ma", "sync": "foreground", "every": 1}, {"outer": {"kind": "ma", "alpha": 0.0}}],
)
def test_an_outer_average_of_one_group_changes_nothing(
    servers: int, noop: dict[str, object], tmp_path: Path
) -> None:
    """How groups meet says nothing about how one group's hosts step their embedding rows."""
    roles = Roles(trainers=2, embedding_servers=servers)
    left = []
    for outer in ({"outer": "none"}, noop):
        choice = StrategyChoice(kind="hierarchical", options={"hosts": 2, **outer})
        left.append(train(tmp_path / str(len(left)), roles, batch=12, choice=choice, split=0.3))
    assert_same(left[1], left[0], 1e-12)


@pytest.mark.parametrize("every", [1, 3, 5, 20])
def test_downpour_loses_no_gradient(every: int, tmp_path: Path) -> None:
    """One worker that pushes every k-th step, written out; what is left at the end counts too."""
    choice = StrategyChoice(kind="flat_ps", options={"every": every})
    roles = Roles(embedding_servers=1, dense_servers=2)
    spec = experiment(roles, choice, batch=12)
    plan = build_plan(spec, choice)
    rows = Rows(
        [initial_rows(spec.model, spec.seed, t, 0, table.rows) for t, table in enumerate(TABLES)],
        rate=0.1,
        adagrad=True,
    )
    central = initial_dense(spec.model, spec.seed)
    replica, gathered = central.clone(), torch.zeros_like(central)
    for step, batch in enumerate(Fed(plan, 0).batches):
        if step % every == 0:
            replica = central.clone()
        dense, sparse = gradients(replica, rows.tables, given(plan, batch), (8, 4), (8, 1))
        rows.step(sparse)
        replica -= 0.1 * dense
        gathered += dense
        if step % every == every - 1 or step == STEPS - 1:
            central -= 0.1 * gathered
            gathered = torch.zeros_like(central)
    found, trained, _ = train(tmp_path / "run", roles, batch=12, choice=choice)
    assert distance(trained, central) < 1e-12
    for t, table in enumerate(rows.tables):
        assert distance(found[t], table) < 1e-12


LOCAL = {
    "weights averaged in every step": (1, 0, "sgd"),
    "every third, two steps left": (3, 0, "sgd"),
    "gradients first": (2, 3, "sgd"),
    "gradients only": (1, STEPS, "sgd"),
    "an optimizer's state stays where it is": (3, 2, "adagrad"),
}


@pytest.mark.parametrize("name", LOCAL)
def test_local_sgd_by_the_rule(name: str, tmp_path: Path) -> None:
    """Three trainers' replicas in one process, written out."""
    every, switch, optimizer = LOCAL[name]
    choice = StrategyChoice(kind="localsgd", options={"every": every, "switch": switch})
    roles = Roles(trainers=3, embedding_servers=2)
    adagrad = optimizer == "adagrad"
    sparse = "rowwise_adagrad" if adagrad else "sgd"
    spec = experiment(roles, choice, batch=8, optimizer=sparse, dense=optimizer)
    plan = build_plan(spec, choice)
    rows = Rows(
        [initial_rows(spec.model, spec.seed, t, 0, table.rows) for t, table in enumerate(TABLES)],
        rate=0.1,
        adagrad=adagrad,
    )
    replicas = [initial_dense(spec.model, spec.seed) for _ in range(3)]
    steppers = [Dense(w, 0.1, adagrad) for w in replicas]
    for step, fed in enumerate(zip(*(Fed(plan, t).batches for t in range(3)), strict=True)):
        found = [
            gradients(w, rows.tables, given(plan, batch), (8, 4), (8, 1))
            for w, batch in zip(replicas, fed, strict=True)
        ]
        rows.step([sum(parts) / 3 for parts in zip(*(g for _, g in found), strict=True)])
        own = [dense for dense, _ in found]
        if step < switch:
            own = [sum(own) / 3] * 3
        for w, gradient, stepper in zip(replicas, own, steppers, strict=True):
            stepper.step(w, gradient)
        if (step >= switch and (step + 1 - switch) % every == 0) or step == STEPS - 1:
            mean = sum(replicas) / 3
            for w in replicas:
                w.copy_(mean)
    assert step == STEPS - 1
    kept, trained, _ = train(
        tmp_path / "run", roles, batch=8, choice=choice, optimizer=sparse, dense=optimizer
    )
    assert distance(trained, replicas[0]) < 1e-12
    for t, table in enumerate(rows.tables):
        assert distance(kept[t], table) < 1e-12
