"""The links of a cluster as ports of a network: of each host, and between racks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from recsim_train.config.cluster import Network as Described
from recsim_train.config.cluster import Queue
from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.sim.engine import Engine
from recsim_train.sim.fluid.resources import Resource
from recsim_train.sim.host.process import Process, Route, passes
from recsim_train.sim.network.network import FrameNetwork, Hop

UNSURE: Final[Mapping[Queue, float]] = {"fifo": 0.063, "fair": 0.078}
"""By queue how far this is from the time that clients in turn took on emulated links, root mean
square of the logarithm over settings that nobody chose (``benchmarks/results/link_shares.json``):
nothing of a strategy is in it."""
UPLINK_UNSURE: Final[Mapping[Queue, float]] = {"fifo": 0.194, "fair": 0.176}
"""The same where an uplink is slower than clients' links, in settings of ours."""


class Links:
    """Which ports there are, and which of them a connection passes."""

    def __init__(self, engine: Engine, network: Described) -> None:
        self._engine, self._config = engine, network
        self._network = engine.network = FrameNetwork()
        self._ports: dict[Resource, int] = {}
        self._queues: dict[tuple[int, str], int] = {}

    def connection(self, route: Route, latency: float) -> int:
        """One direction of a connection. ``latency``: seconds, one way."""
        there = self._hops(route.source, route.target, route)
        back = self._hops(route.target, route.source, route)
        if route.cap is not None and route.cap < route.source.send.capacity:
            # what is slower than the link is the connection itself
            own = [self._network.queue(self._port(route.cap, begins=True)) for _ in range(2)]
            there, back = [Hop(own[0], 1.0), *there], [*back, Hop(own[1], 1.0)]
        return self._network.connection(there, back, latency)

    def _hops(self, source: Process, target: Process, route: Route) -> list[Hop]:
        """What lies on the way from one process to another on another host."""
        hops = []
        for link, copies in passes(source, target, route.flows):
            peer = source if link is target.receive else target
            queue = self._queue(link, peer.host.name, begins=link is source.send)
            hops.append(Hop(queue, copies))
        return hops

    def _queue(self, link: Resource, peer: str, *, begins: bool = False) -> int:
        """That of a link for a peer, where each has one."""
        port = self._ports.get(link)
        if port is None:
            port = self._ports[link] = self._port(link.capacity, begins=begins)
            if link.history:  # it was made with the highest capacity that it ever has
                self._change(port, link.history[-1][1])
            link.changes, link.carried = partial(self._change, port), partial(self._carried, port)
        whose = port, peer if self._config.queue == "fair" else ""
        if whose not in self._queues:
            self._queues[whose] = self._network.queue(port)
        return self._queues[whose]

    def _port(self, capacity: float, *, begins: bool) -> int:
        """Of so many bytes of payload per second."""
        at_once = (self._config.passes_at_once or 0.0) * FRAME / SEGMENT
        return self._network.port(
            capacity * FRAME / SEGMENT,
            self._config.queue_length,
            at_once,
            fair=self._config.queue == "fair",
            begins=begins,
        )

    def busy(self, process: Process) -> None:
        """A collective has used a process's links until now."""
        for link in (process.send, process.receive):
            if link in self._ports:
                self._network.busy(self._engine.now, self._ports[link])

    def _carried(self, port: int) -> float:
        return self._network.carried(port) * SEGMENT / FRAME

    def _change(self, port: int, capacity: float) -> None:
        self._network.set_rate(self._engine.now, port, capacity * FRAME / SEGMENT)
