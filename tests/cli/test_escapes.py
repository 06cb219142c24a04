"""What a name says to a terminal never reaches it."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsim_train.config.errors import harmless
from recsim_train.report import terminal
from recsim_train.report.document import Chapter, Document, Lines, TextTable
from tests.commands import command

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")
EVIL = r"a\e[2J\u009b31m\u0007\rb"
EXPERIMENT = f"""
name: "{EVIL}"
model: {{name: "{EVIL}", embedding_dim: 8, bottom_mlp: [8], top_mlp: [1], tables: [50, 60]}}
data: {{path: null, eval_rows: 20, synthetic: {{rows: 900}}}}
roles: {{trainers: 1, embedding_servers: 1, dense_servers: 1}}
training: {{batch_size: 16, steps: 12, warmup_steps: 2}}
simulation: {{what_if_steps: 0}}
strategy: flat_ps
"""
COMMANDS = re.compile("[^\\x20-\\x7e\\t\\n\\xa0-\\U0010ffff]")
"""Of a terminal: control characters but for tabulators and line feeds."""


def spoken(*words: str | Path, cwd: Path) -> str:
    done = command(*words, cwd=cwd)
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "small.yaml", "--dry-run"),
        ("simulate", "small.yaml", "--set", "roles.trainers=[1, 2]", "--dry-run"),
        ("simulate", "small.yaml", "--set", "roles.trainers=[1, 2]", "--jobs", "1"),
        ("simulate", "small.yaml"),
        ("simulate", "small.yaml", "--json"),
        ("run", "small.yaml", "--set", "data.path=\x1b[2J.tsv"),
        ("simulate", "\x1b[2J.yaml"),
        ("validate", "small.yaml", "--dry-run"),
    ],
)
def test_no_command_passes_it_on(folder: Path, words: tuple[str, ...]) -> None:
    said = spoken(*words, *(() if words[0] == "run" else ("--cluster", REFERENCE)), cwd=folder)
    assert said
    assert not COMMANDS.findall(said)


def test_no_report_of_another_s_runs_does(folder: Path) -> None:
    assert "Traceback" not in spoken("simulate", "small.yaml", "--cluster", REFERENCE, cwd=folder)
    (run,) = (folder / "runs").iterdir()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["configuration"]["training"]["dense_optimizer"] = "\x1b[8m"
    (run / "manifest.json").write_text(json.dumps(manifest))
    shutil.copytree(run, run.with_name("other"))
    (folder / "runs" / "no run \x1b]0;title").mkdir()
    said = spoken("report", "runs", cwd=folder)
    assert r"no run \x1b]0;title is left out" in said
    assert not COMMANDS.findall(said)


def test_colours_of_its_own_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setenv("TERM", "xterm-256color")
    made: Any = type(terminal._console())
    assert issubclass(made, Console)
    console = made(file=out, force_terminal=True, color_system="standard", width=80)
    evil = "x\x1b[2J\x07"
    table = TextTable.of(("name",), [[evil]], ("name",))
    chapter = Chapter(evil, [table, Lines([evil], lead="note")])
    terminal.show(Document(headlines=[evil], items=[chapter]), console)
    written = out.getvalue()
    assert "\x1b[1m" in written  # bold, its own
    assert "\x1b[2J" not in written
    assert "\x07" not in written
    assert r"note: x\x1b[2J" in written


def test_what_is_written_out_is_what_a_terminal_would_obey() -> None:
    assert harmless("a\tb\nc é 漢 ±") == "a\tb\nc é 漢 ±"
    every = "".join(map(chr, range(256)))
    assert not COMMANDS.findall(harmless(every))
    assert harmless("\x1b\x7f\x85\r") == r"\x1b\x7f\x85\x0d"


def test_all_that_is_printed_goes_through_it() -> None:
    """`print` and `typer.echo` stand where text is made harmless, or is JSON."""
    cli = ROOT / "recsim_train" / "cli"
    found = {
        (path.name, line.strip())
        for path in cli.glob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<![\w.])print\(|typer\.echo\(", line)
    }
    assert found == {
        ("common.py", "print(harmless(text))"),
        ("common.py", "print(json.dumps(document, indent=2, allow_nan=False))"),
        ("main.py", 'typer.echo(f"recsim-train {__version__}")'),
        ("progress.py", "print(harmless(text), file=Heard(sys.stderr), flush=True)"),
    }
