"""``simulate`` of a folder with claims, and the report of what it made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import command

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")

CLAIM = (Path(__file__).parent / "more.yaml").read_text(encoding="utf-8")
BASE = CLAIM[CLAIM.index("\nmodel:") :]

GRID = """
name: upwards
claim:
  statement: rows save up to nine tenths
  source: nobody
  mark: ours
  setting: a toy
  hinges_on: the batch
  fitted: {}
  variants: {vectors: [], rows: [strategy.pooling=worker]}
  grid:
    batch: {'8': [training.batch_size=8], '32': [training.batch_size=32]}
    hosts: {'1': [], '2': [roles.trainers=2]}
  checks:
    - {says: rows, measure: bytes, form: saved, of: [rows], over: [vectors], up_to: 0.9}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "b.yaml").write_text(CLAIM)
    return tmp_path


def simulate(folder: Path, *words: str, code: int = 0) -> tuple[Any, str]:
    done = command("simulate", "all", "--cluster", REFERENCE, "--json", *words, cwd=folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_folder_of_claims_and_its_report(folder: Path) -> None:
    (folder / "all" / "a.yaml").write_text("name: plain\n" + BASE)
    (folder / "all" / "notes.txt").write_text("no experiment")
    found, said = simulate(folder, "--out", "out")
    assert [run["experiment"] for run in found["runs"]] == ["plain"]
    (claim,) = found["claims"]
    first, second = claim["checks"]
    assert first["figure"] > 1
    assert (first["verdict"], second["verdict"]) == ("reproduced", "reproduced")
    assert second["figure"] == 1
    (varied,) = claim["sensitivity"]
    assert varied["figure"] != first["figure"]
    # Files in order, a line for each run.
    assert said.index("all/a.yaml (1 of 2)") < said.index("all/b.yaml (2 of 2)")
    assert "1 of 5: one" in said
    # One directory for each run: two settings, each also with a slow NIC, and the plain one,
    # whose name alone differs. The third variant is the first.
    assert len([p for p in (folder / "out").iterdir() if p.is_dir()]) == 5
    assert claim["runs"]["again"] == claim["runs"]["one"]

    done = command("report", "out", "--out", "report", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["claims"] == [claim]
    assert [u["run_id"] for u in document["unpaired"]] == [found["runs"][0]["run_id"]]
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    summary = (folder / "report" / "summary.md").read_text(encoding="utf-8")
    for text in (page, summary):
        assert "two trainers do more than one" in text
        assert "reproduced" in text
        assert "No input was fitted" in text


def test_up_to_is_judged_in_every_combination_of_the_grid(folder: Path) -> None:
    (folder / "all" / "b.yaml").write_text(GRID + BASE)
    found, said = simulate(folder, "--out", "out")
    (claim,) = found["claims"]
    (check,) = claim["checks"]
    points = [(point["at"]["batch"], point["at"]["hosts"]) for point in check["grid"]]
    assert points == [("8", "1"), ("8", "2"), ("32", "1"), ("32", "2")]
    figures = [point["figure"] for point in check["grid"]]
    assert len(set(figures)) > 1
    assert check["figure"] == max(figures)
    assert (check["expected"], check["verdict"]) == (0.9, "not reproduced")
    assert "10 of 10: vectors, batch 32, hosts 2" in said

    done = command("report", "out", "--out", "report", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["claims"] == [claim]
    assert document["unpaired"] == []
    text = (folder / "report" / "summary.md").read_text(encoding="utf-8")
    assert "0 of 4 settings stated beforehand reach 90.0 %" in text
    assert "by batch: 8: 0 of 2, 32: 0 of 2; by hosts: 1: 0 of 2, 2: 0 of 2" in text


def test_one_bad_file_does_not_stop_the_others(folder: Path) -> None:
    (folder / "all" / "a.yaml").write_text("name: bad\nmodle: tiny\n" + BASE)
    two = CLAIM.replace("two: [roles.trainers=2]", "two: ['strategy=[flat_ps, allreduce]']")
    (folder / "all" / "c.yaml").write_text(two)
    found, said = simulate(folder, code=1)
    assert [claim["name"] for claim in found["claims"]] == ["more"]
    assert "did you mean 'model'" in said
    assert "variant 'two': it has 2 strategies" in said
    assert "2 of 3 failed: all/a.yaml, all/c.yaml" in said


def test_an_empty_folder_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = command("simulate", "none", cwd=tmp_path)
    assert done.returncode == 2
    assert "no experiment" in done.stderr


def test_a_dry_run_starts_nothing(folder: Path) -> None:
    done = command("simulate", "all", "--cluster", REFERENCE, "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "two: 4 processes" in done.stderr
    assert not (folder / "runs").exists()


def test_resume_simulates_nothing_twice(folder: Path) -> None:
    simulate(folder)
    runs = {p.name: p.stat().st_mtime_ns for p in (folder / "runs").iterdir() if p.is_dir()}
    simulate(folder, "--resume")
    assert runs == {p.name: p.stat().st_mtime_ns for p in (folder / "runs").iterdir() if p.is_dir()}
