"""The cache's slot logic: no row of two steps is lost, a row has one slot, counts add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.data.mixcache import CacheTooSmall, Ownership, SlotMap, first_rows
from tests.commands import command

ROWS = 40
steps = st.lists(st.sets(st.integers(0, ROWS - 1), max_size=12), min_size=1, max_size=30)


def numbers(rows: set[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(sorted(rows), dtype=np.int64)


@settings(max_examples=300)
@given(steps, st.integers(1, 30))
def test_a_cache_keeps_what_two_steps_use_or_says_that_it_can_not(
    wanted: list[set[int]], slots: int
) -> None:
    cache = SlotMap(slots, ROWS)
    where: dict[int, int] = {}  # a second book: row -> slot
    last: set[int] = set()
    for rows in wanted:
        try:
            found = cache.probe(numbers(rows))
        except CacheTooSmall:
            assert len(rows | last) > slots
            return
        assert len(rows | last) <= slots
        missing = {int(r) for r, new in zip(sorted(rows), found.missing, strict=True) if new}
        assert missing == rows - where.keys()
        leaving = dict(zip(found.evicted.tolist(), found.evicted_slots.tolist(), strict=True))
        assert not leaving.keys() & (rows | last)
        assert all(where.pop(row) == slot for row, slot in leaving.items())
        for row, slot in zip(sorted(rows), found.slots.tolist(), strict=True):
            assert where.setdefault(row, slot) == slot
        assert len(set(where.values())) == len(where)
        assert all(0 <= slot < slots for slot in where.values())
        assert (found.evicted[1:] > found.evicted[:-1]).all()
        # nobody leaves while there is an empty slot
        assert not leaving or len(where) == slots
        last = rows
    kept, places = cache.flush()
    assert dict(zip(kept.tolist(), places.tolist(), strict=True)) == where
    assert cache.probe(numbers(last)).missing.all()


@settings(max_examples=100)
@given(steps)
def test_a_cache_that_keeps_nothing_has_a_slot_for_every_row_of_a_step(
    wanted: list[set[int]],
) -> None:
    cache = SlotMap(0, ROWS)
    for rows in wanted:
        found = cache.probe(numbers(rows))
        assert found.missing.all()
        assert sorted(found.slots.tolist()) == list(range(len(rows)))
        assert not len(found.evicted)
        assert cache.flush()[0].tolist() == sorted(rows)


def test_the_first_slot_leaves_that_two_steps_did_not_use() -> None:
    cache = SlotMap(4, ROWS)
    cache.probe(np.array([10, 11]))
    cache.probe(np.array([10, 12]))
    assert not len(cache.probe(np.array([13])).evicted)  # into the last empty slot
    found = cache.probe(np.array([14]))  # 10 and 12 are two steps old, 11 three, 13 one
    assert (found.evicted.tolist(), found.evicted_slots.tolist()) == ([10], [0])
    assert cache.probe(np.array([15])).evicted.tolist() == [11]
    assert cache.probe(np.array([13, 15])).missing.tolist() == [False, False]


def test_the_error_says_how_many_rows_would_do() -> None:
    cache = SlotMap(5, ROWS)
    cache.probe(np.array([1, 2, 3]))
    with pytest.raises(CacheTooSmall, match=r"step 1 needs 4 rows .* and 2 more .* at least 6,"):
        cache.probe(np.array([3, 4, 5, 6]))


@settings(max_examples=200)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 6), st.data())
def test_every_row_has_one_owner(tables: list[int], trainers: int, data: st.DataObject) -> None:
    total = int(first_rows(tables)[-1])
    rows = numbers(data.draw(st.sets(st.integers(0, total - 1))))
    owners = [Ownership.of(tables, trainer, trainers) for trainer in range(trainers)]
    places = [owner.places(rows).tolist() for owner in owners]
    assert sorted(place for own in places for place in own) == list(range(len(rows)))
    assert all(own == sorted(own) for own in places)
    assert sum(owner.rows for owner in owners) == total
    assert max(o.rows for o in owners) - min(o.rows for o in owners) <= len(tables)


@pytest.mark.parametrize("words", [("simulate",), ("data", "describe")])
def test_more_rows_than_this_machine_can_find_are_refused_before_memory_is_taken(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    base = Path(__file__).parents[1] / "frozen-2core.yaml"
    (tmp_path / "huge.yaml").write_text(
        "name: huge\n"
        "model: {embedding_dim: 8, bottom_mlp: [8], top_mlp: [1], tables: [1_000_000_000_000]}\n"
        "data: {path: null, eval_rows: 20, synthetic: {rows: 900}}\n"
        "roles: {trainers: 2}\n"
        "training: {batch_size: 16, steps: 12, warmup_steps: 2}\n"
        "strategy: {kind: scalefreectr, cache_rows: 1000}\n"
        f"cluster: {{extends: {base}, name: vast, colocate: false,"
        " hosts: {default: {memory: 100000000 GiB}}}\n"
    )
    done = command(*words, "huge.yaml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        "error: to find 1,000,000,000,000 rows in a cache takes 3,725.3 GiB, but"
    )
    assert "model.max_rows" in said


def test_a_cache_whose_places_fit_is_made() -> None:
    assert SlotMap(10, 1_000_000).capacity == 10
