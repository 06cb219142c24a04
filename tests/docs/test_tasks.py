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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
import yaml

from recsim_train.cli.main import app
from recsim_train.config.columns import Categorical
from recsim_train.config.profiles import load_cluster
from recsim_train.config.schema import settings_table
from recsim_train.data.mapping import rows_of
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


def test_a_log_of_ones_own_is_described_as_the_page_says(tmp_path: Path) -> None:
    """The experiment that the page writes out, on files that it names, in both worlds."""
    shutil.copytree(ROOT / "cluster_profiles", tmp_path / "cluster_profiles")
    (tmp_path / "logs").mkdir()
    for part in range(2):
        rows = range(600 * part, 600 * (part + 1))
        log = {
            "click": [n % 3 == 0 for n in rows],
            "age": [None if n % 7 == 0 else n % 90 for n in rows],
            "price": [n / 10 for n in rows],
            "hour": [n % 24 for n in rows],
            "user": [f"u{n % 50}" for n in rows],
            "item": [n % 200 for n in rows],
            "history": [[n % 11, n % 13][: n % 3] for n in rows],
        }
        pq.write_table(pa.table(log), tmp_path / "logs" / f"part-{part}.parquet")
    page = TASKS / "your-tables-and-data.md"
    experiment = blocks(page, "yaml")[1]
    (tmp_path / "mine.yaml").write_text(experiment, encoding="utf-8")
    fast = ["--set", "training.steps=4", "--set", "training.warmup_steps=1"]
    for words in (["simulate", "mine.yaml", "--cluster", "reference-2core"], ["run", "mine.yaml"]):
        done = command(*words, *fast, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "logs/part-*.parquet" in done.stderr


def test_the_hash_on_the_page_is_the_one_that_maps_ids() -> None:
    [code] = [c for c in blocks(TASKS / "your-tables-and-data.md", "python") if "def row_of" in c]
    names: dict[str, Any] = {"re": re}
    exec(code, names)  # the manual's own
    spec = Categorical("item", 1001, "hash")
    for values in (["a", "ü", "7", "-7", "7.0", "7.", "7.5", "0x7", " 7"], [7, -7, 0, 2**62]):
        found = np.empty(len(values), np.int64)
        rows_of(pa.array(values), spec, found, np.zeros(2, np.uint64))
        assert found.tolist() == [names["row_of"](value, 1000) for value in values]


def test_the_emulated_example_is_one_that_two_cores_carry() -> None:
    """Machines of two cores carry 100 to 400 Mbit/s of all links together."""
    page = (ROOT / "docs" / "tasks" / "emulate-a-cluster.md").read_text(encoding="utf-8")
    (hosts, rate), *more = re.findall(r"--hosts (\d+) .*--nic (\d+)Mbit/s", page)
    assert not more
    assert int(hosts) * int(rate) <= 50
    default, server = map(int, re.findall(r"nic: (\d+) Mbit/s}", page))
    assert 4 * default + 2 * server <= 60  # of six hosts, too
