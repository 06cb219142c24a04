"""How commands end before their time: signals, and readers of their output that go away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.clock import LIMIT, until

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")
EXPERIMENT = """
name: small
model: tiny
data: {eval_rows: 0, synthetic: {rows: 2000}}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {threads: 1, steps: 5, warmup_steps: 1}
simulation: {what_if_steps: 0}
strategy: [flat_ps, allreduce]
"""
SLOW = """
import time
try:
    print("importing", flush=True)
    exec("time.sleep(60)")  # as dataclasses make their methods
except KeyboardInterrupt:
    {meanwhile}
    raise
"""
BOTH = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
SIGNALLED = """
import os, signal, sys, time
import {module} as module
original, calls = module.{name}, []
def asked(*words, **named):
    calls.append(1)
    if len(calls) == {call}:
        os.kill(os.getpid(), {number:d})
        time.sleep(0.01)
    return original(*words, **named)
module.{name} = asked
sys.argv = ["recsim-train", *{words!r}]
from recsim_train.__main__ import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


def signalled(
    folder: Path, *words: str, when: tuple[str, str], number: int, call: int = 1
) -> subprocess.CompletedProcess[str]:
    """A command that gets a signal at the ``call``-th call of a function (module, name)."""
    module, name = when
    code = SIGNALLED.format(module=module, name=name, call=call, number=number, words=words)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def runs(folder: Path) -> list[Path]:
    return sorted((folder / "runs").iterdir())


def slow_import(folder: Path, meanwhile: str = "pass") -> str:
    """A PYTHONPATH on which the first library that the command line needs says so, and waits.

    ``meanwhile``: what it makes of an interrupt before it goes on to end by it.
    """
    (folder / "slow").mkdir()
    (folder / "slow" / "typer.py").write_text(SLOW.format(meanwhile=meanwhile))
    return f"{folder / 'slow'}:{os.environ.get('PYTHONPATH', '')}"


@BOTH
@pytest.mark.parametrize("meanwhile", ["pass", "raise ImportError('half of it is missing')"])
def test_while_modules_are_read(
    start: Any, folder: Path, number: int, code: int, meanwhile: str
) -> None:
    path = slow_import(folder, meanwhile)
    process = start("simulate", "small.yaml", cwd=folder, PYTHONPATH=path)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == code, errors
    # nothing is kept that could be gone on from
    assert errors == "interrupted; to begin again: recsim-train simulate small.yaml\n"


def test_an_interrupt_within_a_callback_of_a_library_is_not_lost() -> None:
    code = (
        "import ctypes, os, signal, time\n"
        "from recsim_train import signals\n"
        "signals.listen()\n"
        "@ctypes.CFUNCTYPE(None)\n"
        "def callback():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.01)\n"
        "callback()\n"  # nobody hears what is raised in it
        "try: time.sleep(10)\n"
        "except KeyboardInterrupt: print('heard', signals.received())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stdout == "heard 15\n"
    assert not done.stderr


@pytest.mark.parametrize(("pause", "code"), [(0.0, 143), (1.1, -15)])
def test_the_same_wish_said_twice_does_not_cut_an_end_short(pause: float, code: int) -> None:
    """`timeout` signals a process and then its group; a user who means it signals again later."""
    script = (
        "import os, signal, sys, time\n"
        "from recsim_train import signals\n"
        "signals.listen()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(10)\n"
        "except KeyboardInterrupt: signals.stop_listening()\n"
        f"time.sleep({pause})\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.1)\n"
        "sys.exit(128 + signals.received())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=LIMIT, check=False)
    assert done.returncode == code


def test_an_ignored_interrupt_stays_ignored_and_sigterm_works(start: Any, folder: Path) -> None:
    words = [sys.executable, "-m", "recsim_train", "show", "presets"]
    shell = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    process = start(*words, program=shell, cwd=folder, PYTHONPATH=slow_import(folder))
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 143, errors
    assert errors == "interrupted\n"


@BOTH
def test_a_run_that_is_being_written_is_kept_whole(folder: Path, number: int, code: int) -> None:
    when = ("recsim_train.results.tables", "write_tables")
    words = ("simulate", "small.yaml", "--cluster", REFERENCE)
    done = signalled(folder, *words, when=when, number=number)
    assert done.returncode == code, done.stderr
    assert "to go on: recsim-train simulate small.yaml" in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = runs(folder)
    assert json.loads((run / "manifest.json").read_text())["status"] == "complete"
    assert "flat_ps" in run.name
    kept = run.stat().st_mtime_ns
    again = subprocess.run(
        [sys.executable, "-m", "recsim_train", *words, "--resume", "--json"],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    assert len(json.loads(again.stdout)["runs"]) == len(runs(folder)) == 2
    assert run.stat().st_mtime_ns == kept


def test_a_measurement_that_is_being_written_is_kept_whole(folder: Path) -> None:
    # the name of a measurement is reserved by an empty folder before its figures are made
    when = ("recsim_train.results.rundir", "summarise")
    words = ("run", "small.yaml", "--set", "strategy=flat_ps")
    done = signalled(folder, *words, when=when, number=signal.SIGTERM)
    assert done.returncode == 143, done.stderr
    (run,) = runs(folder)
    assert json.loads((run / "manifest.json").read_text())["status"] == "complete"


def test_of_a_sweep_that_is_being_begun_nothing_stays(folder: Path) -> None:
    when = ("recsim_train.sweep.folder", "put")
    words = ("simulate", "small.yaml", "--cluster", REFERENCE, "--set", "roles.trainers=[1, 2]")
    done = signalled(folder, *words, when=when, number=signal.SIGTERM)
    assert done.returncode == 143, done.stderr
    assert not runs(folder)


def test_a_sweep_that_was_there_stays(folder: Path) -> None:
    """One of which nothing is finished: all that it says may be why."""
    words = ("simulate", "small.yaml", "--cluster", REFERENCE, "--set", "roles.trainers=[1, 2]")
    when = ("recsim_train.sweep.folder", "put")
    first = signalled(folder, *words, when=when, number=signal.SIGTERM, call=100)
    assert first.returncode == 0, first.stderr
    (sweep,) = runs(folder)
    (sweep / "sweep.parquet").unlink()
    done = signalled(folder, *words, "--resume", when=when, number=signal.SIGTERM)
    assert done.returncode == 143, done.stderr
    assert runs(folder) == [sweep]


def test_of_a_validation_that_is_being_begun_all_predictions_stay(folder: Path) -> None:
    when = ("recsim_train.validation.folder", "put")
    words = ("validate", "small.yaml", "--cluster", REFERENCE)
    done = signalled(folder, *words, when=when, number=signal.SIGTERM)
    assert done.returncode == 143, done.stderr
    (begun,) = runs(folder)
    assert len(json.loads((begun / "predictions.json").read_text())["predictions"]) == 2
    assert "to go on: recsim-train validate small.yaml" in done.stderr


def test_finished_files_of_a_folder_are_kept(folder: Path) -> None:
    (folder / "all").mkdir()
    for strategy in ("flat_ps", "allreduce"):
        text = EXPERIMENT.replace("[flat_ps, allreduce]", strategy)
        (folder / "all" / f"{strategy}.yaml").write_text(text)
    words = ("simulate", "all", "--cluster", REFERENCE)
    when = ("recsim_train.evaluate.prediction", "predict")
    done = signalled(folder, *words, when=when, call=2, number=signal.SIGTERM)
    assert done.returncode == 143, done.stderr
    assert f"to go on: recsim-train {' '.join(words)} --resume" in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = runs(folder)
    assert (run / "manifest.json").exists()


@pytest.mark.parametrize(("call", "goes_on"), [(1, False), (4, True)])
def test_a_search_that_knows_no_speed_yet_goes_on_from_its_bounds(
    folder: Path, call: int, goes_on: bool
) -> None:
    words = (
        "recommend", "small.yaml", "--cluster", REFERENCE, "--set", "cluster.colocate=false",
        "--hosts", "4", "--jobs", "1",
    )  # fmt: skip
    when = (
        "recsim_train.evaluate.evaluator",
        "writing",
    )  # first the file's head, then a bound each
    done = signalled(folder, *words, when=when, number=signal.SIGTERM, call=call)
    assert done.returncode == 143, done.stderr
    again = f"recsim-train {' '.join(words)}"
    how = f"to go on: {again} --resume" if goes_on else f"to begin again: {again}"
    assert done.stderr.endswith(f"interrupted; {how}\n")
    assert "Traceback" not in done.stderr
    if goes_on:
        (notes,) = (folder / "runs").iterdir()
        assert 1 < len(notes.read_text().splitlines()) <= call


def test_a_report_is_not_left_half_written(folder: Path) -> None:
    words = ("simulate", "small.yaml", "--cluster", REFERENCE)
    subprocess.run(
        [sys.executable, "-m", "recsim_train", *words],
        cwd=folder, capture_output=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    when = ("recsim_train.report.publish", "put")
    done = signalled(folder, "report", "runs", when=when, call=2, number=signal.SIGTERM)
    assert done.returncode == 143, done.stderr
    assert done.stderr.endswith("interrupted\n")
    assert "Traceback" not in done.stderr
    assert not list((folder / "report").rglob(".*"))


def test_calibration_ends_its_processes(start: Any, folder: Path) -> None:
    (folder / "tmp").mkdir()
    process = start("calibrate", "-o", "here.yaml", cwd=folder, TMPDIR=str(folder / "tmp"))
    family = psutil.Process(process.pid)
    # what the others are forked from, and one of them
    until(lambda: len(family.children(recursive=True)) >= 2)
    children = family.children(recursive=True)
    time.sleep(1)
    children = family.children(recursive=True) or children
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=10)[1]
    assert not (folder / "here.yaml").exists()
    assert not list((folder / "tmp").glob("recsim-*"))


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["show", "settings"],
        ["show", "schema", "experiment"],
        ["simulate", "small.yaml", "--cluster", REFERENCE, "--json"],
        ["simulate", "small.yaml", "--dry-run"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.parametrize("buffered", ["", "1"])
def test_output_that_nobody_reads(folder: Path, words: list[str], buffered: str) -> None:
    # as `| head` once it has enough; Python writes at once, or when it ends
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "recsim_train", *words],
        cwd=folder, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": buffered},
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE, done.stderr
    progress = ("data:", "note:", "simulating", "predicted")
    assert not [line for line in done.stderr.splitlines() if not line.startswith(progress)]
