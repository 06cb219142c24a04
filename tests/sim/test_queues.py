"""Batches made ahead in predictions: by hand, against a written-out schedule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.queues import Queue


def made_and_taken(capacity: int, many: int, making: float, using: float) -> list[list[float]]:
    """When each of 24 items was begun to be made, and taken."""
    engine = Engine()
    queue = Queue(engine, capacity)
    begun, taken = [], []

    def make() -> Iterator[Event]:
        for _ in range(0, 24, many):
            yield queue.reserve(many)
            begun.extend([engine.now] * many)
            yield engine.timeout(making * many)
            for _ in range(many):
                queue.put(None)

    def use() -> Iterator[Event]:
        for _ in range(24):
            yield queue.get()
            taken.append(engine.now)
            yield engine.timeout(using)

    engine.process(make())  # type: ignore[arg-type]
    engine.process(use())  # type: ignore[arg-type]
    engine.run()
    return [begun, taken]


@pytest.mark.parametrize("capacity", [1, 4])
@pytest.mark.parametrize("many", [1, 3, 8])
def test_a_reader_begins_when_the_queue_holds_less_than_its_capacity(
    capacity: int, many: int
) -> None:
    begun, taken = made_and_taken(capacity, many, making=0.125, using=1.0)
    for first in range(0, 24, many):
        ahead = first - capacity + 1  # so many have been taken then
        due = taken[ahead - 1] if ahead > 0 else 0.125 * first
        assert begun[first] == max(due, begun[first - many] + 0.125 * many if first else 0.0)


def test_a_slow_reader_never_waits() -> None:
    begun, taken = made_and_taken(4, 3, making=1.0, using=0.25)
    assert begun == [float(number - number % 3) for number in range(24)]
    assert taken[:4] == [3.0, 3.25, 3.5, 6.0]
