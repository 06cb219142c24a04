"""The shipped gates fail where prices are wrong. The truth is the simulator's own, with noise."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from recsim_train import session
from recsim_train.config.cluster import Cluster, Costs
from recsim_train.config.validation import Gates
from recsim_train.results.configurations import Measured, Predicted
from recsim_train.results.fidelity import Fidelity, fidelity
from recsim_train.results.gates import judge
from recsim_train.results.sweep import COMPLETE
from recsim_train.session.configurations import predicted
from recsim_train.session.job import Job
from recsim_train.session.pool import Task, simulate_points

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SHORT = ["simulation.what_if_steps=0", "training.steps=20", "training.warmup_steps=2"]
ERROR, REPEATS = 0.015, 3
"""Of the synthetic truth: standard deviation of what the model leaves out."""


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def study() -> session.Study:
    path = ROOT / "experiments" / "fidelity.yaml"
    return session.load(path, str(ROOT / "cluster_profiles/reference-2core.yaml"), SHORT)


def gates_of(study: session.Study) -> Gates:
    found = study.points[0].validation
    assert found is not None
    return found.gates


@pytest.fixture(scope="module")
def jobs(study: session.Study) -> list[Job]:
    return study.jobs()


def predictions(jobs: list[Job], factors: Mapping[str, float]) -> list[Predicted]:
    """With some prices multiplied. The intervals claim what is true of the synthetic world."""

    def priced(cluster: Cluster | None) -> Cluster:
        assert cluster is not None
        prices = {
            name: (price := getattr(cluster.costs, name)).model_copy(
                update={"value": price.value * factor}
            )
            for name, factor in factors.items()
        }
        return cluster.model_copy(update={"costs": cluster.costs.model_copy(update=prices)})

    cluster = priced(jobs[0].cluster)
    tasks = [Task(number, job.plan, cluster) for number, job in enumerate(jobs)]
    rows = dict(simulate_points(tasks, 1))
    assert {row["status"] for row in rows.values()} == {COMPLETE}
    made = [predicted(replace(job, cluster=cluster), rows[n]) for n, job in enumerate(jobs)]
    return [
        replace(p, interval=(p.examples_per_second * (1 - w), p.examples_per_second * (1 + w)))
        for p, w in zip(made, [1.645 * ERROR] * len(made), strict=True)
    ]


@pytest.fixture(scope="module")
def right(jobs: list[Job]) -> list[Predicted]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        return predictions(jobs, {})


def measurements(truth: list[Predicted]) -> Iterator[Measured]:
    """What a machine whose speed moves by 10 % would show if the prices were right."""
    draw = random.Random(14)
    for p in truth:
        eps = p.examples_per_second * draw.gauss(1.0, ERROR)
        for _ in range(REPEATS):
            speed = draw.gauss(1.0, 0.1)
            yield Measured(p.key, eps * speed * draw.gauss(1.0, 0.003), None, speed)


def validated(made: list[Predicted], truth: list[Predicted]) -> Fidelity:
    return fidelity(made, measurements(truth), speed_at_calibration=1.0)


def failing(found: Fidelity, gates: Gates) -> set[str]:
    return {gate.name for gate in judge(found, gates) if not gate.holds}


def test_the_grid_is_what_it_says(study: session.Study, jobs: list[Job]) -> None:
    specs = [job.loaded.experiment for job in jobs]
    assert len(jobs) >= 40
    from recsim_train.strategy.registry import strategies

    ours = {k for k, s in strategies().items() if s.__module__.startswith("recsim_train.")}
    assert {job.plan.strategy.kind for job in jobs} == ours
    assert {spec.model.kind for spec in specs} == {"dlrm", "wide_deep", "deepfm", "dcn"}
    assert {spec.roles.trainers for spec in specs} == {1, 2, 4}
    assert {spec.training.threads for spec in specs} == {1, 2}
    assert {spec.training.batch_size for spec in specs} == {128, 512, 2048}
    options = [job.plan.strategy.options for job in jobs]
    modes = {o["compression"].get("mode", "dp") for o in options if "compression" in o}
    assert modes == {"dp", "mp"}
    assert any(o.get("pooling") == "worker" for o in options)
    assert {o.get("cache", True) for o in options} == {True, False}
    stated = {
        "configurations": 40, "net_median": 0.05, "net_p90": 0.12, "raw_median": 0.08,
        "order": 0.95, "order_min_pairs": 100, "coverage_least": 0.85, "coverage_most": 0.97,
        "half_width": 0.10, "baseline_factor": 3.0,
    }  # fmt: skip
    gates = gates_of(study).model_dump(exclude={"raw_within", "raw_min_runs"})
    assert gates == pytest.approx(stated)


def test_right_prices_pass(right: list[Predicted], study: session.Study) -> None:
    found = validated(right, right)
    assert failing(found, gates_of(study)) == set()
    assert {p.regime for p in right} == {"compute", "server", "lock", "latency"}
    linear, roofline = found.baselines
    assert linear.count >= 10
    assert roofline.left_out == 0


def test_prices_that_are_all_too_low_fail(
    jobs: list[Job], right: list[Predicted], study: session.Study
) -> None:
    wrong = predictions(jobs, dict.fromkeys(Costs.model_fields, 0.7))
    failed = failing(validated(wrong, right), gates_of(study))
    assert failed >= {"net_median", "net_p90", "coverage_least", "baseline_factor"}


def test_half_the_price_of_lookups_fails(
    jobs: list[Job], right: list[Predicted], study: session.Study
) -> None:
    wrong = predictions(jobs, {"gather_row": 0.5, "gather_byte": 0.5})
    found = validated(wrong, right)
    assert "net_p90" in failing(found, gates_of(study))
    # and the table by model says where it comes from
    bags = found.grouped(lambda p: p.model)["bags"]
    others = [row for row in found.measured if row not in bags]
    assert min(row.net_error or 0.0 for row in bags) > -0.05
    errors = sorted(row.net_error or 0.0 for row in bags)
    assert errors[len(errors) // 2] > 0.12
    assert max(abs(row.net_error or 0.0) for row in others) < 0.12
