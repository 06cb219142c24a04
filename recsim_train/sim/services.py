"""Lookup, Update, Pull, Push and Exchange: the client's side, and what shards do.

Requests to all shards go out at once; a shard in the client's own process is served meanwhile in
the client's thread; then the answers are awaited. CPU time that one thread spends in one go is one
activity: a client pays for all messages of an effect before the first one leaves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from recsim_train.placement.plan import DensePlan, DenseShard, EmbeddingPlan, EmbeddingShard
from recsim_train.sim.channel import HEADER_ONLY, WITH_PAYLOAD, Request
from recsim_train.sim.ghosts import GhostDense, GhostIds, GhostRows
from recsim_train.sim.ids import Counts, ShardIds
from recsim_train.sim.kernel import Barrier, Countdown, Steps
from recsim_train.sim.ledger import Ledger
from recsim_train.sim.loop import LoopState
from recsim_train.sim.machines import Machines, Process
from recsim_train.sim.pricing import Pricing, Seconds, plus
from recsim_train.workload import shape

NOTHING: Seconds = (0.0, 0.0)


class World:
    """What every effect needs at hand."""

    def __init__(
        self, machines: Machines, pricing: Pricing, ledger: Ledger, counts: Counts | None
    ) -> None:
        self.machines = machines
        self.kernel = machines.kernel
        self.pricing = pricing
        self.ledger = ledger
        self.counts = counts
        self.model = pricing.experiment.model
        self.training = pricing.experiment.training

    def messages(self, count: int) -> Seconds:
        """Handling ``count`` messages at one end."""
        return self.pricing.units(message=count) if count else NOTHING

    def overhead(self) -> Seconds:
        """The runtime's own work for one effect."""
        return self.pricing.units(effect=1)

    def compute(self, process: Process, seconds: Seconds, purpose: str) -> Any:
        """An event: one thread's work is done."""
        return self.machines.compute(process, seconds, purpose)


class Service:
    """The client's side that all services share."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def send(
        self, loop: LoopState, requests: list[tuple[int, Request]], delivered: bool
    ) -> Countdown:
        """Post requests (shard, request) after the latency; counts down what is awaited."""
        world = self.world
        countdown = Countdown(world.kernel, len(requests))
        for _, request in requests:
            if delivered:
                request.delivered = countdown
            else:
                request.answered = countdown
            loop.ask()

        def arrive() -> None:
            for shard, request in requests:
                loop.channels[self.name, shard].post(request)

        if requests:
            world.kernel.later(world.machines.latency, arrive)
        return countdown

    def request(
        self, loop: LoopState, host: Process, effect: str, payload: int | None, work: Seconds
    ) -> Request:
        """A request of the loop's present iteration; ``payload`` None: header only."""
        world = self.world
        return Request(
            iteration=loop.iteration,
            messages=HEADER_ONLY if payload is None else WITH_PAYLOAD,
            payload=payload or 0,
            work=work,
            purpose=f"{loop.name}.{effect}",
            series=world.ledger.series(host.name, loop.name, f"serve_{effect}", self.name),
            finished=loop.served,
        )


class EmbeddingRuntime(Service):
    """The embedding shards."""

    def __init__(self, world: World, plan: EmbeddingPlan, clients: int) -> None:
        super().__init__(world, plan.service.name)
        self.plan = plan
        self.pooled = plan.service.pooling == "server"
        self.slices = sum(len(shard.slices) for shard in plan.shards)
        self.hosts = [world.machines.processes[shard.host] for shard in plan.shards]
        together = plan.service.apply == "together"
        self.barriers = [
            Barrier(world.kernel, clients, partial(self._apply_together, shard)) if together else None
            for shard in plan.shards
        ]

    # ------------------------------------------------------------------ what travels

    def shard_ids(self, ids: GhostIds) -> list[ShardIds]:
        assert self.world.counts is not None
        return list(self.world.counts.shard_counts(ids.position, ids.batch))

    def _ids_bytes(self, count: ShardIds) -> int:
        if not self.pooled:
            return shape.ID_BYTES * count.unique
        return shape.ID_BYTES * count.ids + shape.LENGTH_BYTES * count.lengths

    def _vector_bytes(self, shard: EmbeddingShard, count: ShardIds) -> int:
        vectors = len(shard.slices) * self.world.training.batch_size if self.pooled else count.unique
        return vectors * shape.row_bytes(self.world.model)

    def _gradient_bytes(self, shard: EmbeddingShard, count: ShardIds) -> int:
        keys = 0 if self.pooled else shape.ID_BYTES * count.unique
        return keys + self._vector_bytes(shard, count)

    # ------------------------------------------------------------------ what it costs

    def _client(self, operation: str, counts: list[ShardIds]) -> Seconds:
        unique = sum(c.unique for c in counts)
        return self.world.pricing.operation(
            operation,
            pooling=self.plan.service.pooling,
            ids=sum(c.ids for c in counts) if self.pooled else unique,
            unique=unique,
            tables=self.slices,
            shards=len(counts),
        )

    def _shard(self, operation: str, shard: EmbeddingShard, ids: int, unique: int) -> Seconds:
        return self.world.pricing.operation(
            f"{operation}_pooled" if self.pooled else f"{operation}_rows",
            pooling=self.plan.service.pooling,
            ids=ids,
            unique=unique,
            tables=len(shard.slices),
        )

    def _contribution(self, count: ShardIds) -> tuple[int, int]:
        return (count.ids if self.pooled else count.unique), count.unique

    def _apply_together(self, shard: EmbeddingShard, brought: list[tuple[int, int]]) -> Steps:
        """One update with all clients' ids; ids that several of them hold are counted for each."""
        rows = sum(part.rows for part in shard.slices)
        ids = sum(i for i, _ in brought)
        unique = min(sum(u for _, u in brought), rows)
        host = self.hosts[shard.index]
        work = self._shard("update", shard, ids, unique)
        yield self.world.compute(host, work, f"{self.name}[{shard.index}].update")

    # ------------------------------------------------------------------ effects

    def _split(self, loop: LoopState) -> tuple[list[EmbeddingShard], list[EmbeddingShard]]:
        """(shards in other processes, shards in this loop's process)."""
        mine = loop.process.name
        remote = [s for s in self.plan.shards if s.host.name != mine]
        return remote, [s for s in self.plan.shards if s.host.name == mine]

    def lookup(self, loop: LoopState, ids: object) -> Steps:
        """Returns (rows, payload bytes)."""
        if not isinstance(ids, GhostIds):
            raise TypeError(f"Lookup needs ids, not {type(ids).__name__}")
        if ids.distinct == self.pooled:
            wanted = "ids as they come" if self.pooled else "ids after deduplicate"
            raise TypeError(f"{self.name} pools on the {self.plan.service.pooling}: give {wanted}")
        world, counts = self.world, self.shard_ids(ids)
        remote, local = self._split(loop)
        out = plus(
            world.overhead(),
            self._client("route_ids", counts),
            world.messages(WITH_PAYLOAD * len(remote)),
        )
        loop.waiting = "a core"
        yield world.compute(loop.process, out, f"{loop.label}.route_ids")
        requests = []
        payload = 0
        for shard in remote:
            count = counts[shard.index]
            size = self._ids_bytes(count)
            payload += size
            work = self._shard("lookup", shard, count.ids, count.unique)
            request = self.request(loop, self.hosts[shard.index], "lookup", size, work)
            request.answer = self._vector_bytes(shard, count)
            request.answer_messages = WITH_PAYLOAD
            requests.append((shard.index, request))
        answers = self.send(loop, requests, delivered=False)
        for shard in local:
            count = counts[shard.index]
            work = self._shard("lookup", shard, count.ids, count.unique)
            yield world.compute(loop.process, work, f"{loop.name}.lookup")
        loop.waiting = f"answers to Lookup from {_shards(self.name, remote)}"
        yield answers.done
        back = plus(
            world.messages(WITH_PAYLOAD * len(remote)), self._client("assemble_rows", counts)
        )
        loop.waiting = "a core"
        yield world.compute(loop.process, back, f"{loop.label}.assemble_rows")
        return GhostRows(ids), payload

    def update(self, loop: LoopState, gradient: object) -> Steps:
        """Returns (None, payload bytes)."""
        if not isinstance(gradient, GhostRows) or not gradient.gradient:
            raise TypeError("Update needs the gradient of a Lookup's answer")
        world, counts = self.world, self.shard_ids(gradient.ids)
        remote, local = self._split(loop)
        out = plus(
            world.overhead(),
            self._client("route_gradient", counts),
            world.messages(WITH_PAYLOAD * len(remote)),
        )
        loop.waiting = "a core"
        yield world.compute(loop.process, out, f"{loop.label}.route_gradient")
        together = self.plan.service.apply == "together"
        requests = []
        payload = 0
        for shard in remote:
            count = counts[shard.index]
            size = self._gradient_bytes(shard, count)
            payload += size
            ids, unique = self._contribution(count)
            work = NOTHING if together else self._shard("update", shard, ids, unique)
            request = self.request(loop, self.hosts[shard.index], "update", size, work)
            if together:
                request.answer, request.answer_messages = 0, HEADER_ONLY
                request.barrier = self.barriers[shard.index]
                request.contribution = (ids, unique)
            requests.append((shard.index, request))
        sent = self.send(loop, requests, delivered=not together)
        for shard in local:
            ids, unique = self._contribution(counts[shard.index])
            barrier = self.barriers[shard.index]
            if barrier is None:
                work = self._shard("update", shard, ids, unique)
                yield world.compute(loop.process, work, f"{loop.name}.update")
            else:
                loop.waiting = f"all trainers' Update at {self.name}[{shard.index}]"
                yield barrier.arrive((ids, unique))
        if together:
            loop.waiting = f"all trainers' Update at {_shards(self.name, remote)}"
        else:
            loop.waiting = f"delivery of Update to {_shards(self.name, remote)}"
        yield sent.done
        if together and remote:
            loop.waiting = "a core"
            acknowledged = world.messages(HEADER_ONLY * len(remote))
            yield world.compute(loop.process, acknowledged, f"{loop.label}.acknowledged")
        return None, payload


class DenseRuntime(Service):
    """The shards of the central dense parameters."""

    def __init__(self, world: World, plan: DensePlan) -> None:
        super().__init__(world, plan.service.name)
        self.plan = plan
        self.hosts = [world.machines.processes[shard.host] for shard in plan.shards]
        self.elements = sum(shard.elements for shard in plan.shards)
        self._bytes = shape.value_bytes(world.model)

    def pull(self, loop: LoopState) -> Steps:
        """Returns (dense, payload bytes)."""
        yield from self._talk(loop, "pull", "dense_read", sends=False, answers=True)
        return GhostDense(self.elements), 0

    def push(self, loop: LoopState, gradient: object) -> Steps:
        """Returns (None, payload bytes)."""
        self._check("Push", gradient)
        payload = yield from self._talk(loop, "push", "dense_apply", sends=True, answers=False)
        return None, payload

    def exchange(self, loop: LoopState, parameters: object) -> Steps:
        """Returns (dense difference, payload bytes)."""
        self._check("Exchange", parameters)
        payload = yield from self._talk(loop, "exchange", "dense_elastic", sends=True, answers=True)
        return GhostDense(self.elements), payload

    def _check(self, effect: str, value: object) -> None:
        if not isinstance(value, GhostDense):
            raise TypeError(f"{effect} needs dense values, not {type(value).__name__}")
        if value.elements != self.elements:
            raise TypeError(f"{effect} needs {self.elements} values, not {value.elements}")

    def _talk(
        self, loop: LoopState, effect: str, operation: str, *, sends: bool, answers: bool
    ) -> Steps:
        world, mine = self.world, loop.process.name
        remote = [s for s in self.plan.shards if s.host.name != mine]
        local = [s for s in self.plan.shards if s.host.name == mine]
        each = WITH_PAYLOAD if sends else HEADER_ONLY
        out = plus(world.overhead(), world.messages(each * len(remote)))
        loop.waiting = "a core"
        yield world.compute(loop.process, out, f"{loop.label}.{effect}")
        requests = []
        payload = 0
        for shard in remote:
            size = self._bytes * shard.elements
            payload += size if sends else 0
            work = world.pricing.operation(operation, elements=shard.elements)
            host = self.hosts[shard.index]
            request = self.request(loop, host, effect, size if sends else None, work)
            if answers:
                request.answer, request.answer_messages = size, WITH_PAYLOAD
            requests.append((shard.index, request))
        awaited = self.send(loop, requests, delivered=not answers)
        for shard in local:
            work = world.pricing.operation(operation, elements=shard.elements)
            yield world.compute(loop.process, work, f"{loop.name}.{effect}")
        what = "answers to" if answers else "delivery of"
        loop.waiting = f"{what} {effect.capitalize()} at {_shards(self.name, remote)}"
        yield awaited.done
        if answers and remote:
            loop.waiting = "a core"
            back = world.messages(WITH_PAYLOAD * len(remote))
            yield world.compute(loop.process, back, f"{loop.label}.{effect}.answer")
        return payload


def _shards(service: str, shards: list[EmbeddingShard] | list[DenseShard]) -> str:
    return ", ".join(f"{service}[{shard.index}] on {shard.host.name}" for shard in shards)
