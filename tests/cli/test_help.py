"""What ``--help`` says: whole lines, examples that can be typed; and completion by the shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from recsim_train.cli.main import app
from tests.clock import LIMIT
from tests.commands import command

ROOT = Path(__file__).parents[2]


def all_commands(found: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, found
    for name, inner in getattr(found, "commands", {}).items():
        yield from all_commands(inner, *words, name)


EVERY = dict(all_commands(typer.main.get_command(app)))
GROUPS = [words for words, found in EVERY.items() if hasattr(found, "commands")]
LEAVES = [words for words in EVERY if words not in GROUPS]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_h_is_help_everywhere(words: tuple[str, ...], tmp_path: Path) -> None:
    short = command(*words, "-h", cwd=tmp_path)
    assert short.returncode == 0
    assert short.stdout == command(*words, "--help", cwd=tmp_path).stdout
    assert "-h, --help" in short.stdout


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_no_line_of_a_list_of_commands_is_cut(words: tuple[str, ...], tmp_path: Path) -> None:
    said = command(*words, "--help", cwd=tmp_path, env={"COLUMNS": "80"}).stdout
    listed = said.partition("Commands:\n")[2].splitlines()
    assert len(listed) == len(EVERY[words].commands)
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_each_command_has_examples_that_can_be_typed(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    said = command(*words, "--help", cwd=tmp_path, env={"COLUMNS": "80"}).stdout
    typed = [line.strip() for line in said.partition("Examples:\n")[2].splitlines()]
    assert typed
    for line in typed:
        name, *rest = shlex.split(line)
        assert name == "recsim-train"
        assert tuple(rest[: len(words)]) == words
        # which refuses what it does not know, and values of the wrong kind
        EVERY[words].make_context(words[-1], rest[len(words) :])
        files = [word for word in rest if word.startswith("experiments/")]
        assert all((ROOT / file).is_file() for file in files)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("recsim-train re", {"recommend", "report"}), ("recsim-train report --js", {"--json"})],
)
def test_a_shell_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    around = {
        **os.environ, "_RECSIM_TRAIN_COMPLETE": "complete_bash", "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }  # fmt: skip
    call = "import sys; sys.argv = ['recsim-train']; from recsim_train.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=ROOT, env=around, capture_output=True, text=True,
        timeout=LIMIT, check=False,
    )  # fmt: skip
    assert set(done.stdout.split()) == offered, done.stderr


def test_the_shells_own_script_is_shown(tmp_path: Path) -> None:
    """What ``--install-completion`` writes; which shell it is, is looked up."""
    said = command("--help", cwd=tmp_path).stdout
    assert "--install-completion" in said
    assert "--show-completion" in said
