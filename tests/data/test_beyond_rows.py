"""Ids that a table has too few rows for share rows with others: counted, and said."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.experiment import Model
from recsim_train.data.log_stream import Maker
from recsim_train.data.malformed import Malformed
from recsim_train.data.mapping import Mapper
from recsim_train.trace.facts import BeyondRows, beyond_said
from tests.commands import answer, command

ROOT = Path(__file__).parents[2]
ROWS = (3, 20, 1, 2, 500)
LARGEST = (2, 40, 1, 0, 498)
"""Of the ids of each table."""
EXPERIMENT = f"""
name: small
model: {{embedding_dim: 8, dense_features: 2, bottom_mlp: [8], top_mlp: [1], tables: {list(ROWS)}}}
data: {{path: ids.tsv, eval_rows: 20}}
roles: {{trainers: 2, embedding_servers: 1, dense_servers: 1}}
training: {{batch_size: 10, threads: 2, steps: 8, warmup_steps: 2}}
strategy: flat_ps
"""


def line(ids: list[int | None], spoilt: bool = False) -> str:
    words = ["" if one is None else f"{one:x}" for one in ids] + ["0"] * (26 - len(ids))
    return "\t".join(["2" if spoilt else "1", *["1"] * 13, *words]) + "\n"


def drawn(count: int, seed: int = 1) -> list[list[int | None]]:
    """Ids of the five tables, some of them missing."""
    draw = random.Random(seed)
    return [
        [None if draw.random() < 0.1 else draw.randint(0, most) for most in LARGEST]
        for _ in range(count)
    ]


def by_hand(ids: list[list[int | None]]) -> list[tuple[int, float, int]]:
    """(table, share, largest): row 0 is that of missing values, which leaves ids 0 to rows - 2
    a row of their own; in a table of one row only 0 is not beyond."""
    found = []
    for table, rows in enumerate(ROWS):
        column = [row[table] for row in ids]
        beyond = [one for one in column if one is not None and one not in range(max(rows - 1, 1))]
        if beyond:
            found.append((table, len(beyond) / len(ids), max(beyond)))
    return found


def test_every_id_beyond_is_counted_once(
    tmp_path: Path, make_model: Callable[..., Model], make_criteo: Any
) -> None:
    ids = drawn(300)
    path = tmp_path / "ids.tsv"
    path.write_text("".join(map(line, ids)))
    expected = by_hand(ids)
    assert [table for table, *_ in expected] == [0, 1, 2]
    maker = make_criteo(path, make_model(ROWS))
    whole, first, second = (
        Maker(maker.log, Mapper(maker.mapper.layout), str(path), 1.0) for _ in range(3)
    )
    for one, halves in ((whole, (0, 1)), (first, (0,)), (second, (1,))):
        for half in halves:
            list(one.in_order(150 * half, 150 * half + 150, 50))
    first.malformed.merge(second.malformed)  # as two readers have it
    for met in (whole.malformed, first.malformed):
        found = met.beyond_rows(ROWS)
        assert [(f.table, f.largest) for f in found] == [(t, most) for t, _, most in expected]
        assert [f.share for f in found] == pytest.approx([share for _, share, _ in expected])
        assert [f.rows for f in found] == [ROWS[t] for t, *_ in expected]
    assert Malformed().beyond_rows(ROWS) == []  # as of the generator


def test_no_id_of_a_malformed_line_is_counted(
    tmp_path: Path, make_model: Callable[..., Model], make_criteo: Any
) -> None:
    path = tmp_path / "ids.tsv"
    fits: list[int | None] = [0] * len(ROWS)
    path.write_text("".join([line(fits) * 9, line([999] * len(ROWS), spoilt=True), line(fits)]))
    maker = make_criteo(path, make_model(ROWS))
    list(maker.in_order(0, 11, 11))
    assert maker.malformed.total == 1
    assert maker.malformed.beyond_rows(ROWS) == []


def test_the_sentence_names_the_worst_tables_and_no_hashes() -> None:
    assert beyond_said([]) == []
    assert beyond_said([BeyondRows(8, 3, 0.412, 4)]) == [
        "table 8: 41.2 % of its ids lie beyond its 3 rows and share rows with others (6 rows would "
        "hold all)"
    ]
    # 32-bit hashes are meant to share rows, which is no reason for doubt
    assert beyond_said([BeyondRows(8, 3, 1.0, 0xF0A81234)]) == []
    assert beyond_said([BeyondRows(8, 3, 1.0, 4)])[0].startswith("table 8: 100 % of")
    (said,) = beyond_said([BeyondRows(n, 10, n / 100, 99) for n in range(1, 9)])
    assert said.startswith("table 8: 8 % ")
    assert said.endswith("; 3 more tables")
    assert "table 4: 4 %" in said
    assert "table 3:" not in said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    (tmp_path / "ids.tsv").write_text("".join(map(line, drawn(400))))
    return tmp_path


SAID = "% of its ids lie beyond its 20 rows and share rows with others (42 rows would hold all)"


@pytest.mark.parametrize("words", [("simulate",), ("run",), ("data", "describe")])
def test_whoever_looks_at_the_file_says_it(folder: Path, words: tuple[str, ...]) -> None:
    profile = ROOT / "tests" / "frozen-2core.yaml"
    more = ["--batches", "3"] if words[0] == "data" else ["--cluster", profile, "--dry-run"]
    done = command(*words, "small.yaml", *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "note: at the beginning of ids.tsv: table " in done.stderr
    assert SAID in done.stderr
    if words[0] == "data":
        assert "table 1, rows 20, beyond 0." in done.stdout
    # tables that are large enough are not spoken of
    enough = ["--set", "model.tables=[100, 100, 100, 100, 500]"]
    assert "lie beyond" not in command(*words, "small.yaml", *more, *enough, cwd=folder).stderr


def test_profile_has_it_as_numbers(folder: Path) -> None:
    found: Any = answer("data", "describe", "small.yaml", "--batches", "38", cwd=folder)
    shares = {t: share for t, share, _ in by_hand(drawn(400)[20:])}
    assert [row["beyond"] for row in found["tables"]] == pytest.approx(
        [shares.get(t, 0.0) for t in range(len(ROWS))], abs=1e-4
    )


@pytest.mark.slow
def test_a_run_its_report_and_json_say_it(folder: Path) -> None:
    done = command("run", "small.yaml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert f"note: {run['run_id']}: table " in done.stderr
    # of all that the four loops have decoded: some epochs of the rows behind those held out
    expected = by_hand(drawn(400)[20:])
    assert run["facts"]["rows_read"] == 400
    assert [(f["table"], f["largest"]) for f in run["facts"]["ids_beyond"]] == [
        (t, most) for t, _, most in expected
    ]
    assert [f["share"] for f in run["facts"]["ids_beyond"]] == pytest.approx(
        [share for _, share, _ in expected]
    )
    assert any(SAID in sentence for sentence in run["facts"]["warnings"])
    shown = command("report", "runs", "--out", "report", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert SAID in (folder / "report" / "summary.md").read_text()
    assert SAID in (folder / "report" / "report.html").read_text()


def test_what_the_generator_writes_is_meant_to_share_rows(folder: Path) -> None:
    made = ["--set", "data.path=made.tsv", "--set", "model.tables=[3, 20, 1000]"]
    done = command("data", "generate", "small.yaml", "--rows", "300", *made, cwd=folder)
    assert done.returncode == 0, done.stderr
    done = command("data", "describe", "small.yaml", "--batches", "3", *made, cwd=folder)
    assert "lie beyond" not in done.stderr
    assert re.search(r"rows 1000, beyond (0.9|1.0)", done.stdout)
