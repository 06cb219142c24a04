"""The rule by which a log's row groups are dealt to loops, as laws."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice, takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.data.order import Order

Parts = list[tuple[int, int, int]]
"""Row group, first row, end."""


@st.composite
def some_parts(draw: st.DrawFn) -> Parts:
    """Row groups of which the first and the last may have been cut by held-out rows."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=9))
    first = draw(st.integers(0, 3))
    parts = [(first + n, 0, rows) for n, rows in enumerate(sizes)]
    group, _, rows = parts[0]
    parts[0] = group, draw(st.integers(0, rows - 1)), rows
    return parts


def order_of(parts: Parts, loops: int, seed: int = 1, shuffle: bool = True) -> Order:
    return Order(parts, loops, seed, shuffle)  # type: ignore[arg-type]


def dealt(order: Order, epochs: int) -> dict[int, dict[int, list[tuple[int, int]]]]:
    """By epoch and loop, the (group, row) pairs in their order."""
    found: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for loop in range(order.loops):
        for epoch, part in takewhile(lambda turn: turn[0] < epochs, order.turns(loop)):
            group, begin, stop = part
            found[epoch][loop] += [(group, row) for row in range(begin, stop)]
    return found


@settings(max_examples=200)
@given(some_parts(), st.integers(1, 14), st.integers(0, 2**40), st.booleans())
def test_every_row_is_dealt_exactly_once_an_epoch(
    parts: Parts, loops: int, seed: int, shuffle: bool
) -> None:
    rows = {(group, row): 1 for group, begin, stop in parts for row in range(begin, stop)}
    for by_loop in dealt(order_of(parts, loops, seed, shuffle), 4).values():
        # once, so loops are disjoint, too
        assert Counter(row for own in by_loop.values() for row in own) == rows


@settings(max_examples=100)
@given(some_parts(), st.integers(1, 14))
def test_a_group_is_decoded_as_far_as_a_part_of_it_reaches(parts: Parts, loops: int) -> None:
    order = order_of(parts, loops, shuffle=False)
    taken = decoded = 0
    for loop in range(loops):
        for _, (_, begin, stop) in takewhile(lambda turn: turn[0] < 1, order.turns(loop)):
            taken, decoded = taken + stop - begin, decoded + stop
    assert order.decoded == pytest.approx(decoded / taken)
    assert order.decoded >= 1.0


@settings(max_examples=100)
@given(some_parts(), st.integers(1, 14), st.integers(0, 99))
def test_groups_are_dealt_whole_unless_there_are_fewer_than_loops(
    parts: Parts, loops: int, seed: int
) -> None:
    units = order_of(parts, loops, seed).units()
    if len(parts) >= loops:
        assert [tuple(unit) for unit in units] == parts
        return
    pieces = Counter(unit[0] for unit in units)
    for group, begin, stop in parts:
        sizes = [unit[2] - unit[1] for unit in units if unit[0] == group]
        assert sum(sizes) == stop - begin
        assert max(sizes) - min(sizes) <= 1  # equally many rows
        assert pieces[group] == min(stop - begin, -(-loops // len(parts)))
    if all(stop - begin >= -(-loops // len(parts)) for _, begin, stop in parts):
        assert len(units) >= loops  # so that each loop has something of every epoch


@given(some_parts(), st.integers(1, 9), st.integers(0, 99))
def test_loops_take_turns_without_a_gap_between_epochs(parts: Parts, loops: int, seed: int) -> None:
    order = order_of(parts, loops, seed)
    units, turns = len(order.units()), [list(islice(order.turns(p), 12)) for p in range(loops)]
    for n in range(12):
        for loop in range(loops):
            assert turns[loop][n].epoch == (n * loops + loop) // units


@given(some_parts(), st.integers(1, 9), st.integers(0, 99))
def test_without_shuffling_the_order_is_the_files(parts: Parts, loops: int, seed: int) -> None:
    order = order_of(parts, loops, seed, shuffle=False)
    # those of all loops in turn are the units, over and over
    all_turns = [islice(order.turns(p), 3 * len(order.units())) for p in range(loops)]
    found = [turn.part for turns in zip(*all_turns, strict=True) for turn in turns]
    units = order.units()
    assert units == sorted(units)
    assert found == [units[n % len(units)] for n in range(len(found))]
    assert order.window(0, 5, 7).tolist() == list(range(7))
    one = order_of(parts, 1, seed, shuffle=False)
    rows = [(group, row) for group, begin, stop in parts for row in range(begin, stop)]
    assert all(by_loop[0] == rows for by_loop in dealt(one, 3).values())


MANY: Parts = [(n, 0, 100) for n in range(40)]


def test_seed_and_epoch_decide_the_order() -> None:
    def epochs(seed: int) -> list[list[int]]:
        turns = list(islice(order_of(MANY, 1, seed).turns(0), 80))
        return [[turn.part[0] for turn in turns[n : n + 40]] for n in (0, 40)]

    first, second = epochs(7)
    assert epochs(7) == [first, second]
    assert first != second
    assert first != list(range(40))
    assert epochs(8)[0] != first


def test_windows_are_permuted_each_in_its_own_way() -> None:
    order = order_of(MANY, 3, 7)
    drawn = [order.window(loop, number, 1000) for loop in range(3) for number in range(3)]
    assert all(sorted(rows.tolist()) == list(range(1000)) for rows in drawn)
    assert len({tuple(rows.tolist()) for rows in drawn}) == 9
    again = order_of(MANY, 3, 7).window(1, 2, 1000)
    assert np.array_equal(again, drawn[5])
    assert not np.array_equal(order_of(MANY, 3, 8).window(1, 2, 1000), again)


def test_what_a_loop_gets_does_not_depend_on_who_asks_or_when() -> None:
    order = order_of(MANY, 4, 3)
    alone = [list(islice(order.turns(loop), 25)) for loop in range(4)]
    turns = [order.turns(loop) for loop in range(4)]
    together = [[next(turns[loop]) for loop in (2, 0, 3, 1)] for _ in range(25)]
    for place, loop in enumerate((2, 0, 3, 1)):
        assert [turn[place] for turn in together] == alone[loop]


@pytest.mark.parametrize("loops", [1, 2, 5])
def test_all_groups_may_come_first(loops: int) -> None:
    """No group stays with one loop, or comes late, whatever the seed."""
    first = Counter(
        next(order_of(MANY, loops, seed).turns(loops - 1)).part[0] for seed in range(800)
    )
    assert set(first) == set(range(40))
    assert max(first.values()) < 60  # 20 in the mean


@settings(max_examples=200)
@given(some_parts(), st.integers(1, 14), st.integers(0, 300), st.integers(1, 20), st.booleans())
def test_a_place_is_where_so_many_rows_are_done(
    parts: Parts, loops: int, done: int, size: int, shuffle: bool
) -> None:
    """Windows as who reads from the beginning has them: `size` rows, or to the epoch's end."""
    order = order_of(parts, loops, shuffle=shuffle)
    for loop in range(loops):
        windows: list[list[tuple[int, int, int]]] = [[]]
        for epoch, (group, begin, stop) in islice(order.turns(loop), 3 * done + 60):
            for row in range(begin, stop):
                last = windows[-1]
                if len(last) == size or (last and last[-1][0] != epoch):
                    windows.append([])
                windows[-1].append((epoch, group, row))
        flat = [(n, at) for n, rows in enumerate(windows) for at in range(len(rows))]
        place = order.place(loop, done, size)
        assert (place.window, place.row) == flat[done]
        rest = [
            (epoch, group, row)
            for epoch, (group, begin, stop) in islice(place.turns, 40)
            for row in range(begin, stop)
        ]
        known = [row for rows in windows[place.window :] for row in rows]
        assert rest[: min(len(rest), len(known))] == known[: min(len(rest), len(known))]
