"""Batches on their way to a loop: in order, few more than the capacity, none after the end."""

from __future__ import annotations

import threading
import time

import pytest

from recsim_train.executor import queues
from recsim_train.executor.queues import QueueFeed, ThreadQueue
from recsim_train.strategy.values import Batch, Features, Ids
from tests.clock import until


def batch() -> Batch:
    return Batch(1, Ids(), Features(), 0)


def never() -> bool:
    return False


@pytest.mark.parametrize("many", [1, 3])
def test_who_makes_several_begins_when_there_is_room_for_one(many: int) -> None:
    feed, sent, most = QueueFeed(2, never), [batch() for _ in range(60)], 0

    def make() -> None:
        nonlocal most
        for first in range(0, len(sent), many):
            assert feed.room()
            feed.put(*sent[first : first + many])
            most = max(most, len(feed._items))
        feed.put(None)

    reader = threading.Thread(target=make, daemon=True)
    reader.start()
    until(lambda: len(feed._items) >= 2)  # full
    found = [feed.next() for _ in sent]
    assert all(there is here for there, here in zip(found, sent, strict=True))
    assert feed.next() is None
    assert feed.next() is None
    reader.join(5)
    assert not reader.is_alive()
    assert most <= 1 + many


@pytest.mark.parametrize("many", [1, 3])
def test_a_reader_is_woken_as_soon_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(queues, "_LOOK", 60.0)
    feed, woken = QueueFeed(3, never), threading.Event()
    feed.put(*(batch() for _ in range(2 + many)))

    def wait() -> None:
        feed.room()
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    for _ in range(many):
        assert not woken.wait(0.02)
        feed.next()
    assert woken.wait(5)


def test_a_loop_waits_for_its_reader_and_raises_what_that_raised() -> None:
    feed = QueueFeed(4, never)
    threading.Timer(0.05, feed.put, [batch(), ValueError("row 7")]).start()
    assert feed.next() is not None
    with pytest.raises(ValueError, match="row 7"):
        feed.next()


def test_a_reader_of_a_full_queue_ends_with_the_run() -> None:
    over = threading.Event()
    feed = QueueFeed(1, over.is_set)
    feed.put(batch())
    threading.Timer(0.05, over.set).start()
    assert not feed.room()


@pytest.mark.parametrize("before", [False, True], ids=["while it waits", "before it waits"])
def test_a_loop_whose_reader_has_left_ends_with_the_run(before: bool) -> None:
    over, said = threading.Event(), []
    feed = QueueFeed(1, over.is_set)
    feed.put(batch())

    def read() -> None:  # as the reader threads do
        while feed.room():
            feed.put(batch())

    def loop() -> None:
        try:
            while feed.next() is not None:
                over.wait(0.01)
        except TimeoutError as error:
            said.append(str(error))

    if before:
        over.set()
    reader, taker = (threading.Thread(target=work, daemon=True) for work in (read, loop))
    reader.start()
    taker.start()
    time.sleep(0.1)
    over.set()
    for thread in (reader, taker):
        thread.join(20)
        assert not thread.is_alive()
    assert said == ["another loop of this process failed"]


def test_what_was_made_before_the_run_failed_is_still_fed() -> None:
    over = threading.Event()
    feed, made = QueueFeed(3, over.is_set), batch()
    feed.put(made, None)
    over.set()
    assert feed.next() is made
    assert feed.next() is None


@pytest.mark.parametrize("side", ["take", "put"])
def test_a_loop_at_a_queue_whose_partner_ended_without_a_word_does_not_wait(side: str) -> None:
    """What the partner has put as its last act is taken first."""
    partner = threading.Thread(target=lambda: line.put("last"), daemon=True)
    line, taken = ThreadQueue(1, never, lambda: not partner.is_alive()), []

    def wait() -> None:
        if side == "put":
            line.put("more")
        taken.append(line.take())
        line.take()

    partner.start()
    partner.join(5)
    with pytest.raises(TimeoutError, match="all other loops of this process have ended"):
        wait()
    assert taken == ([] if side == "put" else ["last"])
