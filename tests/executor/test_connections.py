"""Connections: whole messages in order, no deadlock, nobody from outside, peers that go away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.executor.link import connections, ring
from recsim_train.executor.link.connections import Answerer, Asker, ClientListener, connect
from recsim_train.executor.link.tensors import Answer
from recsim_train.executor.link.transport import Connections
from recsim_train.placement.transport import SHARED_LEAST

TOKEN = b"t" * connections.TOKEN_BYTES
HEAD = 24


@contextmanager
def pair(timeout: float = 20.0, *, near: bool = False) -> Iterator[tuple[Asker, Answerer]]:
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    asker = connect(listener.address, TOKEN, 7, 20.0, near=near)  # however soon it gives up later
    asker = Asker(asker._sock, timeout, asker._shared)
    assert (asker._shared is not None) == near
    answerer = listener.client(7)
    try:
        yield asker, answerer
    finally:
        asker.close()
        answerer.close()
        listener.close()


def lines_of(*askers: Asker) -> Connections:
    lines = Connections()
    lines.askers += askers
    return lines


def answer_of(size: int) -> Answer:
    return Answer((size,), torch.uint8)


def content_of(answer: Answer) -> bytes:
    return answer.tensor.numpy().tobytes()


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def pattern(size: int, salt: int) -> bytes:
    return bytes((i * 31 + salt) % 251 for i in range(min(size, 997))) * (size // 997 + 1)


def echo(answerer: Answerer, count: int) -> list[tuple[bytes, int]]:
    """Answer each request with its payload, backwards."""
    heads = []
    for _ in range(count):
        header, size = answerer.next()
        heads.append((header, size))
        content = bytearray(size)
        content[:] = answerer.payload()
        content.reverse()
        answerer.answer(memoryview(content))
    return heads


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 70_000), max_size=3), min_size=1, max_size=6), st.booleans()
)
def test_requests_arrive_whole_and_in_order_however_many_are_under_way(
    messages: list[list[int]], near: bool
) -> None:
    heads: list[tuple[bytes, int]] = []
    with pair(near=near) as (asker, answerer):
        thread = in_thread(lambda: heads.extend(echo(answerer, len(messages))))
        sent, answers, numbers = [], [], []
        for place, sizes in enumerate(messages):
            parts = [pattern(size, place)[:size] for size in sizes]
            sent.append(b"".join(parts))
            answers.append(answer_of(sum(sizes)))
            header = place.to_bytes(HEAD, "little")
            numbers.append(asker.ask(header, [*map(memoryview, parts)], answers[-1]))
        for number in reversed(numbers):
            asker.wait(number)
        thread.join(20)
    assert [int.from_bytes(header, "little") for header, _ in heads] == [*range(len(messages))]
    assert [size for _, size in heads] == [len(content) for content in sent]
    assert [content_of(answer)[::-1] for answer in answers] == sent


def test_what_is_made_where_it_is_sent_from_is_not_copied() -> None:
    size = 2 * SHARED_LEAST
    with pair(near=True) as (asker, answerer):
        for number in range(5):
            made = asker.room(size)
            assert made is not None
            made[:] = number
            asker.ask(b"\0" * HEAD, [memoryview(made)])
            assert answerer.next()[1] == size
            payload = answerer.payload()
            assert set(payload) == {number}
            made[:] = 99
            assert set(payload) == {99}  # the same memory
    with pair() as (asker, _):
        assert asker.room(size) is None


@pytest.mark.parametrize("room", [0, 20 << 20], ids=["apart", "two fit into shared memory"])
def test_large_requests_and_large_answers_at_once_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    # so small that the answers which nobody has read yet do not fit into them
    monkeypatch.setattr(connections, "BUFFER_BYTES", 64 << 10)
    monkeypatch.setattr(ring, "SHARED_BYTES", room)
    size, count = 8 << 20, 4
    with pair(near=room > 0) as (asker, answerer):
        thread = in_thread(lambda: echo(answerer, count))
        content = pattern(size, 3)[:size]
        answers = [answer_of(size) for _ in range(count)]
        for answer in answers:
            last = asker.ask(b"\0" * HEAD, [memoryview(content)], answer)
        lines_of(asker).wait({asker: last})
        thread.join(20)
        assert not thread.is_alive()
    assert all(content_of(answer)[::-1] == content for answer in answers)


def test_an_answer_stays_what_it_is_while_somebody_uses_it_and_then_makes_room() -> None:
    size = 20 << 20
    with pair(near=True) as (asker, answerer):
        thread = in_thread(lambda: echo(answerer, 8))
        assert asker._shared is not None
        memory = asker._shared.answers._content

        def asked(number: int) -> torch.Tensor:
            answer = answer_of(size)
            asker.wait(asker.ask(b"\0" * HEAD, [memoryview(pattern(size, number)[:size])], answer))
            return answer.tensor

        def shared(tensor: torch.Tensor) -> bool:
            return np.may_share_memory(tensor.numpy(), memory)

        assert all(shared(asked(number)) for number in range(4))  # three fit at a time
        kept = [asked(number) for number in range(4, 8)]
        assert [*map(shared, kept)] == [True, True, True, False]
        thread.join(20)
        assert not thread.is_alive()
    for number, tensor in enumerate(kept, 4):
        assert tensor.numpy().tobytes()[::-1] == pattern(size, number)[:size]


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("size", [40_000, 400, 4_000])  # the second part of the last is small
def test_parts_of_an_answer_come_to_their_places(size: int, near: bool) -> None:
    with pair(near=near) as (asker, answerer):
        thread = in_thread(lambda: echo(answerer, 2))
        whole = Answer((size,), torch.float32)
        values = torch.arange(size, dtype=torch.float32)
        for begin, end in ((0, size * 3 // 4), (size * 3 // 4, size)):
            content = values[begin:end].numpy().tobytes()[::-1]
            part = whole.part(begin, end)
            last = asker.ask(b"\0" * HEAD, [memoryview(content)], part)
        asker.wait(last)
        thread.join(20)
        assert torch.equal(whole.tensor, values)
        assert whole.part(0, size) is whole


def test_a_request_without_an_answer_is_not_waited_for() -> None:
    with pair() as (asker, answerer):
        first = asker.ask(b"a" * HEAD, [memoryview(b"content")])
        asker.wait(first)  # nothing to wait for
        assert answerer.next() == (b"a" * HEAD, 7)
        content = bytearray(7)
        content[:] = answerer.payload()
        assert bytes(content) == b"content"


def test_an_answer_of_another_size_ends_the_run() -> None:
    with pair() as (asker, answerer):
        number = asker.ask(b"a" * HEAD, [], answer_of(4))
        answerer.next()
        answerer.answer(memoryview(b"12345678"))
        with pytest.raises(ValueError, match="an answer of 8 bytes where 4 are due"):
            asker.wait(number)


def test_a_request_that_claims_absurd_sizes_is_refused() -> None:
    with pair() as (asker, answerer):
        asker.send([memoryview((1 << 60).to_bytes(8, "little") + b"a" * HEAD)])
        with pytest.raises(ValueError, match="claims"):
            answerer.next()


@pytest.mark.parametrize("side", ["client", "server"])
def test_who_waits_for_an_end_that_has_gone_hears_of_it(side: str) -> None:
    with pair() as (asker, answerer):
        number = asker.ask(b"a" * HEAD, [], answer_of(4))
        answerer.next()
        (answerer if side == "client" else asker).close()
        mine = asker if side == "client" else answerer
        mine.peer = "trainer[3]"
        with pytest.raises(ConnectionError, match=r"^lost the connection to trainer\[3\]$"):
            asker.wait(number) if side == "client" else answerer.next()


def test_a_silent_server_is_given_up_after_the_time_out() -> None:
    with pair(timeout=0.3) as (asker, _):
        asker.peer = "dense_server[0]"
        number = asker.ask(b"a" * HEAD, [], answer_of(4))
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match=r"^dense_server\[0\] was silent for 0\.3 s"):
            asker.wait(number)
        assert 0.2 < time.monotonic() - begin < 10


@pytest.mark.parametrize("under_way", [0, 1], ids=["nothing under way", "an answer under way"])
def test_a_server_that_does_not_read_is_given_up_after_the_time_out(under_way: int) -> None:
    content = memoryview(bytearray(64 << 20))
    with pair(timeout=0.3) as (asker, _):
        for _ in range(under_way):
            asker.ask(b"a" * HEAD, [], answer_of(4))
        asker.ask(b"a" * HEAD, [content])
        with pytest.raises(TimeoutError):
            lines_of(asker).send()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n".ljust(connections._HELLO.size, b" "),
        connections._HELLO.pack(connections._PROTOCOL, b"x" * connections.TOKEN_BYTES, 7, b""),
        connections._HELLO.pack(connections._PROTOCOL, TOKEN, 8, b""),
        b"",
    ],
    ids=["another protocol", "wrong token", "not a client of this run", "goes away"],
)
def test_strangers_are_turned_away_and_the_client_still_gets_in(said: bytes) -> None:
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    host, port = listener.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 5) as stranger:
        stranger.sendall(said)
        if said:
            assert stranger.recv(1) == b""
    asker = connect(listener.address, TOKEN, 7, 5)
    answerer = listener.client(7)
    asker.ask(b"a" * HEAD, [])
    assert answerer.next() == (b"a" * HEAD, 0)
    for end in (asker, answerer, listener):
        end.close()


def test_a_second_connection_of_the_same_client_is_turned_away() -> None:
    listener = ClientListener("127.0.0.1", TOKEN, [7, 8], HEAD)
    first = connect(listener.address, TOKEN, 7, 5)
    answerer = listener.client(7)
    with pytest.raises(ConnectionError):
        connect(listener.address, TOKEN, 7, 5)
    first.ask(b"b" * HEAD, [])
    assert answerer.next() == (b"b" * HEAD, 0)
    for end in (first, answerer, listener):
        end.close()


def test_strangers_that_stay_silent_keep_no_client_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_PATIENCE", 60.0)  # one by one they take 720 s
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    host, port = listener.address.rsplit(":", 1)
    strangers = [socket.create_connection((host, int(port)), 5) for _ in range(12)]
    asker = connect(listener.address, TOKEN, 7, 30)
    answerer = listener.client(7)
    asker.ask(b"a" * HEAD, [])
    assert answerer.next() == (b"a" * HEAD, 0)
    for end in (asker, answerer, listener, *strangers):
        end.close()


def test_strangers_beyond_what_is_bearable_are_turned_away_the_first_of_them_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_GUESTS", 3)
    monkeypatch.setattr(connections, "_PATIENCE", 60.0)
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    host, port = listener.address.rsplit(":", 1)
    strangers = [socket.create_connection((host, int(port)), 5) for _ in range(5)]
    assert [one.recv(1) for one in strangers[:2]] == [b"", b""]
    strangers[4].settimeout(0.2)
    with pytest.raises(TimeoutError):
        strangers[4].recv(1)
    asker = connect(listener.address, TOKEN, 7, 5)
    for end in (asker, listener.client(7), listener, *strangers):
        end.close()


def test_a_silent_stranger_is_turned_away_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PATIENCE", 0.3)
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    host, port = listener.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 5) as stranger:
        assert stranger.recv(1) == b""
    listener.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="of Linux")
def test_both_ends_notice_within_the_time_out_that_the_other_machine_is_gone() -> None:
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD, 12.0)
    asker = connect(listener.address, TOKEN, 7, 12.0)
    answerer = listener.client(7)
    for end in (asker, answerer):
        option = end._sock.getsockopt
        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, gap, count = (
            option(socket.IPPROTO_TCP, name)
            for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert 6 <= idle + gap * count <= 12
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12_000
    for end in (asker, answerer, listener):
        end.close()
