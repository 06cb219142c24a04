"""`run` and `report` of a model that diverged: its figures, what they are worth, exit code 1."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clock import LIMIT
from tests.ports import free_port

Start = Callable[..., "subprocess.Popen[str]"]
PROFILE = Path(__file__).parents[1] / "frozen-2core.yaml"
EXPERIMENT = """
name: lost
model: {embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: [{rows: 400}, {rows: 60}]}
data: {eval_rows: 200, synthetic: {rows: 2000}}
training: {batch_size: 32, threads: 1, steps: 6, warmup_steps: 2}
simulation: {what_if_steps: 0}
strategy: flat_ps
"""
WORST = "training.dense_lr=1e30"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lost.yaml").write_text(EXPERIMENT)
    return tmp_path


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=LIMIT)
    return process.returncode, out, errors


RANK = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": "0"}


@pytest.mark.parametrize("rank", [False, True], ids=["launcher", "rank"])
def test_a_diverged_run_is_kept_told_and_fails(folder: Path, start: Start, rank: bool) -> None:
    around = {**RANK, "MASTER_PORT": str(free_port())} if rank else {}
    words = ("run", "lost.yaml", "--set", WORST)
    code, shown, errors = said(start(*words, cwd=folder, **around))
    assert code == 1, errors
    assert "diverged since iteration 1" in shown
    assert "examples/s" in shown
    assert "AUC" not in shown
    assert "7 of 8 training losses are not finite" in errors
    (run,) = (folder / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "diverged since iteration 1"
    assert summary["facts"]["diverged"] == {"since": 1, "losses": 7, "of": 8}
    assert [summary[name] for name in ("auc", "loss", "normalized_entropy")] == [None] * 3
    assert summary["steps"] == 6
    assert summary["examples_per_second"] > 0


def test_a_sweep_of_real_runs_tells_which_point_diverged(folder: Path, start: Start) -> None:
    words = ("run", "lost.yaml", "--set", "training.dense_lr=[0.01, 1e30]", "--json")
    code, shown, errors = said(start(*words, cwd=folder))
    assert code == 1, errors
    sound, lost = json.loads(shown)["runs"]
    assert sound["status"] == "complete"
    assert 0 < sound["auc"] < 1
    assert lost["status"] == "diverged since iteration 1"
    assert lost["message"] == "7 of 8 training losses are not finite"
    assert lost["auc"] is None
    # resuming takes both as they are, and still does not call it a success
    code, again, errors = said(start(*words, "--resume", cwd=folder))
    assert code == 1, errors
    assert [run["run_id"] for run in json.loads(again)["runs"]] == [
        sound["run_id"],
        lost["run_id"],
    ]
    assert len(list((folder / "runs").iterdir())) == 2


def test_its_report_goes_on_saying_so(folder: Path, start: Start) -> None:
    words = ("lost.yaml", "--set", WORST)
    assert said(start("run", *words, cwd=folder))[0] == 1
    assert said(start("report", "runs", "--out", "alone", cwd=folder))[0] == 0
    text = (folder / "alone" / "summary.md").read_text()
    assert "diverged since iteration 1" in text
    code, _, errors = said(start("simulate", *words, "--cluster", str(PROFILE), cwd=folder))
    assert code == 0, errors
    code, shown, errors = said(start("report", "runs", cwd=folder))
    assert code == 0, errors
    assert "diverged since iteration 1" in shown
    page, text = ((folder / "report" / name).read_text() for name in ("report.html", "summary.md"))
    for found in (page, text):
        assert "diverged since iteration 1" in found
        assert "no evidence of how fast these settings train" in found
    document = json.loads((folder / "report" / "summary.json").read_text(), parse_constant=refuse)
    (pair,) = document["comparisons"]
    assert pair["status"] == "diverged since iteration 1"
    assert pair["signed_error"] == pytest.approx(pair["predicted_eps"] / pair["measured_eps"] - 1)
    assert document["summary"]["median_abs_error"] is None
    assert document["summary"]["max_abs_error"] is None
    (timeline,) = (folder / "report").glob("trace-*.json")
    events = json.loads(timeline.read_text(), parse_constant=refuse)["traceEvents"]
    measured = [e["args"] for e in events if e.get("cat") == "iteration"]
    assert measured
    # an error that is counted nowhere passes no bar
    code, _, errors = said(start("report", "runs", "--max-error", "10000%", cwd=folder))
    assert code == 3
    assert "every measured model diverged, so there is no error to judge" in errors


def refuse(text: str) -> Any:
    raise AssertionError(f"{text} is no JSON")
