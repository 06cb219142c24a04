"""How messages share a link: not quite equally, which parts the clients of a server.

With equal shares, clients of a server that come to it together stay together: all receive, then
all send, and each direction of its link is idle half of the time. On a real link three things part
them, measured on emulated ones by ``benchmarks/link_shares.py``, without any strategy:

- After a pause a link that is shaped by a token bucket lets a burst pass at once. Whoever comes
  first has it, so that the others are behind by as much.
- In a queue that all share (first in, first out) the windows of those that use a link already have
  filled the queue before another message's window has opened.
- There, messages that the queue does not hold lose packets, one more than another.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp
from statistics import NormalDist
from typing import Final

from recsim_train.config.cluster import Network
from recsim_train.config.frames import burst, room
from recsim_train.sim.engine import Engine
from recsim_train.sim.fluid.records import Resource
from recsim_train.sim.host.process import Process, between
from recsim_train.sim.jitter import stream

SPREAD: Final = 0.2
"""Standard deviation of the logarithms of the rates of messages that a queue does not hold."""
LEAD: Final = 0.25
"""Logarithm by which a message's rate is lower that finds a queue in use."""
_LEVELS = 16
_BLOCK = 256


class Shares:
    """Who is ahead on a link, and by how much."""

    def __init__(self, seed: int, network: Network, engine: Engine) -> None:
        self._seed, self._network, self._engine = seed, network, engine
        # a few levels, so that messages of one weight are one kind of activity
        normal = NormalDist(0.0, SPREAD)
        self._levels = [exp(normal.inv_cdf((n + 0.5) / _LEVELS)) for n in range(_LEVELS)]
        self._behind = exp(-LEAD)
        self._drawn: dict[tuple[str, str], Iterator[float]] = {}
        self._until: dict[Resource, float] = {}
        """By link: until when the messages that have begun keep it busy at least."""

    def begin(
        self, source: Process, target: Process, size: float, flows: float
    ) -> tuple[float, float]:
        """Of a message of ``size`` bytes that begins: (seconds by which it is behind, weight in
        proportion to which rates on a full link are). ``flows``: as many begin side by side.
        """
        rate = source.send.capacity
        away = flows / source.standing * size / rate
        behind = burst(rate) / rate if self._taken(source.send, away) else 0.0
        in_use = self._taken(target.receive, flows / target.standing * size / rate) or behind > 0.0
        uplinks = [link for link, _ in between(source, target, 1.0)]
        in_use |= any(map(self._engine.fluid.in_use, uplinks))
        # an uplink has one queue for each host behind it, whoever sends there
        if self._network.queue == "fair" and not uplinks:
            return behind, 1.0
        weight = self._behind if in_use else 1.0
        if size > room(rate, self._network.queue_length):
            weight *= self._draw(source.name, target.name)
        return behind, weight

    def _taken(self, link: Resource, seconds: float) -> bool:
        """Whether a link is in use; from now on it is for so many seconds more."""
        now, until = self._engine.now, self._until.get(link, 0.0)
        self._until[link] = max(now, until) + seconds
        return until > now or self._engine.fluid.in_use(link)

    def _draw(self, source: str, target: str) -> float:
        """Of a connection: depends on the seed and its ends only."""
        drawn = self._drawn.get((source, target))
        if drawn is None:
            drawn = self._drawn[source, target] = self._draws(f"{source}>{target}")
        return next(drawn)

    def _draws(self, ends: str) -> Iterator[float]:
        generator = stream(self._seed, ends, "share")
        while True:
            for level in generator.integers(_LEVELS, size=_BLOCK).tolist():
                yield self._levels[level]
