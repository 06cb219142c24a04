"""Predictions beside measurements that were made elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import recsim_train
from recsim_train.config.errors import UserError
from recsim_train.report.write import report_on
from tests.clock import LIMIT

HEAD = "strategy,trainers,threads,batch,examples_per_second,spread"


@pytest.fixture
def runs(tmp_path: Path, factory: ModuleType) -> Path:
    out = tmp_path / "runs"
    for trainers in (2, 4):
        for kind in ("flat_ps", "allreduce"):
            plan = factory.plan(kind, roles={"trainers": trainers})
            factory.write(out, plan, "simulated", found=factory.outcome(plan))
    return out


def measured(tmp_path: Path, *lines: str, head: str = HEAD) -> Path:
    path = tmp_path / "measured.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def test_a_measurement_is_put_beside_the_prediction_of_its_settings(
    tmp_path: Path, runs: Path
) -> None:
    path = measured(tmp_path, "flat_ps,4,2,128,20000,3 %", "allreduce,2,,,15000,")
    made = report_on([runs], tmp_path / "report", path)
    first, second = made.document["measured_elsewhere"]
    assert first["measured_eps"] == 20000
    assert first["measured_spread"] == pytest.approx(0.03)
    assert first["signed_error"] == pytest.approx(first["predicted_eps"] / 20000 - 1)
    predictions = {u["run_id"]: u for u in made.document["unpaired"]}
    own = predictions[first["simulated_run"]]
    assert (own["strategy"], own["examples_per_second"]) == ("flat_ps", first["predicted_eps"])
    assert own["key"] == first["key"]
    assert "allreduce" in second["label"]
    assert made.document["unmatched"] == []
    assert "measured elsewhere 20.0k ± 3.0 %" in made.document["headlines"][0]
    text = (tmp_path / "report" / "summary.md").read_text()
    assert "## Measured elsewhere" in text
    assert "No prediction is paired with a measurement" not in text
    assert "Measured elsewhere" in (tmp_path / "report" / "report.html").read_text()
    judged = [abs(first["signed_error"]), abs(second["signed_error"])]
    assert made.findings.within(sum(judged) / 2 + 1e-9)
    assert not made.findings.within(sum(judged) / 2 - 1e-9)


def test_a_key_names_one_prediction(tmp_path: Path, runs: Path) -> None:
    keys = [u["key"] for u in report_on([runs]).document["unpaired"]]
    assert len(set(keys)) == 4
    path = measured(tmp_path, f"{keys[2]},9000", head="key,examples_per_second")
    (found,) = report_on([runs], None, path).document["measured_elsewhere"]
    assert found["key"] == keys[2]


def test_lines_without_a_prediction_are_named(tmp_path: Path, runs: Path) -> None:
    path = measured(tmp_path, "flat_ps,8,2,128,20000,", "flat_ps,,,,20000,", "flat_ps,2,,,9,")
    made = report_on([runs], tmp_path / "report", path)
    assert len(made.document["measured_elsewhere"]) == 1
    none, several = made.document["unmatched"]
    assert none == (
        f"{path}, line 2 (flat_ps, trainers 8, threads 2, batch 128): no prediction of these "
        "settings was given."
    )
    assert f"{path}, line 3 (flat_ps): 2 predictions are of such settings; name one" in several
    for key in (u["key"] for u in made.document["unpaired"] if u["strategy"] == "flat_ps"):
        assert key in several
    assert "line 2 (flat_ps, trainers 8" in (tmp_path / "report" / "summary.md").read_text()


def test_each_profile_has_a_comparison_of_its_own(
    tmp_path: Path, runs: Path, factory: ModuleType
) -> None:
    plan = factory.plan("flat_ps")
    other = factory.cluster(name="other")
    factory.write(runs, plan, "simulated", found=factory.outcome(plan, speed=2.0), profile=other)
    path = measured(tmp_path, "flat_ps,2,2,128,20000,")
    pairs = report_on([runs], None, path).document["measured_elsewhere"]
    assert {pair["cluster"] for pair in pairs} == {"local", "other"}


def test_measurements_of_ours_stay_beside_it(
    tmp_path: Path, runs: Path, factory: ModuleType
) -> None:
    plan = factory.plan("flat_ps")
    factory.write(runs, plan, "real", found=factory.outcome(plan, world="real", speed=0.8))
    made = report_on([runs], None, measured(tmp_path, "flat_ps,2,2,128,20000,"))
    assert len(made.findings.comparisons) == len(made.findings.elsewhere) == 1
    assert made.document["comparisons"][0]["key"] == made.document["measured_elsewhere"][0]["key"]
    assert len(made.document["headlines"]) == 2


def test_without_such_a_file_the_report_is_as_it_was(runs: Path) -> None:
    document = report_on([runs]).document
    assert "measured_elsewhere" not in document
    assert "unmatched" not in document


def test_the_command_line_names_a_bad_cell(tmp_path: Path, runs: Path) -> None:
    path = measured(tmp_path, "flat_ps,2,2,128,soon,")
    done = subprocess.run(
        [sys.executable, "-m", "recsim_train", "report", str(runs), "--measured", str(path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    wrong = "examples_per_second: expected a number above 0, got 'soon'"
    assert said == f"error: {path}, line 2: {wrong}"
    assert not (tmp_path / "report").exists()


def test_a_sweep_is_refused(tmp_path: Path) -> None:
    sweep = tmp_path / "some-sweep"
    sweep.mkdir()
    (sweep / "sweep.json").write_text(json.dumps({}))
    with pytest.raises(UserError, match=r"is a sweep; with sweep\.keep_runs=true"):
        recsim_train.compare(sweep, measured=measured(tmp_path, "flat_ps,2,2,128,1,"))
