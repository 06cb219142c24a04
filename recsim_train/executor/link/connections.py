"""Plain TCP connections between client loops and the processes that hold shards.

One connection for each client and process. A request is one message: a head of one size (its
payload's bytes, then what the sender calls its header) and the payload. An answer is the number of
its bytes and the bytes. Both ends know every size from the plan; a message of another size ends the
run. A payload that has been left in memory which both ends share does not follow: its place is in
the upper bits of the number of its bytes, and it is used where it lies.

What the system's buffers do not take of a request waits until `Connections` in transport.py send
it, beside what the client has for others and while it receives answers that are on their way: the
server may be waiting for just that. There is no thread for input and output.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recsim_train.executor.link.ring import Buffer, Offers, Shared, offer, place_of
from recsim_train.executor.part import LostPeerError
from recsim_train.placement.transport import BUFFER_BYTES, SHARED_LEAST, shareable

if TYPE_CHECKING:
    from recsim_train.executor.link.tensors import Answer

LARGEST = 1 << 40
"""Bytes that a payload has less than."""
_ROOM = 64 << 20
"""Bytes of the first room for a payload that is larger."""
TOKEN_BYTES = 32
_SIZE = struct.Struct("<Q")
HEAD_BYTES = _SIZE.size
"""Before an answer, and before a request's header."""
_HELLO = struct.Struct(f"<8s{TOKEN_BYTES}sI16s")
"""A client's first words: the protocol's name, the run's token, the client's number, and a random
one of this connection. Memory that it offers to share begins with the same."""
_PROTOCOL = b"recsim/4"
_SHARED, _APART = b"\1", b"\0"
"""A server's first word: whether it has mapped such memory."""
_PATIENCE = 5.0
"""Seconds in which somebody who has connected must have said hello."""
_GUESTS = 256
"""Who may have connected without having said it; beyond that the first of them is turned away."""


def _left(parts: Sequence[Buffer], count: int) -> Sequence[Buffer]:
    """What remains of the parts after ``count`` bytes."""
    for number, part in enumerate(parts):
        if count < len(part):
            return [part[count:], *parts[number + 1 :]]
        count -= len(part)
    return ()


def _is_small(answer: int) -> bool:
    """Whether an answer of so many bytes is copied once more, to travel and arrive in one part with
    its head: with two parts the CPU time of an empty request, both ends together, was 12.4 us
    instead of 10.8 (medians of three processes of 6,000, in turn)."""
    return answer < SHARED_LEAST


class _Socket:
    """Whole messages over a stream. Raises ConnectionError when the other end is gone.

    Most have one part where memory is shared: that has a way of its own, which takes less CPU time
    (a step of the quickstart 20 us less of the transport's 1,240).
    """

    def __init__(
        self, sock: socket.socket, timeout: float | None, shared: Shared | None = None
    ) -> None:
        """``timeout``: seconds without any progress, after which TimeoutError is raised."""
        self._sock, self.timeout, self._shared = sock, timeout, shared
        self.peer = "the other end of a connection"
        """The process there, as sentences name it."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(True)
        if timeout is not None:
            # The system's own time-outs: with Python's, `poll` comes before every call.
            limit = struct.pack("@ll", int(timeout), int(timeout % 1.0 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def close(self) -> None:
        self._sock.close()

    def fileno(self) -> int:
        """The system's number of the connection."""
        return self._sock.fileno()

    def _send(self, parts: Sequence[Buffer], flags: int = 0) -> Sequence[Buffer]:
        """Send, and return what the system does not take."""
        try:
            if len(parts) == 1:
                count = self._sock.send(parts[0], flags)
                return () if count == len(parts[0]) else _left(parts, count)
            return _left(parts, self._sock.sendmsg(parts, (), flags))
        except BlockingIOError:
            raise
        except OSError as error:
            raise LostPeerError(self.peer) from error

    def _receive(self, parts: Sequence[Buffer], flags: int) -> Sequence[Buffer]:
        """Receive, and return what remains to be filled."""
        try:
            if len(parts) == 1:
                count = self._sock.recv_into(parts[0], 0, flags)
                if count == len(parts[0]):
                    return ()
            else:
                count = self._sock.recvmsg_into(parts, 0, flags)[0]
        except BlockingIOError:
            raise
        except OSError as error:
            raise LostPeerError(self.peer) from error
        if not count:
            raise LostPeerError(self.peer)
        return _left(parts, count)

    def send(self, parts: Sequence[Buffer]) -> None:
        try:
            while parts:
                parts = self._send(parts)
        except BlockingIOError:
            raise self.late() from None

    def receive(self, part: Buffer) -> None:
        """Fill it."""
        left: Sequence[Buffer] = [part] if len(part) else []
        try:
            while left:
                left = self._receive(left, socket.MSG_WAITALL)
        except BlockingIOError:
            raise self.late() from None

    def late(self) -> TimeoutError:
        return TimeoutError(f"{self.peer} was silent for {self.timeout:g} s")


AT_ONCE = 64 << 10
"""Bytes of an answer that arrive whether or not anybody reads them, with any system's buffers."""


class Asker(_Socket):
    """A client's end. Used by one thread."""

    def __init__(
        self, sock: socket.socket, timeout: float | None, shared: Shared | None = None
    ) -> None:
        super().__init__(sock, timeout, shared)
        self._awaited: deque[Answer] = deque()
        self._here = memoryview(bytearray(HEAD_BYTES + SHARED_LEAST))
        """The head of the first answer that is awaited, and all of a small one."""
        self._missing: Sequence[Buffer] = ()
        """Of that answer; where memory is shared, of its head first."""
        self._follows = False
        """Whether it comes right after its head."""
        self._asked = self.answered = 0
        self.unsent: Sequence[Buffer] = ()
        """Of requests: what the system has not taken yet."""
        self.large = 0
        """Answers that are awaited and may not arrive unless they are read."""

    def ask(self, header: bytes, payload: Sequence[Buffer], answer: Answer | None = None) -> int:
        """Send a request, which is answered by ``answer``, as far as that needs no waiting; returns
        its number for `wait`."""
        size, place = sum(map(len, payload)), 0
        if self._shared is not None:
            self._shared.answers.settle()
            place = self._shared.put(payload) if size else 0
        head = memoryview(_SIZE.pack(size + place * LARGEST) + header)
        left: Sequence[Buffer] = [head] if place or not size else [head, *filter(len, payload)]
        if self.unsent:
            self.unsent = [*self.unsent, *left]
        else:
            try:
                self.unsent = self._send(left, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self.unsent = left
        if answer is not None:
            self._awaited.append(answer)
            self.large += self._is_large(answer)
            if len(self._awaited) == 1:
                self._next()
            self._asked += 1
        return self._asked

    def room(self, size: int) -> NDArray[np.uint8] | None:
        """Memory for a payload of the next requests, which then need not be copied; None: none."""
        return self._shared.made.make(size) if self._shared else None

    def _is_large(self, answer: Answer) -> bool:
        return answer.size > AT_ONCE and (self._shared is None or not shareable(answer.size))

    @property
    def under_way(self) -> int:
        """What is to be looked for: events of `select.poll`; 0: nothing is under way."""
        return select.POLLIN * bool(self._awaited) | select.POLLOUT * bool(self.unsent)

    def go_on(self, events: int) -> None:
        """Receive and send what needs no waiting, after these ``events``."""
        if self._awaited and events & ~select.POLLOUT:
            with suppress(BlockingIOError):
                self._take(socket.MSG_DONTWAIT)
        if self.unsent and events & ~select.POLLIN:
            with suppress(BlockingIOError):
                self.unsent = self._send(self.unsent, socket.MSG_DONTWAIT)

    def flush(self) -> None:
        """Send what is left of requests, whatever else comes meanwhile."""
        left, self.unsent = self.unsent, ()
        self.send(left)

    def wait(self, number: int) -> None:
        """Until the answer to this request, and all before it, have arrived."""
        try:
            while self.answered < number:
                self._take(socket.MSG_WAITALL)
        except BlockingIOError:
            raise self.late() from None

    def _next(self) -> None:
        answer = self._awaited[0]
        # with its head in one go, unless it may have been left in shared memory
        self._follows = self._shared is None or not shareable(answer.size)
        if _is_small(answer.size):
            self._missing = [self._here[: HEAD_BYTES + answer.size]]
        else:
            head = self._here[:HEAD_BYTES]
            self._missing = [head, answer.room()] if self._follows else [head]

    def _take(self, flags: int) -> None:
        self._missing = self._receive(self._missing, flags)
        if self._missing:
            return
        answer = self._awaited[0]
        place, size = divmod(_SIZE.unpack_from(self._here)[0], LARGEST)
        if size != answer.size:
            raise ValueError(
                f"an answer of {size} bytes where {answer.size} are due, from {self.peer}"
            )
        if not self._follows:
            assert self._shared is not None
            if not place:
                self._missing, self._follows = [answer.room()], True
                return
            answer.arrive(self._shared.answers.lend(place, size))
        elif _is_small(size):
            answer.arrive(bytearray(self._here[HEAD_BYTES : HEAD_BYTES + size]))
        self._awaited.popleft()
        self.large -= self._is_large(answer)
        self.answered += 1
        if self._awaited:
            self._next()


class Answerer(_Socket):
    """A server's end of one client's connection. Used by one thread."""

    def __init__(
        self, sock: socket.socket, header_bytes: int, shared: Shared | None = None
    ) -> None:
        super().__init__(sock, None, shared)  # as long as the client lives
        self._head = memoryview(bytearray(_SIZE.size + header_bytes))
        self._buffer = bytearray()
        self._size = self._place = 0
        """Of the payload at hand."""

    def next(self) -> tuple[bytes, int]:
        """The next request's header and its payload's bytes."""
        if self._place and self._shared is not None:
            self._shared.of(self._place).release(self._place, self._size)
        self.receive(self._head)
        self._place, self._size = divmod(_SIZE.unpack_from(self._head)[0], LARGEST)
        if self._place and self._shared is None:
            raise ValueError(f"a request of {self.peer} claims to be in memory which is not shared")
        return self._head[_SIZE.size :].tobytes(), self._size

    def payload(self) -> Buffer:
        """Of the request at hand, good until the next one is fetched."""
        if self._place and self._shared is not None:
            return self._shared.of(self._place).see(self._place, self._size)
        here = 0
        while here < self._size:
            if here == len(self._buffer):  # room is made for what comes, not for what is claimed
                grown = bytearray(min(self._size, max(_ROOM, 2 * here)))
                grown[:here] = self._buffer
                self._buffer = grown
            end = min(self._size, len(self._buffer))
            self.receive(memoryview(self._buffer)[here:end])
            here = end
        return memoryview(self._buffer)[: self._size]

    def answer(self, content: Buffer) -> None:
        size = len(content)
        if _is_small(size):
            self.send([memoryview(_SIZE.pack(size) + content)])
            return
        place = 0 if self._shared is None else self._shared.answers.put([content])
        head = memoryview(_SIZE.pack(size + place * LARGEST))
        self.send([head] if place else [head, content])


def connect(
    address: str, token: bytes, client: int, timeout: float, *, near: bool = False
) -> Asker:
    """Connect to a `ClientListener`, which is ``near`` if memory can be shared with it.

    Raises ConnectionError or TimeoutError.
    """
    host, port = address.rsplit(":", 1)
    sock, hello = _new(host), _HELLO.pack(_PROTOCOL, token, client, secrets.token_bytes(16))
    try:
        place = place_of(address, token)
        shared = offer(place, hello, min(timeout, _PATIENCE)) if near else None
        keep_alive(sock, timeout)
        sock.settimeout(timeout)
        sock.connect((host, int(port)))
        sock.sendall(hello)
        if not (said := sock.recv(1)):
            raise ConnectionError("connection closed by peer")
        return Asker(sock, timeout, shared if said == _SHARED else None)
    except BaseException:
        sock.close()
        raise


class ClientListener:
    """Where clients connect to a process, each once, with the run's token."""

    def __init__(
        self,
        host: str,
        token: bytes,
        clients: Iterable[int],
        header_bytes: int,
        timeout: float = 60.0,
    ) -> None:
        """``timeout``: seconds after which a client is lost whose machine does not answer."""
        self._token, self._header_bytes, self._timeout = token, header_bytes, timeout
        self._due = set(clients)
        self._come: dict[int, tuple[socket.socket, Shared | None]] = {}
        self._change = threading.Condition()
        self._sock = _new(host)
        self._sock.bind((host, 0))
        self._sock.listen(4096)
        self.address = f"{host}:{self._sock.getsockname()[1]}"
        place = place_of(self.address, token)
        self._offers = Offers(place, _HELLO.size, lambda hello: self._client(hello) is not None)
        threading.Thread(target=self._accept, name="accept clients", daemon=True).start()

    def _accept(self) -> None:
        """Whoever connects, side by side: who stays silent keeps nobody waiting."""
        guests: dict[int, tuple[socket.socket, float, bytearray]] = {}
        poll = select.poll()
        mine = [sock for sock in (self._sock, self._offers.sock) if sock is not None]
        for sock in mine:
            poll.register(sock, select.POLLIN)

        def dismiss(number: int) -> socket.socket:
            poll.unregister(number)
            return guests.pop(number)[0]

        try:
            while self._due:
                for number, event in poll.poll(_PATIENCE * 1e3 if guests else None):
                    if number in guests:
                        guest, _, said = guests[number]
                        if self._has_said(guest, said):
                            self._greet(dismiss(number), bytes(said))
                    elif number != self._sock.fileno():
                        self._offers.take()
                    elif event & ~select.POLLIN or (come := self._next_guest()) is None:
                        return
                    else:
                        guests[come.fileno()] = come, time.monotonic() + _PATIENCE, bytearray()
                        poll.register(come, select.POLLIN)
                now = time.monotonic()
                late = [number for number, (_, until, _) in guests.items() if until < now]
                for number in late or [*guests][: max(0, len(guests) - _GUESTS)]:
                    dismiss(number).close()
        finally:
            for sock in (*mine, *(guest for guest, _, _ in guests.values())):
                sock.close()

    def _next_guest(self) -> socket.socket | None:
        """None: the listener has been closed."""
        try:
            sock, _ = self._sock.accept()
            sock.setblocking(False)
        except OSError:
            return None
        return sock

    def _has_said(self, guest: socket.socket, said: bytearray) -> bool:
        """Whether a guest has said all that there is to say, or goes."""
        try:
            more = guest.recv(_HELLO.size - len(said))
        except BlockingIOError:
            return False
        except OSError:
            return True
        said += more
        return not more or len(said) == _HELLO.size

    def _client(self, hello: bytes) -> int | None:
        """Whose this is; None: of nobody that is to come."""
        if len(hello) < _HELLO.size:
            return None
        protocol, token, client, _ = _HELLO.unpack(hello)
        known = protocol == _PROTOCOL and hmac.compare_digest(token, self._token)
        return client if known and client in self._due else None

    def _greet(self, guest: socket.socket, said: bytes) -> None:
        """Take in a client; whoever is nobody of this run is turned away."""
        if (client := self._client(said)) is None:
            return guest.close()
        shared = self._offers.of(said)
        try:
            keep_alive(guest, self._timeout)
            guest.sendall(_APART if shared is None else _SHARED)
        except OSError:
            return guest.close()
        with self._change:
            self._due.remove(client)
            self._come[client] = guest, shared
            self._change.notify_all()
        return None

    def client(self, number: int) -> Answerer:
        """The server's end of this client's connection, once it has come."""
        with self._change:
            self._change.wait_for(lambda: number in self._come)
            sock, shared = self._come.pop(number)
            return Answerer(sock, self._header_bytes, shared)

    def close(self) -> None:
        """Accept nobody any more. The thread that accepts hears of it, and closes what it polls:
        by another's hand the number could be a new file's when it polls again."""
        with suppress(OSError):  # closed by itself once everybody had come
            self._sock.shutdown(socket.SHUT_RDWR)


def keep_alive(sock: socket.socket, seconds: float) -> None:
    """Have the system end a connection whose other machine does not answer for so long."""
    probes = 3
    gap = max(1, int(seconds / (probes + 1)))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, gap),
        (socket.TCP_KEEPINTVL, gap),
        (socket.TCP_KEEPCNT, probes),
        (socket.TCP_USER_TIMEOUT, int(seconds * 1e3)),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _new(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # Before connecting: the window's scale is agreed on in the first packets. A system that gives
    # less is left to choose by itself, since a size that is set is never enlarged.
    for option, limit in ((socket.SO_SNDBUF, "wmem_max"), (socket.SO_RCVBUF, "rmem_max")):
        with suppress(OSError, ValueError):
            if int(Path("/proc/sys/net/core", limit).read_text("ascii")) >= BUFFER_BYTES:
                sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return sock
