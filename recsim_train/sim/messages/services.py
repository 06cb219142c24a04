"""Services as their clients see them: requests to shards, and what the answers are waited for.

Requests to all shards go out at once; a shard in the client's own process is served meanwhile in
the client's thread; then the answers are awaited. CPU time that one thread spends in one go is one
activity: a client pays for all messages of an effect before the first one leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import ClassVar, Generic, NamedTuple, TypeVar

from recsim_train.placement.plan import DenseShard, EmbeddingShard
from recsim_train.sim.engine import Steps, once
from recsim_train.sim.messages.serving import Request
from recsim_train.sim.pricing import NOTHING, Priced, plus
from recsim_train.sim.queues import Countdown
from recsim_train.sim.world import LoopState, World
from recsim_train.trace.ledger import REQUESTS

Shard = TypeVar("Shard", bound=EmbeddingShard | DenseShard)


class Shards(NamedTuple, Generic[Shard]):
    """The shards that a loop asks."""

    remote: list[Shard]
    local: list[Shard]
    """Those in its own process."""
    where: str
    """The remote ones in words."""


class Service(Generic[Shard]):
    """The client's side that all services share.

    ``own``: whether loops use the shard in their own process only.
    """

    price: ClassVar[str] = "request"
    """Of handling one request."""

    def __init__(
        self, world: World, name: str, shards: Sequence[Shard], *, own: bool = False
    ) -> None:
        self.world, self.name, self.shards, self.own = world, name, shards, own
        self.hosts = [world.machines.process_of(shard.host) for shard in shards]
        """By shard."""
        self._handling = world.pricing.units(REQUESTS, **{self.price: 1})
        self._split = cache(self._split_for)

    def split(self, loop: LoopState, part: tuple[int, int] | None = None) -> Shards[Shard]:
        """The shards that a loop asks, or what they hold of a ``part`` of the parameters."""
        return self._split(loop.process.name, part)

    def _split_for(self, mine: str, part: tuple[int, int] | None) -> Shards[Shard]:
        shards: Sequence[Shard] = self.shards if part is None else self.cut(*part)
        remote = [] if self.own else [s for s in shards if s.host.name != mine]
        local = [s for s in shards if s.host.name == mine]
        where = ", ".join(f"{self.name}[{s.index}] on {s.host.name}" for s in remote)
        return Shards(remote, local, where)

    def cut(self, start: int, stop: int) -> Sequence[Shard]:
        """What the shards hold of a part; those that hold none are left out."""
        raise NotImplementedError

    def ask(
        self,
        loop: LoopState,
        effect: str,
        shards: Shards[Shard],
        request: Callable[[Shard], Request],
        *,
        first: Sequence[Priced] = (),
        purpose: str = "",
        everyone: bool = False,
        whose: str = "",
    ) -> Steps:
        """Ask every shard what ``request`` says, and wait until all have done what is awaited.

        ``first``: the client's work before anything leaves, beside that of the messages;
        ``purpose``: its name, if not the effect's. ``everyone``: it goes on with the last of those
        that it stands for. ``whose``: what meets at a barrier, as messages say it. Returns
        (payload bytes that leave this process, the client's work for answers).
        """
        world = self.world
        remote = [(shard, request(shard)) for shard in shards.remote]
        messages = world.pricing.messages(len(remote))
        rounded = [r for _, r in remote if any(r.rounded)]
        narrow = [self._convert("narrow", r.rounded[0]) for r in rounded]
        yield world.work(loop, plus(world.asking, *first, *narrow, messages), purpose or effect)
        for r in rounded:
            arrives, leaves = r.rounded
            r.work = plus(self._convert("widen", arrives), r.work, self._convert("narrow", leaves))
        if everyone:
            yield from world.meet(loop)
        done = self._send(loop, effect, remote)
        for shard in shards.local:
            mine = request(shard)
            if mine.barrier is None or mine.work != NOTHING:
                yield world.serve(loop, mine.work, effect)
            if mine.barrier is not None:
                loop.waiting = f"{whose} {effect.capitalize()} at {self.name}[{shard.index}]"
                arrive = partial(mine.barrier.arrive, mine.contribution, loop.thread)
                yield from world.wait_for_others(loop, once(arrive))
        answers = sum(request.answers for _, request in remote)
        what = whose or ("answers to" if answers else "delivery of")
        loop.waiting = f"{what} {effect.capitalize()} at {shards.where}"
        yield from world.wait(loop, done)
        widen = [self._convert("widen", r.rounded[1]) for r in rounded]
        back = plus(world.pricing.messages(answers), *widen)
        return sum(r.payload for _, r in remote), back

    def _convert(self, operation: str, numbers: int) -> Priced:
        return self.world.pricing.operation(operation, elements=numbers) if numbers else NOTHING

    def _send(
        self, loop: LoopState, effect: str, requests: list[tuple[Shard, Request]]
    ) -> Countdown:
        """Send requests; counts down what is awaited: answers, or where there is nothing to answer
        that the transport has taken them."""
        world = self.world
        countdown = Countdown(world.engine, len(requests))
        for shard, request in requests:
            host = self.hosts[shard.index].name
            request.series = world.records.series(host, loop.name, f"serve_{effect}", self.name)
            request.purpose, request.overhead = f"{loop.name}.{effect}", self._handling
            request.iteration, request.served, request.done = loop.iteration, loop.served, countdown
            loop.ask()
            loop.serving[self.name, shard.index].send(request)
        return countdown
