"""The one interval of a prediction, worked out by hand, and the same wherever it is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsim_train.report.findings import compare, headlines
from recsim_train.report.runs import load_runs
from recsim_train.report.winner import UNKNOWN, contenders, entry_of_run
from recsim_train.results.row import Row, interval, of_summary, row_from, tie

NARROWER = 1.645 / 1.96
"""90 % are narrower than 95 % by the normal distribution."""


def around(low: float, high: float) -> Any:
    """90 % of 100 whose 95 % these are."""
    return pytest.approx((100 - NARROWER * (100 - low), 100 + NARROWER * (high - 100)))


def test_both_errors_count_in_quadrature_on_either_side() -> None:
    # below 3 and 4: 5; above 5 and 12: 13
    assert interval(100.0, (97.0, 105.0), (96.0, 112.0)) == around(95.0, 113.0)
    # what calibration knows nothing of is no part of a whole one
    assert interval(100.0, (97.0, 105.0), None) is None
    assert interval(100.0, (97.0, 105.0), (96.0, None)) is None
    assert interval(100.0, (None, None), (96.0, 112.0)) == around(96.0, 112.0)
    assert interval(100.0, None, (None, 1.0)) is None
    # nothing is slower than not at all
    low, high = interval(100.0, (0.0, 180.0), (10.0, 170.0)) or (1.0, 1.0)
    assert (low, high) == (0.0, pytest.approx(100 + NARROWER * 106.301458))


def test_seeds_widen_what_the_simulation_knows_of_itself() -> None:
    # the range of the seeds is 94 to 105: below 6 and 8, 10; above 5 and 12, 13
    found = interval(100.0, (97.0, 103.0), (92.0, 112.0), [94.0, 100.0, 105.0])
    assert found == around(90.0, 113.0)
    assert interval(100.0, None, (100.0, 100.0), [94.0, 100.0]) == around(94.0, 100.0)
    assert interval(100.0, None, None, [94.0, 100.0]) is None
    # and never narrow it
    sure = (100.0, 100.0)
    assert interval(100.0, (90.0, 110.0), sure, [99.0, 100.0]) == around(90.0, 110.0)


def test_a_measurement_has_no_prices_and_its_windows_are_its_interval(factory: Any) -> None:
    found = factory.summary(world="real", examples_per_second=100.0, ci95=(97.0, 105.0))
    assert of_summary(found) == around(97.0, 105.0)
    assert of_summary(replace(found, world="simulated")) is None


def test_all_who_show_an_interval_show_this_one(tmp_path: Path, factory: Any) -> None:
    """Planted: calibration's errors of 4 % below and 12 % above, mostly the machine's speed."""
    plan = factory.plan()
    made, eps = factory.outcome(plan), 0.0
    record = factory.write(tmp_path / "first", plan, "simulated", found=made)
    eps = record.summary.examples_per_second
    made.facts.calibration_ci95 = (0.96 * eps, 1.12 * eps)
    made.facts.calibration_errors = {"speed": 0.05, "prices": 0.01}
    simulated = factory.write(tmp_path / "runs", plan, "simulated", found=made)
    factory.write(
        tmp_path / "runs", plan, "real", found=factory.outcome(plan, world="real", speed=0.8)
    )
    summary = simulated.summary
    own = summary.ci95 or (eps, eps)
    below, above = ((eps - own[0]) / eps, (own[1] - eps) / eps)
    expected = pytest.approx(
        (
            eps * (1 - NARROWER * (below**2 + 0.04**2) ** 0.5),
            eps * (1 + NARROWER * (above**2 + 0.12**2) ** 0.5),
        )
    )
    assert of_summary(summary) == expected
    findings = compare(load_runs([tmp_path / "runs"]))
    (c,) = findings.comparisons
    assert c.predicted_interval == expected
    assert c.document()["predicted_interval"] == list(c.predicted_interval or ())
    assert entry_of_run(simulated).interval == expected
    row = Row(
        settings={"roles.trainers": 2}, strategy="flat_ps", profile="p", trainers=2,
        embedding_servers=1, dense_servers=1, readers=0, threads=1, examples_per_second=eps,
        eps_low=own[0], eps_high=own[1], calibration_low=0.96 * eps, calibration_high=1.12 * eps,
        calibration_errors={"speed": 0.05, "prices": 0.01},
    )  # fmt: skip
    assert row.interval90() == expected
    (entry,) = contenders([row])
    assert entry.interval == expected
    nothing = replace(row, eps_low=None, calibration_high=None)
    assert contenders([nothing])[0].interval == UNKNOWN
    low, high = c.predicted_interval or (0.0, 0.0)
    (said,) = headlines(compare(load_runs([simulated.path])))
    assert f"({low / 1e3:.1f}k to {high / 1e3:.1f}k)" in said


def test_figures_without_any_error_tie_where_they_differ_by_rounding() -> None:
    exact = row_from({"strategy": "flat_ps", "examples_per_second": 0.1 + 0.2,
                      "calibration_errors": {"prices": 0.1}})  # fmt: skip
    same, other = replace(exact, examples_per_second=0.3), replace(exact, examples_per_second=0.31)
    assert exact.examples_per_second != same.examples_per_second
    assert tie(exact.evidence(), same.evidence())
    assert not tie(exact.evidence(), other.evidence())


def test_a_models_error_is_shared_by_equal_options_only(tmp_path: Path, factory: Any) -> None:
    """In comparisons of runs as in sweeps and recommendations."""
    entries = []
    for options in ({}, {"prefetch": 1}):
        plan = factory.plan("flat_ps", options)
        made = factory.outcome(plan)
        made.facts.calibration_errors = {"model": 0.1}
        written = factory.write(tmp_path / f"runs{len(entries)}", plan, "simulated", found=made)
        entries.append(entry_of_run(written))
    plain, ahead = (replace(entry.evidence, noise=0.0) for entry in entries)
    near = replace(plain, eps=1.05 * plain.eps)
    assert not tie(plain, near)
    assert tie(plain, replace(near, strategy=ahead.strategy))
