"""`recsim-train validate` with real runs."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.clock import LIMIT, until
from tests.commands import command

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")
EXPERIMENT = """
name: two
model: tiny
data: {eval_rows: 0, synthetic: {rows: 2000}}
training: {batch_size: 32, threads: 1, steps: 20, warmup_steps: 2}
strategy: flat_ps
simulation: {what_if_steps: 0}
sweep: {roles.trainers: [1, 2]}
validation:
  repeats: 2
  gates: {configurations: 2}
"""
VALIDATE = ("validate", "two.yaml", "--cluster", REFERENCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "two.yaml").write_text(EXPERIMENT)
    return tmp_path


def test_a_dry_run_lists_the_grid_and_starts_nothing(folder: Path) -> None:
    done = command(*VALIDATE, "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "two: 2 configurations, 2 runs of each, 4 runs" in done.stdout
    assert "flat_ps, tiny, 2 x 1 + 0 + 0, batch 32" in done.stdout
    assert "configurations 2" in done.stdout
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "training.batch_size=no"], "training.batch_size"),
        (["--set", "training.batch_size=no", "--dry-run"], "training.batch_size"),
        (["--cluster", "nowhere"], "nowhere"),
        (["--repeats", "0"], "--repeats"),
        (["--set", "model.tables={count: 3, rows: 90_000_000_000}"], "too much"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    folder: Path, words: list[str], said: str
) -> None:
    done = command(*VALIDATE, *words, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_two_configurations_are_predicted_measured_stopped_and_judged(
    start: Any, folder: Path
) -> None:
    process = start(*VALIDATE, cwd=folder)
    place = folder / "runs" / "two-validation"

    def measured() -> bool:
        assert not (place / "measured").exists() or (place / "predictions.json").exists()
        return bool(list(place.glob("measured/*.json")))

    until(measured)
    time.sleep(0.5)  # into the next run
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, errors
    assert "to go on: recsim-train validate two.yaml" in errors
    assert "Traceback" not in errors
    partial = json.loads((place / "validation.json").read_text())
    assert partial["complete"] is False
    assert 1 <= len(partial["runs"]) < 4

    done = command(*VALIDATE, "--resume", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all gates hold" in done.stdout
    assert "of 4 runs are there already" in done.stderr
    result = json.loads((place / "validation.json").read_text())
    assert result["complete"] is True
    assert result["predictions_sha256"] == partial["predictions_sha256"]
    made = datetime.fromisoformat(result["made"])
    assert len(result["runs"]) == 4
    for run in result["runs"]:
        assert made < datetime.fromisoformat(run["started"]) < datetime.fromisoformat(run["ended"])
        assert run["examples_per_second"] > 0
        assert run["speeds"]["before"]["products"] > 0
        assert run["speeds"]["after"]["loopback"] > 0

    # a bar that is known to be missed; nothing is left to run, and what was settled stays settled
    hard = command(*VALIDATE, "--resume", "--set", "validation.gates.raw_median=1 %", cwd=folder)
    assert hard.returncode == 2
    assert "the gates changed since its predictions were made" in hard.stderr
    words = ("--repeats", "1", "--set", "validation.gates.raw_median=0.001 %", "--json")
    done = command(*VALIDATE, *words, cwd=folder)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    verdicts = {gate["name"]: gate["verdict"] for gate in document["gates"]}
    assert verdicts["raw_median"] == "fail"
    assert "gate failed: median absolute raw error" in done.stderr
