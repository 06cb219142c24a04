"""The shipped gates fail where prices are wrong. The truth is the simulator's own, with noise.

With unit prices, judged by functions; and with every operation measured at its own shape, as
`calibrate --for` leaves them, by the command, which finds the same recorded runs each time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recsim_train import calls
from recsim_train.cli.main import app
from recsim_train.config.cluster import Cluster, Costs
from recsim_train.config.dump import dump_cluster
from recsim_train.config.experiment import Gates
from recsim_train.config.measured import MeasuredOperation
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import evaluate
from recsim_train.evaluate.levels import FINAL
from recsim_train.results.row import COMPLETE
from recsim_train.session.job import Job
from recsim_train.validation import making as validation
from recsim_train.validation.configurations import Measured, Predicted, key_of, predicted
from recsim_train.validation.fidelity import Fidelity, fidelity, judge
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.signature import signature
from tests.simulated import operations_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SHORT = ["simulation.what_if_steps=0", "training.steps=30", "training.warmup_steps=2"]
ERROR, REPEATS = 0.015, 3
"""Of the synthetic truth: standard deviation of what the model leaves out."""


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def study() -> calls.Study:
    path = ROOT / "experiments" / "fidelity.yaml"
    return calls.load(path, str(ROOT / "tests/frozen-2core.yaml"), SHORT)


def gates_of(study: calls.Study) -> Gates:
    found = study.points[0].validation
    assert found is not None
    return found.gates


READING = {"synthesize_row": 0.05, "synthesize_id": 0.02, "feed_batch": 0.1}
"""Times so much: rows that cost next to nothing to make, so that lookups count."""


@pytest.fixture(scope="module")
def jobs(study: calls.Study) -> list[Job]:
    found = study.jobs()
    cluster = found[0].cluster
    assert cluster is not None
    return [replace(job, cluster=priced(cluster, READING)) for job in found]


def priced(
    cluster: Cluster, factors: Mapping[str, float], operations: Mapping[str, float] | None = None
) -> Cluster:
    """With some prices, and what some operations were measured to take, multiplied."""
    prices = {
        name: (price := getattr(cluster.costs, name)).model_copy(
            update={"value": price.value * factor}
        )
        for name, factor in factors.items()
    }
    times = operations or {}
    entries = [e.times(times.get(e.operation, 1.0)) for e in cluster.operations or ()]
    costs = cluster.costs.model_copy(update=prices)
    return cluster.model_copy(update={"costs": costs, "operations": tuple(entries) or None})


def claiming(made: Predicted) -> Predicted:
    """With an interval that claims what is true of the synthetic world."""
    eps, half = made.examples_per_second, 1.645 * ERROR
    interval = eps * (1 - half), eps * (1 + half)
    return replace(made, interval=interval)


def predictions(jobs: list[Job], factors: Mapping[str, float]) -> list[Predicted]:
    """With some prices multiplied."""
    assert jobs[0].cluster is not None
    return predictions_with(jobs, priced(jobs[0].cluster, factors))


def predictions_with(jobs: list[Job], cluster: Cluster) -> list[Predicted]:
    cases = [Case.of(job.plan, cluster) for job in jobs]
    rows = dict(evaluate(cases, FINAL))
    assert {row.status for row in rows.values()} == {COMPLETE}
    made = (predicted(replace(job, cluster=cluster), rows[n]) for n, job in enumerate(jobs))
    return list(map(claiming, made))


@pytest.fixture(scope="module")
def right(jobs: list[Job]) -> list[Predicted]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        return predictions(jobs, {})


def measurements(truth: list[Predicted]) -> Iterator[Measured]:
    """What a machine would show if the prices were right."""
    draw = random.Random(14)
    for p in truth:
        eps = p.examples_per_second * draw.gauss(1.0, ERROR)
        for _ in range(REPEATS):
            yield Measured(p.key, eps * draw.gauss(1.0, 0.003))


def validated(made: list[Predicted], truth: list[Predicted]) -> Fidelity:
    return fidelity(made, measurements(truth), REPEATS)


def failing(found: Fidelity, gates: Gates) -> set[str]:
    return {gate.name for gate in judge(found, gates) if not gate.holds}


def test_the_grid_is_what_it_says(study: calls.Study, jobs: list[Job]) -> None:
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
        "configurations": 40, "raw_median": 0.08, "raw_p90": 0.16, "order": 0.96,
        "order_min_pairs": 100, "coverage_least": 0.85, "coverage_most": 0.97,
        "half_width": 0.10, "baseline_factor": 3.0,
    }  # fmt: skip
    gates = gates_of(study).model_dump()
    assert gates == pytest.approx(stated)


@pytest.mark.thorough  # the command's own test has the same, with measured operations
def test_right_prices_pass(right: list[Predicted], study: calls.Study) -> None:
    found = validated(right, right)
    assert failing(found, gates_of(study)) == set()
    assert len({p.regime for p in right}) >= 3
    linear, roofline = found.baselines
    assert linear.count >= 10
    assert roofline.left_out == 0


@pytest.mark.thorough  # the command's own test has the same, with measured operations
def test_prices_that_are_all_too_low_fail(
    jobs: list[Job], right: list[Predicted], study: calls.Study
) -> None:
    wrong = predictions(jobs, dict.fromkeys(Costs.model_fields, 0.7))
    failed = failing(validated(wrong, right), gates_of(study))
    assert failed >= {"raw_median", "raw_p90", "coverage_least", "baseline_factor"}


@pytest.mark.thorough  # the command's own test has the same, with measured operations
def test_half_the_price_of_lookups_fails(
    jobs: list[Job], right: list[Predicted], study: calls.Study
) -> None:
    wrong = predictions(jobs, {"gather_row": 0.5, "gather_byte": 0.5})
    found = validated(wrong, right)
    assert "coverage_least" in failing(found, gates_of(study))
    # and the table by model says where it comes from
    bags = found.grouped(lambda p: p.model)["bags"]
    assert min(row.raw_error or 0.0 for row in bags) > -0.05
    errors = sorted(row.raw_error or 0.0 for row in bags)
    assert errors[len(errors) // 2] > 0.12
    moved = {
        p.key: p.examples_per_second / one.examples_per_second - 1
        for p, one in zip(wrong, right, strict=True)
        if p.model != "bags"
    }
    assert max(map(abs, moved.values())) < 0.12


# ---------------------------------------------------------------- operations at their own shapes

LOOKUPS = ("lookup_pooled", "lookup_rows")


@pytest.fixture(scope="module")
def measured(jobs: list[Job]) -> Cluster:
    """The profile with every operation of every configuration measured: none takes what unit
    prices say, so that these do not decide."""
    cluster = jobs[0].cluster
    assert cluster is not None
    prices = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    draw = random.Random(5)
    entries: dict[tuple[str, str], MeasuredOperation] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        for job in jobs:
            for name, scope in operations_of(job.plan, cluster):
                key = name, str(signature(name, scope))
                work = cost(name, scope)
                took = seconds(work, prices)[0] * draw.uniform(1.0, 1.4)
                if key not in entries and took > 0.0:
                    entries[key] = MeasuredOperation.model_construct(
                        operation=name, shape=key[1], seconds=took, alone=took,
                        uncertainty=0.02, work={k: float(v) for k, v in work.items() if v},
                    )  # fmt: skip
    assert {name for name, _ in entries} >= set(LOOKUPS)
    return cluster.model_copy(update={"operations": tuple(entries.values())})


@pytest.fixture(scope="module")
def recorded(jobs: list[Job], measured: Cluster) -> dict[str, list[Measured]]:
    """Runs by configuration, in a world where the measured profile is right."""
    found: dict[str, list[Measured]] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        for run in measurements(predictions_with(jobs, measured)):
            found.setdefault(run.key, []).append(run)
    return found


@pytest.mark.parametrize(
    ("prices", "operations", "failing", "code"),
    [
        pytest.param(1.0, {}, set(), 0, id="unchanged"),
        pytest.param(
            0.7, None, {"raw_median", "raw_p90", "coverage_least", "baseline_factor"}, 3,
            id="all times 0.7", marks=pytest.mark.thorough,
        ),
        pytest.param(1.0, dict.fromkeys(LOOKUPS, 0.25), {"coverage_least"}, 3, id="lookups 0.25"),
    ],
)  # fmt: skip
def test_the_command_fails_where_what_was_measured_is_wrong(
    prices: float,
    operations: dict[str, float] | None,
    failing: set[str],
    code: int,
    measured: Cluster,
    recorded: dict[str, list[Measured]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same recorded runs each time: only the profile differs. ``operations``: None: all."""
    if operations is None:
        operations = {e.operation: prices for e in measured.operations or ()}
    everything = dict.fromkeys(Costs.model_fields, prices)
    gather = operations.get("lookup_pooled", 1.0) if prices == 1.0 else prices
    factors = everything | {"gather_row": gather, "gather_byte": gather}
    profile = tmp_path / "profile.yaml"
    profile.write_text(dump_cluster(priced(measured, factors, operations)))
    left = {key: iter(runs) for key, runs in recorded.items()}

    def replayed(job: Job, kept: Path | None, keep: Any) -> dict[str, Any]:
        run = next(left[key_of(job)])
        return {
            "status": COMPLETE, "examples_per_second": run.examples_per_second, "interval": None,
            "seconds": 1.0, "speeds": None, "others_cores": 0.0, "run_id": None,
        }  # fmt: skip

    monkeypatch.setattr(validation, "_measured", replayed)
    monkeypatch.setattr(validation, "predicted", lambda *given: claiming(predicted(*given)))
    monkeypatch.setattr("recsim_train.executor.process.forkserver.ready", lambda: None)
    words = [word for setting in SHORT for word in ("--set", setting)]
    done = CliRunner().invoke(
        app,
        [
            "validate", "experiments/fidelity.yaml", "--cluster", str(profile), *words,
            "--out", str(tmp_path), "--repeats", str(REPEATS), "--jobs", "1", "--json",
        ],
    )  # fmt: skip
    assert done.exit_code == code, done.output
    result = json.loads((tmp_path / "fidelity-validation" / "validation.json").read_text())
    failed = {gate["name"] for gate in result["gates"] if gate["verdict"] != "pass"}
    assert failed >= failing
    assert bool(failed) == bool(code)
    assert all(row["repeats"] == REPEATS for row in result["rows"])
    if operations and prices == 1.0:
        bags = [row["raw_error"] for row in result["rows"] if row["model"] == "bags"]
        assert sorted(bags)[len(bags) // 2] > 0.12
