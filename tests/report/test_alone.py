"""Reports of predictions alone, and tables that lose no digit on a narrow terminal."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsim_train.report.cost import cell
from recsim_train.report.runs import finished, limits
from recsim_train.report.terminal import show
from recsim_train.report.text import money
from recsim_train.report.write import Report, report_on
from recsim_train.results.row import of_summary
from recsim_train.results.rundir import read_run
from recsim_train.trace.facts import Rented


def printed(result: Report, width: int) -> str:
    shown = Console(file=io.StringIO(), width=width)
    show(result.report, shown)
    text: str = shown.file.getvalue()  # type: ignore[attr-defined]
    return text


def heading(result: Report) -> str:
    page = result.page.read_text(encoding="utf-8").replace("\u00a0", " ")
    return page.split("<h1>")[1].split("</h1>")[0]


NOTE = "No prediction is paired with a measurement"


def test_a_prediction_alone_opens_with_itself(tmp_path: Path, factory: Any) -> None:
    found = factory.outcome(factory.plan(), jitter=0.1)
    found.facts.calibration_ci95 = (10_000.0, 40_000.0)
    record = factory.write(tmp_path / "runs", factory.plan(), "simulated", found=found)
    result = report_on([tmp_path / "runs"], tmp_path / "report")
    eps = record.summary.examples_per_second
    low, high = record.summary.ci95
    narrower = 1.645 / 1.96  # 90 % of what is known as 95 %
    ends = (
        eps - narrower * math.hypot(eps - 10_000.0, eps - low),
        eps + narrower * math.hypot(40_000.0 - eps, high - eps),
    )
    said = (
        f"flat_ps: predicted {eps / 1e3:.1f}k examples/s ({ends[0] / 1e3:.1f}k to "
        f"{ends[1] / 1e3:.1f}k); it is limited by cores of the machine"
    )
    assert heading(result) == f"{said}."
    terminal = printed(result, 200)
    assert terminal.startswith(f"{said}.")
    short = (result.out / "summary.md").read_text(encoding="utf-8")
    assert short.splitlines()[:3] == ["# Predictions", "", f"- {said}."]
    assert result.document["headlines"] == [said]
    page = result.page.read_text(encoding="utf-8")
    for text in (page, short):
        assert text.index("predicted") < text.index(NOTE)  # the note comes later


def test_what_a_billion_examples_cost(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    found = factory.outcome(plan, jitter=0.1)
    found.facts.calibration_ci95 = (10_000.0, 40_000.0)
    found.facts.rented = Rented(20, 30.0, "EUR", ("a contract, 2026-11-01",))
    record = factory.write(tmp_path / "runs", plan, "simulated", found=found)
    summary = read_run(record.path).summary  # as it was written
    eps = summary.examples_per_second
    assert eps is not None
    low, high = of_summary(summary) or (0.0, 0.0)
    # 30 an hour, so much a second, for so many seconds
    costs = [30.0 / 3600.0 * (1e9 / rate) for rate in (eps, high, low)]
    for said, cost in zip(costs_of(limits(summary)), costs, strict=True):
        assert said == pytest.approx(cost, rel=0.01)
    (line,) = [said for said in limits(summary) if "an hour" in said]
    assert line.startswith("The 20 hosts cost 30.0 EUR an hour (a contract, 2026-11-01): ")
    terminal = printed(report_on([tmp_path / "runs"], tmp_path / "report"), 300)
    assert "cost/1e9 examples" in terminal
    assert cell(summary) == money(costs[0], "EUR")  # columns have no room for the ends


def costs_of(said: list[str]) -> list[float]:
    (line,) = [text for text in said if "for a billion" in text]
    amounts = re.findall(r"([\d,.]+) EUR", line.split("): ")[1])
    return [float(amount.replace(",", "")) for amount in amounts]


def test_strategies_alone_are_compared_as_far_as_intervals_tell(
    tmp_path: Path, factory: Any
) -> None:
    for kind, speed in (("flat_ps", 1.0), ("allreduce", 1.0)):
        batch = 128 if kind == "flat_ps" else 256  # each of two workers, or one on two threads
        plan = factory.plan(kind, training={"batch_size": batch})
        found = factory.outcome(plan, speed=speed, jitter=0.2)
        found.facts.calibration_ci95 = (1_000.0, 90_000.0)
        factory.write(tmp_path / "tie", plan, "simulated", found=found)
        found = factory.outcome(plan, speed=8.0 if kind == "flat_ps" else 1.0)
        found.facts.calibration_ci95 = (1e12, 0.0)  # which reaches to neither side
        factory.write(tmp_path / "clear", plan, "simulated", found=found)
    tie = report_on([tmp_path / "tie"], tmp_path / "a")
    assert heading(tie).startswith(
        "allreduce and flat_ps cannot be told apart and are the fastest of 2 predictions; "
        "allreduce is the cheapest of them (4 processes) with "
    )
    assert len(tie.document["headlines"]) == 3
    clear = report_on([tmp_path / "clear"], tmp_path / "b")
    assert heading(clear).startswith("flat_ps is the fastest of 2 predictions with ")


def test_measurements_alone_say_that_there_is_no_prediction(tmp_path: Path, factory: Any) -> None:
    factory.write(tmp_path / "runs", factory.plan(), "real")
    result = report_on([tmp_path / "runs"], tmp_path / "report")
    assert heading(result) == f"{NOTE}."
    assert printed(result, 100).startswith(NOTE)


def test_what_differs_in_the_examples_of_a_step_is_not_compared(
    tmp_path: Path, factory: Any
) -> None:
    for kind in ("flat_ps", "allreduce"):
        plan = factory.plan(kind)  # two workers, or one on two threads
        found = factory.outcome(plan, speed=8.0 if kind == "flat_ps" else 1.0)
        factory.write(tmp_path / "runs", plan, "simulated", found=found)
    result = report_on([tmp_path / "runs"], tmp_path / "report")
    assert heading(result).startswith("There is no fastest of 2 predictions")
    assert "256 to 512 examples" in heading(result)
    assert not any("fastest of 2" in said for said in result.document["headlines"][1:])
    table = printed(result, 200)
    assert "examples/step" in table


def test_an_interrupted_measurement_alone_says_so(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    found = factory.outcome(plan, world="real", steps=17)
    factory.write(tmp_path / "runs", plan, "real", found=found, status="interrupted")
    result = report_on([tmp_path / "runs"], tmp_path / "report")
    page = result.page.read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "quickstart: measurements" in page.split("<title>")[1].split("</title>")[0]
    said = "it is interrupted, 17 of 60 steps are counted"
    for text in (page, printed(result, 200), (result.out / "summary.md").read_text("utf-8")):
        assert "predictions" not in text.split("How to reproduce")[0].lower()
        assert said in text
    assert "interrupted: its figures cover 17 counted steps" in page


def test_no_digit_is_lost_at_80_columns(tmp_path: Path, factory: Any) -> None:
    sent = {"pull": (0, 4_123_456_789), "push": (4_123_456_789, 0)}
    plan = factory.plan()
    for world in ("simulated", "real"):
        found = factory.outcome(plan, world=world, sent=sent, jitter=0.1)
        found.facts.calibration_ci95 = (10_000.0, 40_000.0)
        factory.write(tmp_path / "runs", plan, world, found=found)
    result = report_on([tmp_path / "runs"], tmp_path / "report")
    (c,) = result.findings.comparisons
    both = [f"{sum(getattr(b, w) for b in c.payload):,.0f}" for w in ("predicted", "measured")]
    assert len(both[0]) > 12
    text = printed(result, 80)
    table = text[: text.index("why: ")]
    words = table.split()
    for figure in (*both, f"{c.predicted_eps:,.0f}", f"{c.measured_eps:,.0f}"):
        assert words.count(figure) >= 1 + (both[0] == both[1] and figure in both), figure
    assert "\u2026" not in text
    rows = [line for line in table.splitlines() if line.startswith(("strategy", "flat_ps  "))]
    assert all(len(line) <= 80 for line in rows)
    runs = [c.simulated, c.real]
    for width in (60, 80):
        shown = Console(file=io.StringIO(), width=width)
        show(finished(runs), shown)
        narrow = shown.file.getvalue()  # type: ignore[attr-defined]
        for figure in ("0.7410", "0.8720", "0.5030"):
            assert figure in narrow.split()
        assert "\u2026" not in narrow
    wide = Console(file=io.StringIO(), width=300)
    show(finished(runs), wide)
    assert wide.file.getvalue().count("strategy") == 1  # type: ignore[attr-defined]
