"""The wheel alone, in a folder where nothing else is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.commands import ROOT, command
from tests.docs.test_tasks import commands


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, what it installs, and the source archive."""
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "-o", str(folder), str(ROOT)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert not re.findall("(?i).*(?:warn|deprecat).*", made.stdout + made.stderr)
    (wheel,) = folder.glob("*.whl")
    install = ["install", "--quiet", "--no-deps", "--target", str(folder / "installed"), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=300)
    return folder


def recsim_train(built: Path, cwd: Path, *words: str) -> str:
    """What it says on both streams; only what the wheel has installed is found."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "recsim_train", *words],
        cwd=cwd, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(built / "installed"), "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_commands_of_the_readme_work_in_an_empty_folder(built: Path, tmp_path: Path) -> None:
    typed = [words for words in commands(ROOT / "README.md") if words[0] in ("cluster", "simulate")]
    assert len(typed) >= 2
    for words in typed:
        said = recsim_train(
            built, tmp_path, *words, *(["--dry-run"] if words[0] == "simulate" else [])
        )
    assert "processes" in said
    recsim_train(built, tmp_path, "init", "first")
    folder, small = tmp_path / "first", ["--set", "model=tiny", "--set", "data.path=null"]
    short = ["--set", "training.steps=20", "--set", "simulation.what_if_steps=0"]
    assert "predicted flat_ps" in recsim_train(
        built, folder, "simulate", "mine.yaml", *short, *small
    )
    said = recsim_train(built, folder, "simulate", "quickstart", "--dry-run", "--cluster", "mine")
    assert "flat_ps" in said


def test_a_first_experiment_is_not_overwritten(tmp_path: Path) -> None:
    assert command("init", "first", cwd=tmp_path).returncode == 0
    written = tmp_path / "first" / "mine.yaml"
    written.write_text("mine")
    done = command("init", "first", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine.yaml exists already: nothing was written" in done.stderr
    assert written.read_text() == "mine"


def test_nothing_of_this_machine_is_in_the_archives(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as one, tarfile.open(source) as other:
        names = [*one.namelist(), *other.getnames()]
    assert not [n for n in names if n.endswith("/local.yaml") or ".recsim-train" in n]
    profiles = {p.name for p in (ROOT / "cluster_profiles").glob("*.yaml")} - {"local.yaml"}
    inside = {Path(n).name for n in names if n.startswith("recsim_train/shipped/cluster_profiles/")}
    assert inside == profiles
