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

from tests.commands import ROOT
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


SHORT = ["--set", "training.steps=20", "--set", "simulation.what_if_steps=0"]


def test_commands_of_the_readme_work_in_an_empty_folder(built: Path, tmp_path: Path) -> None:
    typed = [words for words in commands(ROOT / "README.md") if words[0] in ("cluster", "simulate")]
    assert len(typed) >= 2
    for words in typed:
        recsim_train(built, tmp_path, *words, *(SHORT if words[0] == "simulate" else []))
    said = recsim_train(
        built, tmp_path, "simulate", "quickstart", *SHORT, "--cluster", "reference-2core"
    )
    assert "predicted flat_ps" in said
    assert str(tmp_path) not in recsim_train(built, tmp_path, "show", "presets")


def test_a_first_experiment_is_written_predicted_and_run(built: Path, tmp_path: Path) -> None:
    recsim_train(built, tmp_path, "init", "first")
    folder, small = tmp_path / "first", ["--set", "model=tiny", "--set", "data.path=null"]
    said = recsim_train(built, folder, "simulate", "mine.yaml", *SHORT, *small)
    assert "predicted flat_ps" in said
    recsim_train(built, folder, "run", "mine.yaml", *SHORT, *small)
    assert len(list((folder / "runs").glob("mine-flat_ps-*"))) == 2
    written = (folder / "mine.yaml").read_text()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "recsim_train", "init", "first"], cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(built / "installed")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "mine.yaml exists already: nothing was written" in done.stderr
    assert (folder / "mine.yaml").read_text() == written


def test_nothing_of_this_machine_is_in_the_archives(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as one, tarfile.open(source) as other:
        names = [*one.namelist(), *other.getnames()]
    assert not [n for n in names if n.endswith("/local.yaml") or ".recsim-train" in n]
    profiles = {p.name for p in (ROOT / "cluster_profiles").glob("*.yaml")} - {"local.yaml"}
    inside = {Path(n).name for n in names if n.startswith("recsim_train/shipped/cluster_profiles/")}
    assert inside == profiles
