"""Calibration's own program: what it counts is what the two worlds do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recsim_train.calibration import programs, runs
from recsim_train.calibration.own_runs import OwnRun, Predict, Said, own_error
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.strategy.registry import strategies
from recsim_train.trace.record import Outcome, Total, TotalKey
from tests.conformance.test_worlds_agree import PROFILE
from tests.simulated import simulate

STEPS = 6


ASKED = {
    # of an iteration: effects, those that ask, requests by who serves them, messages
    "dense": (6, 3, {"dense_server": 2, "embedding_server": 1}, 5),
    "embedding": (4, 2, {"embedding_server": 2}, 3),
}


@pytest.mark.parametrize("planned", runs.TALKS[:2], ids=["dense", "embedding"])
@pytest.mark.parametrize("way", runs.WAYS, ids=["shared", "apart", "reader"])
def test_it_counts_what_both_worlds_do(
    planned: runs.PlannedRun,
    way: Callable[[runs.PlannedRun], runs.PlannedRun],
    tmp_path: Path,
) -> None:
    planned = way(planned._replace(steps=STEPS, batch=32))
    run = runs.experiment(planned, 2, tmp_path)
    run = run.model_copy(update={"training": run.training.model_copy(update={"warmup_steps": 1})})
    with programs.known():
        plan = build_plan(run, run.strategies[0])
        real = execute(plan, staging=tmp_path)
        predicted = simulate(plan, load_cluster(PROFILE, None))
    iterations = STEPS * 2
    effects, asks_servers, served, messages = ASKED[planned.asks]
    vectors = 4 * 32 * len(run.model.tables) * run.model.embedding_dim
    shares = run.execution.shared_memory
    for outcome in (real, predicted):
        found = programs._counts(outcome.totals)
        assert found[:2] == (effects * iterations, asks_servers * iterations)
        assert found[2] == {role: count * iterations for role, count in served.items()}
        moved = programs._moved(outcome.totals, shares=shares)
        assert moved["message"] == 2 * messages * iterations
        assert (moved["gloo_message"] > 0) == (run.roles.readers > 0)
        # copied by who sends them, or handled at both ends
        kind, times = ("shared_byte", 1) if shares else ("wire_byte", 2)
        assert moved[kind] >= times * vectors * iterations
    both = (programs._moved(outcome.totals, shares=shares) for outcome in (real, predicted))
    assert next(both) == next(both)
    assert "talk" not in strategies()


def test_bytes_are_counted_at_both_ends_or_by_copies() -> None:
    def total(instance: str, effect: str, service: str, size: int) -> tuple[TotalKey, Total]:
        return TotalKey(instance, "talker[0]", effect, service), Total(2, 1.0, 2 * size)

    outcome = Outcome(
        [],
        dict(
            [
                total("trainer[0]", "lookup", "embedding", 100),
                total("embedding_server[0]", "serve_lookup", "embedding", 1 << 20),
                total("trainer[0]", "pull", "dense", 0),
                total("dense_server[0]", "serve_pull", "dense", 1 << 20),
                total("trainer[0]", "push", "dense", 3 << 20),
                total("dense_server[0]", "serve_push", "dense", 0),
                total("trainer[0]", "compute", "load", 0),
                total("reader[0]", "serve_next_batch", "reader", 50),
            ]
        ),
        [],
        0,
        2,
    )
    batches = {"message": 20, "gloo_message": pytest.approx(14.4)}
    apart = programs._moved(outcome.totals, shares=False)
    assert apart == {**batches, "wire_byte": 4 * (150 + (5 << 20)), "shared_byte": 0}
    shared = programs._moved(outcome.totals, shares=True)
    assert shared == {**batches, "wire_byte": 4 * 150, "shared_byte": 4 << 20}
    assert programs._counts(outcome.totals) == (8, 6, {"embedding_server": 2, "dense_server": 4})


def own_run(number: int) -> OwnRun:
    return OwnRun(number, 1000.0, None)  # type: ignore[arg-type]


def beyond(runs: list[OwnRun], predict: Predict) -> float:
    missed = own_error(runs, None, predict)  # type: ignore[arg-type]
    assert missed is not None
    return missed.beyond


def test_one_run_that_was_disturbed_does_not_decide() -> None:
    """Eleven miss by 5 %, one by 80 %: alike weighted that would be 24 %."""
    misses = [0.05, -0.05] * 5 + [0.05, math.log(1.8)]
    found = beyond(
        [own_run(number) for number in range(12)],
        lambda own, cluster: Said(1000.0 * math.exp(misses[own.plan]), 0.0, 1.0),  # type: ignore[index]
    )
    assert 0.04 < found < 0.08


def test_what_own_runs_miss_beyond_what_is_claimed() -> None:
    """Planted: errors of 10 % that are claimed, and of 20 % that nobody knows of."""
    draw = random.Random(2)
    claimed, unknown = 0.1, 0.2

    def missed(more: float) -> float:
        return beyond(
            [own_run(number) for number in range(400)],
            lambda own, cluster: Said(
                1000.0 * math.exp(draw.gauss(0.0, claimed) + draw.gauss(0.0, more)),
                claimed,
                1.0,
            ),
        )

    assert missed(unknown) == pytest.approx(unknown, rel=0.1)
    assert missed(0.0) < 0.05
    assert own_error([], None, lambda *_: Said(1.0, 0.0, 1.0)) is None  # type: ignore[arg-type]
    # those of which much is claimed weigh little
    half = beyond(
        [own_run(number) for number in range(400)],
        lambda own, _: Said(
            1000.0 * math.exp(0.3 if own.plan % 2 else 0.1),  # type: ignore[operator]
            0.3 * (own.plan % 2),  # type: ignore[operator]
            1.0,
        ),
    )
    assert half == pytest.approx(0.1, rel=0.02)
    # all too fast alike: a bias is an error, too
    always = [own_run(0)] * 4
    assert beyond(always, lambda *_: Said(1300.0, 0.0, 1.0)) == pytest.approx(math.log(1.3))


def test_what_is_missed_grows_with_the_share_of_what_is_no_operation() -> None:
    """Planted: calls cost 30 % more or less than prices say, in runs that spend 3 to 60 % on them;
    each claims errors of 2 %."""
    draw = random.Random(4)

    def predict(own: OwnRun, _: object) -> Said:
        share = (0.03, 0.1, 0.3, 0.6)[own.plan % 4]  # type: ignore[operator]
        missed = draw.gauss(0.0, 0.3) * share + draw.gauss(0.0, 0.02)
        return Said(1000.0 * math.exp(missed), 0.02, share)

    assert beyond([own_run(number) for number in range(400)], predict) == pytest.approx(
        0.3, rel=0.1
    )


@pytest.mark.parametrize("true", [0.0, 0.1])
def test_runs_that_hardly_call_anything_hide_nothing(true: float) -> None:
    """Planted: errors of 2 % that are claimed in all, which are large beside what 10 % more for
    calls make of runs that spend 3 % on them; a tenth of the others was disturbed by 30 %."""
    draw = random.Random(6)

    def predict(own: OwnRun, _: object) -> Said:
        share = (0.03, 0.03, 0.5, 0.5)[own.plan % 4]  # type: ignore[operator]
        missed = draw.gauss(0.0, true) * share + draw.gauss(0.0, 0.02)
        missed += 0.3 * (own.plan % 20 == 2)  # type: ignore[operator]
        return Said(1000.0 * math.exp(missed), 0.02, share)

    found = beyond([own_run(number) for number in range(800)], predict)
    assert found == pytest.approx(true, abs=0.04)


def test_a_run_that_was_disturbed_counts_as_two_deviations_and_is_told() -> None:
    steady, stalled = own_run(0), replace(own_run(1), examples_per_second=100.0)

    def predict(own: OwnRun, _: object) -> Said:
        return Said(1000.0 * math.exp(0.1 if own is steady else 0.0), 0.03, 0.5)

    runs = [steady] * 11 + [stalled]
    # v = (11 x 0.1^2 + 4 v) / 12 is all variance, of which 0.03^2 are claimed
    assert beyond(runs, predict) == pytest.approx(math.sqrt(0.11 / 8 - 0.03**2) / 0.5)
    told = own_error(runs, None, predict)  # type: ignore[arg-type]
    assert str(told) == "median error 11%, largest 900%, of 12 runs"
