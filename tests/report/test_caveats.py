from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsim_train.cli import shown
from recsim_train.report.caveats import caveats, noisy
from recsim_train.report.write import report_on
from recsim_train.results.environment import same_machine
from recsim_train.trace.facts import Facts


def pair(factory: Any, out: Path, **changes: Any) -> tuple[Any, Any]:
    plan = changes.get("plan") or factory.plan()
    real_plan = changes.get("real_plan") or plan
    outcome = factory.outcome(real_plan, world="real")
    outcome.facts = Facts(**changes.get("facts", {}))
    simulated = factory.write(out, plan, "simulated", profile=changes.get("profile"))
    real = factory.write(
        out, real_plan, "real", found=outcome, surroundings=changes.get("surroundings")
    )
    return simulated, real


def doubts(simulated: Any, real: Any) -> list[str]:
    return caveats(simulated, [real])


def test_several_busy_measurements_are_one_sentence(tmp_path: Path, factory: Any) -> None:
    runs = []
    for number, load in enumerate((0.1, 2.5, 3.5)):
        facts = {"load_average_before": load}
        runs.append(pair(factory, tmp_path / str(number), facts=facts))
    (found,) = caveats(runs[0][0], [real for _, real in runs])
    assert "busy when 2 of 3 measurements began: load up to 3.5 on 4 cores" in found


def test_a_clean_pair_has_no_caveat(tmp_path: Path, factory: Any) -> None:
    assert doubts(*pair(factory, tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seed", "The seeds differ: 1 predicted, 2 measured."),
        ("machine", "describes another machine (Testium 9000, 4 cores) than the one measured (X 1"),
        ("uncalibrated", "was not calibrated: its prices are assumptions"),
        ("range", "training.batch_size = 4096 lies outside the calibrated range 32 to 1024"),
        ("load", "The machine was busy when quickstart-flat_ps-real"),
        ("load before", "load 3.0 on 4 cores"),
        ("epochs", "went through its data more than once (epoch 3)"),
        ("torch", "calibrated with torch 2.13.0, the run used torch 2.6.0"),
        (
            "malformed",
            "Malformed rows of the data were replaced by others of their batch (12 bad label).",
        ),
        ("stated", "the queue overflowed"),
        ("placed", "The embedding shards were placed differently"),
    ],
)
def test_each_reason_to_doubt_is_said(
    tmp_path: Path, factory: Any, name: str, expected: str
) -> None:
    changes: dict[str, Any] = {
        "seed": {"real_plan": factory.plan(seed=2)},
        "machine": {"surroundings": factory.environment(machine="X 1, 4 cores", cpu="X 1")},
        "uncalibrated": {"profile": factory.cluster(calibration=None)},
        "range": {"plan": factory.plan(training={"batch_size": 4096})},
        "load": {"surroundings": factory.environment(load=2.5)},
        "load before": {"facts": {"load_average_before": 3.0}},
        "epochs": {"facts": {"epochs": 2.5}},
        "torch": {"surroundings": factory.environment(versions={"torch": "2.6.0"})},
        "malformed": {"facts": {"malformed_rows": {"bad label": 12, "too short": 0}}},
        "stated": {"facts": {"warnings": ("the queue overflowed",)}},
        "placed": {"real_plan": factory.plan(roles={"embedding_servers": 1})},
    }[name]
    found = doubts(*pair(factory, tmp_path, **changes))
    assert [w for w in found if expected in w], found
    assert len(found) == 1 or name == "placed"


UNVALIDATED = "equal fluid shares, which no measurement has validated"


def test_a_prediction_for_hosts_of_their_own_says_that_nothing_was_validated(
    tmp_path: Path, factory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = factory.cluster(colocate=False)
    (said,) = doubts(*pair(factory, tmp_path / "pair", profile=hosts))
    assert UNVALIDATED in said
    assert "(colocate: true)" in said
    # it needs no measurement beside it: the terminal and the report of predictions alone say so
    record = factory.write(tmp_path / "alone", factory.plan(), "simulated", profile=hosts)
    shown._noted([record, record])
    assert capsys.readouterr().err.count(UNVALIDATED) == 1
    made = report_on([tmp_path / "alone"], tmp_path / "report", None)
    assert made.findings.comparisons == ()
    for name in ("report.html", "summary.md"):
        assert UNVALIDATED in (tmp_path / "report" / name).read_text()
    # a measurement is of the machines as they are, and one shared machine was validated
    shown._noted([factory.write(tmp_path / "real", factory.plan(), "real", profile=hosts)])
    shown._noted([factory.write(tmp_path / "one", factory.plan(), "simulated")])
    assert UNVALIDATED not in capsys.readouterr().err


def test_machines_are_told_apart_by_processor_and_cores(factory: Any) -> None:
    here = factory.environment()
    assert same_machine("Testium 9000, 4 cores", here)
    assert same_machine("testium 9000, 4 cores (node3)", here)
    assert not same_machine("Testium 9000, 8 cores", here)
    assert not same_machine("Other, 4 cores", here)
    assert not same_machine("", here)


def test_a_noisy_measurement_asks_for_repeats() -> None:
    assert list(noisy(0.05, 1)) == []
    assert list(noisy(None, 1)) == []
    assert list(noisy(0.2, 1)) == ["The measurement spreads by ± 20.0 %: repeat the run."]
