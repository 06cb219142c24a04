"""Where loops stand still for a checkpoint: all before the same iteration, none with work under
way."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from recsim_train.executor.checkpoint.halts import Halts

LOOPS = ("worker[0]", "worker[1]")


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def runs(halts: Halts, loop: str, first: int, stop: int, done: list[int]) -> threading.Thread:
    """A loop that takes and ends iterations."""

    def body() -> None:
        for number in range(first, stop):
            assert halts.take(loop, 0)
            halts.ended(loop, number + 1)
            done.append(number)

    return in_background(body)


def test_all_loops_stand_before_the_same_iteration_and_go_on_together() -> None:
    halts = Halts(LOOPS, LOOPS, range(3, 20), 7, lambda: False)
    done: dict[str, list[int]] = {loop: [] for loop in LOOPS}
    first = runs(halts, LOOPS[0], 3, 20, done[LOOPS[0]])
    assert not halts.still(0.1)
    second = runs(halts, LOOPS[1], 3, 20, done[LOOPS[1]])
    assert halts.still(5.0)
    assert [done[loop] for loop in LOOPS] == [[3, 4, 5, 6]] * 2
    halts.stand(12)
    assert halts.still(5.0)
    assert [done[loop][-1] for loop in LOOPS] == [11, 11]
    halts.stand(None)
    for thread in first, second:
        thread.join(5.0)
        assert not thread.is_alive()
    assert done[LOOPS[0]] == list(range(3, 20))


def test_what_is_held_is_trained_on_first() -> None:
    halts = Halts(["a"], ["a"], range(9), 2, lambda: False)
    assert halts.take("a", 0)
    assert halts.take("a", 1)
    assert not halts.take("a", 2)
    halts.ended("a", 1)
    assert not halts.take("a", 1)
    halts.ended("a", 2)
    standing = in_background(lambda: halts.take("a", 0))
    assert halts.still(5.0)
    halts.stand(4)
    standing.join(5.0)
    assert not standing.is_alive()


def test_a_loop_that_takes_batches_for_another_stands_before_that_has_done_its_own() -> None:
    halts = Halts(["loader"], ["worker"], range(9), 1, lambda: False)
    assert halts.take("loader", 0)
    standing = in_background(lambda: halts.take("loader", 0))
    assert not halts.still(0.2)
    halts.ended("worker", 1)
    assert halts.still(5.0)
    halts.stand(None)
    standing.join(5.0)


def test_asked_for_they_stand_soon_and_at_the_latest_that_any_of_them_can() -> None:
    halts = Halts(LOOPS, LOOPS, range(50), 40, lambda: False)
    for number in range(5):
        assert halts.take(LOOPS[0], 0)
        halts.ended(LOOPS[0], number + 1)
    soon = halts.ask()
    assert 5 < soon < 10
    ahead = runs(halts, LOOPS[0], 5, 50, [])
    behind = runs(halts, LOOPS[1], 0, 50, [])
    assert halts.still(5.0)
    halts.stand(soon + 3)  # another trainer could not before
    assert halts.still(5.0)
    assert halts.at == soon + 3
    halts.stand(None)
    for thread in ahead, behind:
        thread.join(5.0)
        assert not thread.is_alive()


def test_nobody_stands_at_the_end() -> None:
    halts = Halts(["a"], ["a"], range(3), 3, lambda: False)
    for _ in range(5):  # after the last batch it is asked for once more
        assert halts.take("a", 0)


def test_who_stands_still_hears_that_the_process_has_failed() -> None:
    failed = threading.Event()
    halts = Halts(["a"], ["a"], range(9), 0, failed.is_set)
    heard: list[BaseException] = []

    def body() -> None:
        with pytest.raises(TimeoutError, match="another loop") as caught:
            halts.take("a", 0)
        heard.append(caught.value)

    standing = in_background(body)
    assert halts.still(5.0)
    failed.set()
    standing.join(5.0)
    assert heard
