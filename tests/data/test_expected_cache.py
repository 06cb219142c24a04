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


@pytest.mark.parametrize("trainers", [2, 4])
def test_rows_that_come_again_are_missed_less(trainers: int) -> None:
    """Of a cache that holds nearly all of an epoch's rows, where the last used ones are all gone by
    the time that they are needed."""
    epoch = 10
    plan = plan_of(trainers, batch=64 // trainers, rows=64 * epoch, cache_rows=560 // trainers)
    drawn, expected = Replay(plan), ExpectedCache(plan, trainers)
    found, known = (each.figures(FIRST, BATCHES) for each in (drawn, expected))
    assert found.evicted
    assert 0.4 * found.missed < known.missed < found.missed


@pytest.mark.parametrize("warmup", [0, 2])
def test_a_cache_that_fills_while_steps_count(warmup: int) -> None:
    plan = plan_of(2, batch=32, warmup=warmup, cache_rows=300)
    drawn, expected = Replay(plan), ExpectedCache(plan, 2)
    found, known = (each.figures(warmup, BATCHES) for each in (drawn, expected))
    assert found.evicted < 0.9 * found.missed
    assert 0.8 * found.missed < known.missed < 1.05 * found.missed
    assert 0.75 * found.evicted < known.evicted < 1.1 * found.evicted


def test_what_is_not_kept_is_missed_each_step() -> None:
    plan = plan_of(2, batch=32, cache=False)
    expected = ExpectedCache(plan, 2)
    step = expected.step(7)
    assert [sum(t.missing) for t in step.trainers] == pytest.approx(
        [t.owned for t in step.trainers], abs=2
    )
    assert expected.figures(FIRST, BATCHES).evicted == 0
    expected.check()


@pytest.mark.parametrize("simulated", [1, 2, 3])
def test_who_stands_for_others_misses_what_they_do(simulated: int) -> None:
    """Rows that one trainer owns lie in few shards."""
    plan = plan_of(6, batch=32, cache_share=1.0)
    assert plan.embedding is not None
    assert plan.embedding.split_tables
    shares = []
    for count in (6, simulated):
        missing = by_place(ExpectedCache(plan, count), "missing").mean(axis=0)
        shares.append(missing / missing.sum())
    assert shares[1] == pytest.approx(shares[0], rel=0.15)


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
    only = plan_of(2, cache_rows=round(0.7 * need), steps=1, warmup=0)
    ExpectedCache(only, 2).check()
    small = plan_of(2, cache_rows=round(0.9 * need))
    said = rf"cache of {slots_of(small, 0):,} rows .* need \d+ rows of trainer\[0\]'s own"
    with pytest.raises(UserError, match=said):
        ExpectedCache(small, 2).check()
