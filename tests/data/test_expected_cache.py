"""What a step is expected to do in caches is what drawn ids do in them, in the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recsim_train.config.errors import UserError
from recsim_train.data.expected_cache import ExpectedCache
from recsim_train.data.mixcache import slots_of
from recsim_train.data.replay import Replay
from tests.data.test_hit_rates import BATCHES, plan_of

FIRST = BATCHES // 2


def by_place(steps: Any, name: str) -> Any:
    """[trainers, shards], of a step in the mean of the counted ones."""
    counted = [steps.step(index).trainers for index in range(FIRST, BATCHES)]
    return np.mean([[getattr(t, name) for t in trainers] for trainers in counted], axis=0)


@pytest.mark.parametrize("trainers", [1, 2, 5])
@pytest.mark.parametrize("options", [{"cache_share": 1.0}, {"cache_rows": 340}])
def test_it_is_what_the_replay_finds(trainers: int, options: dict[str, Any]) -> None:
    plan = plan_of(trainers=trainers, batch=64 // trainers, **options)
    drawn, expected = Replay(plan), ExpectedCache(plan, trainers)
    assert drawn.slots == expected.slots
    found, known = (each.figures(FIRST, BATCHES) for each in (drawn, expected))
    assert known.probed == pytest.approx(found.probed, rel=0.03)
    assert bool(known.evicted) == bool(found.evicted)
    if found.evicted:  # the slots' own order gives up rows that are used again
        assert 0.8 * found.missed < known.missed < 1.02 * found.missed
    else:  # within the scatter of what is counted
        counted = BATCHES - FIRST
        missing, expects = (by_place(each, "missing") * counted for each in (drawn, expected))
        assert (abs(missing - expects) <= 4 * np.sqrt(expects)).all()
        assert missing.sum() == pytest.approx(expects.sum(), rel=0.05)
    kept, expects = (by_place(each, "kept") for each in (drawn, expected))
    assert (abs(kept - expects) <= 4 * np.sqrt(expects)).all()
    for name in ("ids", "unique", "own_unique"):
        there = np.mean([getattr(drawn.step(n), name) for n in range(FIRST, BATCHES)])
        assert getattr(expected.step(0), name) == pytest.approx(there, rel=0.03), name
    drawn.close()


def test_of_trainers_that_stand_for_all_there_are_the_first_ones() -> None:
    plan = plan_of(trainers=4, batch=16, cache_share=1.0)
    whole, part = ExpectedCache(plan, 4), ExpectedCache(plan, 2)
    assert part.slots == whole.slots[:2]
    assert part.step(3).unique == whole.step(3).unique
    assert part.step(3).trainers[0] == whole.step(3).trainers[0]


def test_a_row_that_is_missed_now_and_then_is_asked_for_so_often() -> None:
    plan = plan_of(trainers=2, cache_share=1.0)
    steps = ExpectedCache(plan, 2)
    steps._turnover = tuple(np.full((2, 2), rows) for rows in (0.25, 0.0, 3.0))
    missing = np.array([[t.missing for t in steps.step(n).trainers] for n in range(40)])
    assert (missing.sum(axis=0) == 10).all()
    assert missing.max() == 1
    assert missing.sum(axis=(1, 2)).max() == 2  # not all at once


def test_a_cache_that_two_steps_overflow_is_refused() -> None:
    need = max(sum(t.kept) for t in Replay(plan_of(2, cache_share=1.0)).step(1).trainers)
    ExpectedCache(plan_of(2, cache_rows=need), 2).check()
    small = plan_of(2, cache_rows=round(0.9 * need))
    said = rf"cache of {slots_of(small, 0):,} rows .* need \d+ rows of trainer\[0\]'s own"
    with pytest.raises(UserError, match=said):
        ExpectedCache(small, 2).check()
