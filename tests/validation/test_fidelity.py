"""Figures of a validation against other ways to work them out."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.results.statistics import quantile
from recsim_train.trace.binding import Binding
from recsim_train.validation.configurations import (
    Configuration,
    Measured,
    Predicted,
    regime,
    row_document,
)
from recsim_train.validation.fidelity import Fidelity, cpu_lines, document, errors_of, fidelity
from recsim_train.validation.page import errors_table, row_table


def predicted(number: int, eps: float, **changes: object) -> Predicted:
    made = Predicted(
        key=f"key{number}", setting=f"setting{number}", label=f"configuration {number}",
        strategy="flat_ps", model="tiny", trainers=1, threads=1, batch_size=128,
        examples_per_second=eps, interval=(0.9 * eps, 1.1 * eps), bound=1.1 * eps,
        roofline=1.5 * eps, bottleneck="cores of the machine", regime="compute",
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def world(many: int, seed: int, *, error: float = 0.05, repeats: int = 3) -> Fidelity:
    """Random predictions, and measurements that scatter around them."""
    draw = random.Random(seed)
    predictions = [predicted(n, draw.uniform(5e3, 5e4)) for n in range(many)]
    runs = []
    for p in predictions:
        truth = p.examples_per_second * draw.gauss(1.0, error)
        for _ in range(repeats):
            eps = truth * draw.gauss(1.0, 0.02)
            runs.append(Measured(p.key, eps, (0.99 * eps, 1.01 * eps)))
    return fidelity(predictions, runs, repeats)


def test_errors_are_those_of_numpy() -> None:
    found = world(57, 1)
    raw = np.array([
        row.predicted.examples_per_second / run.examples_per_second - 1
        for row in found.rows for run in row.runs
    ])  # fmt: skip
    assert found.raw is not None
    assert found.raw.count == 3 * 57  # of single runs: no median hides one that is far off
    assert found.raw.median == pytest.approx(np.median(np.abs(raw)))
    assert found.raw.median_signed == pytest.approx(np.median(raw))
    nine_in_ten = np.quantile(np.abs(raw), 0.9, method="inverted_cdf")
    assert found.raw.p90 == pytest.approx(nine_in_ten)
    assert found.raw.largest == pytest.approx(np.abs(raw).max())
    row = found.rows[0]
    middle = np.median([run.examples_per_second for run in row.runs])
    assert row.raw_error == pytest.approx(row.predicted.examples_per_second / middle - 1)


def test_errors_are_told_with_the_runs_that_do_not_count_and_beside_the_bounds() -> None:
    """By hand: runs that count are 0, 25 and -20 % off, all of them 0, 25, -20, 100 and 300 %; the
    bounds of what counts 10, 50 % and, of an older folder, nothing."""
    made = [
        predicted(1, 100.0, bound=110.0), predicted(2, 100.0, bound=120.0),
        predicted(3, 100.0, bound=None), predicted(4, 100.0, strategy="des"),
    ]  # fmt: skip
    runs = [Measured("key1", 100.0), Measured("key2", 80.0), Measured("key3", 125.0)]
    dropped = [Measured("key1", 50.0), Measured("key4", 25.0)]
    found = fidelity(made, runs, 2, dropped=dropped)
    said = document(found)
    assert said["configurations"] == {"predicted": 4, "measured": 3}
    assert [said["raw"].count, said["raw"].median] == [3, pytest.approx(0.2)]
    every = said["with_dropped"]
    assert (every.count, every.median, every.largest) == (5, pytest.approx(0.25), 3.0)
    assert said["bound"].count == 2
    assert said["bound"].largest == pytest.approx(0.5)
    of = said["by"]["strategy"]
    assert of["des"]["raw"] is None
    assert of["des"]["with_dropped"].largest == 3.0
    assert of["flat_ps"]["with_dropped"].largest == 1.0
    first, *_ = found.rows
    assert first.raw_error == 0.0
    line = row_document(first)
    assert line["error_with_dropped"] == pytest.approx(1 / 3)  # over the median of 100 and 50
    assert line["bound_error"] == pytest.approx(0.1)
    assert row_document(found.rows[2])["bound_error"] is None
    table = errors_table(found)
    all_of_it = {column.name: column.cells[0] for column in table.columns}
    assert all_of_it["configurations"] == "3"
    assert (all_of_it["runs"], all_of_it["all runs"]) == ("3", "5")
    assert (all_of_it["median absolute"], all_of_it["median of all"]) == ("20.0 %", "25.0 %")
    assert (all_of_it["nine in ten within"], all_of_it["nine in ten of all"]) == (
        "25.0 %", "300 %",
    )  # fmt: skip
    assert (all_of_it["the bound's median"], all_of_it["its nine in ten"]) == ("30.0 %", "50.0 %")
    nothing = errors_table(fidelity(made, runs, 2))
    assert "all runs" not in [column.name for column in nothing.columns]


@pytest.mark.parametrize("many", [1, 2, 9, 10, 11, 100])
def test_quantiles_are_values_that_occur(many: int) -> None:
    values = [random.Random(many).random() for _ in range(many)]
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        found = quantile(values, share)
        assert found == pytest.approx(np.quantile(values, share, method="inverted_cdf"))
        assert sum(value <= found for value in values) >= share * many
    with pytest.raises(ValueError, match="quantile of nothing"):
        quantile([], 0.5)


def test_order_counts_pairs_as_scipy_does() -> None:
    draw = random.Random(4)
    speeds = [draw.uniform(1e3, 1e5) for _ in range(40)]
    guesses = [speed * draw.uniform(0.3, 3.0) for speed in speeds]
    runs = [Measured(f"key{n}", speed, (speed, speed)) for n, speed in enumerate(speeds)]
    found = fidelity([predicted(n, g) for n, g in enumerate(guesses)], runs, 1).order
    assert found.pairs == 40 * 39 // 2
    assert found.within == 0
    tau = kendalltau(guesses, speeds).statistic
    assert (2 * found.right - found.pairs) / found.pairs == pytest.approx(tau)


def order_of(*configurations: tuple[float, tuple[float, ...]]) -> tuple[int, int, int]:
    """(pairs, right, within) of (prediction, repeats)."""
    predictions = [predicted(n, eps) for n, (eps, _) in enumerate(configurations)]
    runs = [Measured(f"key{n}", eps) for n, (_, seen) in enumerate(configurations) for eps in seen]
    found = fidelity(predictions, runs, 2).order
    return found.pairs, found.right, found.within


def test_pairs_within_the_noise_do_not_count() -> None:
    """By hand, with medians a 100, b 104, c 200, d 400, e 800, f 700.

    Half the repeats' range is 5 % of the median for c, d and e, 300 of 700 for f, and nothing for a
    and b, whose two repeats happen to be equal. The median of these six is 5 %, which a and b have
    at least: their 4 are within 5 + 5.2. Without that they would be a pair, wrongly predicted. e
    and f are 100 apart, within 40 + 300, and d and f 300, within 20 + 300. The other twelve count.
    """
    a, b = (100.0, (100.0, 100.0)), (90.0, (104.0, 104.0))
    c, d = (80.0, (190.0, 200.0, 210.0)), (400.0, (380.0, 400.0, 420.0))
    e, f = (800.0, (760.0, 800.0, 840.0)), (50.0, (400.0, 700.0, 1000.0))
    # wrong: c below a and b, f below a, b and c
    assert order_of(a, b, c, d, e, f) == (12, 7, 3)


def test_a_difference_must_exceed_both_noises_together() -> None:
    """100 and 109 with 5 % each: 9 are more than either 5 or 5.45, and less than both."""
    near, far = (95.0, 100.0, 105.0), (103.55, 109.0, 114.45)
    assert order_of((1.0, near), (2.0, far)) == (0, 0, 1)
    assert order_of((1.0, near), (2.0, tuple(1.02 * eps for eps in far))) == (1, 1, 0)


def test_pairs_whose_noise_is_unknown_and_ties_of_predictions() -> None:
    runs = [Measured("key0", 100.0), Measured("key1", 200.0)]
    assert fidelity([predicted(0, 1.0), predicted(1, 2.0)], runs, 1).order.pairs == 0
    sharp = [replace(run, interval=(run.examples_per_second,) * 2) for run in runs]
    tied = fidelity([predicted(0, 2.0), predicted(1, 2.0)], sharp, 1).order
    assert (tied.pairs, tied.right) == (1, 0)


def test_repeats_spread_and_a_single_run_has_its_own_interval() -> None:
    p = predicted(0, 100.0)
    several = Configuration(p, tuple(Measured("key0", eps) for eps in (90.0, 100.0, 104.0)))
    assert (several.measured, several.spread) == (100.0, pytest.approx(0.07))
    alone = Configuration(p, (Measured("key0", 100.0, (95.0, 105.0)),))
    assert alone.spread == pytest.approx(0.05)
    assert Configuration(p, (Measured("key0", 100.0),)).spread is None


def test_held_out_figures_of_repeats_are_their_median() -> None:
    runs = [Measured("key0", 100.0, auc=auc) for auc in (0.7, 0.8, 0.72)]
    found = fidelity([predicted(0, 100.0), predicted(1, 100.0)], runs, 3)
    cells = {column.name: list(column.cells) for column in row_table(found).columns}
    assert cells["AUC"] == ["0.7200", "–"]
    assert "NE" not in cells
    assert [row_document(row)["auc"] for row in found.rows] == [0.72, None]


def test_intervals_are_held_to_what_was_measured() -> None:
    runs = [Measured(f"key{n}", eps) for n, eps in enumerate((100.0, 111.0, 89.0, 95.0))]
    found = fidelity([predicted(n, 100.0) for n in range(5)], runs, 1)
    assert found.coverage == (2, 4)
    assert found.half_width == pytest.approx(0.1)
    none = fidelity([predicted(0, 100.0, interval=None)], runs, 1)
    assert none.coverage == (0, 0)
    assert none.half_width is None


def test_naive_baselines_are_worked_out_by_hand() -> None:
    predictions = [
        predicted(0, 100.0, setting="a"),
        predicted(1, 150.0, setting="a", trainers=2, roofline=180.0),
        predicted(2, 180.0, setting="a", trainers=4, roofline=None),
        predicted(3, 90.0, setting="b", trainers=2, roofline=100.0),
    ]
    runs = [Measured(f"key{n}", eps) for n, eps in enumerate((110.0, 160.0, 150.0, 100.0))]
    linear, roofline = fidelity(predictions, runs, 1).baselines
    assert linear.errors == pytest.approx((220 / 160 - 1, 440 / 150 - 1))
    assert (linear.count, linear.left_out) == (2, 1)
    assert linear.ours == pytest.approx(np.median([1 - 150 / 160, 180 / 150 - 1]))
    assert roofline.errors == pytest.approx((150 / 110 - 1, 180 / 160 - 1, 0.0))
    assert roofline.left_out == 1
    assert roofline.ratio == pytest.approx((180 / 160 - 1) / np.median([1 / 11, 1 / 16, 0.1]))


def test_what_was_not_measured_is_shown_and_what_was_not_predicted_is_not() -> None:
    found = fidelity([predicted(0, 1.0), predicted(1, 1.0)], [Measured("key1", 2.0)] * 2, 2)
    assert len(found.rows) == 2
    assert [len(row.runs) for row in found.rows] == [0, 2]
    assert found.rows[0].measured is None
    assert (found.rows[0].raw_error, found.rows[0].raw_errors) == (None, [])
    assert not found.complete
    assert fidelity([], [Measured("key1", 2.0)], 1).rows == ()
    assert errors_of([]) is None


def test_the_machines_speed_is_that_before_and_after_all_runs() -> None:
    def at(value: float) -> MachineSpeeds:
        speed = MachineSpeed(products=value, gather=value, interpreter=value, loopback=value)
        return MachineSpeeds(before=speed, after=speed)

    runs = [Measured("key0", 50.0, None, at(1.8)), Measured("key1", 50.0, None, at(2.2))]
    unknown = Measured("key1", 50.0)
    predictions = [predicted(0, 100.0), predicted(1, 50.0)]
    found = fidelity(predictions, [*runs, unknown], 2, at(2.0)).moved
    assert found is not None
    assert found.change == pytest.approx((0.9 * 1.1) ** 0.5 - 1)
    assert found.runs == 2
    assert fidelity(predictions, runs, 1).moved is None
    # and it corrects nothing
    assert fidelity(predictions, runs, 1, at(2.0)).raw == fidelity(predictions, runs, 1).raw


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        (Binding("cores", "machine.cores"), "compute"),
        (Binding("own_compute", "trainer[0].interpreter"), "compute"),
        (Binding("compute", "embedding_server[0].interpreter"), "compute"),
        (Binding("interpreter", "trainer[1].interpreter"), "lock"),
        (Binding("interpreter", "embedding_server[0].interpreter"), "server"),
        (Binding("cores", "dense_server[0].cores"), "server"),
        (Binding("nic.tx", "dense_server[0-3].nic.tx"), "server"),
        (Binding("nic.tx", "trainer[0].nic.tx"), "latency"),
        (Binding("thread", "reader[0].thread"), "latency"),
        (Binding("queueing", "machine.cores"), "server"),
        (Binding("latency", "trainer[0].interpreter"), "latency"),
        (Binding("waiting", "machine.cores"), "latency"),
        (Binding("transfer", "embedding_server[0].nic.tx"), "latency"),
        (Binding("readers", "reader[0].thread"), "latency"),
        (None, "latency"),
    ],
)
def test_regimes_follow_what_binds(binding: Binding | None, expected: str) -> None:
    assert regime(binding) == expected


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
    lines = {line.name: line for line in cpu_lines(fidelity(predictions, runs, 1).measured)}
    assert lines["trainer.pass"].predicted == pytest.approx((40 / 100 + 30 / 40) / 2)
    assert lines["trainer.pass"].measured == pytest.approx((80 / 100 + 32 / 40) / 2)
    assert (lines["trainer.pass"].counts, lines["trainer.pass"].off) == (2, 1)
    assert lines["trainer.pass"].misplaced == pytest.approx((40 / 100 + 2 / 40) / 2)
    assert lines["trainer.pass"].worst == "configuration 1"
    assert lines["trainer.apply"].ratio is None
    assert lines["trainer.apply"].off == 1
    assert lines["reader.reading"].predicted == 0.0
    assert [line.name for line in cpu_lines(fidelity(predictions, runs, 1).measured)][:2] == [
        "trainer.pass",
        "reader.reading",
    ]
    assert cpu_lines(fidelity(predictions[2:], runs, 1).measured) == []
