"""The report's own glossary."""

from __future__ import annotations

from recsim_train.report.glossary import EFFECTS, TERMS, glossary
from recsim_train.results.summary import OTHER
from recsim_train.strategy import effects


def test_every_effect_has_a_meaning_and_no_other_word() -> None:
    assert set(EFFECTS) == {effect.kind for effect in effects.EFFECTS} | {OTHER}
    assert all(meaning.endswith(".") for meaning in EFFECTS.values())


def test_a_report_explains_the_effects_that_it_shows() -> None:
    assert glossary([]) == TERMS
    shown = set(glossary(["all_to_all", "other", "unheard of"])) - set(TERMS)
    assert shown == {"all to all", "between effects"}
