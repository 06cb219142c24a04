"""Memory that two processes share: contents in order, never overwritten before they are used."""

from __future__ import annotations

import os
from collections import deque
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.executor.link import ring
from recsim_train.executor.link.ring import Ring
from recsim_train.placement.transport import SHARED_BYTES, SHARED_LEAST

ROOM = 10 * SHARED_LEAST


def two_ends() -> tuple[Ring, Ring, np.ndarray]:
    taken, content = np.zeros(1, np.int64), np.zeros(ROOM, np.uint8)
    return Ring(taken, content), Ring(taken, content), content


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, ROOM + 10), st.integers(0, 2)),
        st.tuples(st.just("lend"), st.just(0), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(steps)
def test_what_is_put_is_seen_unchanged_as_long_as_somebody_uses_it(
    steps: list[tuple[str, int, int]],
) -> None:
    writer, reader, _ = two_ends()
    there: deque[tuple[int, bytes]] = deque()
    lent: list[tuple[np.ndarray, bytes]] = []
    drawn = np.random.default_rng(1)
    for what, number, cuts in steps:
        if what == "put":
            content = drawn.bytes(number)
            at = sorted(drawn.integers(0, number + 1, cuts).tolist())
            parts = [memoryview(content)[a:b] for a, b in zip([0, *at], [*at, number], strict=True)]
            reader.settle()
            place = writer.put(parts)
            if place:
                there.append((place, content))
            else:  # too small, too large, or others in the way
                assert not SHARED_LEAST <= number <= ROOM or there or lent
        elif what == "lend" and there:
            place, content = there.popleft()
            lent.append((reader.lend(place, len(content)), content))
        elif what == "drop" and lent:
            del lent[number % len(lent)]
        for place, content in there:
            assert reader.see(place, len(content)) == content
        # no name may hold an array beyond this: it would be in use
        assert all(array.tobytes() == content for array, content in lent)


def test_an_empty_ring_has_room_for_all_that_fits_whatever_came_before() -> None:
    writer, reader, _ = two_ends()
    first = writer.put([memoryview(bytes(SHARED_LEAST))])
    reader.release(first, SHARED_LEAST)
    places = [writer.put([memoryview(bytes(ROOM // 2))]) for _ in range(3)]
    assert places == [1, 1 + ROOM // 2 // 64, 0]


def test_what_has_been_released_is_used_again_before_all_is() -> None:
    writer, reader, _ = two_ends()
    half = [memoryview(bytes(ROOM // 2))]
    first, second = writer.put(half), writer.put(half)
    assert writer.put(half) == 0
    reader.release(first, ROOM // 2)
    assert writer.put(half) == first
    assert second != first


def test_what_is_lent_is_given_back_when_nobody_uses_it_any_more_and_in_order() -> None:
    writer, reader, content = two_ends()
    puts = [memoryview(bytes([value]) * SHARED_LEAST) for value in (1, 2, 3)]
    places = [writer.put([put]) for put in puts]
    first, second, third = (reader.lend(place, SHARED_LEAST) for place in places)
    of_second = second[:10].view(np.int16)
    del second, third
    reader.settle()
    assert reader._taken[0] == 0  # the first one is in use
    del first
    reader.settle()
    assert reader._taken[0] == SHARED_LEAST  # the second one, too, by what was made of it
    assert of_second.tolist() == [2 * 257] * 5
    del of_second
    reader.settle()
    assert reader._taken[0] == 3 * SHARED_LEAST
    assert writer.put([puts[0]]) == 1  # empty again
    assert content[0] == 1


def test_an_empty_ring_begins_where_it_began() -> None:
    writer, reader, content = two_ends()
    for value in range(1, 30):
        size = SHARED_LEAST + value
        place = writer.put([memoryview(bytes([value]) * size)])
        assert content[0] == value
        reader.release(place, size)


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["make", "put", "drop", "use"]),
            st.one_of(st.integers(SHARED_LEAST, ROOM // 3), st.integers(0, SHARED_LEAST)),
        ),
        max_size=60,
    )
)
def test_what_is_made_is_seen_unchanged_and_kept_as_long_as_its_maker_uses_it(
    steps: list[tuple[str, int]],
) -> None:
    writer, reader, _ = two_ends()
    making: np.ndarray | None = None
    kept: list[tuple[np.ndarray, bytes]] = []
    there: deque[tuple[int, bytes]] = deque()
    drawn = np.random.default_rng(2)
    for what, number in steps:
        if what == "make":
            made = writer.make(number)
            if making is not None:
                assert made is None  # the one before has not been put
            else:
                if not kept and not there:
                    assert (made is not None) == (number >= SHARED_LEAST)
                making = made
            if made is not None:
                made[:] = np.frombuffer(drawn.bytes(number), np.uint8)
            del made
        elif what == "put" and making is not None:
            assert writer.put_made(memoryview(bytes(making))) == 0  # a copy is something else
            content = making.tobytes()
            there.append((writer.put_made(memoryview(making)), content))
            assert there[-1][0] > 0
            assert writer.put_made(memoryview(making)) == 0  # it has been put
            kept.append((making, content))
            making = None
        elif what == "drop":
            if number % 3 == 0:
                making = None
            elif kept:
                del kept[number % len(kept)]
        elif what == "use" and there:
            place, content = there.popleft()
            reader.release(place, len(content))
        for place, content in there:
            assert reader.see(place, len(content)) == content
        assert all(array.tobytes() == content for array, content in kept)


def test_what_the_server_has_done_with_is_left_alone_while_its_maker_uses_it() -> None:
    writer, reader, _ = two_ends()
    made = writer.make(SHARED_LEAST)
    assert made is not None
    made[:] = 1
    reader.release(writer.put_made(memoryview(made)), SHARED_LEAST)
    later = writer.make(SHARED_LEAST)
    assert later is not None
    later[:] = 2
    assert set(made.tolist()) == {1}


def test_two_that_are_in_use_by_turns_take_two_places() -> None:
    """A program that keeps its gradient until it has the next one does not walk through all."""
    writer, reader, _ = two_ends()
    before, places = None, []
    for _ in range(9):
        made = writer.make(SHARED_LEAST)
        assert made is not None
        if places:  # the server fetches what comes after it
            reader.release(places[-1], SHARED_LEAST)
        places.append(writer.put_made(memoryview(made)))
        before, made = made, None
    assert before is not None
    assert places == [1, 1 + SHARED_LEAST // 64] * 4 + [1]


def test_a_part_of_what_was_made_is_something_else() -> None:
    writer, _, _ = two_ends()
    made = writer.make(2 * SHARED_LEAST)
    assert made is not None
    assert writer.put_made(memoryview(made)[:SHARED_LEAST]) == 0
    assert writer.put_made(memoryview(made)) == 1


def test_a_place_outside_is_refused() -> None:
    _, reader, _ = two_ends()
    with pytest.raises(ValueError, match="that are shared"):
        reader.see(ROOM // 64, 65)


def new_memory() -> int:
    file = os.memfd_create("of this test")
    os.ftruncate(file, ring.size())
    return file


def _child(file: int, told: Connection) -> None:
    shared = ring.Shared(file)
    for _ in range(20):
        place, size = told.recv()
        content = bytes(shared.of(place).see(place, size))
        shared.of(place).release(place, size)
        told.send((shared.answers.put([memoryview(content[::-1])]), size))


def test_two_processes_see_the_same_memory_and_it_goes_with_them() -> None:
    file = new_memory()
    shared = ring.Shared(file)
    context = get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(file, theirs), daemon=True)
    child.start()
    for number in range(20):
        content = os.urandom(SHARED_LEAST * (1 + number * 40))
        payload = memoryview(content)
        if number % 2:  # made where it is sent from, beside what is copied
            made = shared.made.make(len(content))
            assert made is not None
            made[:] = np.frombuffer(content, np.uint8)
            payload = memoryview(made)
        place = shared.put([payload])
        assert (place > SHARED_BYTES // 64) == number % 2
        ours.send((place, len(content)))
        assert ours.poll(20)
        place, size = ours.recv()
        assert bytes(shared.answers.see(place, size))[::-1] == content
        shared.answers.release(place, size)
    child.join(20)
    assert child.exitcode == 0
    os.close(file)


def test_pages_that_are_not_used_take_no_memory() -> None:
    file = new_memory()
    shared = ring.Shared(file)
    shared.put([memoryview(bytes(1 << 20))])
    assert os.fstat(file).st_size > 3 * SHARED_BYTES
    assert os.fstat(file).st_blocks * 512 < 2 << 20
    os.close(file)
