"""ScaleFreeCTR computes what synchronous training computes, whatever its cache does: float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from recsim_train.config.errors import UserError
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
from recsim_train.executor.process.launch import PartialRun, execute
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.trace.facts import Cached
from recsim_train.trace.record import Outcome
from tests.executor.keeping import execute_keeping

TABLES = (
    Table(rows=900),
    Table(rows=30),
    Table(rows=200, ids=2),
    Table(rows=90, ids=3, variable=True),
)
GLOBAL_BATCH = 24
STEPS = 12
Trained = tuple[Tensor, Tensor, list[float], Cached | None]
"""(rows of all tables, dense parameters, mean loss of every step, what the caches did)."""


def plan_of(choice: StrategyChoice, roles: Roles, optimizer: str, batch: int) -> Plan:
    spec = Experiment(
        name="cache",
        model=Model(
            embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(8, 1), tables=TABLES, dtype="float64"
        ),
        data=Data(eval_rows=64, synthetic=Synthetic(rows=4000)),
        roles=roles,
        training=Training(
            batch_size=batch,
            steps=STEPS,
            warmup_steps=0,
            sparse_optimizer=optimizer,
            dense_lr=0.1,
            sparse_lr=0.1,
        ),
        placement=Placement(split_rows_above=0.5),
        strategies=(choice,),
    )
    return build_plan(spec, choice)


def train(
    folder: Path,
    options: dict[str, object] | None,
    roles: Roles | None = None,
    optimizer: str = "rowwise_adagrad",
) -> tuple[Trained, Outcome]:
    """``options`` None: the all-reduce strategy."""
    roles = roles or Roles()
    choice = StrategyChoice(kind="allreduce", options={"pooling": "worker"})
    if options is not None:
        choice = StrategyChoice(kind="scalefreectr", options=options)
    folder.mkdir(parents=True)
    plan = plan_of(choice, roles, optimizer, GLOBAL_BATCH // roles.trainers)
    outcome = execute_keeping(plan, folder)
    tables = [torch.full((table.rows, 4), torch.nan).double() for table in TABLES]
    for path in sorted(folder.glob("*.pt")):
        for name, value in torch.load(path, weights_only=True).items():
            if not name.startswith("embedding"):
                continue
            slices, held = value
            position = 0
            for table, start, stop, *_ in slices:
                tables[table][start:stop] = held[position : position + stop - start]
                position += stop - start
    replica = torch.load(folder / "trainer[0].pt", weights_only=True)["replica"]
    losses: dict[int, list[float]] = {}
    for iteration in outcome.iterations:
        assert iteration.loss is not None
        losses.setdefault(iteration.iteration, []).append(iteration.loss)
    means = [sum(v) / len(v) for _, v in sorted(losses.items())]
    return (torch.cat(tables), replica, means, outcome.facts.cache), outcome


@pytest.fixture(scope="module")
def synchronous(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], tuple[Trained, Outcome]]:
    """What all-reduce makes of the global batch, by optimizer."""
    known: dict[str, tuple[Trained, Outcome]] = {}

    def run(optimizer: str) -> tuple[Trained, Outcome]:
        if optimizer not in known:
            folder = tmp_path_factory.mktemp("synchronous") / "run"
            known[optimizer] = train(folder, None, optimizer=optimizer)
        return known[optimizer]

    return run


def figures(found: Trained) -> Cached:
    assert found[3] is not None
    return found[3]


def assert_same(found: Trained, wanted: Trained, tolerance: float) -> None:
    for one, other in zip(found[:2], wanted[:2], strict=True):
        assert isinstance(one, Tensor)
        assert isinstance(other, Tensor)
        assert float((one - other).norm() / other.norm()) <= tolerance
    assert len(found[2]) == STEPS
    assert found[2] == pytest.approx(wanted[2], rel=tolerance, abs=0)


WORLDS = {
    "one process": Roles(),
    "two trainers, no servers": Roles(trainers=2),
    "two trainers, two servers": Roles(trainers=2, embedding_servers=2),
    "four trainers, a server": Roles(trainers=4, embedding_servers=1),
}
SMALL = {"one process": 150, "two trainers, no servers": 80, "two trainers, two servers": 80,
         "four trainers, a server": 48}  # fmt: skip
"""Hardly more than two steps' rows of one trainer."""


@pytest.mark.parametrize("world", WORLDS)
def test_cached_or_not_it_is_synchronous_training(
    world: str, synchronous: Callable[[str], tuple[Trained, Outcome]], tmp_path: Path
) -> None:
    wanted, reference = synchronous("rowwise_adagrad")
    small, outcome = train(tmp_path / "small", {"cache_rows": SMALL[world]}, WORLDS[world])
    assert_same(small, wanted, 1e-12)
    assert outcome.loss == pytest.approx(reference.loss, rel=1e-12)
    assert figures(small).evicted > 20
    assert 0 < figures(small).missed < figures(small).probed
    none, _ = train(tmp_path / "none", {"cache": False}, WORLDS[world])
    assert figures(none).missed == figures(none).probed == figures(small).probed
    assert_same(none, small, 0.0)  # to the last bit


def test_a_deeper_pipeline_and_a_full_cache_change_nothing(tmp_path: Path) -> None:
    roles = Roles(trainers=2)
    small, _ = train(tmp_path / "small", {"cache_rows": 80}, roles)
    full, _ = train(tmp_path / "full", {"cache_share": 1.0, "prefetch": 5}, roles)
    assert figures(full).evicted == 0
    assert_same(full, small, 0.0)


def test_rows_of_plain_sgd_travel_without_state(
    synchronous: Callable[[str], tuple[Trained, Outcome]], tmp_path: Path
) -> None:
    roles = Roles(trainers=2, embedding_servers=1)
    found, outcome = train(tmp_path / "run", {"cache_rows": 80}, roles, optimizer="sgd")
    assert_same(found, synchronous("sgd")[0], 1e-12)
    sent = Counter[str]()
    for key, total in outcome.totals.items():
        sent[key.effect] += total.bytes
    # ids of 8 bytes there, rows of 4 doubles back
    assert sent["serve_fetch"] == 4 * sent["fetch"] == 4 * 8 * figures(found).missed


def test_the_comparison_can_fail(
    synchronous: Callable[[str], tuple[Trained, Outcome]], tmp_path: Path
) -> None:
    found, _ = train(tmp_path / "run", {"cache_share": 1.0}, optimizer="sgd")
    with pytest.raises(AssertionError):
        assert_same(found, synchronous("rowwise_adagrad")[0], 1e-6)


def test_a_cache_too_small_for_the_first_steps_is_refused_before_the_start(tmp_path: Path) -> None:
    choice = StrategyChoice(kind="scalefreectr", options={"cache_rows": 40})
    plan = plan_of(choice, Roles(trainers=2), "sgd", 12)
    with pytest.raises(UserError, match=r"cache of 40 rows .* need \d+ rows of trainer\[0\]'s own"):
        execute(plan, staging=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_cache_too_small_for_a_later_step_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recsim_train.executor.process.launch.check_cache", lambda plan: None)
    choice = StrategyChoice(kind="scalefreectr", options={"cache_rows": 40})
    plan = plan_of(choice, Roles(trainers=2), "sgd", 12)
    with pytest.raises(PartialRun, match=r"trainer\[\d\] failed: the cache of 40 rows"):
        execute(plan, staging=tmp_path)
