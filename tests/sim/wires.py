"""Hosts on links of which nothing but their rates is known, for tests of frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil

from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.network.network import FrameNetwork, Hop

RATE = 20e6 / 8
"""Bytes of frames per second."""
HEAD = FRAME - SEGMENT
FAST = 1e12


class Wires:
    """Hosts, each with a port out and a port in, that are as fast as they are said to be."""

    def __init__(
        self,
        rates: Sequence[float],
        *,
        fair: bool = False,
        queue: float = 1.0,
        at_once: float = 0.0,
        latency: float = 0.0,
        shared: bool = False,
    ) -> None:
        self.engine = Engine(shared=shared)
        self.network = self.engine.network = FrameNetwork()
        self._fair, self._latency = fair, latency

        def ports(*, begins: bool) -> list[int]:
            port = partial(self.network.port, fair=fair, begins=begins)
            return [port(rate, queue, at_once) for rate in rates]

        self.out, self.into = ports(begins=True), ports(begins=False)
        self._queues: dict[tuple[int, int], int] = {}

    def _queue(self, port: int, peer: int) -> int:
        key = port, peer if self._fair else -1
        if key not in self._queues:
            self._queues[key] = self.network.queue(port)
        return self._queues[key]

    def connection(self, source: int, target: int, copies: float = 1.0) -> int:
        """``copies``: that one of the source stands for, at the target."""

        def hops(a: int, b: int, shares: tuple[float, float]) -> list[Hop]:
            ports = (self._queue(self.out[a], b), self._queue(self.into[b], a))
            return [Hop(queue, share) for queue, share in zip(ports, shares, strict=True)]

        there = hops(source, target, (1.0, copies))
        return self.network.connection(there, hops(target, source, (copies, 1.0)), self._latency)

    def send_later(self, delay: float, connection: int, size: float) -> None:
        """Send a message after a ``delay``."""
        self.engine.later(delay, partial(self._send, connection, size))

    def _send(self, connection: int, size: float) -> None:
        self.engine.message(connection, size)

    def send(self, connection: int, *sizes: float) -> list[float]:
        """When each message has arrived, once the engine has run."""
        ends: list[float] = []

        def arrived(_: Event) -> None:
            ends.append(self.engine.now)

        for size in sizes:
            self.engine.message(connection, size).callbacks.append(arrived)
        return ends


def wire(size: float) -> float:
    """Bytes of frames of a message."""
    return size + HEAD * ceil(size / SEGMENT)
