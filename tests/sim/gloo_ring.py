"""gloo's ring all-reduce, event by event: a reference that shares no code with the simulator.

Written from gloo itself: `ring` in gloo/allreduce.cc says which segments a rank sends, receives and
waits for, in which order; `Pair::send` and `Pair::recv` in gloo/transport/tcp/pair.cc say that a
segment leaves once the receiver's notice that it has room for it has come. A vector is cut into at
least two segments for each rank, of at most 1 MiB each, and two of them are on their way at a time:
first around the ring to be summed (reduce-scatter), then around once more (all-gather).

What is modelled of the machines: each rank sends at one rate, one segment after the other, and each
pair of ranks is so many seconds apart. Adding numbers and calling the system take no time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

SEGMENT_BYTES = 1 << 20
"""At most (`kMaxSegmentSize`)."""


@dataclass(slots=True)
class _Slot:
    """An operation under way: a rank may wait for its end, and goes on from there."""

    done: bool = False
    waiting: Callable[[], None] | None = None

    def end(self) -> None:
        self.done = True
        if self.waiting is not None:
            self.waiting()


@dataclass(slots=True)
class _Pair:
    """From one rank to the one that it sends to: segments one way, notices the other."""

    notices: int = 0
    """Of the receiver, that are here and not used yet."""
    ready: deque[tuple[int, _Slot]] = field(default_factory=deque)
    """Segments (bytes, the sender's operation) that wait for a notice."""
    receiving: deque[_Slot] = field(default_factory=deque)
    """The receiver's operations, in order."""
    free: float = 0.0
    """When the sender's link has nothing more to send."""


@dataclass(frozen=True, slots=True)
class Ring:
    """One all-reduce that all ranks begin at the same time."""

    ranks: int
    size: int
    """Bytes of the vector."""
    apart: Callable[[int, int], float]
    """Seconds one way from a rank to another one."""
    rate: float = inf
    """Bytes per second that leave a rank."""
    number: int = 4
    """Bytes of one number of the vector."""

    @property
    def segments(self) -> tuple[int, int]:
        """(How many for each rank, bytes of each)."""
        most = self.number * max(1, SEGMENT_BYTES // self.number)
        many = max(-(-self.size // most), 2 * self.ranks)
        each = -(-many // self.ranks)
        numbers = -(-self.size // (each * self.ranks)) / self.number
        return each, self.number * int(-(-numbers // 1))

    def ends(self) -> list[float]:
        """When each rank has the sum, seconds."""
        return _Run(self).ends()


class _Run:
    """The events of one all-reduce."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._now = 0.0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._pairs = [_Pair() for _ in range(ring.ranks)]
        """By the rank that sends."""
        self._ends = [inf] * ring.ranks

    def ends(self) -> list[float]:
        for rank in range(self._ring.ranks):
            self._at(0.0, self._resume(rank, self._program(rank)))
        while self._later:
            self._now, _, happen = heapq.heappop(self._later)
            happen()
        assert max(self._ends) < inf, "a rank waits for ever"
        return self._ends

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._later, (when, self._count, happen))

    def _resume(self, rank: int, program: Iterator[_Slot]) -> Callable[[], None]:
        def go() -> None:
            for slot in program:
                if not slot.done:
                    slot.waiting = go
                    return
            self._ends[rank] = self._now

        return go

    def _program(self, rank: int) -> Iterator[_Slot]:
        """What a rank does, up to each operation that it waits for."""
        ring = self._ring
        each, size = ring.segments
        rounds = each * (ring.ranks - 1)
        for first in (rank + 1, rank):  # whose part it sends first: to be summed, then the sums
            sends: list[_Slot | None] = []
            receives: list[_Slot | None] = []
            for turn in range(rounds + 2):
                if turn >= 2:
                    for operations in (receives, sends):
                        operation = operations[turn - 2]
                        if operation is not None:
                            yield operation
                if turn < rounds:
                    # a segment that begins beyond the vector's end is neither sent nor waited for
                    incoming = self._bytes((first + 1) * each + turn, each, size)
                    outgoing = self._bytes(first * each + turn, each, size)
                    receives.append(self._receive(rank) if incoming > 0 else None)
                    sends.append(self._send(rank, outgoing) if outgoing > 0 else None)

    def _bytes(self, segment: int, each: int, size: int) -> int:
        begin = segment % (each * self._ring.ranks) * size
        return min(size, self._ring.size - begin)

    def _receive(self, rank: int) -> _Slot:
        """From the next rank, which is told that there is room."""
        sender = (rank + 1) % self._ring.ranks
        pair, slot = self._pairs[sender], _Slot()
        pair.receiving.append(slot)

        def notice() -> None:
            pair.notices += 1
            self._move(sender)

        self._at(self._now + self._ring.apart(rank, sender), notice)
        return slot

    def _send(self, rank: int, size: int) -> _Slot:
        """To the rank before, once it has room."""
        slot = _Slot()
        self._pairs[rank].ready.append((size, slot))
        self._move(rank)
        return slot

    def _move(self, rank: int) -> None:
        pair, receiver = self._pairs[rank], (rank - 1) % self._ring.ranks
        while pair.notices and pair.ready:
            pair.notices -= 1
            size, sent = pair.ready.popleft()
            pair.free = max(self._now, pair.free) + size / self._ring.rate
            self._at(pair.free, sent.end)
            self._at(
                pair.free + self._ring.apart(rank, receiver), lambda: pair.receiving.popleft().end()
            )
