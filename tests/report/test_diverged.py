"""Measurements whose model diverged: compared, named, and counted in no error."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.experiment import Table
from recsim_train.report.compare import Rounds
from recsim_train.report.compared import Compared
from recsim_train.report.findings import Findings, compare, doubts, headlines
from recsim_train.report.gap import DIVERGED
from recsim_train.report.publish import markdown
from recsim_train.report.runs import load_runs, run_table
from recsim_train.report.write import report_on
from recsim_train.results.rundir import find_complete
from recsim_train.trace.facts import Diverged

LOST = Diverged(7, 250, 260)


def measured(factory: Any, out: Path, plan: Any, speed: float, diverged: Any = LOST, **how: Any):  # type: ignore[no-untyped-def]
    found = factory.outcome(plan, world="real", speed=speed)
    found.facts.diverged = diverged
    if diverged is not None:
        found.loss = found.auc = found.normalized_entropy = None
        for iteration in found.iterations:
            if iteration.iteration >= 7:
                iteration.loss = math.nan if iteration.iteration % 2 else math.inf
    return factory.write(out, plan, "real", found=found, **how)


def test_its_error_is_shown_and_counts_in_no_figure(tmp_path: Path, factory: Any) -> None:
    lost, sound = factory.plan(), factory.plan("allreduce")
    for plan in (lost, sound):
        factory.write(tmp_path, plan, "simulated")
    measured(factory, tmp_path, lost, 0.5)
    measured(factory, tmp_path, sound, 0.8, None)
    findings = compare(load_runs([tmp_path]))
    by_kind = {c.real.strategy: c for c in findings.comparisons}
    assert by_kind["flat_ps"].diverged == "diverged since iteration 7"
    assert by_kind["allreduce"].diverged is None
    assert by_kind["flat_ps"].signed_error > 0.9
    right = abs(by_kind["allreduce"].signed_error)
    assert findings.absolute_errors == [right]
    assert findings.median_abs_error == findings.judged_error == right
    summary = findings.document()["summary"]
    assert summary["max_abs_error"] == right
    assert summary["rank_agreement"] is None  # of one
    assert summary["unexplained"] == int(by_kind["allreduce"].unexplained)
    ((said, labels),) = [d for d in doubts(findings) if "measured models diverged" in d[0]]
    assert said.startswith("1 of 2 measured models diverged")
    assert labels == [by_kind["flat_ps"].label]
    named = [line for line in headlines(findings) if "diverged since iteration 7" in line]
    assert len(named) == 1
    assert "flat_ps" in named[0]
    shown = markdown(Compared(findings).document())
    assert "diverged since iteration 7" in shown
    assert "Errors larger than the intervals of both explain: " in shown
    assert " of 1." in shown


def test_alone_it_has_no_median_error_and_every_page_is_written(
    tmp_path: Path, factory: Any
) -> None:
    plan = factory.plan()
    factory.write(tmp_path / "runs", plan, "simulated")
    measured(factory, tmp_path / "runs", plan, 0.5)
    made = report_on([tmp_path / "runs"], tmp_path / "report", None)
    assert made.findings.median_abs_error is None
    assert not made.findings.within(10.0)
    for name in ("report.html", "summary.md"):
        assert "diverged since iteration 7" in (tmp_path / "report" / name).read_text()
    for path in (tmp_path / "report").glob("*.json"):

        def no_json(text: str, name: str = path.name) -> float:
            raise AssertionError(f"{name} holds {text}")

        json.loads(path.read_text(), parse_constant=no_json)


def test_a_report_of_nothing_but_diverged_models_with_background_loops(
    tmp_path: Path, factory: Any
) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    measured(factory, tmp_path, plan, 0.5)
    (c,) = compare(load_runs([tmp_path])).comparisons
    findings = Findings((replace(c, rounds=Rounds(10.0, 5.0)),))
    assert findings.rounds_errors == []
    shown = markdown(Compared(findings).document())
    assert "| flat_ps | 10.0 | 5.0 |" in shown
    assert "median absolute error of the rounds" not in shown


def test_bytes_that_follow_thresholds_are_no_fault_of_the_prediction(
    tmp_path: Path, factory: Any
) -> None:
    """What is not finite passes every threshold, or none; other bytes are the same as ever."""
    tables = (Table(rows=1000), Table(rows=400, ids=3, variable=True))  # so lookups follow the data
    model = factory.experiment().model.model_copy(update={"tables": tables})
    plan = factory.plan(model=model)
    topology = replace(plan.topology, thresholded="push")
    plan = replace(plan, topology=topology)
    for diverged in (LOST, None):
        out = tmp_path / str(diverged is None)
        factory.write(out, plan, "simulated")
        more = factory.outcome(plan, world="real", sent={"push": (40_000, 0), "lookup": (8, 0)})
        more.facts.diverged = diverged
        factory.write(out, plan, "real", found=more)
        (c,) = compare(load_runs([out])).comparisons
        push, lookup = (
            next(b for b in c.payload if b.effect == name) for name in ("push", "lookup")
        )
        assert push.measured == 10 * push.predicted
        assert push.fault == (diverged is None)
        assert lookup.allowed is not None
        assert lookup.fault
        assert (push.excuse == DIVERGED) == (diverged is not None)


def test_a_complete_run_of_the_same_settings_is_used_instead(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    measured(factory, tmp_path, plan, 0.9, None)
    measured(factory, tmp_path, plan, 0.5)
    findings = compare(load_runs([tmp_path]))
    (c,) = findings.comparisons
    assert c.diverged is None
    assert len(c.all_real) == 1
    (left,) = findings.unpaired
    assert "diverged since iteration 7, and a complete run of the same settings" in left.reason


def test_without_a_prediction_it_says_so_too(tmp_path: Path, factory: Any) -> None:
    record = measured(factory, tmp_path, factory.plan(), 1.0)
    (alone,) = compare([record]).unpaired
    assert alone.reason.startswith("diverged since iteration 7; ")


@pytest.mark.parametrize("ended", ["complete", "partial", "interrupted"])
def test_the_status_says_how_it_ended_and_that_it_diverged(
    tmp_path: Path, factory: Any, ended: str
) -> None:
    plan = factory.plan()
    record = measured(factory, tmp_path, plan, 1.0, status=ended)
    said = "diverged since iteration 7"
    assert record.status == (said if ended == "complete" else f"{ended}, {said}")
    assert record.summary.status == record.status
    assert record.whole == (ended == "complete")
    (status,) = [c.cells for c in run_table([record], "").columns if c.name == "status"]
    assert status == [record.status]
    (training,) = [c.cells for c in run_table([record], "").columns if c.name == "train loss"]
    assert training == ["not finite"]  # warm-up ended before, in the first tenth it was lost
    # it would diverge again, so that resuming takes a whole one as it is
    again = find_complete(tmp_path, plan, "real", factory.cluster())
    assert (again is not None) == record.whole


def test_a_loss_that_is_lost_later_shows_where_it_began(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    found = factory.outcome(plan, world="real")
    found.facts.diverged = Diverged(40, 10, 260)
    for iteration in found.iterations:
        if iteration.iteration >= 40:
            iteration.loss = math.inf
    record = factory.write(tmp_path, plan, "real", found=found)
    (training,) = [c.cells for c in run_table([record], "").columns if c.name == "train loss"]
    assert training[0].endswith(" → not finite")
    assert 0.4 < float(training[0].split()[0]) < 0.8
    assert record.summary.train_loss_last is None
