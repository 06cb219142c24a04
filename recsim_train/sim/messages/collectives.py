"""Collectives: all members arrive, then gloo's threads handle messages and bytes.

What gloo does on the wire, per member: an all-reduce is a ring of 2(n-1) steps with 2(n-1)/n of the
vector; all-gather and all-to-all send each peer its part at once. Every step costs latencies and
the profile's ``collective_step``; how many, what gloo's threads do and for which bytes they wait is
in meetings.py. A group of one does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from recsim_train.placement.hosts import JobHost
from recsim_train.placement.plan import GroupPlan, Instance, LoopId
from recsim_train.sim.engine import Event, Steps
from recsim_train.sim.folding import Folding
from recsim_train.sim.ghosts import (
    GhostBlock,
    GhostDense,
    GhostParts,
    GhostSparse,
    GhostTable,
)
from recsim_train.sim.messages.gloo_group import Exchanged, GlooGroup
from recsim_train.sim.pricing import plus
from recsim_train.sim.records import TRANSFER, WAITING
from recsim_train.sim.world import LoopState, World
from recsim_train.strategy.blame import StrategyError

FLAG_BYTES = 8
"""What `NextRound` sends: no payload."""


_Move = Callable[[list[Any]], tuple[Any, list[Event]]]
"""What a meeting does with what the members brought: (its result, when each member is done)."""


class _Brought(NamedTuple):
    """By one member."""

    member: str
    effect: str
    move: _Move
    item: Any
    answer: Event


class GroupRuntime:
    """One group of the plan."""

    def __init__(
        self, world: World, plan: GroupPlan, folding: Folding, *, beside: bool = False
    ) -> None:
        """``beside``: whether its members' links may be used by others meanwhile."""
        self.world = world
        self.plan = plan
        self.name = plan.name
        place = self._place = {member.name: at for at, member in enumerate(plan.members)}
        trainers = {
            instance.index: process
            for instance, process in world.machines.processes.items()
            if instance.role == "trainer"
        }
        self.simulated = [m for m in plan.members if m.trainer in trainers]
        """The members that are not left to a stand-in."""
        self._processes = [trainers[member.trainer] for member in self.simulated]
        self._stand_in = (
            [place[LoopId(folding.stand_in(m.trainer), m.loop, m.copy).name] for m in plan.members]
            if len(self.simulated) < len(plan.members)
            else list(range(len(plan.members)))
        )
        """By place: the place of the member that stands for it."""
        sites = world.machines.there.sites
        on: dict[JobHost, list[int]] = {}
        hosts = [sites[Instance("trainer", member.trainer)].host for member in plan.members]
        for at, host in enumerate(hosts):
            on.setdefault(host, []).append(at)
        self._beside = [[at for at in on[host] if at != me] for me, host in enumerate(hosts)]
        """By place: those of the others on the same host."""
        self.size = len(plan.members)
        self._gloo = GlooGroup(world, self.name, self._processes, self.size, beside=beside)
        self._brought: list[_Brought] = []

    @property
    def arrived(self) -> str:
        """How many members wait now."""
        return f"{len(self._brought)} of {len(self.simulated)} members arrived"

    # ------------------------------------------------------------------ effects

    def all_reduce(self, loop: LoopState, value: object) -> Steps:
        """Returns (value, payload bytes)."""
        size = _size(value)
        yield from self._join(loop, "all_reduce", self._ring, size)
        if self.size == 1:
            return value, 0
        if isinstance(value, GhostDense):
            value = replace(value, maker="")  # in memory of its own
        return value, size

    def all_gather(self, loop: LoopState, value: object) -> Steps:
        """Returns (parts, payload bytes that leave this member)."""
        return self._exchanged(loop, "all_gather", (_size(value),) * self.size)

    def all_to_all(self, loop: LoopState, parts: object) -> Steps:
        """Returns (parts, payload bytes that leave this member)."""
        if not isinstance(parts, GhostParts) or len(parts.sizes) != self.size:
            raise TypeError(f"AllToAll of group {self.name!r} needs one part for each member")
        return self._exchanged(loop, "all_to_all", parts.sizes)

    def _exchanged(self, loop: LoopState, effect: str, sent: tuple[int, ...]) -> Steps:
        place = self._place[loop.name]
        received = yield from self._join(loop, effect, self._exchange, (place, sent))
        return GhostParts(received[place] if received else sent), sum(sent) - sent[place]

    def agree(self, loop: LoopState, yes: bool) -> Steps:
        """Returns whether all members say yes."""
        agreed = yield from self._join(
            loop,
            "next_round",
            lambda votes: (all(votes), self._gloo.flag(FLAG_BYTES)),
            bool(yes),
        )
        return yes if agreed is None else agreed

    # ------------------------------------------------------------------ one meeting

    def _join(self, loop: LoopState, effect: str, move: _Move, item: object) -> Steps:
        """Meet the others with ``item``; returns what ``move`` makes of all items, alone None."""
        world = self.world
        yield world.work(loop, plus(world.overhead, self._gloo.own), effect)
        if self.size == 1:
            return None
        if len(self.simulated) < self.size:  # else those that it stands for meet elsewhere
            yield from world.meet(loop)
        loop.waiting = f"{effect.title().replace('_', '')} of group {self.name!r}"
        arrived = world.engine.now
        answer = world.engine.event()
        self._brought.append(_Brought(loop.name, effect, move, item, answer))
        if len(self._brought) == len(self.simulated):
            self._meet()
        result, met, done = yield answer
        alone = yield done
        loop.account.now[WAITING] += met - arrived
        loop.account.take(TRANSFER, alone)
        return result

    def _meet(self) -> None:
        """All are there: each is told what it gets, and when its own threads are done."""
        brought, self._brought = self._brought, []
        effects = {one.effect for one in brought}
        if len(effects) > 1:
            raise StrategyError(
                f"group {self.name!r}: members meet in different effects: "
                + ", ".join(sorted(effects))
            )
        met = self.world.engine.now
        result, done = brought[0].move([one.item for one in brought])
        by_name = {member.name: event for member, event in zip(self.simulated, done, strict=True)}
        for one in brought:
            one.answer.succeed((result, met, by_name[one.member]))

    def _ring(self, sizes: list[int]) -> tuple[None, list[Event]]:
        if len(set(sizes)) > 1:
            raise StrategyError(
                f"group {self.name!r}: members reduce vectors of different sizes {sizes} (bytes)"
            )
        return None, self._gloo.ring(sizes[0])

    def _exchange(
        self, brought: list[tuple[int, tuple[int, ...]]]
    ) -> tuple[dict[int, tuple[int, ...]], list[Event]]:
        """Sizes first, then content; by member what it received from each."""
        sent = dict(brought)
        members = [self._place[member.name] for member in self.simulated]
        received: dict[int, tuple[int, ...]] = {}
        for me in members:
            column = {other: sent[other][me] for other in members}
            received[me] = tuple(map(column.__getitem__, self._stand_in))
        moved = [
            Exchanged(
                sum(sent[me]) - sent[me][me],
                sum(received[me]) - sent[me][me],
                sum(sent[me][other] for other in self._beside[me]),
                sum(received[me][other] for other in self._beside[me]),
            )
            for me in members
        ]
        return received, self._gloo.exchange(moved, sent)


def _size(value: object) -> int:
    """Bytes of a value that crosses the network. Raises TypeError for one that does not."""
    if not isinstance(value, GhostBlock | GhostDense | GhostSparse | GhostTable):
        raise TypeError(f"a collective cannot send {type(value).__name__}")
    return value.size
