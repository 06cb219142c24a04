"""A search that was interrupted goes on; one that takes too long does not end the rest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsim_train import calls
from recsim_train.designs import searching
from recsim_train.designs.answer import answer_document, answer_of, evaluated
from recsim_train.designs.searching import Searcher
from recsim_train.designs.wanted import Demand
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.evaluator import Memo, Simulator, evaluate
from recsim_train.evaluate.levels import BOUND, FINAL, INTERVAL, RUNGS, SCREEN, Level
from recsim_train.results.row import DOES_NOT_FIT, FAILED, Row
from recsim_train.session.job import NOBODY, Caller
from tests.recommend.conftest import Spaces, Studies

FEW = {"hosts": [2, 3], "embedding_hosts": [1], "dense_hosts": [1], "servers_per_host": [1]}


def without_time(document: Mapping[str, Any]) -> Mapping[str, Any]:
    times = dict.fromkeys(("seconds", "seconds_by_bounds"))
    return {**document, "evaluated": {**document["evaluated"], **times}}


def test_what_was_found_is_not_done_again(
    spaces: Spaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, file = spaces("strategy=[flat_ps, allreduce]", **FEW), tmp_path / "rows.jsonl"
    asked: list[str] = []
    interrupted = [True]  # the first search goes through
    simulated = Simulator.row

    def counted(self: Simulator, case: Case, level: Level, *rest: Any) -> Row:
        asked.append(case.identity)
        if len(asked) == 7 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return simulated(self, case, level, *rest)

    monkeypatch.setattr(Simulator, "row", counted)
    whole = answer_of(Searcher(space, Demand(), 1, NOBODY).run())
    of_all = len(asked)
    asked.clear()
    interrupted.clear()
    with suppress(KeyboardInterrupt):
        Searcher(space, Demand(), 1, NOBODY, Memo(file, resume=False)).run()
    done = len(file.read_text().splitlines())
    assert done == 6
    with file.open("a") as kept:
        kept.write('{"case": "cut o')  # whoever wrote it was killed
    before, notes = len(asked), Memo(file, resume=True)
    assert len(notes) == 6
    answer = answer_of(Searcher(space, Demand(), 1, NOBODY, notes).run())
    assert without_time(answer_document(answer)) == without_time(answer_document(whole))
    every = len(asked) - before
    assert len(Memo(file, resume=True)) == every + 6
    assert every == of_all - 6


def test_rows_of_other_code_are_left_alone_and_stay(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    notes = Memo(file, "ours", resume=False)
    notes.add("a", BOUND, Row(bounds={"loops": 0.1 + 0.2}))
    notes = Memo(file, "ours", resume=True)
    assert notes.known("a", BOUND) == Row(bounds={"loops": 0.1 + 0.2})
    assert notes.known("a", SCREEN) is None
    assert not notes.others
    theirs = Memo(file, "theirs", resume=True)
    assert (len(theirs), theirs.others) == (0, ["ours"])
    theirs.add("a", BOUND, Row(bounds={}))
    assert Memo(file, "theirs", resume=True).known("a", BOUND) == Row(bounds={})
    assert Memo(file, "ours", resume=True).known("a", BOUND) == Row(bounds={"loops": 0.1 + 0.2})
    # as a version wrote them that did not say which code it was, and lines that are none
    file.write_text('{"versions": {}}\n{"case": "a", "level": "bound", "row": {}}\n5\n[]\n')
    old = Memo(file, "ours", resume=True)
    assert (len(old), old.others) == (0, [None])
    notes.close()
    assert not file.exists()


def test_what_failed_is_made_again_unless_it_took_too_long(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    notes = Memo(file, "ours")
    long = Row(status=FAILED, message="took more than 1 s of CPU", too_long=True)
    for case, row in (
        ("full", Row(status=FAILED)),
        ("long", long),
        ("unfit", Row(status=DOES_NOT_FIT)),
    ):
        notes.add(case, BOUND, row)
    notes = Memo(file, "ours", resume=True)
    known = [notes.known(case, BOUND) for case in ("full", "long", "unfit")]
    assert known == [None, long, Row(status=DOES_NOT_FIT)]


def test_the_command_says_that_rows_are_of_other_code(studies: Studies, tmp_path: Path) -> None:
    study = studies("strategy=allreduce", strategies="false", **FEW)
    file = tmp_path / f"{study.experiment.name}-recommendation.jsonl"
    Memo(file, "theirs", resume=False).add("a", BOUND, Row())
    said: list[str] = []
    calls.recommend(study, out=tmp_path, resume=True, caller=Caller(said.append))
    assert [
        s for s in said if "1 bounds and simulations of before: made by other code (theirs" in s
    ]
    assert not [s for s in said if "going on with" in s]


def test_the_command_goes_on_and_leaves_no_notes(studies: Studies, tmp_path: Path) -> None:
    study = studies("strategy=allreduce", strategies="false", **FEW)
    made = calls.recommend(study, out=tmp_path)
    assert made.out is not None
    file = tmp_path / f"{made.out.name}.jsonl"
    assert not file.exists()
    drawn = made.plot()
    assert drawn is not None
    assert drawn.name == "frontier"
    assert made._repr_html_().count("<svg") == 1
    assert repr(made).startswith("<Recommendation: allreduce on ")
    assert len(made.to_frame()) == 1 + len(made.answer.tied) + len(made.answer.others)
    again = calls.recommend(study, out=tmp_path, resume=True)
    assert without_time(again.document) == without_time(made.document)


def test_one_that_takes_too_long_does_not_end_the_rest(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    brief = RUNGS[2]._replace(level=replace(INTERVAL, seconds=0.2), most=3)
    monkeypatch.setattr(searching, "RUNGS", (*RUNGS[:2], brief))
    monkeypatch.setattr(Simulator, "_interval", endless)
    found = Searcher(space, Demand(), 1, NOBODY).run()
    assert found.in_full == 0
    assert found.simulated  # what short simulations say of them stands
    assert found.failures == {"took more than 0.2 s of CPU": found.failures.total()}
    assert found.failures.total() == 3 < len(found.designs)
    first = RUNGS[0]._replace(level=replace(SCREEN, seconds=0.2))
    monkeypatch.setattr(searching, "RUNGS", (first, *RUNGS[1:]))
    monkeypatch.setattr(Simulator, "_rate", endless)
    found = Searcher(space, Demand(), 1, NOBODY).run()
    assert found.failures == {"took more than 0.2 s of CPU": found.failures.total()}
    assert found.failures.total() == len(found.designs)  # each is as good as the others
    assert "took more than 0.2 s of CPU" in evaluated(found)


def endless(*_: object) -> Row:
    while True:
        pass


def test_a_limit_is_of_each_case_by_itself(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Case] = []

    def slow(self: Simulator, case: Case, *_: object) -> Row:
        asked.append(case)
        works(5.0 if len(asked) == 2 else 0.15)
        return Row(message="done")

    monkeypatch.setattr(Simulator, "_prediction", slow)
    began = time.process_time()
    found = {n: row.message for n, row in evaluate(three(spaces), FINAL, seconds=0.5)}
    assert found == {0: "done", 1: "took more than 0.5 s of CPU", 2: "done"}
    assert time.process_time() - began < 3.0


def test_what_others_do_with_the_machine_counts_for_no_limit(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case that waits for a core is as one that sleeps."""

    def kept_waiting(*_: object) -> Row:
        time.sleep(0.6)
        works(0.1)
        return Row(message="done")

    monkeypatch.setattr(Simulator, "_prediction", kept_waiting)
    found = [row.message for _, row in evaluate(three(spaces), FINAL, seconds=0.4)]
    assert found == ["done"] * 3


def three(spaces: Spaces) -> list[Case]:
    job = spaces("strategy=allreduce", strategies="false", **FEW).candidates[0].job
    return [job.case] * 3


def works(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
