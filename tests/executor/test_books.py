"""Books of CPU time: every second of a thread's clock is under what it did."""

from __future__ import annotations

import threading
import time

import pytest

from recsim_train.executor import books as books_module
from recsim_train.executor.books import Books, book, booked
from tests.clock import by_the_clock, tried_anew


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@booked("inner")
def inner(seconds: float) -> None:
    work(seconds)


def in_thread(body: object) -> None:
    thread = threading.Thread(target=body)  # type: ignore[arg-type]
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@tried_anew()
def test_operations_are_booked_apart_from_what_is_around_them() -> None:
    books = Books("trainer")
    books.begin(time.monotonic)

    def body() -> None:
        with book("loop", "runtime"):
            work(0.03)
            with booked("outer"):
                work(0.02)
                inner(0.05)
                work(0.02)
            inner(0.01)

    in_thread(body)
    found = books.sample().booked
    spent = {what: found["trainer", what, "loop"] for what in ("runtime", "outer", "inner")}
    with by_the_clock():
        assert spent == pytest.approx({"runtime": 0.03, "outer": 0.04, "inner": 0.06}, abs=0.005)


@tried_anew()
def test_a_sample_holds_the_page_that_is_open() -> None:
    books = Books("trainer")
    ready, done = threading.Event(), threading.Event()

    def body() -> None:
        with book("server", "requests"), booked("lookup_pooled"):
            work(0.05)
            ready.set()
            done.wait(20)

    thread = threading.Thread(target=body)
    thread.start()
    assert ready.wait(20)
    found = books.sample()
    done.set()
    thread.join(20)
    later = books.sample().booked["trainer", "lookup_pooled", "server"]
    with by_the_clock():
        assert found.booked["trainer", "lookup_pooled", "server"] == pytest.approx(0.05, abs=0.005)
        assert later == pytest.approx(0.05, abs=0.005)


@tried_anew()
def test_the_lines_are_the_process_s_clock() -> None:
    books = Books("trainer")
    books.begin(time.monotonic)
    before = books.samples[0]

    def body() -> None:
        with book("loop", "runtime"):
            work(0.1)

    in_thread(body)
    inner(0.1)
    after = books.sample()
    total = after.total - before.total
    lines = sum(after.booked.values()) - sum(before.booked.values())
    with by_the_clock():
        assert lines == pytest.approx(total, rel=0.03)
        assert after.booked["trainer", "inner", "main"] == pytest.approx(0.1, abs=0.01)


def test_a_thread_without_a_book_is_not_recorded() -> None:
    books = Books("trainer")
    in_thread(lambda: inner(0.01))
    assert set(books.sample().booked) == {("trainer", "supervision", "main")}


def test_long_runs_keep_few_samples() -> None:
    books, now = Books("trainer"), 0.0
    books.begin(lambda: now)
    for _ in range(5000):
        now += 0.11
        books.tick()
    times = [sample.time for sample in books.samples]
    assert 250 <= len(times) <= 501
    assert times == sorted(times)
    assert times[0] == 0.0
    assert now - times[-1] <= 2.0


NAMES = ["cpu", *(f"cpu{number}" for number in range(12))]
LINES = {name: f"{name} 10 20 30 40 50 60 70 {80 + at} 0 0\n" for at, name in enumerate(NAMES)}


@pytest.mark.parametrize(("named", "cut_off"), [("cpu", "cpu0"), ("cpu1", "cpu11")])
def test_a_line_that_is_cut_off_is_no_line(
    named: str, cut_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read ends where the buffer does: of "cpu0", "cpu" may be left, of "cpu11" "cpu1"."""
    before = "".join(LINES[name] for name in NAMES[: NAMES.index(cut_off)])
    tick = books_module.os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(books_module, "_machines_clock", lambda: 0)
    monkeypatch.setattr(books_module, "_named", lambda: frozenset({named.encode()}))
    for length in range(len(LINES[cut_off])):
        shown = (before + LINES[cut_off][:length]).encode()
        monkeypatch.setattr(books_module.os, "pread", lambda *_, shown=shown: shown)
        busy, stolen = books_module.machine_seconds()
        assert busy * tick == pytest.approx(10 + 20 + 30 + 60 + 70)
        assert stolen * tick == pytest.approx(80 + NAMES.index(named))
