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
from typing import NamedTuple, cast

import numpy as np

from recsim_train.config.frames import FRAME, SEGMENT, room, together
from recsim_train.sim.fluid.layout import Floats, Ints
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
        self._groups = 0
        self._held = 1 << 13
        self._view(np.zeros(1 << 16))
        self._i[lay.TOP] = lay.HEAD_WORDS
        self._i[lay.EVENTS] = self._take(2 * self._held)

    def _view(self, words: Floats) -> None:
        self._f = words
        self._i = cast(Ints, words.view(np.int64))

    def _take(self, words: int) -> int:
        address = int(self._i[lay.TOP])
        self._i[lay.TOP] = address + words
        self._fit()
        return address

    def _fit(self) -> None:
        """Give the block and its heap of events room for what one event may take."""
        wanted = int(self._i[lay.TOP]) + 2 * core.MARGIN
        if wanted > self._f.size:
            larger = np.zeros(wanted + wanted // 2)
            larger[: self._f.size] = self._f
            self._view(larger)
        size, old = int(self._i[lay.EVENTS_SIZE]), int(self._i[lay.EVENTS])
        if size + core.MARGIN > self._held:
            self._held *= 2
            new = self._take(2 * self._held)
            self._f[new : new + 2 * size] = self._f[old : old + 2 * size]
            self._i[lay.EVENTS] = new

    # ------------------------------------------------------------------ building

    def port(
        self, rate: float, queue_length: float, at_once: float, *, fair: bool, begins: bool
    ) -> int:
        """Where what leaves by a link waits. ``rate``: bytes of frames per second;
        ``queue_length``: seconds; ``at_once``: bytes that an emulated link lets pass after a
        pause; 0: it is a card's; ``begins``: whether messages begin there."""
        port = self._take(lay.P_WORDS)
        self._f[port + lay.P_RATE], self._f[port + lay.P_READY] = rate, -inf
        # of frames that are handled as one the first comes before the last
        self._f[port + lay.P_BURST] = at_once or (together(rate) - 1) * FRAME * (not begins)
        self._i[port + lay.P_OWES] = at_once > 0.0
        self._f[port + lay.P_LIMIT] = room(rate, queue_length)
        self._i[port + lay.P_FAIR] = fair
        return port

    def queue(self, port: int) -> int:
        """One of a port's queues."""
        queue = self._take(lay.Q_WORDS)
        self._i[queue + lay.Q_PORT] = port
        return queue

    def connection(self, there: Sequence[Hop], back: Sequence[Hop], latency: float) -> int:
        """One direction, by what its frames pass, and what acknowledgements do. ``latency``:
        seconds, one way."""
        hops, made = self._take(4 * len(there)), self._take(lay.C_WORDS)
        f, i = self._f, self._i
        for number, hop in enumerate([*there, *back]):
            i[hops + 2 * number], f[hops + 2 * number + 1] = hop
        i[made + lay.C_HOPS], i[made + lay.C_COUNT] = hops, len(there)
        f[made + lay.C_LATENCY] = latency / len(there)
        rates = [float(f[i[hop.queue + lay.Q_PORT] + lay.P_RATE]) for hop in (*there, *back)]
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
        self._groups += 1
        self._tags[self._groups] = tag
        core.send(self._f, self._i, now, connection, size, self._groups)
        self._look()

    def set_rate(self, now: float, port: int, rate: float) -> None:
        """From now on a port sends so many bytes a second; 0: none."""
        core.set_rate(self._f, self._i, now, port, rate)
        self._look()

    def busy(self, now: float, port: int) -> None:
        """Others have used a link until now: it has earned nothing."""
        self._f[port + lay.P_READY] = max(now, self._f[port + lay.P_READY])

    def carried(self, port: int) -> float:
        """Bytes of frames so far."""
        return float(self._f[port + lay.P_CARRIED])

    def _look(self) -> None:
        i = self._i
        self.due = float(self._f[i[lay.EVENTS]]) if i[lay.EVENTS_SIZE] else inf

    def run(self, until: float) -> tuple[float, list[object]]:
        """Move on to where messages have arrived, but not beyond ``until``; returns (when, their
        tags)."""
        while True:
            self._fit()
            self.due = core.run(self._f, self._i, until, self._held)
            i = self._i
            message = int(i[lay.DONE])
            if message or self.due > until or self.due == inf:
                break
        found = []
        while message:
            found.append(self._tags.pop(int(i[message + lay.M_GROUP])))
            following = int(i[message + lay.M_NEXT])
            i[message + lay.M_NEXT] = i[lay.FREE_MESSAGE]
            i[lay.FREE_MESSAGE] = message
            message = following
        i[lay.DONE] = 0
        return float(self._f[lay.NOW]), found
