"""No work is lost for a thing beside it: messages, names, folders, rows that nobody asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from recsim_train.config.errors import UserError
from recsim_train.results.folder import slug, writable
from tests.clock import LIMIT

EXPERIMENT = """
name: kept
model: tiny
roles: {trainers: 1}
training: {batch_size: 32, steps: 12, warmup_steps: 1}
data: {eval_rows: 64}
simulation: {what_if_steps: 0}
strategy: allreduce
cluster: reference-2core
"""
LONG = "long name " * 30
"""300 characters."""
UNREAD = "2> >(exec 0<&-)"
"""Standard error that goes to a pipe which nobody reads."""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT)
    return path


def command(words: Sequence[str | Path], shell: str = "") -> subprocess.CompletedProcess[bytes]:
    """``shell``: how the shell redirects standard error."""
    call = [sys.executable, "-m", "recsim_train", *map(str, words)]
    if shell:
        call = ["bash", "-c", f'exec "$@" {shell}', "bash", *call]
    # without a buffer there is nothing that Python would try to write again in the end
    around = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(call, check=False, capture_output=True, timeout=LIMIT, env=around)


def runs_in(folder: Path) -> list[Path]:
    return [path.parent for path in folder.glob("*/manifest.json")]


@pytest.mark.parametrize(
    ("way", "redirected"),
    [
        pytest.param("run", "2>/dev/full", id="run, full"),
        pytest.param("run", "2>&-", id="run, closed", marks=pytest.mark.thorough),
        pytest.param("run", UNREAD, id="run, nobody reads", marks=pytest.mark.thorough),
        pytest.param("simulate", "2>/dev/full", id="simulate, full"),
        pytest.param("simulate", "2>&-", id="simulate, closed"),
        pytest.param("simulate", UNREAD, id="simulate, nobody reads"),
    ],
)
def test_messages_that_nobody_hears_end_nothing(
    tmp_path: Path, experiment: Path, way: str, redirected: str
) -> None:
    out = tmp_path / "runs"
    done = command([way, experiment, "--out", out, "--json"], shell=redirected)
    assert done.returncode == 0
    assert json.loads(done.stdout)  # one document: messages did not go there instead
    (run,) = runs_in(out)
    assert json.loads((run / "manifest.json").read_text())["status"] == "complete"


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_bad_input_has_its_exit_code_where_nobody_hears_why(
    tmp_path: Path, redirected: str
) -> None:
    assert command(["simulate", tmp_path / "none.yaml"], shell=redirected).returncode == 2


@pytest.mark.parametrize(
    ("way", "characters"),
    [
        ("run", 300),
        pytest.param("run", 120_000, marks=pytest.mark.thorough),
        ("simulate", 300),
        ("simulate", 120_000),
    ],
)
def test_a_long_name_is_kept_and_its_folder_shortened(
    tmp_path: Path, experiment: Path, way: str, characters: int
) -> None:
    out, name = tmp_path / "runs", "x" * characters
    done = command([way, experiment, "--out", out, "--set", f"name={name}"])
    assert done.returncode == 0, done.stderr.decode()
    (run,) = runs_in(out)
    assert len(run.name) < 150
    assert json.loads((run / "manifest.json").read_text())["experiment"] == name
    again = command([way, experiment, "--out", out, "--set", f"name={name}", "--resume"])
    assert again.returncode == 0
    assert runs_in(out) == [run]


@pytest.mark.parametrize(
    ("way", "what", "file"),
    [
        ("simulate", "sweep", "sweep.csv"),
        pytest.param("validate", "validation", "validation.json", marks=pytest.mark.thorough),
    ],
)
def test_a_sweep_and_a_validation_of_a_long_name_are_kept(
    way: str, what: str, file: str, tmp_path: Path, experiment: Path
) -> None:
    out = tmp_path / "runs"
    several = ["--out", out, "--set", f"name={LONG}", "--set", "training.batch_size=[32, 64]"]
    done = command([way, experiment, *several])
    assert done.returncode in (0, 3), done.stderr.decode()  # 3: less exact than is asked
    (folder,) = (path for path in out.iterdir() if path.is_dir())
    assert folder.name.endswith(f"-{what}")
    assert (folder / file).exists()


def test_short_names_are_as_they_were_and_long_ones_apart() -> None:
    assert slug("a b/c", "x") == "a-b-c"
    assert slug("n" * 100, "x") == "n" * 100
    assert slug("...", "x") == "x"
    first, second = slug("n" * 300 + "1", "x"), slug("n" * 300 + "2", "x")
    assert first != second
    assert len(first) == len(second) == 100
    assert slug("n" * 300 + "1", "x") == first


LIMITED = "ulimit -f 0; trap '' XFSZ"
FULL = "mkdir -p {out}; mount -t tmpfs -o size=4k none {out}; head -c 4k /dev/zero > {out}/other"


def own_mounts() -> bool:
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True
    )
    return tried.returncode == 0


@pytest.mark.parametrize(
    ("way", "before", "why"),
    [
        ("simulate", LIMITED, "File too large"),
        ("simulate", FULL, "No space left on device"),
        ("run", FULL, "No space left on device"),
    ],
    ids=["simulate, limited", "simulate, full", "run, full"],
)
def test_a_folder_that_takes_nothing_is_refused_before_the_work(
    tmp_path: Path, experiment: Path, way: str, before: str, why: str
) -> None:
    out = tmp_path / "runs"
    if before == FULL and not own_mounts():
        pytest.skip("file systems cannot be mounted here")
    call = " ".join([sys.executable, "-m recsim_train", way, str(experiment), "--out", str(out)])
    words = ["unshare", "-m"] if before == FULL else []
    done = subprocess.run(
        [*words, "bash", "-c", f"{before.format(out=out)}; {call}; s=$?; ls -A {out}; exit $s"],
        check=False,
        capture_output=True,
        timeout=LIMIT,
    )
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert f"nothing can be written there: {why}" in said
    assert " %" not in said  # no progress: nothing had begun
    assert done.stdout.decode().split() == ["other"] * (before == FULL)


def test_what_a_folder_takes_is_tried_with_the_name(tmp_path: Path) -> None:
    writable(tmp_path / "new" / "folder", "name")
    assert not list((tmp_path / "new" / "folder").iterdir())
    with pytest.raises(UserError, match="nothing can be written there: File name too long"):
        writable(tmp_path, "n" * 250)


@pytest.mark.parametrize("target", ["folder", "n" * 260 + ".yaml"], ids=["a folder", "a long name"])
def test_calibrating_refuses_a_profile_that_cannot_be_written(tmp_path: Path, target: str) -> None:
    (tmp_path / "folder").mkdir()
    done = command(["calibrate", "--output", tmp_path / target])
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert "is a folder" in said or "File name too long" in said
    assert " %" not in said


@pytest.mark.parametrize("there", [True, False], ids=["a file", "no such file"])
def test_no_held_out_rows_are_asked_for_and_none_are_looked_at(
    tmp_path: Path, experiment: Path, there: bool
) -> None:
    out, rows = tmp_path / "runs", tmp_path / "rows.tsv"
    if there:
        rows.write_text("no row at all\n")
    settings = ["--set", "data.eval_rows=0", "--set", f"data.eval_path={rows}"]
    done = command(["run", experiment, "--out", out, *settings])
    assert done.returncode == 0, done.stderr.decode()
    (run,) = runs_in(out)
    found = json.loads((run / "summary.json").read_text())
    assert (found["loss"], found["auc"], found["normalized_entropy"]) == (None, None, None)
