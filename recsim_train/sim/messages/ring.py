"""A ring all-reduce as messages, hop by hop, where others may use its links meanwhile.

Each member sends to the one before it, as gloo's ranks do: a segment leaves once the receiver's
notice that there is room has come, the next but one once the member has received the segment
before that and added it up (`ring` in gloo/allreduce.cc). So who is held up holds up those behind
it, some steps later, while all others' links are free for what else there is; as one activity of
all members they would all be as slow as the slowest at every moment.

The two segments that are on their way share links as two messages do. Of many steps several are
one message, which is late by what those would have waited in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from recsim_train.sim.engine import Event, Steps
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.host.process import Process, Route
from recsim_train.sim.queues import Countdown
from recsim_train.trace.ledger import COLLECTIVES

_NOTICE = 48
"""Bytes: the preamble that gloo sends before every segment (`Op` in gloo/transport/tcp/pair.h)."""
MOST = 24
"""Messages of one member in an all-reduce, at most; a multiple of two."""


class HopByHop:
    """Members, of which each sends to the one before it."""

    def __init__(self, machines: Machines, members: Sequence[Process]) -> None:
        self._machines, self._engine = machines, machines.engine
        pairs = [(member, members[place - 1]) for place, member in enumerate(members)]
        self._there = [machines.route(one, other, COLLECTIVES) for one, other in pairs]
        """By who sends."""
        self._back = [machines.route(other, one, COLLECTIVES) for one, other in pairs]
        """Notices to who sends."""

    def around(self, messages: int, size: float, late: float, alone: float) -> list[Event]:
        """Every member sends so many ``messages`` of ``size`` bytes, which are ``late`` by so many
        seconds each; when each member is done, which tells ``alone``."""
        engine, places = self._engine, range(len(self._there))
        come = [[engine.event() for _ in range(messages)] for _ in places]
        ready = [[Countdown(engine, 2) for _ in range(messages)] for _ in places]
        """By who sends: it does, and there is room for it."""

        def send(place: int, turn: int, _: Event) -> None:
            def arrive() -> None:
                come[place - 1][turn].succeed()

            moved = self._move(self._there[place], size)
            moved.callbacks.append(lambda _: engine.later(late, arrive))

        def member(place: int) -> Steps:
            behind = (place + 1) % len(places)  # who sends to it
            for turn in range(messages + 2):
                if turn >= 2:
                    yield come[place][turn - 2]
                if turn < messages:
                    notice = self._move(self._back[behind], _NOTICE)
                    notice.callbacks.append(ready[behind][turn].arrive)
                    ready[place][turn].arrive()
            return alone

        for place in places:
            for turn, both in enumerate(ready[place]):
                both.done.callbacks.append(partial(send, place, turn))
        return [engine.process(member(place)) for place in places]

    def path(self, messages: int, size: int, late: float, alone: float) -> list[Event]:
        """One number of ``size`` bytes goes from the last member to the first and on around, so
        many ``messages`` in all, each once the notice of who gets it has come; as `around`."""

        def steps() -> Steps:
            notices = [self._move(route, _NOTICE) for route in self._back]
            for turn in range(messages):
                place = -1 - turn % len(notices)
                yield notices[place]
                yield self._move(self._there[place], size)
                yield self._engine.timeout(late)
            return alone

        return [self._engine.process(steps())] * len(self._there)

    def exchange(
        self,
        sent: Mapping[int, Sequence[float]],
        most: Sequence[float],
        latency: float,
        price: float,
    ) -> list[Event]:
        """Every member sends each other one so many bytes, after the seconds of ``latency``; as
        `around`. ``sent``: from each member to each, by place; ``most``: by member, what it sends
        or gets, whichever is more; ``price``: of a byte at each end."""
        members = [route.source for route in self._there]
        engine, places = self._engine, range(len(members))
        done = [Countdown(engine, 2 * (len(members) - 1)) for _ in places]

        def member(place: int) -> Steps:
            yield engine.timeout(latency)
            for other in places:
                if other != place:
                    ends = members[place], members[other]
                    route = self._machines.route(*ends, COLLECTIVES, price=price)
                    moved = self._machines.move(route, sent[place][other]).done
                    moved.callbacks.append(done[place].arrive)
                    moved.callbacks.append(done[other].arrive)
            yield done[place].done
            return latency + most[place] / self._there[place].rate

        return [engine.process(member(place)) for place in places]

    def _move(self, route: Route, size: float) -> Event:
        latency = self._machines.latency_of(route.source, route.target)
        return self._machines.move(route, size, delay=latency).done
