"""What was found is said, whatever happens to what was to come after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import recsim_train
from recsim_train.config.errors import RunFailed
from recsim_train.designs import making, measured
from recsim_train.designs.searching import Found, Searcher
from recsim_train.session import prepare
from recsim_train.session.job import Caller
from tests.recommend.conftest import Studies

FEW: dict[str, Any] = {"hosts": [2, 3], "embedding_hosts": [1], "strategies": "false"}


def test_an_answer_stands_where_what_would_be_enough_is_not_found(
    studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(*_: object, **__: object) -> None:
        raise RunFailed("a process died")

    monkeypatch.setattr(making, "changes", died)
    said: list[str] = []
    caller = Caller(said.append)
    found = recsim_train.recommend(studies(**FEW), target=1e12, caller=caller)
    assert found.answer.met is False
    assert found.answer.would.enough == ()
    assert said[-1] == "note: what would be enough is not known: a process died"


def test_nothing_is_measured_after_a_search_that_was_ended(
    studies: Studies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Searcher.run

    def ended(searcher: Searcher) -> Found:
        found = search(searcher)
        found.stopped = True
        return found

    monkeypatch.setattr(Searcher, "run", ended)
    monkeypatch.setattr(prepare, "can_emulate", lambda: None)
    monkeypatch.setattr(measured, "measure", lambda *_: pytest.fail("it was measured"))
    found = recsim_train.recommend(studies(**FEW), out=tmp_path, measure=1)
    assert found.runs == ()
    assert list(tmp_path.glob("*-recommendation.jsonl"))
