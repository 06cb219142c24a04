"""What pages tell a user to type is what the program takes."""

from __future__ import annotations

import csv
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from recsim_train.cli.main import app
from recsim_train.config.profiles import load_cluster
from recsim_train.config.schema import settings_table
from tests.commands import command
from tests.docs import manual
from tests.docs.manual import DOCS, PAGES, ROOT

TASKS = DOCS / "tasks"
OWN = {"mine.yaml", "drawn.yaml", "host.yaml"}
"""Files that a page has its reader write."""


def blocks(page: Path, language: str = "") -> list[str]:
    """The blocks of code of one kind on a page, lines that go on joined."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for kind, code in found if kind == language]


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command of ours that a page's blocks have."""
    for line in "\n".join(blocks(page)).splitlines():
        for part in map(str.strip, line.partition("  #")[0].split("&&")):
            if part.startswith("recsim-train "):
                yield shlex.split(part)[1:]


TYPED = [(page, words) for page in PAGES for words in commands(page)]


def test_commands_are_found() -> None:
    assert len(TYPED) > 30


@pytest.mark.parametrize(
    ("page", "words"), TYPED, ids=[f"{manual.name(p)}: {' '.join(w)}" for p, w in TYPED]
)
def test_a_command_on_a_page_can_be_typed(page: Path, words: list[str]) -> None:
    found: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(found, "commands"):
        assert rest[0] in found.commands, f"{page}: {words}"
        found = found.commands[rest.pop(0)]
    known = {option for parameter in found.params for option in parameter.opts} | {"--help"}
    assert {word for word in rest if word.startswith("-")} <= known
    for name in (word for word in rest if word.startswith("experiments/")):
        assert Path(name).name in OWN or (ROOT / name).is_file(), name
    settings = {row.name for row in settings_table()}
    for key in (rest[n + 1].partition("=")[0] for n, word in enumerate(rest) if word == "--set"):
        assert key in settings or re.match(r"(cluster|strategy|sweep)(\.|$)", key), key


def test_twenty_hosts_and_forty_tables_are_described_as_the_pages_say(tmp_path: Path) -> None:
    """By what the two pages say, and a new user's table of tables."""
    (tmp_path / "experiments").mkdir()
    shutil.copytree(ROOT / "cluster_profiles", tmp_path / "cluster_profiles")
    typed = commands(TASKS / "describe-your-cluster.md")
    new = next(words for words in typed if words[:2] == ["cluster", "new"])
    assert new in list(commands(ROOT / "README.md"))
    done = command(*new, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = load_cluster(str(tmp_path / new[2]))
    shown = tmp_path / "cluster_profiles" / "shown.yaml"
    shown.write_text(blocks(TASKS / "describe-your-cluster.md", "yaml")[0], encoding="utf-8")
    told = load_cluster(str(shown))
    assert told.model_copy(update={"description": written.description}) == written

    (experiment, *_) = blocks(TASKS / "your-tables-and-data.md", "yaml")
    settings = yaml.safe_load(experiment)
    rows = [50_000_000] * 3 + [1_000_000] * 10 + [10_000] * 27
    kept = "".join(f"{row},{1 + n % 30}\n" for n, row in enumerate(rows))
    tables = csv.DictReader(io.StringIO(f"rows,max_ids\n{kept}"))
    lines = [f"{{rows: {row['rows']}, ids: {row['max_ids']}}}" for row in tables]
    settings["model"]["tables"] = [yaml.safe_load(line) for line in lines]
    (tmp_path / "experiments" / "mine.yaml").write_text(yaml.safe_dump(settings))
    done = command("simulate", "experiments/mine.yaml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "40 tables" in done.stdout
    assert "20 processes" in done.stdout
    assert "memory: fits" in done.stdout


def test_the_emulated_example_is_one_that_two_cores_carry() -> None:
    """Machines of two cores carry 100 to 400 Mbit/s of all links together."""
    page = (ROOT / "docs" / "tasks" / "emulate-a-cluster.md").read_text(encoding="utf-8")
    (hosts, rate), *more = re.findall(r"--hosts (\d+) .*--nic (\d+)Mbit/s", page)
    assert not more
    assert int(hosts) * int(rate) <= 50
    default, server = map(int, re.findall(r"nic: (\d+) Mbit/s}", page))
    assert 4 * default + 2 * server <= 60  # of six hosts, too
