"""Memory that two processes of one host share: payloads go through it instead of a socket.

A client makes it when it connects, and hands it over. It has no name and goes when both are gone.
There is a ring for answers and two for requests, one of them for those whose payload is made in it.
Each has one end that puts and one that takes, in the same order. What says that there is something
to take travels through the socket.

It is handed over by its descriptor. Beside its address a server has a name among Unix sockets. Such
a name is of one network namespace and lies in no folder: who is elsewhere finds nobody there, and
has a plain connection. A client sends the descriptor to that name before it says hello at the
address. The memory begins with the same hello, in which are the run's token and a number that no
other connection has, and is sealed: it can neither shrink nor grow. The server looks for all that
before it maps what it was sent; it writes into no other file, whatever that is.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
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

    def __init__(
        self, taken: NDArray[np.int64], content: NDArray[np.uint8], before: int = 0
    ) -> None:
        """``taken`` [1]: up to where the other end has done with what was put; ``before``: places
        of others that are before this one's."""
        self._taken, self._content, self._before = taken, content, before
        self._next = 0
        """Bytes that this end has put, or has done with, gaps included."""
        self._lap = 0
        """Where it put first after it had found the ring empty: nothing before is in use."""
        self._lent: deque[tuple[ref[NDArray[np.uint8]], int, int]] = deque()
        """What `lend` has lent: who uses it, its place and its size."""
        self._made: deque[tuple[ref[NDArray[np.uint8]], int, int]] = deque()
        """What is made here and was put: who uses it here, where it begins and its size."""
        self._making: tuple[ref[NDArray[np.uint8]], int, int] | None = None
        """The same of what has not been put yet."""

    def put(self, parts: Sequence[Buffer]) -> int:
        """Copy the parts, one after the other; their place, or 0 where there is no room for them
        or they are too small to be worth it."""
        size = sum(map(len, parts))
        if (begin := self._room(size)) < 0:
            return 0
        at = begin % len(self._content)
        for part in parts:
            copy(memoryview(self._content)[at : at + len(part)], part)  # type: ignore[arg-type]
            at += len(part)
        return self._put(begin, size)

    def make(self, size: int) -> NDArray[np.uint8] | None:
        """Room in which a content may be made, for `put_made`; None where there is none, or where
        the last one that was made is in use and has not been put."""
        if self._making is not None and self._making[0]() is not None:
            return None
        if (begin := self._room(size)) < 0:
            return None
        at = begin % len(self._content)
        # through a buffer: numpy's views of a view keep only what the first one is of
        content = np.frombuffer(self._content[at : at + size].data, np.uint8)
        self._making = ref(content), begin, size
        return content

    def put_made(self, part: Buffer) -> int:
        """The place of what has been made, or 0 if it is something else. It must not be changed
        until it has been released."""
        if self._making is None:
            return 0
        _, begin, size = self._making
        here = np.frombuffer(part, np.uint8)
        at = _address(self._content) + begin % len(self._content)
        if (_address(here), here.size) != (at, size):
            return 0
        self._made.append(self._making)
        self._making = None
        return self._put(begin, size)

    def _room(self, size: int) -> int:
        """Where so many bytes may begin; -1: nowhere."""
        room = len(self._content)
        if not shareable(size) or size > room:
            return -1
        while self._made and self._made[0][0]() is None:
            self._made.popleft()
        begin, taken = self._next, int(self._taken[0])
        if self._made:
            taken = min(taken, self._made[0][1])
        used = max(taken, self._lap)
        at, lap = begin % room, begin - begin % room
        # where it began, if that is free: the caches have those lines
        if begin == taken:
            begin = used = self._lap = begin + -begin % room
        elif at + size > room or (used >= lap and used - lap >= size):
            begin += -begin % room
        return begin if begin + size <= used + room else -1

    def _put(self, begin: int, size: int) -> int:
        self._next = _after(begin, size)
        return self._before + begin % len(self._content) // _LINE + 1

    def see(self, place: int, size: int) -> Buffer:
        """What was put there, until `release`. Raises ValueError for what cannot be there."""
        at = (place - self._before - 1) * _LINE
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
        if place == self._before + 1:
            self._next += -self._next % len(self._content)
        self._taken[0] = self._next = _after(self._next, size)


def copy(to: Buffer, content: Buffer) -> None:
    """Without the interpreter lock."""
    np.copyto(np.frombuffer(to, np.uint8), np.frombuffer(content, np.uint8))


def _address(array: NDArray[np.uint8]) -> int:
    return int(array.__array_interface__["data"][0])


def _after(begin: int, size: int) -> int:
    return begin + size + -size % _LINE


class Shared:
    """Both directions; of requests, also what is made where it is sent from."""

    def __init__(self, file: int) -> None:
        """Of an open file of `size` bytes. Raises OSError or ValueError where it is none."""
        content = np.frombuffer(mmap.mmap(file, size()), np.uint8)[_LINE:]
        taken = content[: _RINGS * _LINE].view(np.int64).reshape(_RINGS, -1)
        rings = content[_RINGS * _LINE :].reshape(_RINGS, -1)
        self.answers, self._copied = Ring(taken[0], rings[0]), Ring(taken[1], rings[1])
        self.made = Ring(taken[2], rings[2], before=SHARED_BYTES // _LINE)

    def put(self, payload: Sequence[Buffer]) -> int:
        """A request's payload; its place, or 0 where it must travel."""
        made = self.made.put_made(payload[0]) if len(payload) == 1 else 0
        return made or self._copied.put(payload)

    def of(self, place: int) -> Ring:
        """Where a request's payload is that has this place."""
        return self.made if place > SHARED_BYTES // _LINE else self._copied


_RINGS = 3


def size() -> int:
    """Bytes of the memory; the first `_LINE` of them are for those who make it and hand it over."""
    return _LINE + _RINGS * (_LINE + SHARED_BYTES)


_MADE = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_WAITING = 256
"""Offers that may lie before a client's own; systems let about ten wait."""


def place_of(address: str, token: bytes) -> str:
    """The name of the server at an address, which nobody can take who does not know the token."""
    return "\0recsim-train/" + hashlib.sha256(token + address.encode()).hexdigest()


def offer(place: str, hello: bytes, seconds: float) -> Shared | None:
    """New memory, which the server of this name has been sent; None where the system has none, or
    nobody of that name takes it within so many seconds."""
    with (
        suppress(OSError),
        open(os.memfd_create("recsim-train", _MADE), "wb", 0) as file,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to,
    ):
        file.truncate(size())
        file.write(hello)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        to.settimeout(seconds)
        to.connect(place)
        socket.send_fds(to, [b"memory"], [file.fileno()])
        return Shared(file.fileno())
    return None


class Offers:
    """What clients offer to one server. Used by one thread."""

    def __init__(self, place: str, size: int, awaits: Callable[[bytes], bool]) -> None:
        """``size``: bytes of a hello; ``awaits``: whether one is of a client that is to come."""
        self._size, self._awaits = size, awaits
        self._there: dict[bytes, Shared] = {}
        self.sock: socket.socket | None = None
        with suppress(OSError):  # else all connections are plain ones
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self.sock.bind(place)

    def take(self) -> None:
        """Look at the next offer, if there is one; map it if it is memory of a client."""
        with suppress(AttributeError, OSError, ValueError):
            for file in socket.recv_fds(self.sock, 1, 1)[1]:  # type: ignore[arg-type]
                try:
                    sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS == _SEALS
                    if sealed and os.fstat(file).st_size == size():
                        hello = os.pread(file, self._size, 0)
                        if self._awaits(hello):
                            self._there[hello] = Shared(file)
                finally:
                    os.close(file)

    def of(self, hello: bytes) -> Shared | None:
        """What the client that says this has sent before."""
        for _ in range(_WAITING):
            self.take()
        return self._there.pop(hello, None)
