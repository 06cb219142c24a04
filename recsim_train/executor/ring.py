"""Memory that two processes of one host share: payloads go through it instead of a socket.

A client makes it when it connects and tells the server where it is; once both have mapped it, it
has no name and goes when they do. Each direction is a ring with one end that puts and one that
takes, in the same order. What says that there is something to take travels through the socket.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from recsim_train.placement.transport import SHARED_BYTES, shareable

Buffer = memoryview
_LINE = 64
"""Contents begin at multiples of it: a line of the caches, and no type of numbers is wider."""


class Ring:
    """One direction. A place is a number of a cache line, from 1; 0 is none."""

    def __init__(self, taken: NDArray[np.int64], content: NDArray[np.uint8]) -> None:
        """``taken`` [1]: up to where the other end has done with what was put."""
        self._taken, self._content = taken, content
        self._next = 0
        """Bytes that this end has put, or has done with, gaps included."""
        self._lap = 0
        """Where it put first after it had found the ring empty: nothing before is in use."""
        self._lent: deque[tuple[ref[NDArray[np.uint8]], int, int]] = deque()
        """What `lend` has lent: who uses it, its place and its size."""

    def put(self, parts: Sequence[Buffer]) -> int:
        """Copy the parts, one after the other; their place, or 0 where there is no room for them
        or they are too small to be worth it."""
        size, room = sum(map(len, parts)), len(self._content)
        if not shareable(size) or size > room:
            return 0
        begin, taken = self._next, int(self._taken[0])
        if begin == taken:  # empty: where it began, because the caches have those lines
            begin = self._lap = begin + -begin % room
        elif begin % room + size > room:
            begin += -begin % room
        if begin + size > max(taken, self._lap) + room:
            return 0
        at = begin % room
        for part in parts:
            copy(memoryview(self._content)[at : at + len(part)], part)  # type: ignore[arg-type]
            at += len(part)
        self._next = _after(begin, size)
        return begin % room // _LINE + 1

    def see(self, place: int, size: int) -> Buffer:
        """What was put there, until `release`. Raises ValueError for what cannot be there."""
        at = (place - 1) * _LINE
        if at + size > len(self._content):
            raise ValueError(f"{size} bytes at {at} of {len(self._content)} that are shared")
        return memoryview(self._content)[at : at + size]  # type: ignore[arg-type]

    def lend(self, place: int, size: int) -> NDArray[np.uint8]:
        """What was put there, as long as somebody uses this array or what is made of it."""
        content = np.frombuffer(self.see(place, size), np.uint8)
        self._lent.append((ref(content), place, size))
        return content

    def settle(self) -> None:
        """Release what was lent and nobody uses any more, up to the first that somebody does."""
        while self._lent and self._lent[0][0]() is None:
            self.release(*self._lent.popleft()[1:])

    def release(self, place: int, size: int) -> None:
        """It has been used, and all that was put before."""
        if place == 1:
            self._next += -self._next % len(self._content)
        self._taken[0] = self._next = _after(self._next, size)


def copy(to: Buffer, content: Buffer) -> None:
    """Without the interpreter lock."""
    np.copyto(np.frombuffer(to, np.uint8), np.frombuffer(content, np.uint8))


def _after(begin: int, size: int) -> int:
    return begin + size + -size % _LINE


class Shared:
    """Both directions."""

    def __init__(self, file: int) -> None:
        """Of an open file of the right size. Raises OSError or ValueError if it is none."""
        content = np.frombuffer(mmap.mmap(file, _SIZE), np.uint8)
        taken, rings = content[: 2 * _LINE].view(np.int64), content[2 * _LINE :]
        self.requests = Ring(taken[:1], rings[:SHARED_BYTES])
        self.answers = Ring(taken[_LINE // 8 :][:1], rings[SHARED_BYTES:])


_SIZE = 2 * (_LINE + SHARED_BYTES)


def offer() -> int:
    """A new file to be shared, or -1 where the system has none without a name."""
    with suppress(AttributeError, OSError):
        file = os.memfd_create("recsim-train")
        os.ftruncate(file, _SIZE)
        return file
    return -1


def accept(process: int, file: int) -> Shared | None:
    """What a process offers; None where it cannot be reached from here."""
    with suppress(OSError, ValueError):
        mine = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
        try:
            return Shared(mine)
        finally:
            os.close(mine)
    return None
