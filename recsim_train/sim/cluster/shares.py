"""How messages share a link: not quite equally, which parts the clients of a server.

With equal shares, clients of a server that come to it together stay together: all receive, then
all send, and each direction of its link is idle half of the time. On a real link five things part
them, measured on emulated ones by ``benchmarks/link_shares.py``, without any strategy:

- After a pause an emulated link lets some frames pass at once (``network.passes_at_once``). A
  message that comes first is ahead by those.
- Messages of one sender leave one after the other for their first frames. Each that is on its way
  has two in the sender's queue (TCP small queues let no more wait there), and another message waits
  for them; where each receiver has a queue, for a frame of each at most.
- Messages that a shared queue does not hold find it filled by the windows of those that use the
  link already.
- A connection that was silent goes on with half its window, until it has its links alone.
- They lose packets, one more than another.

A message that the receiver's queue holds beside what is to come leaves its sender at once, however
many share the receiver's link, and the sender's link is free for the next.

An uplink that is slower than a sender has its queue in a switch, where messages of all hosts meet,
short and long ones. There each waits for what is queued, more or less, and all lose packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from math import exp, inf
from statistics import NormalDist
from typing import Final, NamedTuple

from numpy.random import Generator

from recsim_train.config.cluster import Network, Queue
from recsim_train.config.frames import BURST, SEGMENT, room
from recsim_train.sim.engine import Engine
from recsim_train.sim.fluid.records import Resource
from recsim_train.sim.host.process import Route
from recsim_train.sim.jitter import stream, uniforms
from recsim_train.trace.ledger import TRANSPORT

QUEUED: Final = BURST * SEGMENT
"""Bytes of payload of one connection that wait before the sender's link."""
SPREAD: Final = 0.2
"""Standard deviation of the logarithms of the rates of messages that a queue does not hold."""
UPLINK_SPREAD: Final = 0.5
"""The same of messages over such an uplink, whether its queue holds them or not."""
LEAD: Final = 0.25
"""Logarithm by which a message's rate is lower that finds a queue in use."""
SILENT: Final = 0.2
"""Seconds: a connection on which nothing was sent for longer has half the window when it goes on
(Linux's least retransmission time-out; RFC 7661, 3)."""
REGAINED: Final = 64 * 1024
"""Bytes with which a message that has its links alone gets the whole window again."""
HALVED: Final = 0.5
"""By how much less a message's rate is that begins with half a window beside others of its sender,
which have whole ones."""
HALVED_INTO: Final = 0.67
"""The same beside those of other senders."""
UNSURE: Final[Mapping[Queue, float]] = {"fifo": 0.060, "fair": 0.048}
"""By queue how far this is from the time that clients in turn took on emulated links, root mean
square of the logarithm over settings that nobody chose (``benchmarks/results/link_shares.json``):
nothing of a strategy is in it."""
UPLINK_UNSURE: Final[Mapping[Queue, float]] = {"fifo": 0.207, "fair": 0.193}
"""The same where an uplink is slower than clients' links, in settings of ours."""
_LEVELS = 16
_BLOCK = 256


class Begun(NamedTuple):
    """How a message begins."""

    weight: float
    """In proportion to which rates on a full link are."""
    ahead: float
    """Bytes of it that pass at once."""
    behind: float
    """Seconds by which it is behind others."""
    regained: float = 0.0
    """The weight that it has once it has its links alone; 0: always the same."""


ALONE: Final = Begun(1.0, 0.0, 0.0)
"""Where there is no link, or nothing known of it."""


class Shares:
    """Who is ahead on a link, and by how much."""

    def __init__(self, seed: int, network: Network, engine: Engine) -> None:
        self._seed, self._engine = seed, engine
        self._queue_length = network.queue_length
        self._at_once = network.passes_at_once or 0.0
        self._fair = network.queue == "fair"
        """Whether each sender has a queue of its own."""
        self._behind = exp(-LEAD)
        self._drawn: dict[tuple[str, Route], Iterator[float]] = {}
        self._rooms: dict[Resource, float] = {}
        self._until: dict[Resource, float] = {}
        """By link: until when the messages that have begun keep it busy at least."""
        self._ends: dict[Resource, deque[float]] = {}
        """By sender's link, of each message on it that time."""
        self._since: dict[Resource, float] = {}
        """By link: since when it is in use."""
        self._spoken: dict[Route, float] = {}
        """By connection: until when it had something to send."""
        self._halved: set[Route] = set()
        """Connections of half a window."""
        self._queued: dict[tuple[Resource, str], float] = {}
        """By uplink, and the receiving host where each has a queue: until when what has come there
        keeps the link busy."""

    def begin(self, route: Route, size: float) -> Begun:
        """A message of ``size`` bytes begins."""
        if route.slower:
            return self._over(route, size)
        now, in_use = self._engine.now, self._engine.fluid.in_use
        out, into = route.out, route.into
        away, come = route.source.send, route.target.receive
        held = size <= self._room(away)
        crowded = any(map(in_use, route.uplinks))
        # an uplink has one queue for each host behind it, whoever sends there
        apart = self._fair and not route.uplinks
        left, arrived = self._paused(away, now), self._paused(come, now)
        ahead = 0.0
        if not crowded and left > 0.0:
            ahead = min(size, self._passing(away, left) / out)
            if held or not apart:  # a message larger than a queue of its own finds that empty
                ahead = min(ahead, self._passing(come, arrived) / into)
        ends = self._ends_of(away, now)
        others = len(ends)
        ends.append(self._use(away, out * (size - ahead) / away.capacity, now))
        arrives = self._use(come, into * (size - ahead) / come.capacity, now)
        if left >= 0.0:
            self._since[away] = now
        if arrived >= 0.0:
            self._since[come] = now
        # where each has a queue, windows share nothing
        halved = not self._fair and self._speak(route, max(ends[-1], arrives), now)
        if apart:
            frames = min(others * SEGMENT, QUEUED) if held else 0.0
            return Begun(1.0, ahead, frames / away.capacity)
        if held:
            return Begun(1.0, ahead, others * QUEUED / away.capacity)
        behind = QUEUED / away.capacity if left < 0.0 else 0.0
        drawn = self._draw("share", route, partial(_weights, SPREAD))
        if halved:
            less = 1.0
            if left < 0.0 and self._carried(away):
                less = HALVED
            elif arrived < 0.0 and self._carried(come):
                less = HALVED_INTO
            if less < 1.0:
                return Begun(less * drawn, ahead, behind, drawn)
        if left >= 0.0 and arrived >= 0.0:
            self._halved.discard(route)
        weight = self._behind if left < 0.0 or arrived < 0.0 or crowded else 1.0
        return Begun(weight * drawn, ahead, behind)

    def _speak(self, route: Route, until: float, now: float) -> bool:
        """A connection has a message again, until so; whether it has half a window."""
        if now - self._spoken.get(route, -inf) > SILENT:
            self._halved.add(route)
        self._spoken[route] = until
        return route in self._halved

    def _carried(self, link: Resource) -> bool:
        """Whether a link in use has carried so much that who uses it has a whole window."""
        busy: float = self._engine.now - self._since.get(link, -inf)
        return busy * link.capacity > REGAINED

    def regains(self, route: Route) -> bool:
        """Whether a message of which a part has arrived had its links alone at the end; its
        connection has a whole window then."""
        if route.flows > 1.0:
            return False
        if any(map(self._engine.fluid.in_use, (route.source.send, route.target.receive))):
            return False
        self._halved.discard(route)
        return True

    def holds(self, route: Route, size: float, *, follows: bool) -> bool:
        """Whether the queue before the receiver's link holds a message that begins now, with those
        that it stands for, beside what that link has yet to bring; where each sender has a queue,
        beside what has yet to come from it (``follows``); false where it waits before an uplink."""
        if route.slower:
            return False
        come = route.target.receive
        waits = 0.0
        if follows or not self._fair:
            waits = max(0.0, self._until.get(come, 0.0) - self._engine.now)
        return waits * come.capacity + route.into * size <= self._room(come)

    def _over(self, route: Route, size: float) -> Begun:
        """A message begins whose sender is faster than an uplink."""
        uplinks, now = route.uplinks, self._engine.now
        left = min(self._paused(link, now) for link in uplinks)
        slowest = min(uplinks, key=lambda link: link.capacity)
        ahead = min(size, self._passing(slowest, left) / route.flows) if left > 0.0 else 0.0
        more = route.flows * (size - ahead)
        whose = route.target.host.name if self._fair else ""
        queued = max(self._queue(link, whose, more, now) for link in uplinks)
        for link in uplinks:
            self._use(link, more / link.capacity, now)
        weight = self._behind if left < 0.0 else 1.0
        weight *= self._draw("share", route, partial(_weights, UPLINK_SPREAD))
        return Begun(weight, ahead, queued * 2.0 * self._draw("wait", route, uniforms))

    def _queue(self, link: Resource, whose: str, size: float, now: float) -> float:
        """Seconds of what waits before an uplink, in one of its queues, to which ``size`` bytes
        come."""
        queued = max(0.0, self._queued.get((link, whose), 0.0) - now)
        self._queued[link, whose] = now + queued + size / link.capacity
        return float(min(queued, self._room(link) / link.capacity))

    def _passing(self, link: Resource, paused: float) -> float:
        """Bytes that it lets pass at once when nothing has used it for so many seconds."""
        return max(0.0, min(self._at_once, paused * link.capacity))

    def _room(self, link: Resource) -> float:
        """Bytes that its queue holds."""
        held = self._rooms.get(link)
        if held is None:
            held = self._rooms[link] = room(link.capacity, self._queue_length)
        return held

    def _paused(self, link: Resource, now: float) -> float:
        """For how many seconds nothing has used a link; below 0: something does."""
        return -1.0 if self._engine.fluid.in_use(link) else now - self._until.get(link, -inf)

    def _use(self, link: Resource, seconds: float, now: float) -> float:
        """It is in use for so many seconds more; until when."""
        until = self._until[link] = max(now, self._until.get(link, 0.0)) + seconds
        return until

    def _ends_of(self, link: Resource, now: float) -> deque[float]:
        """Of each message on a sender's link, when it has passed if they leave one after the
        other."""
        ends = self._ends.get(link)
        if ends is None:
            ends = self._ends[link] = deque()
        while ends and ends[0] <= now:
            ends.popleft()
        return ends

    def _draw(self, what: str, route: Route, law: Callable[[Generator], Iterator[float]]) -> float:
        """Of a connection: depends on the seed, on what it is and on its ends only."""
        drawn = self._drawn.get((what, route))
        if drawn is None:
            ends = f"{route.source.name}>{route.target.name}"
            if route.what != TRANSPORT:
                ends += f" {route.what}"
            drawn = self._drawn[what, route] = law(stream(self._seed, ends, what))
        return next(drawn)


def _weights(spread: float, generator: Generator) -> Iterator[float]:
    levels = _levels(spread)
    while True:
        for level in generator.integers(_LEVELS, size=_BLOCK).tolist():
            yield levels[level]


@cache
def _levels(spread: float) -> list[float]:
    """Weights of a log-normal; a few, so that messages of one weight are one kind of activity."""
    normal = NormalDist(0.0, spread)
    return [exp(normal.inv_cdf((n + 0.5) / _LEVELS)) for n in range(_LEVELS)]
