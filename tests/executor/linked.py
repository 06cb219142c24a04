"""Clients and servers of a run, each with a link of its own that carries so many bytes a second.

A process of its own forwards all connections. A client's bytes leave through its link and arrive
through the server's, and the other way round; both directions of a link are apart.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.clock import first_in_line

CHUNK = 32 << 10
BEHIND = 0.05
"""Seconds of a link's past that may still be used: the forwarding threads do not run at once."""


class Direction:
    """One direction of a link."""

    def __init__(self, rate: float) -> None:
        self.rate, self.free, self.turn = rate, 0.0, threading.Lock()

    def carried(self, size: int) -> float:
        """When it will have carried so many bytes more."""
        with self.turn:
            self.free = max(self.free, time.monotonic() - BEHIND) + size / self.rate
            return self.free


def _forward(source: socket.socket, sink: socket.socket, links: Sequence[Direction]) -> None:
    while chunk := source.recv(CHUNK):
        until = max([link.carried(len(chunk)) for link in links])
        time.sleep(max(0.0, until - time.monotonic()))
        sink.sendall(chunk)
    sink.shutdown(socket.SHUT_WR)


def _small(sock: socket.socket) -> socket.socket:
    """So that little waits between the links."""
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, 2 * CHUNK)
    return sock


def _carry(to: Connection, servers: Mapping[int, int], clients: int, rate: float) -> None:
    first_in_line()
    up = {name: Direction(rate) for name in [*servers, *range(-clients, 0)]}
    down = {name: Direction(rate) for name in up}

    def accept(listener: socket.socket, client: int, server: int) -> None:
        one = listener.accept()[0]
        other = _small(socket.socket())
        other.connect(("127.0.0.1", servers[server]))
        for ends, links in (
            ((one, other), (up[-1 - client], down[server])),
            ((other, one), (up[server], down[-1 - client])),
        ):
            threading.Thread(target=_forward, args=[*ends, links]).start()

    ports = {}
    for client in range(clients):
        for server in servers:
            listener = _small(socket.create_server(("127.0.0.1", 0)))
            ports[client, server] = listener.getsockname()[1]
            threading.Thread(target=accept, args=[listener, client, server], daemon=True).start()
    to.send(ports)
    to.recv()


class Links:
    """Of each client to each server: the port where it connects instead."""

    def __init__(self, servers: Mapping[int, int], clients: int, rate: float) -> None:
        """``servers``: port by name, from 0; ``rate``: bytes a second of each link, each way."""
        context = multiprocessing.get_context("spawn")
        self._to, other = context.Pipe()
        words = (other, servers, clients, rate)
        self._process: BaseProcess = context.Process(target=_carry, args=words, daemon=True)
        self._process.start()
        self.ports: dict[tuple[int, int], int] = self._to.recv()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
