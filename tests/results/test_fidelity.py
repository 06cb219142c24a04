"""Figures of a validation against other ways to work them out."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

from recsim_train.results.configurations import Measured, Predicted, Row, regime
from recsim_train.results.drift import net_error
from recsim_train.results.fidelity import Fidelity, cpu_lines, errors_of, fidelity
from recsim_train.results.statistics import quantile


def predicted(number: int, eps: float, **changes: object) -> Predicted:
    made = Predicted(
        key=f"key{number}", setting=f"setting{number}", label=f"configuration {number}",
        strategy="flat_ps", model="tiny", trainers=1, threads=1, batch_size=128,
        examples_per_second=eps, interval=(0.9 * eps, 1.1 * eps), bound=1.1 * eps,
        roofline=1.5 * eps, bottleneck="cores of the machine",
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def world(many: int, seed: int, *, error: float = 0.05, repeats: int = 3) -> Fidelity:
    """Random predictions, and measurements of a machine whose speed moves."""
    draw = random.Random(seed)
    predictions = [predicted(n, draw.uniform(5e3, 5e4)) for n in range(many)]
    runs = []
    for p in predictions:
        truth = p.examples_per_second * draw.gauss(1.0, error)
        for _ in range(repeats):
            speed = draw.uniform(0.8, 1.2)
            eps = truth * speed * draw.gauss(1.0, 0.004)
            runs.append(Measured(p.key, eps, (0.99 * eps, 1.01 * eps), speed * 3.0))
    return fidelity(predictions, runs, speed_at_calibration=3.0)


def test_errors_are_those_of_numpy() -> None:
    found = world(57, 1)
    raw = np.array([
        row.predicted.examples_per_second
        / np.median([run.examples_per_second for run in row.runs])
        - 1
        for row in found.rows
    ])  # fmt: skip
    assert found.raw is not None
    assert found.raw.count == 57
    assert found.raw.median == pytest.approx(np.median(np.abs(raw)))
    assert found.raw.median_signed == pytest.approx(np.median(raw))
    nine_in_ten = np.quantile(np.abs(raw), 0.9, method="inverted_cdf")
    assert found.raw.p90 == pytest.approx(nine_in_ten)
    assert found.raw.largest == pytest.approx(np.abs(raw).max())
    assert found.net is not None
    assert found.net.median < found.raw.median


@pytest.mark.parametrize("many", [1, 2, 9, 10, 11, 100])
def test_quantiles_are_values_that_occur(many: int) -> None:
    values = [random.Random(many).random() for _ in range(many)]
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        found = quantile(values, share)
        assert found == pytest.approx(np.quantile(values, share, method="inverted_cdf"))
        assert sum(value <= found for value in values) >= share * many
    with pytest.raises(ValueError, match="quantile of nothing"):
        quantile([], 0.5)


def test_net_errors_do_not_see_how_fast_the_machine_was() -> None:
    p, run = predicted(0, 100.0), Measured("key0", 80.0, None, 1.5)
    for factor in (0.5, 1.0, 1.3):
        moved = replace(run, examples_per_second=80.0 * factor, speed=1.5 * factor)
        row = Row(p, (moved,), 2.0)
        assert row.net_error == pytest.approx(net_error(100.0, 80.0, 1.5, 2.0))
        assert row.net_error == pytest.approx(100 / 80 * 1.5 / 2 - 1)
        assert row.raw_error == pytest.approx(100 / (80 * factor) - 1)
    for unknown in (Row(p, (replace(run, speed=None),), 2.0), Row(p, (run,), None)):
        assert unknown.net is None
        assert unknown.net_error is None
        assert unknown.error == unknown.raw_error
    mixed = Row(p, (run, replace(run, speed=None)), 2.0)
    assert mixed.net is None  # of some repeats only: nothing is left out quietly


def test_order_counts_pairs_as_scipy_does() -> None:
    draw = random.Random(4)
    speeds = [draw.uniform(1e3, 1e5) for _ in range(40)]
    guesses = [speed * draw.uniform(0.3, 3.0) for speed in speeds]
    runs = [Measured(f"key{n}", speed, (speed, speed)) for n, speed in enumerate(speeds)]
    found = fidelity([predicted(n, g) for n, g in enumerate(guesses)], runs).order
    assert found.pairs == 40 * 39 // 2
    assert found.within == 0
    tau = kendalltau(guesses, speeds).statistic
    assert (2 * found.right - found.pairs) / found.pairs == pytest.approx(tau)


def test_pairs_within_the_noise_do_not_count() -> None:
    found = world(30, 7, error=0.3)
    noises = {row.predicted.key: row.noise or 0.0 for row in found.rows}
    usual = float(np.median(list(noises.values())))
    pairs = right = 0
    for a, b in itertools.combinations(found.rows, 2):
        x, y = a.measured or 0.0, b.measured or 0.0
        apart = max(noises[a.predicted.key], usual) * x + max(noises[b.predicted.key], usual) * y
        if abs(x - y) > apart:
            pairs += 1
            guess = a.predicted.examples_per_second > b.predicted.examples_per_second
            right += guess == (x > y)
    assert 0 < pairs < 30 * 29 // 2
    assert (found.order.pairs, found.order.right) == (pairs, right)
    assert found.order.pairs + found.order.within == 30 * 29 // 2


def test_pairs_whose_noise_is_unknown_and_ties_of_predictions() -> None:
    runs = [Measured("key0", 100.0), Measured("key1", 200.0)]
    assert fidelity([predicted(0, 1.0), predicted(1, 2.0)], runs).order.pairs == 0
    sharp = [replace(run, interval=(run.examples_per_second,) * 2) for run in runs]
    tied = fidelity([predicted(0, 2.0), predicted(1, 2.0)], sharp).order
    assert (tied.pairs, tied.right) == (1, 0)


def test_repeats_spread_and_a_single_run_has_its_own_interval() -> None:
    p = predicted(0, 100.0)
    several = Row(p, tuple(Measured("key0", eps) for eps in (90.0, 100.0, 104.0)), None)
    assert (several.raw, several.spread) == (100.0, pytest.approx(0.07))
    alone = Row(p, (Measured("key0", 100.0, (95.0, 105.0)),), None)
    assert alone.spread == pytest.approx(0.05)
    assert Row(p, (Measured("key0", 100.0),), None).spread is None


def test_intervals_are_held_to_what_was_measured() -> None:
    runs = [Measured(f"key{n}", eps) for n, eps in enumerate((100.0, 111.0, 89.0, 95.0))]
    found = fidelity([predicted(n, 100.0) for n in range(5)], runs)
    assert found.coverage == (2, 4)
    assert found.half_width == pytest.approx(0.1)
    none = fidelity([predicted(0, 100.0, interval=None)], runs)
    assert none.coverage == (0, 0)
    assert none.half_width is None


@pytest.mark.parametrize(("speed", "held", "width"), [(None, 1, 0.1), (1.0, 0, 0.02)])
def test_the_machines_speed_is_no_excuse_where_it_is_known(
    speed: float | None, held: int, width: float
) -> None:
    runs = [Measured("key0", 105.0, None, speed)]
    found = fidelity(
        [predicted(0, 100.0, net_interval=(98.0, 102.0))], runs, speed_at_calibration=1.0
    )
    assert found.coverage == (held, 1)
    assert found.half_width == pytest.approx(width)


def test_naive_baselines_are_worked_out_by_hand() -> None:
    predictions = [
        predicted(0, 100.0, setting="a"),
        predicted(1, 150.0, setting="a", trainers=2, roofline=180.0),
        predicted(2, 180.0, setting="a", trainers=4, roofline=None),
        predicted(3, 90.0, setting="b", trainers=2, roofline=100.0),
    ]
    runs = [Measured(f"key{n}", eps) for n, eps in enumerate((110.0, 160.0, 150.0, 100.0))]
    linear, roofline = fidelity(predictions, runs).baselines
    assert linear.errors == pytest.approx((220 / 160 - 1, 440 / 150 - 1))
    assert (linear.count, linear.left_out) == (2, 1)
    assert linear.ours == pytest.approx(np.median([1 - 150 / 160, 180 / 150 - 1]))
    assert roofline.errors == pytest.approx((150 / 110 - 1, 180 / 160 - 1, 0.0))
    assert roofline.left_out == 1
    assert roofline.ratio == pytest.approx((180 / 160 - 1) / np.median([1 / 11, 1 / 16, 0.1]))


def test_what_was_not_measured_is_shown_and_what_was_not_predicted_is_not() -> None:
    found = fidelity([predicted(0, 1.0), predicted(1, 1.0)], [Measured("key1", 2.0)] * 2)
    assert len(found.rows) == 2
    assert [len(row.runs) for row in found.rows] == [0, 2]
    assert found.rows[0].raw is None
    assert fidelity([], [Measured("key1", 2.0)]).rows == ()
    assert errors_of([None, None]) is None


def test_runs_near_calibration_are_those_beside_which_the_machine_was_as_fast() -> None:
    runs = [Measured("key0", 50.0, None, speed) for speed in (1.0, 1.04, 0.94, None)]
    found = fidelity([predicted(0, 100.0)], runs, speed_at_calibration=1.0)
    assert found.near_calibration(0.05) == [1.0, 1.0]
    assert fidelity([predicted(0, 100.0)], runs).near_calibration(0.05) == []


@pytest.mark.parametrize(
    ("bottleneck", "expected"),
    [
        ("cores of the machine", "compute"),
        ("computation in each training loop (70% of an iteration): no resource ...", "compute"),
        ("computation in loops and servers (50% of an iteration): ...", "compute"),
        ("interpreter lock of trainer[1]", "lock"),
        ("interpreter lock of embedding_server[0]", "server"),
        ("cores of dense_server[0]", "server"),
        ("NIC send of dense_server[0]", "server"),
        (
            "queueing for what others use (40% of an iteration): no resource is saturated; the "
            "busiest, cores of the machine, is 80% busy",
            "server",
        ),
        ("latency (61% of an iteration): ... interpreter lock of trainer[0]", "latency"),
        ("waiting for other loops (40% of an iteration): no resource is saturated", "latency"),
        ("bytes on their way (40% of an iteration): ... embedding_server[0]", "latency"),
        ("waiting for readers (80% of an iteration): ...", "latency"),
    ],
)  # fmt: skip
def test_regimes_follow_what_binds(bottleneck: str, expected: str) -> None:
    assert regime(bottleneck) == expected


def test_lines_of_both_ledgers_are_shares_of_what_was_measured() -> None:
    predictions = [
        predicted(1, 1e4, cpu={"trainer.pass": 40e-6, "server.lookup": 10e-6}),
        predicted(2, 1e4, cpu={"trainer.pass": 30e-6, "trainer.apply": 2e-6}),
        predicted(3, 1e4),
    ]
    runs = [
        Measured("key1", 1e4, cpu={"trainer.pass": 60e-6, "server.lookup": 20e-6}),
        Measured("key1", 1e4, cpu={"trainer.pass": 80e-6, "server.lookup": 20e-6}),
        Measured("key1", 1e4, cpu={"trainer.pass": 90e-6, "server.lookup": 20e-6}),
        Measured("key2", 1e4, cpu={"trainer.pass": 32e-6, "reader.reading": 8e-6}),
        Measured("key3", 1e4, cpu={"trainer.pass": 32e-6}),  # its prediction has none
    ]
    lines = {line.name: line for line in cpu_lines(fidelity(predictions, runs).measured)}
    assert lines["trainer.pass"].predicted == pytest.approx((40 / 100 + 30 / 40) / 2)
    assert lines["trainer.pass"].measured == pytest.approx((80 / 100 + 32 / 40) / 2)
    assert (lines["trainer.pass"].counts, lines["trainer.pass"].off) == (2, 1)
    assert lines["trainer.pass"].misplaced == pytest.approx((40 / 100 + 2 / 40) / 2)
    assert lines["trainer.pass"].worst == "configuration 1"
    assert lines["trainer.apply"].ratio is None
    assert lines["trainer.apply"].off == 1
    assert lines["reader.reading"].predicted == 0.0
    assert [line.name for line in cpu_lines(fidelity(predictions, runs).measured)][:2] == [
        "trainer.pass",
        "reader.reading",
    ]
    assert cpu_lines(fidelity(predictions[2:], runs).measured) == []
