"""What happens once all members of a group are there: messages are handled, bytes move.

In each step of a collective a thread of gloo's reads what has come and wakes another one, which
works on it and sends. On a host that all members share these threads want its cores one by one, as
all others do. Bytes move meanwhile; for those that a member sends its threads wait, too, without
work. Between hosts the loop handles a member's messages in one go before it is there, and bytes
with what they take of the cores are one activity of all, or messages where others are on its links;
what two neighbours on one host send each other stays there.

Between hosts a step takes two latencies: gloo sends once the receiver's notice that it is ready has
come, and that goes out only when the step before is done. So of a ring one pair of neighbours in
different racks makes every step wait for them, however few such pairs there are. Two segments are
on their way at a time: while one's notice travels, the other's bytes may (`unhidden`).

Where others may use its links meanwhile a ring all-reduce is messages, hop by hop (`HopByHop`).
Each member sends to the one before it, as gloo's ranks do: a segment leaves once the receiver's
notice that there is room has come, the next but one once the member has received the segment
before that and added it up (`ring` in gloo/allreduce.cc). So who is held up holds up those behind
it, some steps later, while all others' links are free for what else there is; as one activity of
all members they would all be as slow as the slowest at every moment. The two
segments that are on their way share links as two messages do. Of many steps several are one
message, which is late by what those would have waited in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from recsim_train.config.frames import ANSWERED, SEGMENT
from recsim_train.sim.engine import Event, Steps
from recsim_train.sim.fluid.resources import Kind, Resource
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.host.process import Process, Route, Started, Thread, between, only_host
from recsim_train.sim.pricing import NOTHING, Priced, part_of, plus
from recsim_train.sim.queues import Countdown
from recsim_train.sim.world import World
from recsim_train.trace.ledger import COLLECTIVES
from recsim_train.workload.threads import NONE

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


_SEGMENT = 1 << 20
"""Bytes of a ring's segment, at most (`kMaxSegmentSize` in gloo/allreduce.cc)."""


class Exchanged(NamedTuple):
    """Bytes of one member in an exchange."""

    away: float
    """Sent to others."""
    into: float
    near_away: float = 0.0
    """Of what is sent, to members on the same host."""
    near_into: float = 0.0


class GlooGroup:
    """Those of one group of several members."""

    def __init__(
        self,
        world: World,
        name: str,
        members: list[Process],
        size: int,
        *,
        beside: bool = False,
    ) -> None:
        """``members``: those that are simulated, of ``size``. ``beside``: whether other messages
        may use their links meanwhile."""
        self._machines, self._engine = world.machines, world.engine
        self._name, self._members, self._size = name, members, size
        self._pricing = world.pricing
        whole = world.pricing.meeting(2 * (size - 1)) if size > 1 else NOTHING
        here = only_host(members)
        self._near = here is not None and size == len(members)
        # the last one that is simulated sends to the first of those that are not
        folded = [1.0] * (len(members) - 1) + [float(size == len(members))]
        self._beside = [
            here * (member.host is following.host)
            for here, (member, following) in zip(folded, self._neighbours(), strict=True)
        ]
        """Of what each sends in a ring, the share that stays on its host."""
        self._latency = self._machines.near_latency if self._near else self._machines.latency
        self._one_by_one = self._near and here is not None and here.each is not None
        own = 1.0 / (1 + _works(2 * (size - 1))) if self._one_by_one else 1.0
        self.own = part_of(whole, own)
        """A member's part in all messages that its loop does before it is there."""
        self._messages = part_of(whole, 1.0 - own)
        self._rings: dict[float, tuple[Kind, float]] = {}
        """By price of a byte."""
        apart = world.engine.shared and members[0].host is not members[-1].host
        self._always_crowded = beside
        self._hop_by_hop = HopByHop(world.machines, members) if apart else None
        """None: all bytes are one activity, as fast as what it uses most."""

    @property
    def _by_messages(self) -> HopByHop | None:
        """Where others may use its links, or do so now; else None."""
        crowded = self._always_crowded or any(member.talks for member in self._members)
        return self._hop_by_hop if crowded else None

    def ring(self, size: float) -> list[Event]:
        """A vector of ``size`` bytes goes around: in each of 2(n-1) steps every member sends 1/n of
        it to the next one, the last to the first, and receives as much, all at one rate. Returns
        when each member has it: an event that tells for how many seconds where nothing else runs.
        """
        steps = 2 * (self._size - 1)
        each = steps / self._size * size
        if self._one_by_one:
            seconds = [2 * self._price("reduced_byte") * each] * len(self._members)
            waits = [self._price("reduced_wait") * each] * len(self._members)
            return self._hops(steps, seconds, waits, self._ring(each, 0.0))
        price, hop = self._price("reduced_byte"), self._price("collective_step")
        hop += 2 * (self._latency + self._machines.farther(self._members))
        _, rate = self._around(price)
        segments, moving = segments_of(size, self._size), each / rate
        if not self._machines.at_once and not self._near:
            hop += SEGMENT / rate  # a frame is whole before it goes on
        latency = unhidden(segments, hop, moving)
        if (by_messages := self._by_messages) is None:
            return self._at_once(latency, lambda: self._ring(each, price))
        messages = min(segments, MOST)
        late = (latency - unhidden(messages, hop, moving)) / (messages / 2)
        late += self._price("collective_step")
        return by_messages.around(messages, each / messages, late, latency + moving)

    def flag(self, size: int) -> list[Event]:
        """One number of ``size`` bytes goes around as a vector does: the other parts are empty and
        nobody waits for them, so that only its first receiver's notice is waited for."""
        if self._one_by_one:
            return self.ring(size)
        members, steps = self._members, 2 * (self._size - 1)
        # reduced from the last member to the first, then from the first around to the second
        down = list(pairwise(reversed(members)))
        path = [*down, (members[0], members[-1]), *down[:-1]]
        crossed = float(sum(source.rack is not target.rack for source, target in path))
        crossed *= steps / len(path)  # those that others stand for are in the ring, too
        latency = steps * self._price("collective_step") + (steps + 1) * self._latency
        latency += (crossed + bool(crossed)) * self._machines.farther(members)
        if (by_messages := self._by_messages) is not None:
            messages = min(steps, MOST)
            late = self._price("collective_step") + (steps - messages) / messages * latency / steps
            return by_messages.path(messages, size, late, latency)
        each, price = steps / self._size * size, self._price("reduced_byte")
        return self._at_once(latency, lambda: self._ring(each, price))

    def exchange(
        self, moved: Sequence[Exchanged], sent: Mapping[int, Sequence[float]]
    ) -> list[Event]:
        """Sizes first, then content: every member sends and receives so many bytes. Returns when
        each member is done.

        ``sent``: bytes from each member to each, which tells what crosses between racks.
        """
        if self._one_by_one:
            seconds = [self._price("exchanged_byte") * (one.away + one.into) for one in moved]
            waits = [self._price("exchanged_wait") * max(one.away, one.into) for one in moved]
            return self._hops(2, seconds, waits, self._exchange(moved, sent, 0.0))
        price = self._price("exchanged_byte")
        latency = 4 * (self._latency + self._machines.farther(self._members))
        latency += 2 * self._price("collective_step")
        if self._size == len(self._members) and (by_messages := self._by_messages) is not None:
            most = [max(one.away, one.into) for one in moved]
            return by_messages.exchange(sent, most, latency, price)
        return self._at_once(latency, lambda: self._exchange(moved, sent, price))

    def _price(self, name: str) -> float:
        """Asked for when it is used: what a run uses is what may change it."""
        return self._pricing.prices[name]

    # ------------------------------------------------------------------ on one host

    def _hops(
        self, steps: int, seconds: list[float], waits: list[float], moved: Started
    ) -> list[Event]:
        """``seconds``, ``waits``: for each member's bytes, in all steps, with and without its work;
        ``moved``: when the network has moved them."""
        step = self._latency + self._price("collective_step")
        works = [plus(self._messages, Priced(s, 0.0, ((COLLECTIVES, s, *NONE),))) for s in seconds]
        handling = max(work.seconds for work in works) / self._members[0].cores.pace
        moved = moved._replace(alone=max(moved.alone, handling + (steps * step + max(waits))))
        number, event = _works(steps), self._engine.event
        sent = [[event() for _ in range(number)] for _ in self._members]
        return [
            self._engine.process(
                self._chain(place, part_of(work, 1.0 / number), step + wait / steps, sent, moved)
            )
            for place, (work, wait) in enumerate(zip(works, waits, strict=True))
        ]

    def _chain(
        self, place: int, part: Priced, wait: float, sent: Sequence[Sequence[Event]], moved: Started
    ) -> Steps:
        """One member's threads: who reads waits for what the member before it has sent, and then
        ``wait`` seconds more. So a member may be done while a thread of another one still waits for
        a core."""
        member, before = self._members[place], sent[place - 1]
        names = f"{self._name}.runner", f"{self._name}.reader"
        threads = [Thread(member, "wire", name) for name in names]
        for turn, done in enumerate(sent[place]):
            reads = turn % 2 == 1
            if reads:
                yield before[turn - 1]
                yield self._engine.timeout(wait)
            thread = threads[reads]
            yield self._machines.compute(thread, part, f"{thread.name}.step").done
            done.succeed()
        yield moved.done
        return moved.alone

    # ------------------------------------------------------------------ between hosts

    def _at_once(self, latency: float, move: Callable[[], Started]) -> list[Event]:
        """The seconds of ``latency`` that no bytes hide, then all bytes."""

        def whole() -> Steps:
            yield self._engine.timeout(latency)
            moved = move()
            yield moved.done
            self._machines.has_used_links(self._members)
            return latency + moved.alone

        return [self._engine.process(whole())] * len(self._members)

    # ------------------------------------------------------------------ bytes

    def _ring(self, each: float, price: float) -> Started:
        """``each``: bytes that every member sends; each takes seconds ``price`` at both ends."""
        kind, rate = self._around(price)
        if price > 0.0:
            for member in self._members:
                self._machines.book_wire(member, COLLECTIVES, 2 * each * member.standing, price)
        return Started(self._engine.activity(kind, each), each / rate)

    def _around(self, price: float) -> tuple[Kind, float]:
        """A ring's bytes: (their kind, bytes per second that each member sends if alone)."""
        known = self._rings.get(price)
        if known is None:
            uses: list[tuple[Resource, float]] = []
            for place, member in enumerate(self._members):
                uses += _ends(member, 1.0, 1.0, self._beside[place], self._beside[place - 1])
                uses.append((member.cores, 2.0 * price))
            crossing = [(*pair, 1.0) for pair in self._neighbours()]
            known = self._rings[price] = self._beyond_racks(uses, crossing, price)
        return known

    def _beyond_racks(
        self,
        uses: list[tuple[Resource, float]],
        crossing: Sequence[tuple[Process, Process, float]],
        price: float,
    ) -> tuple[Kind, float]:
        """Bytes of all members, of which so many go from one member to another: (their kind, bytes
        per second where nothing else runs). A group that stands for others has their bytes on
        uplinks, too, but is alone without them."""

        def made(copies: float) -> tuple[Kind, float]:
            racks = [use for a, b, n in crossing for use in between(a, b, n * inside * copies)]
            return self._machines.together([*uses, *racks], price, near=self._near)

        inside = self._size / len(self._members)  # members that each of them stands for
        groups = self._members[0].standing / inside
        kind, rate = made(groups)
        return kind, rate if groups == 1.0 or not self._machines.there.racks else made(1.0)[1]

    def _neighbours(self) -> Iterator[tuple[Process, Process]]:
        """Each member, and the one that it sends to in a ring."""
        return zip(self._members, [*self._members[1:], self._members[0]], strict=True)

    def _exchange(
        self,
        moved: Sequence[Exchanged],
        sent: Mapping[int, Sequence[float]],
        price: float,
    ) -> Started:
        machines = self._machines
        most = max(max(one.away, one.into) for one in moved)
        if most <= 0:
            return Started(self._engine.event().succeed(), 0.0)
        uses: list[tuple[Resource, float]] = []
        for member, one in zip(self._members, moved, strict=True):
            uses += _ends(member, *(size / most for size in one))
            moves = one.away + one.into
            if price > 0.0 and moves > 0.0:
                machines.book_wire(member, COLLECTIVES, moves * member.standing, price)
                uses.append((member.cores, moves / most * price))
        crossing: list[tuple[Process, Process, float]] = []
        if machines.there.racks:
            members = self._members
            for me, sizes in sorted(sent.items()):
                for place, size in enumerate(sizes):
                    other = members[place % len(members)]  # who stands for it
                    crossing.append((members[me], other, size / most))
        kind, rate = self._beyond_racks(uses, crossing, price)
        return Started(self._engine.activity(kind, most), most / rate)


def segments_of(size: float, members: int) -> int:
    """How many segments each member of an all-reduce of ``size`` bytes sends: gloo cuts the vector
    into at least two for each member, of at most 1 MiB, which go around to be summed, then around
    once more."""
    each = ceil(max(ceil(size / _SEGMENT), 2 * members) / members)
    return 2 * each * (members - 1)


def unhidden(segments: int, hop: float, moving: float) -> float:
    """Seconds of an all-reduce that its bytes do not hide, of which two segments are on their way
    at a time. ``hop``: seconds of the slowest step without its bytes, a notice and a segment;
    ``moving``: of all bytes that a member sends. Exact where all members begin at the same time
    and the slowest pair is the slowest throughout.
    """
    return 2 * hop + (segments / 2 - 2) * max(0.0, hop - moving / segments)


def _ends(
    member: Process, away: float, into: float, near_away: float, near_into: float
) -> list[tuple[Resource, float]]:
    """What a member uses of its links for each byte of the group; acknowledgements between hosts
    take some of the other direction."""
    out, back = away - near_away, into - near_into
    parts = [(member.send, out + ANSWERED * back), (member.receive, back + ANSWERED * out)]
    if member.near:
        parts += [(member.near[0], near_away), (member.near[1], near_into)]
    return [(resource, share) for resource, share in parts if share > 0.0]


def _works(steps: int) -> int:
    """How often a thread of gloo's works in so many steps: one sends, then one reads in each, and
    the other one goes on."""
    return 2 * steps + 1
