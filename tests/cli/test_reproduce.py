"""A report's "How to reproduce" does: its commands, run as they are printed, find the same."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
name: small
model: {embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: {count: 4, rows: 500}}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 16, steps: 12, warmup_steps: 2}
strategy: flat_ps
simulation: {what_if_steps: 0}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    (tmp_path / "cluster_profiles").mkdir()
    for name in ("mine", "local"):
        target = tmp_path / "cluster_profiles" / f"{name}.yaml"
        shutil.copy(ROOT / "tests" / "frozen-2core.yaml", target)
    return tmp_path


Command = Callable[[str], None]


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a line in the folder, in this process: the commands are many, their imports slow."""
    from recsim_train.cli.main import app

    monkeypatch.chdir(folder)

    def run(line: str) -> None:
        words = shlex.split(line)
        assert words[0] == "recsim-train"
        monkeypatch.setattr(sys, "argv", words)
        assert not app(words[1:], standalone_mode=False), line

    return run


def printed(report: Path) -> list[str]:
    """The commands of a page."""
    page = (report / "report.html").read_text(encoding="utf-8")
    (block,) = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.DOTALL)
    return html.unescape(block).split("\n")[:-1]


def files(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def document(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_pair_is_made_anew_beside_the_old_one(folder: Path, command: Command) -> None:
    same = "--cluster cluster_profiles/mine.yaml --set training.batch_size=32 --seed 5 --out old"
    for line in (f"simulate small.yaml {same}", f"run small.yaml {same}", "report old --out found"):
        command(f"recsim-train {line}")
    before = files(folder / "old")
    lines = printed(folder / "found")
    assert [line.split()[1] for line in lines] == ["simulate", "run", "report"]
    for line in lines:
        command(line)
    assert files(folder / "old") == before
    (pair,) = document(folder / "found" / "summary.json")["comparisons"]
    (anew,) = document(folder / "again-report" / "summary.json")["comparisons"]
    assert anew["predicted_eps"] == pair["predicted_eps"]
    assert anew["measured_bytes"] == pair["measured_bytes"]
    assert len(anew["real_runs"]) == len(pair["real_runs"]) == 1
    (simulated,) = anew["simulated_runs"]
    assert files(folder / "again" / simulated) == files(folder / "old" / simulated)
    # once more: the folder is there now
    from recsim_train.results.environment import reproducing

    assert all(
        line.endswith(("again-2", "again-2-report")) for line in reproducing([(["", "run"], False)])
    )


def test_of_a_local_profile_it_begins_with_the_calibration(folder: Path, command: Command) -> None:
    command("recsim-train simulate small.yaml --set roles.trainers=2 --out old")
    command("recsim-train report old --out found")
    calibrate, *lines = printed(folder / "found")
    target = "again/local.yaml"
    assert shlex.split(calibrate) == ["recsim-train", "calibrate", "--output", target]
    assert [line.split()[1] for line in lines] == ["simulate", "report"]
    # two minutes of measuring, which would find today's prices: those of then stand for them
    (folder / target).parent.mkdir()
    profile = folder / "cluster_profiles" / "local.yaml"
    shutil.copy(profile, folder / target)
    profile.unlink()
    command(lines[0])
    (old,) = (folder / "old").iterdir()
    assert files(folder / "again" / old.name) == files(old) | {
        "environment.json": (folder / "again" / old.name / "environment.json").read_bytes()
    }


def test_a_sweep_is_made_anew_too(folder: Path, command: Command) -> None:
    axis = "'roles.trainers=[1, 2]' --cluster=mine --jobs 1 --out old"
    command(f"recsim-train simulate small.yaml --set {axis}")
    command("recsim-train report old --out found")
    lines = printed(folder / "found")
    assert [line.split()[1] for line in lines] == ["simulate", "report"]
    for line in lines:
        command(line)
    assert not (folder / "old" / "small-sweep-2").exists()
    old, new = (document(folder / p / "summary.json") for p in ("found", "again-report"))
    assert new["lines"] == old["lines"]
