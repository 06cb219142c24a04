"""What is printed: on output that takes nothing, or not every character; and unforeseen errors."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clock import LIMIT

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")
EXPERIMENT = """
name: small
model: tiny
data: {eval_rows: 0, synthetic: {rows: 2000}}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {threads: 1, steps: 5, warmup_steps: 1}
simulation: {what_if_steps: 0}
strategy: flat_ps
"""
SIMULATE = ["simulate", "small.yaml", "--cluster", REFERENCE]
BROKEN = """
import sys, recsim_train.calls as calls
def load(*_, **__): raise {error}
calls.load = load
sys.argv = ["recsim-train", "simulate", "small.yaml"]
from recsim_train.__main__ import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


def command(
    *words: str, cwd: Path, more: Mapping[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[bytes]:
    program = how.pop("program", [sys.executable, "-m", "recsim_train"])
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": LIMIT} | how
    environment = {**os.environ, **(more or {})}
    return subprocess.run([*program, *words], cwd=cwd, env=environment, check=False, **how)


def complaints(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    progress = ("data:", "note:", "simulating", "predicted", "predicting", "what-if")
    lines = done.stderr.decode().splitlines()
    return [line for line in lines if not line.startswith(progress)]


PRINTING = [["--help"], ["show", "settings"], ["show", "schema", "experiment"],
            [*SIMULATE, "--json"], SIMULATE, [*SIMULATE, "--dry-run"]]  # fmt: skip


@pytest.mark.parametrize("words", PRINTING, ids=lambda words: " ".join((words[0], words[-1])))
def test_a_full_disk_behind_standard_output(folder: Path, words: list[str]) -> None:
    buffered = "1" if words in (SIMULATE, ["show", "settings"]) else ""
    with open("/dev/full", "wb") as full:
        done = command(*words, cwd=folder, stdout=full, more={"PYTHONUNBUFFERED": buffered})
    assert done.returncode == 1
    assert complaints(done) == ["failed: standard output: No space left on device"]


def test_a_closed_standard_output_is_told_before_anything_is_done(folder: Path) -> None:
    done = command(*SIMULATE, cwd=folder, preexec_fn=lambda: os.close(1))
    assert done.returncode == 1
    assert complaints(done) == [
        "failed: standard output is closed: send it to a file, or to /dev/null"
    ]
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("closed", [(2,), (0, 2)])
def test_other_streams_may_be_closed(folder: Path, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    done = command("run", "small.yaml", cwd=folder, preexec_fn=close)
    assert done.returncode == 0, done.stderr
    assert b"flat_ps" in done.stdout
    assert b"%" not in done.stdout.partition(b"strategy")[0]  # no progress


def test_a_reader_that_has_gone_is_no_news(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = command(*SIMULATE, cwd=folder, stdout=writing)
    os.close(writing)
    assert done.returncode == 141
    assert complaints(done) == []


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_slow_reader_that_does_not_block_gets_all_of_it(folder: Path, buffered: str) -> None:
    words = [sys.executable, "-m", "recsim_train", "show", "schema", "experiment"]
    whole = subprocess.run(words, cwd=folder, capture_output=True, check=True).stdout
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    more = {**os.environ, "PYTHONUNBUFFERED": buffered}
    with open(reading, "rb") as reader:
        with subprocess.Popen(words, cwd=folder, stdout=writing, env=more) as process:
            os.close(writing)
            time.sleep(2)
            content = reader.read()
        assert process.returncode == 0
    assert content == whole


LOCALES = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C": {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": ""},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_characters_that_the_encoding_lacks(folder: Path, locale: str) -> None:
    asked = [*SIMULATE, "--set", "simulation.what_if_steps=2"]
    for words in (asked, ["report", "runs"]) if locale == "ascii" else (asked,):
        done = command(*words, cwd=folder, more=LOCALES[locale])
        assert done.returncode == 0, done.stderr
        text = done.stdout.decode("latin-1" if locale == "latin-1" else "ascii")
        assert text
        assert "\\x" not in text
        assert "\\u" not in text
        if words == asked:
            assert (" ± " if locale == "latin-1" else " +- ") in text


def test_a_files_name_is_printed_as_it_is(folder: Path) -> None:
    code = "from recsim_train.cli import output; output.prepare(); print('a\\udcffb é \\u4e2d')"
    program = [sys.executable, "-c", code]
    for encoding, expected in (("ascii", b"a\xffb e \\u4e2d\n"), ("utf-8", "é 中\n".encode())):
        done = command(cwd=folder, program=program, more={"PYTHONIOENCODING": encoding})
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"a\xffb ")
        assert done.stdout.endswith(expected)


def test_words_that_are_no_text_are_refused(folder: Path) -> None:
    done = command(*SIMULATE, "--set", "name=a\udcffb", cwd=folder)
    assert done.returncode == 2
    assert b"'name=a\\udcffb' is no text in this terminal's encoding" in done.stderr
    done = command(*SIMULATE, "--out", "a\udcffb", cwd=folder)
    assert done.returncode == 2
    assert complaints(done) == ["error: 'a\\udcffb': a folder's name has to be text in UTF-8"]


@pytest.mark.parametrize(
    "error", ["EOFError()", "EOFError('Ran out of input')", "IndexError('list of\\nlines')",
              "UnicodeError('bad')", "KeyError('x')", "RuntimeError('why') from ValueError('so')"],
)  # fmt: skip
def test_an_unforeseen_error_is_one_sentence_and_a_traceback_in_a_file(
    folder: Path, error: str
) -> None:
    program = [sys.executable, "-c", BROKEN.format(error=error)]
    done = command(cwd=folder, program=program, more={"TMPDIR": str(folder)})
    assert done.returncode == 1
    (said,) = complaints(done)
    cause = re.split(r"\W", error.rpartition(" from ")[2])[0]
    found = re.fullmatch(
        r"failed: this is a fault of recsim-train: (\w+)(?:: .*)? \(.*\); the traceback is in (.*)",
        said,
    )
    assert found is not None, said
    assert found[1] == cause
    kept = Path(found[2]).read_text()
    assert kept.startswith(("Traceback", cause))
    assert cause in kept
    assert "in load" in kept


def test_memory_that_is_not_there(folder: Path) -> None:
    code = BROKEN.format(error="MemoryError('Unable to allocate 8.00 TiB')")
    done = command(cwd=folder, program=[sys.executable, "-c", code])
    assert done.returncode == 1
    assert complaints(done) == ["failed: there is not enough memory: Unable to allocate 8.00 TiB"]


def test_an_error_of_the_system_says_where_it_came_from(folder: Path) -> None:
    code = BROKEN.format(error="OSError(90, 'Message too long')")
    done = command(cwd=folder, program=[sys.executable, "-c", code])
    assert done.returncode == 1
    assert complaints(done) == ["failed: Message too long (<string>:3)"]


TWO = ["--set", "roles.trainers=[1,2]"]


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (SIMULATE, 5000), ([*SIMULATE, *TWO], 5000),
        (["validate", "small.yaml", "--cluster", REFERENCE, *TWO], 5000),
        (["data", "generate", "small.yaml", "--out", "runs/some.tsv"], 5000),
    ],
    ids=["a run", "a sweep", "a validation", "data"],
)  # fmt: skip
def test_a_disk_that_takes_no_more_is_left_without_rests(
    folder: Path, words: list[str], limit: int
) -> None:
    def little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = command(*words, cwd=folder, preexec_fn=little)
    assert done.returncode == 1
    (said,) = complaints(done)
    assert said.startswith("failed: runs/")
    assert "could not be written" in said
    assert list((folder / "runs").iterdir()) == []


def test_no_half_of_a_report_is_left(folder: Path) -> None:
    assert command(*SIMULATE, cwd=folder).returncode == 0
    assert command("run", "small.yaml", cwd=folder).returncode == 0
    for limit in (5000, 60_000):  # a trace is some 10 kB, a page more
        done = command(
            "report", "runs", "--out", "report", cwd=folder,
            preexec_fn=lambda n=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)),
        )  # fmt: skip
        assert done.returncode == 1
        assert complaints(done) == [
            "failed: report: the report could not be written: File too large"
        ]
        for path in (folder / "report").rglob("*"):
            if path.is_file():
                assert not path.name.endswith(".part")
                assert path.stat().st_size != limit, path
                assert limit or path.stat().st_size == 0, path
