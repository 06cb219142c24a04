"""Runs of a folder, listed, and two of them beside each other."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.commands import ROOT, command

SHORT = [
    "simulate", ROOT / "experiments/quickstart.yaml", "--cluster", ROOT / "tests/frozen-2core.yaml",
    "--set", "model=tiny", "--set", "data.path=null", "--set", "training.steps=20",
    "--set", "simulation.what_if_steps=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, the second in a folder of its own, and what is none."""
    made = tmp_path_factory.mktemp("runs")
    for number, (place, sets) in enumerate(
        (
            ("runs", "seed=1"),
            ("runs/more", "training.batch_size=64"),
            ("runs", "strategy=allreduce"),
        )
    ):
        done = command(*SHORT, "--out", place, "--set", sets, cwd=made)
        assert done.returncode == 0, done.stderr
        newest = max((made / "runs").rglob("manifest.json"), key=lambda p: p.stat().st_mtime_ns)
        os.utime(newest, (1e9 + number, 1e9 + number))
    (made / "runs" / ".writing-x").mkdir()
    (made / "runs" / ".writing-x" / "manifest.json").write_text("{}")
    (made / "runs" / "broken").mkdir()
    (made / "runs" / "broken" / "manifest.json").write_text("{")
    return made


def test_all_runs_are_listed_newest_first(folder: Path) -> None:
    done = command("runs", "list", cwd=folder)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[:2] == ["run", "written"]
    first = [row.split()[0] for row in rows if "quickstart-" in row]
    assert [name.rpartition("-simulated")[0] for name in first] == [
        "quickstart-allreduce", "more/quickstart-flat_ps", "quickstart-flat_ps",
    ]  # fmt: skip
    assert "left out: " in done.stderr
    assert "broken" in done.stderr
    assert ".writing" not in done.stderr
    found = json.loads(command("runs", "list", "--json", cwd=folder).stdout)["runs"]
    assert [run["strategy"] for run in found] == ["allreduce", "flat_ps", "flat_ps"]
    assert all(run["examples_per_second"] > 0 for run in found)


def test_two_runs_differ_in_what_was_set_and_what_came_of_it(folder: Path) -> None:
    runs = {p.parent.name[:20]: p.parent for p in (folder / "runs").glob("quick*/manifest.json")}
    (other,) = (folder / "runs" / "more").glob("quick*")
    one = runs["quickstart-flat_ps-s"]
    done = command("runs", "diff", one, other, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["settings"] == {"training.batch_size": [128, 64]}
    assert found["profile"] == found["versions"] == {}
    before, after = found["figures"]["examples_per_second"]
    assert before != after
    shown = command("runs", "diff", one, other, cwd=folder).stdout
    assert "training.batch_size" in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("training.batch_size")]
    assert row.split()[1:] == ["128", "64", "0.5"]
    found = json.loads(command("runs", "diff", one, one, "--json", cwd=folder).stdout)
    assert not any(found.values())
    assert "They do not differ." in command("runs", "diff", one, one, cwd=folder).stdout


def test_no_run_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    for words in (["list", "nowhere"], ["diff", "runs/broken", "runs"]):
        done = command("runs", *words, cwd=folder)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    shutil.copytree(folder / "runs" / "more", tmp_path / "more")
    assert command("runs", "list", "more", cwd=tmp_path).returncode == 0
