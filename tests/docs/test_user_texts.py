"""What users read in help and docstrings is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recsim_train import calls
from recsim_train.cli.calibrate import calibrate
from recsim_train.config.reference import settings_table
from recsim_train.report.glossary import TERMS
from recsim_train.trace import ledger

ROOT = Path(__file__).parents[2]


def test_every_line_of_the_ledger_is_explained_where_it_is_defined() -> None:
    assert ledger.__doc__ is not None
    explained = set(re.findall(r"``(\w+)``", ledger.__doc__))
    assert explained >= {*ledger.AROUND, ledger.READING}


@pytest.mark.parametrize("line", [ledger.RUNTIME, ledger.ASKING, ledger.REQUESTS, ledger.TRANSPORT])
def test_a_report_explains_the_lines_that_are_around_operations(line: str) -> None:
    assert line in TERMS


@pytest.mark.parametrize("text", [calls.calibrate.__doc__, calibrate.__doc__])
def test_calibration_is_described_as_it_is(text: str | None) -> None:
    assert text is not None
    flat = " ".join(text.split())
    assert "several minutes" in flat
    assert "calibration's own programs" in flat
    assert "flat_ps" not in flat


def test_nobody_promises_two_minutes() -> None:
    pages = [*(ROOT / "recsim_train").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    for page in [*pages, ROOT / "README.md"]:
        flat = re.sub(r'["\s]+', " ", page.read_text(encoding="utf-8"))
        assert not re.search(r"(about|in|of|than) two minutes", flat), page


def test_what_is_balanced_depends_on_no_profile() -> None:
    (meaning,) = [row.meaning for row in settings_table() if row.name == "placement.cost"]
    assert "the same with every profile" in meaning


@pytest.mark.parametrize("page", ["README.md", "docs/fidelity.md", "docs/how-it-works.md"])
def test_where_errors_are_stated_it_is_said_what_was_never_validated(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == "README.md":
        text = text.partition("\n## ")[0]  # near the headline's figures
    flat = " ".join(text.replace("*", "").split())
    assert "one machine that all processes share (`colocate: true`)" in flat
    assert "equal fluid shares of cores" in flat
    assert "no measurement has validated" in flat
