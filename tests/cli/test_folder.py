"""``simulate`` of a folder: every experiment in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recsim_train.results import environment
from tests.commands import command

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")

TEXT = """
model: tiny
data: {eval_rows: 0, synthetic: {rows: 2000}}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {threads: 2, steps: 60, warmup_steps: 6}
strategy: flat_ps
cluster: reference-2core
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "b.yaml").write_text(f"name: second{TEXT}")
    return tmp_path


def simulate(folder: Path, *words: str, ends: int = 0) -> tuple[Any, str]:
    done = command("simulate", "all", "--cluster", REFERENCE, "--json", *words, cwd=folder)
    assert done.returncode == ends, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout), done.stderr


def test_every_experiment_of_a_folder(folder: Path) -> None:
    (folder / "all" / "a.yaml").write_text(f"name: first{TEXT}".replace("flat_ps", "allreduce"))
    (folder / "all" / "notes.txt").write_text("no experiment")
    found, said = simulate(folder, "--out", "out")
    assert [run["experiment"] for run in found["runs"]] == ["first", "second"]
    assert said.index("all/a.yaml (1 of 2)") < said.index("all/b.yaml (2 of 2)")
    assert len(list((folder / "out").iterdir())) == 2
    done = command(
        "simulate", "all", "--cluster", REFERENCE, "--resume", "--out", "out", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "flat_ps" in done.stdout
    assert "allreduce" in done.stdout


def test_one_bad_file_does_not_stop_the_others(folder: Path) -> None:
    (folder / "all" / "a.yaml").write_text(f"name: bad\nmodle: tiny{TEXT}")
    (folder / "all" / "c.yaml").write_text(f"name: swept\nsweep: {{seed: [1, 2]}}{TEXT}")
    found, said = simulate(folder, ends=1)
    assert [run["experiment"] for run in found["runs"]] == ["second"]
    assert "did you mean 'model'" in said
    assert "left out: it is a sweep" in said
    assert "1 of 3 failed: all/a.yaml" in said


def test_an_empty_folder_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = command("simulate", "none", cwd=tmp_path)
    assert done.returncode == 2
    assert "no experiment" in done.stderr


def test_a_dry_run_starts_nothing(folder: Path) -> None:
    done = command("simulate", "all", "--cluster", REFERENCE, "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "3 processes" in done.stdout
    assert not (folder / "runs").exists()


def test_resume_simulates_nothing_twice(folder: Path) -> None:
    simulate(folder)
    runs = {p.name: p.stat().st_mtime_ns for p in (folder / "runs").iterdir() if p.is_dir()}
    simulate(folder, "--resume")
    assert runs == {p.name: p.stat().st_mtime_ns for p in (folder / "runs").iterdir() if p.is_dir()}


def test_resume_makes_anew_what_other_code_predicted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = simulate(folder)
    monkeypatch.setattr(environment, "_own", lambda: "another constant in the simulator")
    anew, said = simulate(folder, "--resume")
    assert [run["run_id"] for run in anew["runs"]] == [run["run_id"] for run in before["runs"]]
    assert said.count("made by other code") == len(anew["runs"])
    _, said = simulate(folder, "--resume")
    assert "other code" not in said
    assert "simulating" not in said
