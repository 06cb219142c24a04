"""The rule by which a prediction ends early, on iterations whose interval is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.simulations import least_steps, representatives, settling
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import throughput
from recsim_train.sim.folding import Folding
from recsim_train.sim.simulated_run import Steady
from recsim_train.trace.record import Iteration, Throughput
from tests.simulated import simulate

Plans = Callable[..., Plan]


def steady(plans: Plans, trainers: int = 1, **simulation: Any) -> Steady:
    plan = plans("flat_ps", roles={"trainers": trainers}, simulation=simulation)
    return settling(plan, Folding(trainers, trainers))


def overall(counted: int, iterations: list[Iteration]) -> Throughput:
    return throughput(iterations, warmup=3, steps=counted, batch_size=64)


def uneven(steps: int) -> list[Iteration]:
    """Three steps of warm-up that take 50 s each, then steps of 1 s and of 3 s, fifty at a time."""
    found, now = [], 0.0
    for number in range(3 + steps):
        takes = 50.0 if number < 3 else (1.0, 3.0)[(number - 3) // 50 % 2]
        found.append(Iteration("trainer[0].worker[0]", number, now, now + takes))
        now += takes
    return found


def test_it_ends_when_half_the_interval_is_within_the_precision(plans: Plans) -> None:
    iterations = uneven(400)
    seen = overall(400, iterations)
    # 400 steps of 64 examples in 200 * 1 s + 200 * 3 s, the warm-up left out
    assert seen.examples_per_second == pytest.approx(64 * 400 / 800)
    assert seen.ci95 is not None
    half = (seen.ci95[1] - seen.ci95[0]) / 2 / seen.examples_per_second
    assert 0.05 < half < 0.5
    for wanted, ends in ((0.98 * half, False), (1.02 * half, True)):
        rule = steady(plans, precision=f"{100 * wanted} %", minimum_steps=100)
        assert rule(400, partial(overall, iterations=iterations)) is ends


@pytest.mark.parametrize(
    ("trainers", "least"),
    [
        (1, 120),  # minimum_steps
        (40, 25),  # 1,000 iterations of 40 loops
        (500, 16),  # never fewer
    ],
)
def test_many_loops_need_fewer_steps_of_each(plans: Plans, trainers: int, least: int) -> None:
    settings: dict[str, Any] = {
        "precision": "50 %", "minimum_steps": 120, "minimum_iterations": 1000
    }  # fmt: skip
    now = [Iteration("trainer[0].worker[0]", n, 1.0 * n, n + 1.0) for n in range(200)]
    rule = steady(plans, trainers, **settings)
    assert not rule(least - 1, partial(overall, iterations=now))
    assert rule(least, partial(overall, iterations=now))


@pytest.mark.parametrize(
    ("busy", "least"),
    [
        (10_000, 100),  # of ten loops
        (10, 25),  # of all forty
    ],
)
def test_many_loops_that_stand_for_others_count_for_them(
    plans: Plans,
    clusters: Callable[..., Cluster],
    monkeypatch: pytest.MonkeyPatch,
    busy: int,
    least: int,
) -> None:
    monkeypatch.setattr("recsim_train.evaluate.simulations.BUSY", busy)
    simulation = {"minimum_steps": 120, "minimum_iterations": 1000, "fold_above": 10}
    roles = {"trainers": 40, "embedding_servers": 1, "dense_servers": 1}
    plan = plans("flat_ps", roles=roles, simulation=simulation, training={"warmup_steps": 2})
    folding = representatives(Case.of(plan, clusters()))
    assert folding.simulated == 10
    assert least_steps(plan, folding) == least


def test_no_precision_runs_every_step(plans: Plans) -> None:
    now = [Iteration("trainer[0].worker[0]", n, 1.0 * n, n + 1.0) for n in range(500)]
    rule = steady(plans, precision="0 %")
    assert not rule(400, partial(overall, iterations=now))


def test_a_prediction_of_every_step_leaves_the_warm_up_out(
    plans: Plans, clusters: Callable[..., Cluster]
) -> None:
    training = {"steps": 20, "warmup_steps": 5, "batch_size": 64}
    plan = plans("flat_ps", training=training, simulation={"precision": "0 %", "what_if_steps": 0})
    outcome = simulate(plan, clusters(jitter=0.3))
    assert outcome.speed is not None
    begins, ends = zip(*((i.start, i.end) for i in outcome.iterations), strict=True)
    assert len(ends) == 25
    took = max(ends) - sorted(begins)[5]
    assert outcome.speed.examples_per_second == pytest.approx(64 * 20 / took, rel=1e-9)


def test_no_early_end_counts_a_slow_loop_alone(
    plans: Plans, clusters: Callable[..., Cluster]
) -> None:
    """Two fast trainers do all steps before a slow one has done its warm-up: what it does then is
    not the job's throughput."""
    slow = {"slow": [{"hosts": ["trainer[2]"], "factor": 30.0}]}
    found = []
    for precision in ("50 %", "0 %"):
        plan = plans(
            "shadowsync",
            roles={"trainers": 3, "embedding_servers": 1, "dense_servers": 1},
            training={"steps": 24, "warmup_steps": 8, "batch_size": 64},
            simulation={
                "precision": precision,
                "minimum_steps": 16,
                "minimum_iterations": 48,
                "what_if_steps": 0,
            },
        )
        outcome = simulate(plan, clusters(jitter=0.0, stragglers=slow))
        assert outcome.speed is not None
        found.append(outcome.speed.examples_per_second)
    assert found[0] == pytest.approx(found[1], rel=0.05)
