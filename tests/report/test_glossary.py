"""One glossary, of which a page shows what it uses, and the manual all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recsim_train.report import naming
from recsim_train.report.naming import CODE, ITERATION, REPORTS, glossary, words_of
from recsim_train.report.publish import explained, forms
from recsim_train.results.summary import OTHER
from recsim_train.strategy import effects

ROOT = Path(__file__).parents[2]


def test_every_effect_has_a_meaning_and_no_other_word() -> None:
    kinds = {effect.kind: effect.__name__ for effect in effects.EFFECTS}
    named = {f"{naming.effect(kind)} ({name})" for kind, name in kinds.items()}
    assert set(words_of(ITERATION)) == named | {naming.effect(OTHER)}


@pytest.mark.parametrize("title", [REPORTS, ITERATION, CODE])
def test_no_word_stands_twice(title: str) -> None:
    known = [form for word in words_of(title) for form in forms(word)]
    assert len(known) == len(set(known))


def test_a_report_explains_the_effects_that_it_shows() -> None:
    assert glossary([]) == words_of(REPORTS)
    shown = set(glossary(["all_to_all", "other", "unheard of"])) - set(words_of(REPORTS))
    assert shown == {"all to all", "the loop itself"}


def test_what_the_page_reads_has_no_markup() -> None:
    for title in (REPORTS, ITERATION, CODE):
        for word, meaning in words_of(title).items():
            assert not re.search(r"`|\]\(", word + meaning), word


def test_words_are_found_as_they_are_written_and_in_the_plural() -> None:
    words = {"AUC": "a", "log loss (held-out loss)": "b", "bound": "c", "tie": "d"}
    shown = "<p title='tie'>Its <b>held-out\nloss</b>, two bounds, an auc; a boundary</p>"
    assert explained(f"<style>AUC</style>{shown}", words) == {
        "log loss (held-out loss)": "b", "bound": "c"
    }  # fmt: skip


def test_the_manual_shows_the_same_glossary() -> None:
    page = (ROOT / "docs" / "reference" / "words.md").read_text(encoding="utf-8")
    for title in (REPORTS, ITERATION, CODE):
        assert f"## {title}" in page
