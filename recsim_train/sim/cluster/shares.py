"""How messages share a link: not quite equally, which parts the clients of a server.

With equal shares, clients of a server that come to it together stay together: all receive, then
all send, and each direction of its link is idle half of the time. On a real link five things part
them, measured on emulated ones by ``benchmarks/link_shares.py``, without any strategy:

- After a pause a link lets some frames pass at once. A message that comes first is ahead by those.
- Messages of one sender leave one after the other for their first frames. Each that is on its way
  has as many in the sender's queue as pass at once (TCP small queues let no more wait there), and
  another message waits for them; where each receiver has a queue, for a frame of each at most.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import exp, inf
from statistics import NormalDist
from typing import Final, NamedTuple

from numpy.random import Generator

from recsim_train.config.cluster import Network, Queue
from recsim_train.config.frames import BURST, SEGMENT, room
from recsim_train.sim.engine import Engine
from recsim_train.sim.fluid.records import Resource
from recsim_train.sim.host.process import Process, between
from recsim_train.sim.jitter import stream, uniforms

AT_ONCE: Final = BURST * SEGMENT
"""Bytes of payload that a link lets pass at once after a pause."""
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


def _passing(link: Resource, paused: float) -> float:
    """Bytes that it lets pass at once when nothing has used it for so many seconds."""
    return max(0.0, min(AT_ONCE, paused * link.capacity))


class Shares:
    """Who is ahead on a link, and by how much."""

    def __init__(self, seed: int, network: Network, engine: Engine) -> None:
        self._seed, self._network, self._engine = seed, network, engine
        self._behind = exp(-LEAD)
        self._drawn: dict[tuple[str, str, str], Iterator[float]] = {}
        self._until: dict[Resource, float] = {}
        """By link: until when the messages that have begun keep it busy at least."""
        self._ends: dict[Resource, deque[float]] = {}
        """By sender's link, of each message on it that time."""
        self._since: dict[Resource, float] = {}
        """By link: since when it is in use."""
        self._spoken: dict[tuple[str, str], float] = {}
        """By connection: until when it had something to send."""
        self._halved: set[tuple[str, str]] = set()
        """Connections of half a window."""
        self._queued: dict[tuple[Resource, str], float] = {}
        """By uplink, and the receiving host where each has a queue: until when what has come there
        keeps the link busy."""

    def begin(self, source: Process, target: Process, size: float, flows: float) -> Begun:
        """A message of ``size`` bytes begins. ``flows``: as many begin side by side."""
        uplinks = [link for link, _ in between(source, target, 1.0)]
        if _slower(uplinks, source):
            return self._over(uplinks, source, target, size, flows)
        out, into = flows / source.standing, flows / target.standing
        away, come = source.send, target.receive
        queue = room(away.capacity, self._network.queue_length)
        held = size <= queue
        crowded = any(map(self._engine.fluid.in_use, uplinks))
        # an uplink has one queue for each host behind it, whoever sends there
        apart = self._network.queue == "fair" and not uplinks
        left, arrived = self._paused(away), self._paused(come)
        ahead = 0.0
        if not crowded and left > 0.0:
            ahead = min(size, _passing(away, left) / out)
            if held or not apart:  # a message larger than a queue of its own finds that empty
                ahead = min(ahead, _passing(come, arrived) / into)
        ends = self._ends_of(away)
        others = len(ends)
        ends.append(self._use(away, out * (size - ahead) / away.capacity))
        arrives = self._use(come, into * (size - ahead) / come.capacity)
        for link, paused in ((away, left), (come, arrived)):
            if paused >= 0.0:
                self._since[link] = self._engine.now
        halved = self._speak(source, target, max(ends[-1], arrives))
        if apart:
            frames = min(others * SEGMENT, AT_ONCE) if held else 0.0
            return Begun(1.0, ahead, frames / away.capacity)
        if held:
            return Begun(1.0, ahead, others * AT_ONCE / away.capacity)
        behind = AT_ONCE / away.capacity if left < 0.0 else 0.0
        drawn = self._draw("share", source.name, target.name, partial(_weights, SPREAD))
        if halved:
            less = 1.0
            if left < 0.0 and self._carried(away):
                less = HALVED
            elif arrived < 0.0 and self._carried(come):
                less = HALVED_INTO
            if less < 1.0:
                return Begun(less * drawn, ahead, behind, drawn)
        if left >= 0.0 and arrived >= 0.0:
            self._halved.discard((source.name, target.name))
        weight = self._behind if left < 0.0 or arrived < 0.0 or crowded else 1.0
        return Begun(weight * drawn, ahead, behind)

    def _speak(self, source: Process, target: Process, until: float) -> bool:
        """A connection has a message again, until so; whether it has half a window. Where each has
        a queue, windows share nothing."""
        if self._network.queue == "fair":
            return False
        ends = source.name, target.name
        if self._engine.now - self._spoken.get(ends, -inf) > SILENT:
            self._halved.add(ends)
        self._spoken[ends] = until
        return ends in self._halved

    def _carried(self, link: Resource) -> bool:
        """Whether a link in use has carried so much that who uses it has a whole window."""
        busy: float = self._engine.now - self._since.get(link, -inf)
        return busy * link.capacity > REGAINED

    def regains(self, source: Process, target: Process) -> bool:
        """Whether a message of which a part has arrived had its links alone at the end; its
        connection has a whole window then."""
        if max(source.standing, target.standing) > 1.0:
            return False
        if any(map(self._engine.fluid.in_use, (source.send, target.receive))):
            return False
        self._halved.discard((source.name, target.name))
        return True

    def holds(self, source: Process, target: Process, size: float, *, follows: bool) -> bool:
        """Whether the queue before the receiver's link holds a message that begins now, with those
        that it stands for, beside what that link has yet to bring; where each sender has a queue,
        beside what has yet to come from it (``follows``); false where it waits before an uplink."""
        if _slower([link for link, _ in between(source, target, 1.0)], source):
            return False
        come, into = target.receive, max(source.standing, target.standing) / target.standing
        waits = 0.0
        if self._network.queue == "fifo" or follows:
            waits = max(0.0, self._until.get(come, 0.0) - self._engine.now)
        held = room(come.capacity, self._network.queue_length)
        return waits * come.capacity + into * size <= held

    def _over(
        self,
        uplinks: Sequence[Resource],
        source: Process,
        target: Process,
        size: float,
        flows: float,
    ) -> Begun:
        """A message begins whose sender is faster than an uplink."""
        left = min(map(self._paused, uplinks))
        slowest = min(uplinks, key=lambda link: link.capacity)
        ahead = min(size, _passing(slowest, left) / flows) if left > 0.0 else 0.0
        more = flows * (size - ahead)
        whose = target.host.name if self._network.queue == "fair" else ""
        queued = max(self._queue(link, whose, more) for link in uplinks)
        for link in uplinks:
            self._use(link, more / link.capacity)
        ends = source.name, target.name
        weight = self._behind if left < 0.0 else 1.0
        weight *= self._draw("share", *ends, partial(_weights, UPLINK_SPREAD))
        return Begun(weight, ahead, queued * 2.0 * self._draw("wait", *ends, uniforms))

    def _queue(self, link: Resource, whose: str, size: float) -> float:
        """Seconds of what waits before an uplink, in one of its queues, to which ``size`` bytes
        come."""
        now, longest = self._engine.now, room(link.capacity, self._network.queue_length)
        queued = max(0.0, self._queued.get((link, whose), 0.0) - now)
        self._queued[link, whose] = now + queued + size / link.capacity
        return float(min(queued, longest / link.capacity))

    def _paused(self, link: Resource) -> float:
        """For how many seconds nothing has used a link; below 0: something does."""
        if self._engine.fluid.in_use(link):
            return -1.0
        paused: float = self._engine.now - self._until.get(link, -inf)
        return paused

    def _use(self, link: Resource, seconds: float) -> float:
        """It is in use for so many seconds more; until when."""
        until: float = max(self._engine.now, self._until.get(link, 0.0)) + seconds
        self._until[link] = until
        return until

    def _ends_of(self, link: Resource) -> deque[float]:
        """Of each message on a sender's link, when it has passed if they leave one after the
        other."""
        ends = self._ends.setdefault(link, deque())
        while ends and ends[0] <= self._engine.now:
            ends.popleft()
        return ends

    def _draw(
        self, what: str, source: str, target: str, law: Callable[[Generator], Iterator[float]]
    ) -> float:
        """Of a connection: depends on the seed, on what it is and on its ends only."""
        drawn = self._drawn.get((what, source, target))
        if drawn is None:
            drawn = law(stream(self._seed, f"{source}>{target}", what))
            self._drawn[what, source, target] = drawn
        return next(drawn)


def _slower(uplinks: Sequence[Resource], source: Process) -> bool:
    """Whether one of them is slower than the sender's link."""
    return any(link.capacity < source.send.capacity for link in uplinks)


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
