"""Books of CPU time of one process: what each thread's clock ran for, and samples of all of them.

A thread of ours has a book, in which every second of its CPU clock is under what it does at the
time: it turns the page where something else begins. Operations and the transport do so by
`booked`. The threads of a loop's pool work for the page that is open. gloo's threads are told by
when they were made. The process's main thread takes samples, so that the counted window, which is
known when all is over, can be cut out of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, wraps
from math import fsum
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from recsim_train.executor.pools import tasks
from recsim_train.results.environment import allowed
from recsim_train.trace.ledger import RUNTIME, SUPERVISION, Booked, Sample

_GAP = 0.25
"""Seconds between two samples at first."""
_MOST = 500
"""Samples; with more, every second one is dropped and the gap doubles."""
_FIRST_LINE, _ALL_LINES = 256, 1 << 16
"""Bytes that hold the first line, which is of all cores, and those of each core after it."""
P = ParamSpec("P")
R = TypeVar("R")


class Book:
    """One thread's CPU seconds, and those of its pool."""

    __slots__ = (
        "_began", "_mark", "_pool", "_pool_began", "_pool_mark", "_what", "closed", "left",
        "pooled", "seconds", "thread", "tid",
    )  # fmt: skip

    def __init__(self, thread: str, what: str, pool: Sequence[int] = ()) -> None:
        """Of the calling thread, which does ``what`` until it turns the page.

        ``pool``: the threads on which its operations run, besides itself.
        """
        self.thread, self._what = thread, what
        self.tid = threading.get_native_id()
        self.seconds: dict[str, float] = {}
        self.left: list[tuple[str, float | None]] = []
        """Pages to go back to, and what `Pace.begin` said."""
        self.closed = False
        self.pooled: dict[str, float] = {}
        self._pool = pool
        self._pool_began = self._pool_mark = _clocks_of(pool)
        self._began = self._mark = time.thread_time()

    def turn(self, what: str) -> str:
        """From here on the thread does ``what``; returns what it did."""
        now, was = time.thread_time(), self._what
        self.seconds[was] = self.seconds.get(was, 0.0) + now - self._mark
        self._mark, self._what = now, what
        if self._pool and was != RUNTIME:  # between operations they sleep
            spent = _clocks_of(self._pool)
            self.pooled[was] = self.pooled.get(was, 0.0) + spent - self._pool_mark
            self._pool_mark = spent
        return was

    def add_to(self, booked: Booked, role: str) -> None:
        """Add what any thread finds in it, the present page included."""
        # In this order: however far the owner gets meanwhile, no second is counted twice.
        closed, what, now = self.closed, self._what, _clock_of(self.tid)
        pool = 0.0 if closed else _clocks_of(self._pool)
        seconds, pooled = dict(self.seconds), dict(self.pooled)
        if not closed and now is not None:
            open_since = self._began + sum(seconds.values())
            seconds[what] = seconds.get(what, 0.0) + max(0.0, now - open_since)
            if self._pool:
                pool -= self._pool_began + sum(pooled.values())
                pooled[what] = pooled.get(what, 0.0) + max(0.0, pool)
        for thread, found in ((self.thread, seconds), ("pool", pooled)):
            for name, spent in found.items():
                key = role, name, thread
                booked[key] = booked.get(key, 0.0) + spent


class Pace(Protocol):
    """Who makes operations take a time that is not theirs."""

    def begin(self, operation: str) -> float | None:
        """One begins; what `end` is told, None: it takes what it takes."""

    def end(self, operation: str, began: float) -> None:
        """It has been carried out."""

    @property
    def slept(self) -> tuple[float, ...]:
        """Until now: see `recsim_train.trace.facts.Slept`."""


class _Own(threading.local):
    book: Book | None = None
    """The calling thread's."""


_own = _Own()
_books: list[Book] = []
"""Of this process's threads in the present run."""
_pace: Pace | None = None


def set_pace(pace: Pace) -> None:
    """From now on operations of threads that have books take what it says."""
    global _pace  # noqa: PLW0603 - one for each process
    _pace = pace


@contextmanager
def book(thread: str, what: str, pool: Sequence[int] = ()) -> Iterator[None]:
    """The calling thread keeps a book inside: its own work is ``what``, that of its pool too."""
    mine = _own.book = Book(thread, what, pool)
    _books.append(mine)
    try:
        yield
    finally:
        mine.turn("")
        mine.closed = True
        _own.book = None


class booked:  # noqa: N801  # reads as a verb, with or as a decorator
    """Inside, the calling thread does ``what``; a thread without a book does it unrecorded."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __call__(self, do: Callable[P, R]) -> Callable[P, R]:
        # contextlib's decorator takes longer than what many of these calls do
        what = self._what

        @wraps(do)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            if (mine := _own.book) is None:
                return do(*args, **kwargs)
            before = mine.turn(what)
            began = None if _pace is None else _pace.begin(what)
            try:
                return do(*args, **kwargs)
            finally:
                if began is not None:
                    assert _pace is not None
                    _pace.end(what, began)
                mine.turn(before)

        return inside

    def __enter__(self) -> None:
        if (mine := _own.book) is not None:
            began = None if _pace is None else _pace.begin(self._what)
            mine.left.append((mine.turn(self._what), began))

    def __exit__(self, *_: object) -> None:
        if (mine := _own.book) is not None:
            before, began = mine.left.pop()
            if began is not None:
                assert _pace is not None
                _pace.end(self._what, began)
            mine.turn(before)


class Books:
    """Of one process in one run: its threads' books, gloo's threads, and samples of them."""

    def __init__(self, role: str, *, waits: bool = False) -> None:
        """On the main thread, before groups are made. ``waits``: samples say how long threads that
        could run waited for a core, too."""
        self.role = role
        self._waits: dict[int, float] | None = {} if waits else None
        """By thread, when last read."""
        self.samples: list[Sample] = []
        self._clock: Callable[[], float] = time.monotonic
        self._gap = _GAP
        self._known = tasks()
        self._gloo: dict[int, tuple[str, float]] = {}
        """By thread: what it does, and its clock when last read."""
        _own.book = Book("main", SUPERVISION)
        _books[:] = [_own.book]

    def claim(self, what: str) -> None:
        """The threads that gloo has made since this was last called do ``what``."""
        for tid in tasks() - self._known:
            self._known.add(tid)
            self._gloo[tid] = what, 0.0

    def begin(self, clock: Callable[[], float]) -> None:
        """The run starts now."""
        self._clock = clock
        self.samples = [self.sample()]

    def mark(self) -> None:
        """Take a sample: what was used until now is apart from what follows."""
        self.samples.append(self.sample())

    def tick(self) -> None:
        """Take a sample if it is time."""
        if self.samples and self._clock() - self.samples[-1].time >= self._gap:
            self.mark()
            if len(self.samples) > _MOST:
                del self.samples[1::2]
                self._gap *= 2.0

    def sample(self) -> Sample:
        """What the process has used until now."""
        booked: Booked = {}
        for mine in _books:
            mine.add_to(booked, self.role)
        for tid, (what, last) in self._gloo.items():
            now = _clock_of(tid)
            spent = last if now is None else now
            self._gloo[tid] = what, spent
            key = self.role, what, "gloo"
            booked[key] = booked.get(key, 0.0) + spent
        waited = 0.0
        if self._waits is not None:
            self._waits.update(core_waits())
            waited = fsum(self._waits.values())
        slept = () if _pace is None else _pace.slept
        return Sample(self._clock(), time.process_time(), booked, *machine_seconds(), waited, slept)


def _clock_of(tid: int) -> float | None:
    """CPU seconds of a thread of this process, or None if it has ended.

    The clock's number is what `pthread_getcpuclockid` makes of the thread; that function may not be
    asked about one that has ended, Linux may.
    """
    with suppress(OSError):
        return time.clock_gettime((~tid << 3) | 6)
    return None


def _clocks_of(tids: Sequence[int]) -> float:
    """CPU seconds of several threads together; of those that have ended, none."""
    return fsum(_clock_of(tid) or 0.0 for tid in tids)


def core_waits() -> dict[int, float]:
    """Seconds for which each thread of this process that lives could run and had no core."""
    waited = {}
    for tid in tasks():
        with suppress(OSError, IndexError):  # it has ended; a kernel that does not say
            text = Path(f"/proc/self/task/{tid}/schedstat").read_bytes()
            waited[tid] = int(text.split()[1]) / 1e9
    return waited


@cache
def _machines_clock() -> int:
    """Kept open: to open it anew takes three times as long as to read it (270 and 80 us, measured
    where the caches were cold), in each process and sample."""
    return os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)


@cache
def _named() -> frozenset[bytes]:
    """The lines there of the cores that this process may run on; "cpu": it may on all of them."""
    mine = allowed()
    everywhere = len(mine) >= (os.cpu_count() or 1)
    return frozenset({b"cpu"} if everywhere else (b"cpu%d" % number for number in mine))


def machine_seconds() -> tuple[float, float]:
    """(seconds in which the cores that this process may run on were not idle, seconds stolen of
    them) since the machine's start."""
    try:
        size = _FIRST_LINE if b"cpu" in _named() else _ALL_LINES
        shown = os.pread(_machines_clock(), size, 0)
    except OSError:
        return 0.0, 0.0
    # what is cut off in "cpu12" may read like another's line: cpu, cpu1
    lines = [line.split() for line in shown.rpartition(b"\n")[0].splitlines()]
    # A container may show cores by numbers of its own: then all that it shows are meant.
    mine = [words for words in lines if words[:1] and words[0] in _named()] or lines[:1]
    busy = stolen = 0
    for words in mine:
        user, nice, system, _, _, interrupts, soft, steal = map(int, words[1:9])
        busy += user + nice + system + interrupts + soft
        stolen += steal
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, stolen / tick
