"""How unequally TCP shares one emulated link, without any strategy: messages of several at once.

    python benchmarks/link_shares.py [--rounds 30] [--out FILE]

In each round several connections begin a message of the same size at the same time: of several
hosts to one (incast), or of one host to several (outcast). When the first has arrived, what the
others have got says how the link was shared. `sigma` is the standard deviation of the logarithms of
these shares within a round, over all rounds; 0: equal shares, as max-min fairness has them.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from math import log, sqrt
from pathlib import Path
from statistics import mean, median

from script import options

from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.emulation.layout import (
    LEAST_WAITING,
    EmulatedHost,
    EmulatedLayout,
    Link,
)

MBIT = 1e6 / 8
PORT = 5000
LIMIT = 60.0
"""Seconds for one setting's connections."""


@dataclass
class Rounds:
    """Messages of one setting."""

    size: int
    rounds: int
    flows: int
    taken: list[int] = field(init=False)
    shares: list[list[float]] = field(default_factory=list)
    """By round: bytes of each when the first was complete."""
    seconds: list[float] = field(default_factory=list)
    """By round: from the start until the last was complete."""

    def __post_init__(self) -> None:
        self.taken = [0] * self.flows
        self.begin = threading.Barrier(2 * self.flows, action=self._start)
        self.end = threading.Barrier(2 * self.flows, action=self._close)
        self._first: list[float] = []
        self._lock = threading.Lock()

    def _start(self) -> None:
        self.taken[:] = [0] * self.flows
        self._first = []
        self._began = time.monotonic()

    def _close(self) -> None:
        self.seconds.append(time.monotonic() - self._began)
        self.shares.append(self._first)

    def send(self, address: str, flow: int) -> None:
        content = bytes(self.size)
        with socket.create_connection((address, PORT + flow), timeout=LIMIT) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(self.rounds):
                self.begin.wait(LIMIT)
                connection.sendall(content)
                self.end.wait(LIMIT)

    def receive(self, server: socket.socket, flow: int) -> None:
        with server:
            connection, _ = server.accept()
        with connection:
            connection.settimeout(LIMIT)
            for _ in range(self.rounds):
                self.begin.wait(LIMIT)
                while self.taken[flow] < self.size:
                    self.taken[flow] += len(connection.recv(1 << 16))
                with self._lock:
                    if not self._first:
                        self._first = list(map(float, self.taken))
                self.end.wait(LIMIT)

    @property
    def sigma(self) -> float:
        """Of the rounds after the first two, in which windows open."""
        squares = []
        for shares in self.shares[2:]:
            logs = [log(max(SEGMENT, share)) for share in shares]
            squares += [(x - mean(logs)) ** 2 for x in logs]
        return sqrt(sum(squares) / (len(self.shares[2:]) * (self.flows - 1)))


def measured(pattern: str, flows: int, mbit: float, queue: str, size: int, rounds: int) -> Rounds:
    """One setting."""
    rate = mbit * MBIT
    link = Link(rate, queue, max(LEAST_WAITING * FRAME, round(5e-3 * rate)))  # type: ignore[arg-type]
    hosts = tuple(
        EmulatedHost(f"host {n}", IPv4Address("10.77.0.1") + n, 0, link) for n in range(flows + 1)
    )
    work = Rounds(size, rounds, flows)
    with EmulatedCluster(EmulatedLayout(hosts)) as cluster:
        threads = []
        for flow in range(flows):
            one, other = hosts[0], hosts[flow + 1]
            sender, receiver = (other, one) if pattern == "incast" else (one, other)
            made: list[socket.socket] = []
            place, address = cluster.namespace(receiver.name), str(receiver.address)
            place.do(partial(_listen, address, PORT + flow, made))
            takes = partial(work.receive, made[0], flow)
            gives = partial(work.send, address, flow)
            away = cluster.namespace(sender.name)
            threads.append(threading.Thread(target=place.do, args=[takes]))
            threads.append(threading.Thread(target=away.do, args=[gives]))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * LIMIT)
    return work


def _listen(address: str, port: int, made: list[socket.socket]) -> None:
    made.append(socket.create_server((address, port)))


SETTINGS = (
    (2, 20, 64), (2, 20, 256), (2, 40, 64), (2, 40, 512), (2, 120, 512), (2, 200, 256),
    (2, 200, 2048), (4, 40, 64), (4, 40, 256), (4, 120, 512), (8, 40, 128),
)  # fmt: skip
"""(connections, Mbit/s, KiB of a message)"""


def main() -> None:
    """Measure a table of settings."""
    asked = options(__doc__, {"--rounds": (30, "of each setting"), "--out": ("", "a JSON file")})
    found = []
    for queue in ("fifo", "fair"):
        for pattern in ("incast", "outcast"):
            for flows, mbit, kib in SETTINGS:
                work = measured(pattern, flows, mbit, queue, kib << 10, asked.rounds)
                ideal = flows * (kib << 10) / (mbit * MBIT * SEGMENT / FRAME)
                took = median(work.seconds[2:])
                found.append(
                    {
                        "queue": queue,
                        "pattern": pattern,
                        "flows": flows,
                        "mbit": mbit,
                        "kib": kib,
                        "sigma": round(work.sigma, 3),
                        "seconds": round(took, 4),
                        "of_ideal": round(took / ideal, 3),
                    }
                )
                print(json.dumps(found[-1]), flush=True)
    if asked.out:
        Path(asked.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
