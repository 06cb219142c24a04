"""What users read in help and docstrings is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recsim_train import calls
from recsim_train.cli.calibrate import calibrate
from recsim_train.config.schema import settings_table
from recsim_train.report import naming
from recsim_train.report.naming import REPORTS, words_of
from recsim_train.trace import ledger
from tests.docs import manual

ROOT = Path(__file__).parents[2]


def test_every_line_of_the_ledger_is_explained_where_it_is_defined() -> None:
    assert ledger.__doc__ is not None
    explained = set(re.findall(r"``(\w+)``", ledger.__doc__))
    assert explained >= {*ledger.AROUND, ledger.READING}


@pytest.mark.parametrize("line", sorted({*ledger.AROUND, ledger.READING, ledger.NOT_BOOKED}))
def test_a_report_explains_the_lines_that_are_around_operations(line: str) -> None:
    assert naming.work(line) in words_of(REPORTS)


@pytest.mark.parametrize("text", [calls.calibrate.__doc__, calibrate.__doc__])
def test_calibration_is_described_as_it_is(text: str | None) -> None:
    assert text is not None
    flat = " ".join(text.split())
    assert "several minutes" in flat
    assert "calibration's own programs" in flat
    assert "flat_ps" not in flat


def test_nobody_promises_two_minutes() -> None:
    pages = [*(ROOT / "recsim_train").rglob("*.py"), *manual.PAGES]
    for page in pages:
        flat = re.sub(r'["\s]+', " ", page.read_text(encoding="utf-8"))
        assert not re.search(r"(about|in|of|than) two minutes", flat), page


def test_what_is_balanced_depends_on_no_profile() -> None:
    (meaning,) = [row.meaning for row in settings_table() if row.name == "placement.cost"]
    assert "the same with every profile" in meaning


@pytest.mark.parametrize(
    ("page", "section"),
    [
        ("README.md", "\n## How true it is\n"),
        ("docs/explain/how-true.md", "\n## Before you use these figures\n"),
        ("docs/explain/limits.md", "\n## What was never measured\n"),
    ],
)
def test_where_errors_are_stated_it_is_said_what_was_never_validated(
    page: str, section: str
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text.partition(section)[2].partition("\n## ")[0]  # beside the figures
    flat = " ".join(text.replace("*", "").split())
    assert "one machine that all processes share (`colocate: true`)" in flat
    assert "equal fluid shares of cores" in flat
    assert "no real cluster has validated" in flat


def test_caveats_stand_before_the_figures() -> None:
    text = (ROOT / "docs" / "explain" / "how-true.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert titles[:3] == ["Before you use these figures", "Repeat it", "What validations found"]
