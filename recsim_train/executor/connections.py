"""Plain TCP connections between client loops and the processes that hold shards.

One connection for each client and process. A request is one message: a head of one size (its
payload's bytes, then what the sender calls its header) and the payload. An answer is the number of
its bytes and the bytes, received where the asker wants them. Both ends know every size from the
plan; a message of another size ends the run.

While the system's buffers take no more of a request, the client receives answers that are on their
way: the server may be waiting for just that. There is no thread for input and output.
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from recsim_train.placement.transport import BUFFER_BYTES

Buffer = memoryview

LARGEST = 1 << 40
"""Bytes. A payload that claims to have more is none of ours."""
TOKEN_BYTES = 32
_SIZE = struct.Struct("<Q")
HEAD_BYTES = _SIZE.size
"""Before an answer, and before a request's header."""
_HELLO = struct.Struct(f"<8s{TOKEN_BYTES}sI")
"""A client's first words: the protocol's name, the run's token, the client's number."""
_PROTOCOL = b"recsim/1"
_PATIENCE = 5.0
"""Seconds in which somebody who has connected must have said hello."""


def _left(parts: Sequence[Buffer], count: int) -> list[Buffer]:
    """What remains of the parts after ``count`` bytes."""
    if len(parts) == 1 and count == len(parts[0]):
        return []  # as most messages are
    left = []
    for part in parts:
        if count < len(part):
            left.append(part[count:])
        count = max(0, count - len(part))
    return left


class _Socket:
    """Whole messages over a stream. Raises ConnectionError when the other end is gone."""

    def __init__(self, sock: socket.socket, timeout: float | None) -> None:
        """``timeout``: seconds without any progress, after which TimeoutError is raised."""
        self._sock, self._timeout = sock, timeout
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(True)
        if timeout is not None:
            # The system's own time-outs: with Python's, `poll` comes before every call.
            limit = struct.pack("@ll", int(timeout), int(timeout % 1.0 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def close(self) -> None:
        self._sock.close()

    def _send(self, parts: Sequence[Buffer], flags: int = 0) -> list[Buffer]:
        """Send, and return what the system does not take."""
        return _left(parts, self._sock.sendmsg(parts, (), flags))

    def _receive(self, parts: Sequence[Buffer], flags: int) -> list[Buffer]:
        """Receive, and return what remains to be filled."""
        count = self._sock.recvmsg_into(parts, 0, flags)[0]
        if not count:
            raise ConnectionError("connection closed by peer")
        return _left(parts, count)

    def send(self, *parts: Buffer) -> None:
        left: Sequence[Buffer] = parts
        try:
            while left:
                left = self._send(left)
        except BlockingIOError:
            raise self._late() from None

    def receive(self, *parts: Buffer) -> None:
        """Fill the parts."""
        left: Sequence[Buffer] = [part for part in parts if len(part)]
        try:
            while left:
                left = self._receive(left, socket.MSG_WAITALL)
        except BlockingIOError:
            raise self._late() from None

    def _late(self) -> TimeoutError:
        return TimeoutError(f"the other end of a connection was silent for {self._timeout:g} s")


class Asker(_Socket):
    """A client's end. Used by one thread."""

    def __init__(self, sock: socket.socket, timeout: float | None) -> None:
        super().__init__(sock, timeout)
        self._awaited: deque[tuple[bytearray, Buffer]] = deque()
        self._missing: list[Buffer] = []
        """Of the first answer that is awaited."""
        self._asked = self._answered = 0

    def ask(self, header: bytes, payload: Sequence[Buffer], answer: Buffer | None = None) -> int:
        """Send a request, whose answer arrives in ``answer``; returns its number for `wait`."""
        size = _SIZE.pack(sum(map(len, payload)))
        left: Sequence[Buffer] = [memoryview(size + header), *filter(len, payload)]
        while left and self._awaited:
            try:
                left = self._send(left, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._turn()
        self.send(*left)
        if answer is not None:
            self._awaited.append((bytearray(_SIZE.size), answer))
            if len(self._awaited) == 1:
                self._next()
            self._asked += 1
        return self._asked

    def _turn(self) -> None:
        """The system takes no more: wait until it does, or until some of an answer is there."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | select.POLLOUT)
        ready = poll.poll(None if self._timeout is None else self._timeout * 1e3)
        if not ready:
            raise self._late()
        if ready[0][1] & ~select.POLLOUT:
            self._take(socket.MSG_DONTWAIT)

    def wait(self, number: int) -> None:
        """Until the answer to this request, and all before it, have arrived."""
        try:
            while self._answered < number:
                self._take(socket.MSG_WAITALL)
        except BlockingIOError:
            raise self._late() from None

    def _next(self) -> None:
        size, answer = self._awaited[0]
        self._missing = [memoryview(size), answer] if len(answer) else [memoryview(size)]

    def _take(self, flags: int) -> None:
        self._missing = self._receive(self._missing, flags)
        if self._missing:
            return
        size, answer = self._awaited.popleft()
        if (sent := _SIZE.unpack(size)[0]) != len(answer):
            raise ValueError(f"an answer of {sent} bytes where {len(answer)} are due")
        self._answered += 1
        if self._awaited:
            self._next()


class Answerer(_Socket):
    """A server's end of one client's connection. Used by one thread."""

    def __init__(self, sock: socket.socket, header_bytes: int) -> None:
        super().__init__(sock, None)  # as long as the client lives
        self._head = memoryview(bytearray(_SIZE.size + header_bytes))

    def next(self) -> tuple[bytes, int]:
        """The next request's header, and its payload's bytes, which `receive` has to fetch."""
        self.receive(self._head)
        (size,) = _SIZE.unpack_from(self._head)
        if size > LARGEST:
            raise ValueError(f"a request that claims to have {size} bytes")
        return self._head[_SIZE.size :].tobytes(), size

    def answer(self, content: Buffer) -> None:
        self.send(memoryview(_SIZE.pack(len(content))), content)


def connect(address: str, token: bytes, client: int, timeout: float) -> Asker:
    """Connect to a `Listener`. Raises ConnectionError or TimeoutError."""
    host, port = address.rsplit(":", 1)
    sock = _new()
    sock.settimeout(timeout)
    sock.connect((host, int(port)))
    sock.sendall(_HELLO.pack(_PROTOCOL, token, client))
    return Asker(sock, timeout)


class Listener:
    """Where clients connect to a process, each once, with the run's token."""

    def __init__(self, host: str, token: bytes, clients: Iterable[int], header_bytes: int) -> None:
        self._token, self._header_bytes = token, header_bytes
        self._due = set(clients)
        self._here: dict[int, socket.socket] = {}
        self._change = threading.Condition()
        self._sock = _new()
        self._sock.bind((host, 0))
        self._sock.listen(4096)
        self.address = f"{host}:{self._sock.getsockname()[1]}"
        threading.Thread(target=self._accept, name="accept clients", daemon=True).start()

    def _accept(self) -> None:
        while self._due:
            try:
                sock, _ = self._sock.accept()
            except OSError:  # closed
                return
            client = self._greet(sock)
            with self._change:
                if client not in self._due:
                    sock.close()
                    continue
                self._due.remove(client)
                self._here[client] = sock
                self._change.notify_all()
        self._sock.close()

    def _greet(self, sock: socket.socket) -> int:
        """The client's number; -1: it is nobody of this run."""
        said = b""
        try:
            sock.settimeout(_PATIENCE)
            while len(said) < _HELLO.size:
                more = sock.recv(_HELLO.size - len(said))
                if not more:
                    return -1
                said += more
        except OSError:
            return -1
        protocol, token, client = _HELLO.unpack(said)
        known = protocol == _PROTOCOL and hmac.compare_digest(token, self._token)
        return int(client) if known else -1

    def client(self, number: int) -> Answerer:
        """The server's end of this client's connection, once it has come."""
        with self._change:
            self._change.wait_for(lambda: number in self._here)
            return Answerer(self._here.pop(number), self._header_bytes)

    def close(self) -> None:
        """Accept nobody any more."""
        with suppress(OSError):  # closed by itself once everybody had come
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def _new() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Before connecting: the window's scale is agreed on in the first packets. A system that gives
    # less is left to choose by itself, since a size that is set is never enlarged.
    for option, limit in ((socket.SO_SNDBUF, "wmem_max"), (socket.SO_RCVBUF, "rmem_max")):
        if _most(limit) >= BUFFER_BYTES:
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return sock


def _most(limit: str) -> int:
    try:
        return int(Path("/proc/sys/net/core", limit).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
