"""Measurements made elsewhere: every bad cell is named by file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.errors import UserError
from recsim_train.report.elsewhere import COLUMNS, read_measured

GOOD = """\
strategy,trainers,threads,batch,examples_per_second,spread
flat_ps,2,2,128,12474.5,4 %
"allreduce (pooling worker)",,,,9e3,

 des , 4 ,,, 5000 ,
"""


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "measured.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a mark"])
def test_lines_are_read(tmp_path: Path, start: bytes) -> None:
    path = written(tmp_path, start + GOOD.encode())
    first, second, third = read_measured(path)
    assert first.where == f"{path}, line 2"
    assert (first.key, first.strategy) == (None, "flat_ps")
    assert first.counts == {"trainers": 2, "threads": 2, "batch": 128}
    assert first.examples_per_second == 12474.5
    assert first.spread == pytest.approx(0.04)
    assert (second.strategy, second.counts) == ("allreduce (pooling worker)", {})
    assert (second.examples_per_second, second.spread) == (9000.0, None)
    assert third.where.endswith("line 5")
    assert third.counts == {"trainers": 4}
    assert third.title == f"{path}, line 5 (des, trainers 4)"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("flat_ps,2,1,128,fast", "line 2: examples_per_second: expected a number above 0, "
         "got 'fast'"),
        ("flat_ps,2,1,128,", "examples_per_second: missing; expected a number above 0"),
        ("flat_ps,2,1,128,-3", "examples_per_second: expected a number above 0, got -3"),
        ("flat_ps,2,1,128,0", "examples_per_second: expected a number above 0, got 0"),
        ("flat_ps,2,1,128,nan", "examples_per_second: expected a number above 0"),
        ("flat_ps,2,1,128,inf", "examples_per_second: expected a number above 0"),
        ("flat_ps,two,1,128,5", "trainers: expected an integer of at least 1, got 'two'"),
        ("flat_ps,2,0,128,5", "threads: expected an integer of at least 1, got 0"),
        ("flat_ps,2,1,1.5,5", "batch: expected an integer of at least 1, got 1.5"),
        (",2,1,128,5", "line 2: expected a key or a strategy, got neither"),
        ("flat_ps,2,1,128", "line 2: expected 5 cells, got 4"),
        ("flat_ps,2,1,128,5,7", "line 2: expected 5 cells, got 6"),
    ],
)  # fmt: skip
def test_bad_cells_are_named(tmp_path: Path, cells: str, said: str) -> None:
    path = written(tmp_path, f"strategy,trainers,threads,batch,examples_per_second\n{cells}\n")
    with pytest.raises(UserError) as found:
        read_measured(path)
    assert said in str(found.value)
    assert str(path) in str(found.value)


def test_all_bad_cells_at_once(tmp_path: Path) -> None:
    text = "key,trainers,examples_per_second,spread\n,x,-1,5\nabc,1,1,2 %\ndef,0,1,much\n"
    with pytest.raises(UserError) as found:
        read_measured(written(tmp_path, text))
    lines = str(found.value).splitlines()
    assert [line.partition(", ")[2].partition(": expected")[0] for line in lines] == [
        "line 2", "line 2: trainers", "line 2: examples_per_second", "line 2: spread",
        "line 4: trainers", "line 4: spread",
    ]  # fmt: skip
    assert "'5' has none" in lines[3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a line with names of columns and one for each measurement"),
        ("strategy,examples_per_second\n", "one for each measurement"),
        ("strategy,speed\na,1\n", "column 'speed': unknown; the columns are " + ", ".join(COLUMNS)),
        ("strategy,trainers\na,1\n", "there is no column examples_per_second"),
        ("trainers,examples_per_second\n1,1\n", "expected a column key or strategy"),
        ("key,key,examples_per_second\na,b,1\n", "column key: named twice"),
        ('strategy,examples_per_second\n"a,1\n', "is no CSV file in UTF-8"),
        (b"strategy,examples_per_second\n\xff,1\n", "is no CSV file in UTF-8"),
    ],
)
def test_what_is_no_such_file_is_said(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(UserError) as found:
        read_measured(written(tmp_path, text))
    assert said in str(found.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_measured(tmp_path / "none.csv")
