"""How memory comes from the client that makes it to the server that shares it: by its descriptor.

Beside its address a server has a name among Unix sockets. Such a name is of one network namespace
and lies in no folder: who is elsewhere finds nobody there, and has a plain connection. A client
sends the descriptor to that name before it says hello at the address. The memory begins with the
same hello, in which are the run's token and a number that no other connection has, and is sealed:
it can neither shrink nor grow. The server looks for all that before it maps what it was sent; it
writes into no other file, whatever that is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from recsim_train.executor.link import ring
from recsim_train.executor.link.ring import Shared

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
        file.truncate(ring.size())
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
                    if sealed and os.fstat(file).st_size == ring.size():
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
