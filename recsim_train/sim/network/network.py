"""Links between hosts, and messages of TCP connections that share them frame by frame.

What a message gets of a link depends on what else waits there: first in first out, or by turns of
hosts. What waits depends on windows, and these on what connections have sent: so bulk gets more
than short messages, and clients that came together part. No figure of it is fitted; `tcp` and
`ports` have the rules of Linux, and a link has its rate and the length of its queue.

What this file must NOT know: strategies, and what messages are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf
from typing import NamedTuple

from recsim_train.config.frames import FRAME, SEGMENT, room, together
from recsim_train.sim.fluid.memory import Words
from recsim_train.sim.network import core
from recsim_train.sim.network import layout as lay
from recsim_train.sim.network.tcp import FIRST_WINDOW


class Hop(NamedTuple):
    """What a connection's frames pass."""

    queue: int
    copies: float
    """So many connections like it do, side by side."""


class FrameNetwork:
    """Ports, connections and the messages on their way."""

    def __init__(self) -> None:
        self.due = inf
        """When something happens next."""
        self._tags: dict[int, object] = {}
        """By record of a message."""
        self._free: list[int] = []
        """Records of messages that have arrived."""
        self._held = 1 << 13
        self._words = Words(1 << 16, lay.TOP, lay.HEAD_WORDS)
        self._words.ints[lay.EVENTS] = self._words.take(2 * self._held)

    def _fit(self) -> None:
        """Give the block and its heap of events room for what one event may take."""
        words = self._words
        size, old = words.ints[lay.EVENTS_SIZE], words.ints[lay.EVENTS]
        if size + core.MARGIN > self._held:
            self._held *= 2
            new = words.take(2 * self._held)
            words.f[new : new + 2 * size] = words.f[old : old + 2 * size]
            words.ints[lay.EVENTS] = new
        words.ensure(2 * core.MARGIN)

    # ------------------------------------------------------------------ building

    def port(
        self, rate: float, queue_length: float, at_once: float, *, fair: bool, begins: bool
    ) -> int:
        """Where what leaves by a link waits. ``rate``: bytes of frames per second;
        ``queue_length``: seconds; ``at_once``: bytes that an emulated link lets pass after a
        pause; 0: it is a card's; ``begins``: whether messages begin there."""
        port, f, i = self._words.take(lay.P_WORDS), self._words.floats, self._words.ints
        f[port + lay.P_RATE], f[port + lay.P_READY] = rate, -inf
        # of frames that are handled as one the first comes before the last
        f[port + lay.P_BURST] = at_once or (together(rate) - 1) * FRAME * (not begins)
        i[port + lay.P_OWES] = at_once > 0.0
        f[port + lay.P_LIMIT] = room(rate, queue_length)
        i[port + lay.P_FAIR] = fair
        return port

    def queue(self, port: int) -> int:
        """One of a port's queues."""
        queue = self._words.take(lay.Q_WORDS)
        self._words.ints[queue + lay.Q_PORT] = port
        return queue

    def connection(self, there: Sequence[Hop], back: Sequence[Hop], latency: float) -> int:
        """One direction, by what its frames pass, and what acknowledgements do. ``latency``:
        seconds, one way."""
        hops, made = self._words.take(4 * len(there)), self._words.take(lay.C_WORDS)
        f, i = self._words.floats, self._words.ints
        for number, hop in enumerate([*there, *back]):
            i[hops + 2 * number], f[hops + 2 * number + 1] = hop
        i[made + lay.C_HOPS], i[made + lay.C_COUNT] = hops, len(there)
        f[made + lay.C_LATENCY] = latency / len(there)
        rates = [f[i[hop.queue + lay.Q_PORT] + lay.P_RATE] for hop in (*there, *back)]
        f[made + lay.C_MOST] = together(rates[0]) * SEGMENT
        # of the frames by which it was made
        f[made + lay.C_ROUND] = 2.0 * latency + fsum((FRAME - SEGMENT) / rate for rate in rates)
        f[made + lay.C_VARIES] = f[made + lay.C_ROUND] / 2.0
        i[made + lay.C_WINDOW] = FIRST_WINDOW
        for field in (
            lay.C_THRESHOLD, lay.C_PACE, lay.C_EXPIRES, lay.C_WATCHED, lay.C_SAYS,
            lay.C_SAYS_WATCHED,
        ):  # fmt: skip
            f[made + field] = inf
        f[made + lay.C_SPOKEN] = -inf
        return made

    # ------------------------------------------------------------------ time

    def send(self, now: float, connection: int, size: float, tag: object) -> None:
        """Send a message of ``size`` bytes; `run` returns its ``tag`` when it has arrived."""
        self._fit()
        message = self._free.pop() if self._free else self._words.take(lay.M_WORDS)
        self._words.floats[message + lay.M_LEFT] = size
        self._tags[message] = tag
        core.send(self._words.f, self._words.i, now, connection, message)
        self._look()

    def set_rate(self, now: float, port: int, rate: float) -> None:
        """From now on a port sends so many bytes a second; 0: none."""
        core.set_rate(self._words.f, self._words.i, now, port, rate)
        self._look()

    def busy(self, now: float, port: int) -> None:
        """Others have used a link until now: it has earned nothing."""
        ready = port + lay.P_READY
        self._words.floats[ready] = max(now, self._words.floats[ready])

    def carried(self, port: int) -> float:
        """Bytes of frames so far."""
        return self._words.floats[port + lay.P_CARRIED]

    def _look(self) -> None:
        ints = self._words.ints
        self.due = self._words.floats[ints[lay.EVENTS]] if ints[lay.EVENTS_SIZE] else inf

    def run(self, until: float) -> tuple[float, list[object]]:
        """Move on to where messages have arrived, but not beyond ``until``; returns (when, their
        tags)."""
        while True:
            self._fit()
            self.due = core.run(self._words.f, self._words.i, until, self._held)
            i = self._words.ints
            message = i[lay.DONE]
            if message or self.due > until or self.due == inf:
                break
        found = []
        while message:
            found.append(self._tags.pop(message))
            self._free.append(message)
            message = i[message + lay.M_NEXT]
        i[lay.DONE] = 0
        return self._words.floats[lay.NOW], found
