"""benchmarks/script.py: what scripts do alike."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.modules import loaded

script: Any = loaded(Path(__file__).parents[2] / "benchmarks" / "script.py")


def test_an_option_has_the_type_of_its_default() -> None:
    names = {
        "--rounds": (20, "how many"),
        "--out": (Path("here"), ""),
        "--json": (False, ""),
        "--rank": {"type": int},
        "files": {"nargs": "*"},
    }
    found = vars(script.options("About it.", names, ["--rounds", "3", "--out", "there", "a", "b"]))
    assert found == {
        "rounds": 3, "out": Path("there"), "json": False, "rank": None, "files": ["a", "b"]
    }  # fmt: skip
    assert script.options("About it.", names, ["--json"]).json


def test_what_an_option_is_for_stands_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.options("About it.", {"--rounds": (20, "at least 6")}, ["--help"])
    said = capsys.readouterr().out
    assert "About it." in said
    assert "at least 6" in said


def test_a_table_in_markdown() -> None:
    assert script.table(["name", "s"], [["a", 1], ["b", "2.0"]]) == [
        "| name | s |", "|---|---|", "| a | 1 |", "| b | 2.0 |"
    ]  # fmt: skip


def test_a_spread_is_median_and_range() -> None:
    assert script.spread([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0 .. 3.0)"
    assert script.spread([3.0], ".1f") == "3.0"
    assert script.spread({}.values(), ".1f") == ""


def test_growth_is_the_slope_of_logarithms() -> None:
    assert script.exponent([1, 2, 4, 8], [3, 6, 12, 24]) == pytest.approx(1)
    assert script.exponent([1, 2, 4, 8], [3, 3, 3, 3]) == 0
    assert math.isnan(script.exponent([1], [3]))
