"""Every caveat once; what many comparisons share is one sentence."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsim_train.config.errors import UserError
from recsim_train.report.findings import compare, doubts
from recsim_train.report.runs import load_runs
from recsim_train.report.terminal import show
from recsim_train.report.write import report_on
from recsim_train.trace.facts import Facts


def measured(factory: Any, out: Path, strategy: str, load: float, speed: float = 1.0) -> None:
    plan = factory.plan(strategy)
    predicted = factory.outcome(plan)
    predicted.facts.calibration_ci95 = (1.0, 1e9)
    factory.write(out, plan, "simulated", found=predicted)
    real = factory.outcome(plan, world="real", speed=speed)
    real.facts = Facts()
    factory.write(out, plan, "real", found=real, surroundings=factory.environment(load=load))


def test_one_busy_measurement_is_named_and_several_are_counted(
    tmp_path: Path, factory: Any
) -> None:
    measured(factory, tmp_path / "one", "flat_ps", 3.0)
    measured(factory, tmp_path / "one", "allreduce", 0.1)
    ((sentence, labels),) = doubts(compare(load_runs([tmp_path / "one"])))
    assert "busy when quickstart-flat_ps-real" in sentence
    assert labels == ["flat_ps"]

    measured(factory, tmp_path / "two", "flat_ps", 3.0)
    measured(factory, tmp_path / "two", "allreduce", 3.5)
    findings = compare(load_runs([tmp_path / "two"]))
    ((sentence, labels),) = doubts(findings)
    assert "busy when 2 of 2 measurements began: load up to 3.5" in sentence
    assert sorted(labels) == ["allreduce", "flat_ps"]
    # each comparison's own document still says it by itself
    assert all("-real" in c.warnings[0] for c in findings.comparisons)


def test_errors_that_no_interval_explains_are_a_doubt(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    real = factory.outcome(plan, world="real", speed=0.8)
    real.facts = Facts()
    factory.write(tmp_path, plan, "real", found=real)
    ((sentence, labels),) = doubts(compare(load_runs([tmp_path])))
    assert sentence.startswith("The error is larger than the intervals")
    assert labels == ["flat_ps"]


def test_a_measurement_that_two_profiles_share_counts_once(tmp_path: Path, factory: Any) -> None:
    measured(factory, tmp_path, "flat_ps", 3.0)
    other = factory.cluster(name="other")
    predicted = factory.outcome(factory.plan())
    predicted.facts.calibration_ci95 = (1.0, 1e9)
    factory.write(tmp_path, factory.plan(), "simulated", found=predicted, profile=other)
    findings = compare(load_runs([tmp_path]))
    assert len(findings.comparisons) == 2
    ((sentence, labels),) = doubts(findings)
    assert "busy when quickstart-flat_ps-real" in sentence
    assert len(labels) == 2


def test_a_run_without_its_manifest_is_left_out_visibly(tmp_path: Path, factory: Any) -> None:
    runs = tmp_path / "runs"
    factory.write(runs, factory.plan(), "simulated")
    broken = factory.write(runs, factory.plan("allreduce"), "simulated").path
    (broken / "manifest.json").unlink()
    (runs / ".writing-1").mkdir()
    result = report_on([runs], tmp_path / "report")
    said = f"{broken} is left out, as it has no manifest.json: it is no run."
    assert result.document["left_out"] == [said]
    shown = Console(file=io.StringIO(), width=100)
    show(result.report, shown)
    assert f"caveat: {said}" in shown.file.getvalue()  # type: ignore[attr-defined]
    assert said in result.page.read_text(encoding="utf-8")
    short = (result.out / "summary.md").read_text(encoding="utf-8").replace(chr(92), "")
    assert said in short
    # named by itself it is an error
    with pytest.raises(UserError, match="neither is a run directory nor holds any"):
        report_on([broken], tmp_path / "report")
