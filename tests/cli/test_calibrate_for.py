"""`recsim-train calibrate --for`: operations at an experiment's own shapes, into a profile."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recsim_train.calibration.own import measure
from recsim_train.cli.main import app
from recsim_train.config.profiles import load_cluster
from recsim_train.config.sweep import written
from recsim_train.results.environment import code_of, machine_name
from recsim_train.session import profile
from recsim_train.session.job import Caller
from tests.clock import LIMIT

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests" / "frozen-2core.yaml"

EXPERIMENT = """
name: small
model: {embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: {count: 6, rows: 500}}
data: {eval_rows: 0, synthetic: {rows: 3000}}
roles: {trainers: 2, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 32, threads: 1, steps: 20, warmup_steps: 2}
strategy: flat_ps
cluster: mine
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a profile that was measured before, and short measurements."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "SECONDS", 0.5)
    monkeypatch.setattr(profile, "_LEAST", 0.5)
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    (tmp_path / "cluster_profiles").mkdir()
    shutil.copy(REFERENCE, tmp_path / "cluster_profiles" / "mine.yaml")
    return tmp_path


def done(*words: str, code: int = 0) -> Any:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == code, found.output
    return found


@pytest.mark.parametrize("ours", [True, False])
def test_operations_that_other_code_measured_are_said(folder: Path, ours: bool) -> None:
    """One profile would hold what two calibrations mean by a price."""
    path = folder / "cluster_profiles" / "mine.yaml"
    if ours:
        text = path.read_text()
        path.write_text(text.replace("{recsim-train: 0.1.0,", f"{{code: {written(code_of())},", 1))
        assert path.read_text() != text
    said: list[str] = []
    profile.measure_machine(path, Caller(said.append), add=True)
    assert ours != any("mine.yaml was measured by other code (None" in s for s in said)


@pytest.mark.slow
def test_operations_are_added_and_a_prediction_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unseen = 0.5  # more than any machine scatters
    monkeypatch.setattr("recsim_train.calibration.profile.UNSEEN", unseen)
    before = load_cluster("mine")
    # a name, as experiments say it
    said = done("calibrate", "--for", "small.yaml", "--into", "mine").output
    assert "wrote cluster_profiles/mine.yaml" in said
    assert "calibrating: operations of experiments" in said
    after = load_cluster("mine")
    assert after.operations
    assert {"forward_backward", "lookup_pooled", "update_pooled", "dense_apply", "reading"} <= {
        entry.operation for entry in after.operations
    }
    # but for the machine's speed, which is that of today, nothing else was measured anew, and the
    # comment at its beginning is there still
    assert before.calibration is not None
    assert after.calibration is not None
    if before.calibration.machine == machine_name():
        speeds = after.calibration.machine_speed
        assert speeds is not None
        assert speeds.before is speeds.after is None
        assert 1 <= len(speeds.between) <= 24
    known = {"machine_speed": before.calibration.machine_speed}
    calibration = after.calibration.model_copy(update=known)
    was = {"operations": None, "jitter": before.jitter, "calibration": calibration}
    assert after.model_copy(update=was) == before
    text = (folder / "cluster_profiles" / "mine.yaml").read_text()
    assert text.splitlines()[0] == REFERENCE.read_text().splitlines()[0]
    predicted = json.loads(done("simulate", "small.yaml", "--json").stdout)
    [run] = predicted["runs"]
    rests = run["facts"]["resting"]
    assert rests["measured"] > 0.1
    assert rests["scaled"] == 0.0
    assert sum(rests[x] for x in ("measured", "scaled", "unit")) == pytest.approx(1.0)
    [said] = [w for w in run["facts"]["warnings"] if "rest on operations measured" in w]
    assert f"{rests['measured']:.1%}" in said
    # once more: what is there is replaced; and so quickly that much is not seen
    profile = "cluster_profiles/mine.yaml"
    done("calibrate", "--quick", "--for", "small.yaml", "--into", profile)
    again = load_cluster("mine").operations or ()
    assert len(again) == len(after.operations)
    assert all((entry.spread or 0.0) >= unseen for entry in again)
    assert not all((entry.spread or 0.0) >= unseen for entry in after.operations)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--into", "mine"), "name one with --for"),
        (("--for", "small.yaml", "--into", "mine", "-o", "other.yaml"), "give one of them"),
        (("--for", "nothing.yaml", "--into", "mine"), "nothing.yaml"),
        (("--for", "small.yaml", "--into", "none"), "none"),
        (("--quick", "--emulate", "mine"), "takes half a minute as it is"),
    ],
)
def test_bad_words_are_one_sentence(folder: Path, words: tuple[str, ...], sentence: str) -> None:
    found = done("calibrate", *words, code=2)
    assert sentence in found.output
    assert "Traceback" not in found.output
    assert (folder / "cluster_profiles" / "mine.yaml").read_text() == REFERENCE.read_text()


@pytest.mark.slow
def test_ctrl_c_leaves_the_profile_as_it_was(folder: Path) -> None:
    words = ["calibrate", "--for", "small.yaml", "--into", "mine"]
    process = subprocess.Popen(
        [sys.executable, "-m", "recsim_train", *words],
        cwd=folder, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "operations of experiments" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert (folder / "cluster_profiles" / "mine.yaml").read_text() == REFERENCE.read_text()
