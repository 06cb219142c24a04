"""The raw error and, beside it, the one net of drift; sentences on a machine whose speed moved."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsim_train.config.speed import MachineSpeed, MachineSpeeds
from recsim_train.report.findings import compare, doubts
from recsim_train.report.load import load_runs
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


def test_both_errors_stand_beside_each_other_everywhere(tmp_path: Path, factory: Any) -> None:
    runs(factory, tmp_path / "runs", speeds(0.8))
    made = report_on([tmp_path / "runs"], tmp_path / "report")
    (c,) = made.findings.comparisons
    raw = c.predicted_eps / c.measured_eps - 1
    assert c.signed_error == pytest.approx(raw)
    assert raw == pytest.approx(0.25, abs=0.01)
    net = (1 + raw) * 0.8 - 1
    assert c.net_error == pytest.approx(net)
    for document in (made.document, json.loads((tmp_path / "report" / "summary.json").read_text())):
        (pair,) = document["comparisons"]
        assert pair["signed_error"] == pytest.approx(raw)
        assert pair["net_error"] == pytest.approx(net)
        assert (pair["speed_at_calibration"], pair["speed_of_repeats"]) == (
            pytest.approx(1.0),
            [pytest.approx(0.8)],
        )
        assert document["summary"]["median_abs_error"] == pytest.approx(raw)
        assert document["summary"]["median_abs_net_error"] == pytest.approx(abs(net))
        assert document["summary"]["max_abs_net_error"] == pytest.approx(abs(net))
        assert document["summary"]["net_errors"] == 1
    assert made.to_frame()["net_error"].tolist() == [pytest.approx(net)]
    terminal = Console(file=io.StringIO(), width=140)
    show(made.report, terminal)
    texts = [
        terminal.file.getvalue(),  # type: ignore[attr-defined]
        (tmp_path / "report" / "summary.md").read_text(encoding="utf-8"),
        (tmp_path / "report" / "report.html").read_text(encoding="utf-8"),
    ]
    for text in texts:
        assert "+24.9 %" in text
        assert "−0.1 %" in text
    assert re.search(r"error +net +spread", texts[0])
    assert "net of drift" in texts[1]
    assert "Net of drift: median absolute error 0.1 %, largest 0.1 %" in texts[1]
    assert "1.000 before, 1.000 after" in texts[2]
    assert "0.800 before, 0.800 after" in texts[2]


def test_a_page_has_the_speed_that_corrects_the_error(tmp_path: Path, factory: Any) -> None:
    def meanwhile(speed: float) -> MachineSpeeds:
        between = speeds(speed).before
        assert between is not None
        return speeds(1.0).model_copy(update={"between": (between,)})

    runs(factory, tmp_path / "runs", meanwhile(0.8), calibrated=meanwhile(1.25))
    report_on([tmp_path / "runs"], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "1.000 before, 1.250 meanwhile, 1.000 after" in page
    assert "1.000 before, 0.800 meanwhile, 1.000 after" in page
    assert "−20.1 %" in page  # 1.249 x 0.8 / 1.25 - 1


def test_without_a_speed_the_net_error_is_blank_and_the_raw_one_is_there(
    tmp_path: Path, factory: Any
) -> None:
    runs(factory, tmp_path, speeds(0.8), None)
    findings = compare(load_runs([tmp_path]))
    document = findings.document()
    (pair,) = document["comparisons"]
    assert pair["net_error"] is None
    assert pair["speed_of_repeats"] == [pytest.approx(0.8), None]
    assert pair["signed_error"] == pytest.approx(0.25, abs=0.01)
    assert document["summary"]["median_abs_net_error"] is None
    assert document["summary"]["median_abs_error"] == pytest.approx(0.25, abs=0.01)


def test_another_machines_profile_has_no_net_error(tmp_path: Path, factory: Any) -> None:
    runs(factory, tmp_path, speeds(0.8), machine="X 1, 4 cores")
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert c.net_error is None
    (sentence,) = said(tmp_path)
    assert "describes another machine" in sentence


def test_a_machine_that_is_not_named_has_the_figure_and_no_sentence_on_drift(
    tmp_path: Path, factory: Any
) -> None:
    runs(factory, tmp_path, speeds(0.5), machine="")
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert c.net_error is not None
    assert not [sentence for sentence in said(tmp_path) if "reference work" in sentence]


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (speeds(0.91), []),
        (speeds(1.09), []),
        (speeds(0.95, 1.04), []),
        (speeds(0.88), ["ran 12.0 % slower beside quickstart-flat_ps-real"]),
        (speeds(1.2), ["ran 20.0 % faster beside quickstart-flat_ps-real"]),
        (speeds(1.06, 0.94), ["ran 11.3 % slower after quickstart-flat_ps-real"]),
        (speeds(0.94, 1.06), ["ran 12.8 % faster after quickstart-flat_ps-real"]),
        (speeds(0.9, 0.7), ["20.6 % slower beside", "22.2 % slower after"]),
    ],
)
def test_a_speed_that_moved_by_more_than_a_tenth_is_said(
    tmp_path: Path, factory: Any, beside: MachineSpeeds, expected: list[str]
) -> None:
    runs(factory, tmp_path, beside)
    found = said(tmp_path)
    assert len(found) == len(expected)
    for sentence, part in zip(found, expected, strict=True):
        assert part in sentence
        assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("beside", "changed"), [(speeds(1.05), False), (speeds(0.8), True), (None, True)]
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
    assert "beside 4 of 6 measurements (−30.7 % to +50.0 %)" in since
    assert "during 2 of 6 measurements (−25.0 % to −25.0 %)" in during
    # each comparison's own document says it of its own measurements
    for c in findings.comparisons:
        assert "3 of 3 measurements" in c.warnings[0]
        assert "2 of 3 measurements (−30.7 % to +50.0 %)" in c.warnings[1]
        assert "after quickstart-" in c.warnings[2]


def test_one_measurement_of_many_is_named_alone(tmp_path: Path, factory: Any) -> None:
    runs(factory, tmp_path, speeds(0.8))
    runs(factory, tmp_path, speeds(1.0), strategy="allreduce")
    ((sentence, labels),) = doubts(compare(load_runs([tmp_path])))
    assert "20.0 % slower beside quickstart-flat_ps-real" in sentence
    assert labels == ["flat_ps"]
