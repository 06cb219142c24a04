"""The raw error and, beside it, how the machine's speed moved; sentences where that is much."""

from __future__ import annotations

import html
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.report.findings import compare, doubts
from recsim_train.report.machine import since_calibration
from recsim_train.report.runs import load_runs
from recsim_train.report.terminal import show
from recsim_train.report.write import report_on
from recsim_train.trace.facts import Facts
from recsim_train.trace.ledger import Ledger, MachineUse


def speeds(before: float, after: float | None = None) -> MachineSpeeds:
    def of(value: float) -> MachineSpeed:
        return MachineSpeed(products=value, gather=value, interpreter=value, loopback=value)

    return MachineSpeeds(before=of(before), after=of(before if after is None else after))


def runs(
    factory: Any,
    out: Path,
    *beside: MachineSpeeds | None,
    strategy: str = "flat_ps",
    calibrated: MachineSpeeds | None = None,
    machine: str = "Testium 9000, 4 cores",
    others: float = 0.0,
    known: bool = True,
) -> None:
    """A prediction and one measurement for each of ``beside``; ``known``: whether the intervals of
    both explain the error."""
    plan = factory.plan(strategy)
    calibration = factory.cluster().calibration.model_copy(
        update={"machine_speed": calibrated or speeds(1.0), "machine": machine}
    )
    predicted = factory.outcome(plan)
    predicted.facts.calibration_ci95 = (1.0, 1e9) if known else None
    profile = factory.cluster(calibration=calibration)
    factory.write(out, plan, "simulated", found=predicted, profile=profile)
    for speed in beside:
        real = factory.outcome(plan, world="real", speed=0.8)
        use = MachineUse(cores=4, own=2.0, others=others, steal=0.0)
        real.facts = Facts(machine_speed=speed, ledger=Ledger(1.0, 2.0, (), use))
        factory.write(out, plan, "real", found=real)


def said(out: Path) -> list[str]:
    return [sentence for sentence, _ in doubts(compare(load_runs([out])))]


def test_the_error_is_raw_and_the_machines_speed_stands_beside_it(
    tmp_path: Path, factory: Any
) -> None:
    """At 0.8 and 0.9 idle, of 1.0 and 1.1 at calibration: nothing is corrected, all is said."""
    runs(factory, tmp_path / "runs", speeds(0.8, 0.9), calibrated=speeds(1.0, 1.1))
    made = report_on([tmp_path / "runs"], tmp_path / "report")
    (c,) = made.findings.comparisons
    raw = c.predicted_eps / c.measured_eps - 1
    assert c.signed_error == pytest.approx(raw)
    assert raw == pytest.approx(0.25, abs=0.01)
    # sqrt(0.8 x 0.9 / 1.1) - 1, and of it hypot(log(9/8), log(1.1)) / 2
    change, error = -0.190959, 0.809041 * 0.0757678
    for document in (made.document, json.loads((tmp_path / "report" / "summary.json").read_text())):
        (pair,) = document["comparisons"]
        assert pair["signed_error"] == pytest.approx(raw)
        assert pair["speed_since_calibration"] == pytest.approx(change, abs=1e-5)
        assert pair["speed_since_calibration_error"] == pytest.approx(error, abs=1e-5)
        assert pair["speed_at_calibration"] == pytest.approx(1.1**0.5)
        assert pair["speed_of_repeats"] == [pytest.approx(0.72**0.5)]
        assert document["summary"]["median_abs_error"] == pytest.approx(raw)
        assert not [name for name in (*pair, *document["summary"]) if "net_" in name]
    terminal = Console(file=io.StringIO(), width=200)
    show(made.report, terminal)
    texts = [
        terminal.file.getvalue(),  # type: ignore[attr-defined]
        (tmp_path / "report" / "summary.md").read_text(encoding="utf-8"),
        (tmp_path / "report" / "report.html").read_text(encoding="utf-8"),
    ]
    line = (
        "The machine's speed, idle before and after the run, against that at its calibration: "
        "−19.1 % ± 6.1 %."
    )
    for text in texts:
        plain = " ".join(html.unescape(text).split())
        assert "+24.9 %" in plain
        assert plain.count(line) == 1
        assert "net of drift" not in plain
    assert "1.000 before, 1.100 after" in texts[2]
    assert "0.800 before, 0.900 after" in texts[2]


def test_the_line_is_of_all_repeats_and_of_each_calibration(tmp_path: Path, factory: Any) -> None:
    runs(factory, tmp_path, speeds(0.9), speeds(1.1))
    runs(factory, tmp_path, speeds(1.0), strategy="allreduce", calibrated=speeds(1.25))
    comparisons = {c.label: c for c in compare(load_runs([tmp_path])).comparisons}
    pairs = [pair for c in comparisons.values() for pair in c.pairs]
    since = comparisons["flat_ps"].since_calibration
    assert since is not None
    assert (since.runs, since.change) == (2, pytest.approx(0.99**0.5 - 1))
    several, once = sorted(since_calibration(pairs), key=len, reverse=True)
    # sqrt(0.99) - 1; its error log(1.1 / 0.9) / 2, as there are two runs
    assert "before and after the 2 runs" in several
    assert several.endswith("−0.5 % ± 10.0 %; more than 5.0 % off beside 2 of them.")
    assert "before and after the run," in once
    assert once.endswith("−20.0 % ± 0.0 %.")


def test_without_a_speed_there_is_no_line(tmp_path: Path, factory: Any) -> None:
    runs(factory, tmp_path, None)
    (c,) = compare(load_runs([tmp_path])).comparisons
    (pair,) = compare(load_runs([tmp_path])).document()["comparisons"]
    assert pair["speed_since_calibration"] is None
    assert pair["speed_of_repeats"] == [None]
    assert pair["signed_error"] == pytest.approx(0.25, abs=0.01)
    assert since_calibration(c.pairs) == []


def test_another_machines_profile_has_no_line(tmp_path: Path, factory: Any) -> None:
    runs(factory, tmp_path, speeds(0.8), machine="X 1, 4 cores")
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert c.since_calibration is None
    assert since_calibration(c.pairs) == []
    (sentence,) = said(tmp_path)
    assert "describes another machine" in sentence


def test_a_machine_that_is_not_named_has_the_figure_and_no_sentence_on_drift(
    tmp_path: Path, factory: Any
) -> None:
    runs(factory, tmp_path, speeds(0.5), machine="")
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert c.since_calibration is not None
    assert not [sentence for sentence in said(tmp_path) if "reference work" in sentence]


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (speeds(0.96), []),
        (speeds(1.04), []),
        (speeds(0.955, 1.04), []),
        (speeds(0.94), ["Before and after quickstart-flat_ps-real", "ran 6.0 % slower than"]),
        (speeds(1.2), ["Before and after quickstart-flat_ps-real", "ran 20.0 % faster than"]),
        (speeds(1.06, 0.94), ["ran 11.3 % slower after quickstart-flat_ps-real"]),
        (speeds(0.94, 1.06), ["ran 12.8 % faster after quickstart-flat_ps-real"]),
        (speeds(0.9, 0.7), ["20.6 % slower than at its calibration", "22.2 % slower after"]),
    ],
)
def test_a_speed_that_moved_is_said(
    tmp_path: Path, factory: Any, beside: MachineSpeeds, expected: list[str]
) -> None:
    runs(factory, tmp_path, beside)
    found = said(tmp_path)
    assert bool(found) == bool(expected)
    assert all(part in " ".join(found) for part in expected)
    assert all(sentence.endswith(".") for sentence in found)
    assert "the error contains that" in " ".join(found) or not any("than at" in p for p in expected)


@pytest.mark.parametrize(
    ("beside", "changed"), [(speeds(1.04), False), (speeds(0.8), True), (None, True)]
)
def test_a_machine_that_is_as_fast_as_it_was_is_not_blamed(
    tmp_path: Path, factory: Any, beside: MachineSpeeds | None, changed: bool
) -> None:
    runs(factory, tmp_path, beside, known=False)
    (sentence,) = (s for s in said(tmp_path) if "the simulator leaves something out" in s)
    assert ("or the machine has changed since its calibration" in sentence) is changed


def test_what_many_measurements_share_is_one_sentence_of_each_kind(
    tmp_path: Path, factory: Any
) -> None:
    for strategy in ("flat_ps", "allreduce"):
        moved = (speeds(0.8, 0.6), speeds(1.5), speeds(1.0))
        runs(factory, tmp_path, *moved, strategy=strategy, others=1.8)
    findings = compare(load_runs([tmp_path]))
    found = doubts(findings)
    assert [labels for _, labels in found] == [["allreduce", "flat_ps"]] * 3
    others, since, during = (sentence for sentence, _ in found)
    assert "While 6 of 6 measurements ran, other work took up to 1.8 of 4 cores" in others
    assert "Before and after 4 of 6 measurements" in since
    assert "(−30.7 % to +50.0 %): the errors contain that" in since
    assert "during 2 of 6 measurements (−25.0 % to −25.0 %)" in during
    # each comparison's own document says it of its own measurements
    for c in findings.comparisons:
        assert "3 of 3 measurements" in c.warnings[0]
        assert "Before and after 2 of 3 measurements" in c.warnings[1]
        assert "after quickstart-" in c.warnings[2]


def test_one_measurement_of_many_is_named_alone(tmp_path: Path, factory: Any) -> None:
    runs(factory, tmp_path, speeds(0.8))
    runs(factory, tmp_path, speeds(1.0), strategy="allreduce")
    ((sentence, labels),) = doubts(compare(load_runs([tmp_path])))
    assert "Before and after quickstart-flat_ps-real" in sentence
    assert "20.0 % slower than" in sentence
    assert labels == ["flat_ps"]
