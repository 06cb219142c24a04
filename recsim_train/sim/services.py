"""Lookup, Update, Pull, Push and Exchange: the client's side, and what shards do.

Requests to all shards go out at once; a shard in the client's own process is served meanwhile in
the client's thread; then the answers are awaited. CPU time that one thread spends in one go is one
activity: a client pays for all messages of an effect before the first one leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from recsim_train.data.counts import ShardCount
from recsim_train.data.zipf import Zipf
from recsim_train.placement.plan import (
    DensePlan,
    DenseShard,
    EmbeddingPlan,
    EmbeddingShard,
    Instance,
    Plan,
)
from recsim_train.sim.channel import ANSWER, Request, request_messages
from recsim_train.sim.compression import GhostSparse, PooledMask
from recsim_train.sim.engine import Barrier, Countdown, Steps
from recsim_train.sim.folding import Folding
from recsim_train.sim.ghosts import GhostDense, GhostIds, GhostRows
from recsim_train.sim.loop import LoopState
from recsim_train.sim.machines import Process
from recsim_train.sim.pricing import Seconds, plus
from recsim_train.sim.world import NOTHING, World
from recsim_train.workload import shape


class Service:
    """The client's side that all services share."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.own = False
        """Whether loops use the shard in their own process only."""

    def send(
        self, loop: LoopState, requests: list[tuple[int, Request]], *, answers: bool
    ) -> Countdown:
        """Post requests (shard, request) after the latency; counts down what is awaited:
        answers, or deliveries where there is nothing to answer."""
        world = self.world
        countdown = Countdown(world.engine, len(requests))
        for _, request in requests:
            expected = request.answer or request.acknowledged or request.barrier is not None
            if answers and expected:
                request.answered = countdown
            else:
                request.delivered = countdown
            loop.ask()

        def arrive() -> None:
            for shard, request in requests:
                loop.channels[self.name, shard].post(request)

        if requests:
            world.engine.later(world.machines.latency, arrive)
        return countdown

    def request(
        self, loop: LoopState, host: Process, effect: str, payload: int, work: Seconds
    ) -> Request:
        """A request of the loop's present iteration with ``payload`` bytes."""
        key = (self.name, effect, host.name)
        known = loop.requests.get(key)
        if known is None:
            series = self.world.ledger.series(host.name, loop.name, f"serve_{effect}", self.name)
            known = loop.requests[key] = f"{loop.name}.{effect}", series
        purpose, series = known
        return Request(loop.iteration, payload, work, purpose, series, loop.served)


class EmbeddingRuntime(Service):
    """The embedding shards."""

    def __init__(self, world: World, plan: EmbeddingPlan, job: Plan, folding: Folding) -> None:
        super().__init__(world, plan.service.name)
        self.plan = plan
        self.own = plan.service.access == "own"
        self.pooled = plan.service.pooling == "server"
        self.slices = sum(len(shard.slices) for shard in plan.shards)
        self.hosts = [world.machines.process_of(shard.host) for shard in plan.shards]
        keep = plan.service.keep
        self.masks = {
            shard.index: PooledMask(world.pricing, len(shard.slices), keep, plan.service.mask)
            for shard in plan.shards
            if keep is not None
        }
        """By shard, where a share of the pooled values travels."""
        self._joint: dict[int, float] = {}
        self._places: dict[str, tuple[list[EmbeddingShard], list[EmbeddingShard]]] = {}
        self._sums: tuple[object, int, int] = (None, 0, 0)
        self.everyone = len(job.together) == 1
        """Whether all trainers' gradients make one step."""
        self.barriers: dict[tuple[int, int], Barrier] = {}
        """By shard and simulated trainer; empty where gradients are applied on arrival."""
        loops = len(job.training) // job.experiment.roles.trainers
        for trainers in job.together:
            simulated = [t for t in trainers if t < folding.simulated]
            # what is done for one group is done for every group that it stands for
            client = None
            if simulated and not self.everyone:
                client = world.machines.process_of(Instance("trainer", trainers[0]))
            for shard in plan.shards if simulated else ():
                work = partial(self._apply_together, shard, loops * len(trainers), client)
                barrier = Barrier(world.engine, loops * len(simulated), work)
                self.barriers |= {(shard.index, t): barrier for t in simulated}

    # ------------------------------------------------------------------ what travels

    def shard_ids(self, ids: GhostIds) -> Sequence[ShardCount]:
        return self.world.counts.shard_counts(ids.position, ids.batch)

    def _ids_bytes(self, count: ShardCount) -> int:
        if not self.pooled:
            return shape.ID_BYTES * count.unique
        return shape.ID_BYTES * count.ids + shape.LENGTH_BYTES * count.lengths

    def _masked(self, operation: str, shard: EmbeddingShard) -> Seconds:
        mask = self.masks.get(shard.index)
        return NOTHING if mask is None else mask.seconds(operation)

    def _all_masked(self, operation: str) -> list[Seconds]:
        return [mask.seconds(operation) for mask in self.masks.values()]

    def _count_masks(self, loop: LoopState, *, gradient: bool) -> None:
        for mask in self.masks.values():
            mask.count(loop.tallies, gradient=gradient)

    def _vector_bytes(self, shard: EmbeddingShard, count: ShardCount) -> int:
        vectors = len(shard.slices) * self.world.pricing.examples if self.pooled else count.unique
        return vectors * shape.row_bytes(self.world.model)

    def _gradient_bytes(self, shard: EmbeddingShard, count: ShardCount) -> int:
        if shard.index in self.masks:
            return self.masks[shard.index].gradient
        keys = 0 if self.pooled else shape.ID_BYTES * count.unique
        return keys + self._vector_bytes(shard, count)

    # ------------------------------------------------------------------ what it costs

    def _client(self, operation: str, counts: Sequence[ShardCount]) -> Seconds:
        if self._sums[0] is not counts:
            self._sums = counts, sum(c.ids for c in counts), sum(c.unique for c in counts)
        _, ids, unique = self._sums
        return self.world.pricing.operation(
            operation,
            pooling=self.plan.service.pooling,
            ids=ids if self.pooled else unique,
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

    def _contribution(self, count: ShardCount) -> tuple[int, int]:
        return (count.ids if self.pooled else count.unique), count.unique

    def _apply_together(
        self,
        shard: EmbeddingShard,
        clients: int,
        client: Process | None,
        brought: list[tuple[int, int]],
    ) -> Steps:
        """One update with the ids of all ``clients``, of which some are the same.

        ``clients``: loops, those that others stand for included. ``client``: one of them, where
        there are groups beside theirs.
        """
        stand_for = clients / len(brought)
        ids = round(sum(i for i, _ in brought) * stand_for)
        unique = round(sum(u for _, u in brought) * stand_for * self._joint_share(shard, clients))
        host = self.hosts[shard.index]
        work = self._shard("update", shard, ids, unique)
        purpose = f"{self.name}[{shard.index}].update"
        yield self.world.compute(host, work, purpose, client=client)

    def _joint_share(self, shard: EmbeddingShard, clients: int) -> float:
        """Distinct ids of ``clients`` batches together, as a share of the sum of each one's.

        Counts are known batch by batch only; how batches overlap is taken from the generator's
        Zipf law, for files too.
        """
        known = self._joint.get(shard.index)
        if known is None:
            batch, exponent = self.world.pricing.examples, self.world.data.synthetic.zipf
            apart = joint = 0.0
            for part in shard.slices:
                rows = self.world.model.tables[part.table].rows
                ids = batch * shape.mean_ids(self.world.model, part.table)
                share = part.rows / rows
                popularity = Zipf(rows, exponent)
                apart += share * clients * popularity.expected_distinct(ids)
                joint += share * popularity.expected_distinct(clients * ids)
            known = self._joint[shard.index] = joint / apart
        return known

    # ------------------------------------------------------------------ effects

    def _split(self, loop: LoopState) -> tuple[list[EmbeddingShard], list[EmbeddingShard]]:
        """(shards in other processes, shards in this loop's process)."""
        mine = loop.process.name
        known = self._places.get(mine)
        if known is None:
            remote = [] if self.own else [s for s in self.plan.shards if s.host.name != mine]
            local = [s for s in self.plan.shards if s.host.name == mine]
            known = self._places[mine] = remote, local
        return known

    def lookup(self, loop: LoopState, ids: object) -> Steps:
        """Returns (rows, payload bytes)."""
        if not isinstance(ids, GhostIds):
            raise TypeError(f"Lookup needs ids, not {type(ids).__name__}")
        if ids.distinct == self.pooled:
            wanted = "ids as they come" if self.pooled else "ids after deduplicate"
            raise TypeError(f"{self.name} pools on the {self.plan.service.pooling}: give {wanted}")
        world, counts = self.world, self.shard_ids(ids)
        remote, local = self._split(loop)
        sizes = {shard.index: self._ids_bytes(counts[shard.index]) for shard in remote}
        out = plus(
            world.overhead(),
            self._client("route_ids", counts),
            world.messages(sum(map(request_messages, sizes.values()))),
        )
        loop.waiting = "a core"
        yield world.work(loop, out, "route_ids")
        requests = []
        for shard in remote:
            count = counts[shard.index]
            work = self._shard("lookup", shard, count.ids, count.unique)
            work = plus(work, self._masked("mask", shard))
            host = self.hosts[shard.index]
            request = self.request(loop, host, "lookup", sizes[shard.index], work)
            request.answer = self._vector_bytes(shard, count)
            if shard.index in self.masks:
                request.answer = self.masks[shard.index].answer
            requests.append((shard.index, request))
        answers = self.send(loop, requests, answers=True)
        for shard in local:
            count = counts[shard.index]
            work = self._shard("lookup", shard, count.ids, count.unique)
            work = plus(work, self._masked("mask", shard))
            yield world.serve(loop, work, "lookup")
        loop.waiting = f"answers to Lookup from {_shards(self.name, remote)}"
        yield from world.wait(loop, answers)
        answered = sum(request.answer > 0 for _, request in requests)
        back = plus(
            world.messages(ANSWER * answered),
            *self._all_masked("unmask"),
            self._client("assemble_rows", counts),
        )
        self._count_masks(loop, gradient=False)
        loop.waiting = "a core"
        yield world.work(loop, back, "assemble_rows")
        return GhostRows(ids), sum(sizes.values())

    def update(self, loop: LoopState, gradient: object) -> Steps:
        """Returns (None, payload bytes)."""
        if not isinstance(gradient, GhostRows) or not gradient.gradient:
            raise TypeError("Update needs the gradient of a Lookup's answer")
        world, counts = self.world, self.shard_ids(gradient.ids)
        remote, local = self._split(loop)
        sizes = {s.index: self._gradient_bytes(s, counts[s.index]) for s in remote}
        out = plus(
            world.overhead(),
            self._client("route_gradient", counts),
            *self._all_masked("pick"),
            world.messages(sum(map(request_messages, sizes.values()))),
        )
        self._count_masks(loop, gradient=True)
        loop.waiting = "a core"
        yield world.work(loop, out, "route_gradient")
        together, trainer = bool(self.barriers), loop.loop.trainer
        if self.everyone:  # else those that it stands for are in other groups
            yield from world.meet(loop)
        requests = []
        for shard in remote:
            ids, unique = self._contribution(counts[shard.index])
            work = NOTHING if together else self._shard("update", shard, ids, unique)
            work = plus(self._masked("unpick", shard), work)
            host = self.hosts[shard.index]
            request = self.request(loop, host, "update", sizes[shard.index], work)
            if together:
                request.barrier = self.barriers[shard.index, trainer]
                request.contribution = (ids, unique)
            requests.append((shard.index, request))
        sent = self.send(loop, requests, answers=together)
        whose = "all trainers'" if self.everyone else "the group's"
        for shard in local:
            ids, unique = self._contribution(counts[shard.index])
            barrier = self.barriers.get((shard.index, trainer))
            if barrier is None:
                work = plus(
                    self._masked("unpick", shard), self._shard("update", shard, ids, unique)
                )
                yield world.serve(loop, work, "update")
            else:
                if self.masks:
                    work = self._masked("unpick", shard)
                    yield world.serve(loop, work, "update")
                loop.waiting = f"{whose} Update at {self.name}[{shard.index}]"
                yield from world.wait_for_others(loop, barrier.arrive((ids, unique)))
        if together:
            loop.waiting = f"{whose} Update at {_shards(self.name, remote)}"
        else:
            loop.waiting = f"delivery of Update to {_shards(self.name, remote)}"
        yield from world.wait(loop, sent)
        if together and remote:
            loop.waiting = "a core"
            acknowledged = world.messages(ANSWER * len(remote))
            yield world.work(loop, acknowledged, "acknowledged")
        return None, sum(sizes.values())


class DenseRuntime(Service):
    """The shards of the central dense parameters."""

    def __init__(self, world: World, plan: DensePlan) -> None:
        super().__init__(world, plan.service.name)
        self.plan = plan
        self.hosts = [world.machines.process_of(shard.host) for shard in plan.shards]
        self.elements = sum(shard.elements for shard in plan.shards)
        self._bytes = shape.value_bytes(world.model)

    def pull(self, loop: LoopState) -> Steps:
        """Returns (dense, payload bytes)."""
        yield from self._talk(loop, "pull", "dense_read", sends=False, answers=True)
        return GhostDense(self.elements, self.elements * self._bytes), 0

    def push(self, loop: LoopState, gradient: object) -> Steps:
        """Returns (None, payload bytes)."""
        share = gradient.share if isinstance(gradient, GhostSparse) else None
        if share is None:
            self._check("Push", gradient)
        operation = "dense_apply" if share is None else "sparse_apply"
        payload = yield from self._talk(
            loop, "push", operation, sends=True, answers=False, share=share
        )
        return None, payload

    def exchange(self, loop: LoopState, parameters: object, central: str = "old") -> Steps:
        """Returns (dense difference, payload bytes)."""
        if not isinstance(parameters, GhostDense):
            raise TypeError(f"Exchange needs dense values, not {type(parameters).__name__}")
        part = (parameters.start, parameters.start + parameters.elements)
        operation = "dense_elastic" if central == "old" else "dense_elastic_new"
        payload = yield from self._talk(
            loop, "exchange", operation, sends=True, answers=True, part=part
        )
        return GhostDense(parameters.elements, parameters.size, parameters.start), payload

    def _shards_of(self, part: tuple[int, int] | None) -> list[DenseShard]:
        """What shards hold of a part of the central copy; those that hold none are left out."""
        if part is None:
            return list(self.plan.shards)
        cut = [
            replace(s, start=max(s.start, part[0]), stop=min(s.stop, part[1]))
            for s in self.plan.shards
        ]
        return [s for s in cut if s.elements > 0]

    def _payload(self, shard: DenseShard, share: float | None) -> int:
        if share is None:
            return self._bytes * shard.elements
        return self.world.sparse_bytes(share, shard.start, shard.stop)

    def _work(self, operation: str, shard: DenseShard, share: float | None) -> Seconds:
        if share is None:
            return self.world.pricing.operation(operation, elements=shard.elements)
        kept = sum(self.world.layout.within(share, shard.start, shard.stop))
        return self.world.pricing.operation(operation, elements=shard.elements, kept=kept)

    def _check(self, effect: str, value: object) -> None:
        if not isinstance(value, GhostDense):
            raise TypeError(f"{effect} needs dense values, not {type(value).__name__}")
        if value.elements != self.elements:
            raise TypeError(f"{effect} needs {self.elements} values, not {value.elements}")

    def _talk(
        self,
        loop: LoopState,
        effect: str,
        operation: str,
        *,
        sends: bool,
        answers: bool,
        share: float | None = None,
        part: tuple[int, int] | None = None,
    ) -> Steps:
        world, mine = self.world, loop.process.name
        shards = self._shards_of(part)
        remote = [s for s in shards if s.host.name != mine]
        local = [s for s in shards if s.host.name == mine]
        sizes = {s.index: self._payload(s, share) if sends else 0 for s in remote}
        sent = sum(map(request_messages, sizes.values()))
        out = plus(world.overhead(), world.messages(sent))
        loop.waiting = "a core"
        yield world.work(loop, out, effect)
        requests = []
        for shard in remote:
            work = self._work(operation, shard, share)
            host = self.hosts[shard.index]
            request = self.request(loop, host, effect, sizes[shard.index], work)
            if answers:
                request.answer = self._bytes * shard.elements
            requests.append((shard.index, request))
        awaited = self.send(loop, requests, answers=answers)
        for shard in local:
            work = self._work(operation, shard, share)
            yield world.serve(loop, work, effect)
        what = "answers to" if answers else "delivery of"
        loop.waiting = f"{what} {effect.capitalize()} at {_shards(self.name, remote)}"
        yield from world.wait(loop, awaited)
        if answers and remote:
            loop.waiting = "a core"
            back = world.messages(ANSWER * len(remote))
            yield world.work(loop, back, f"{effect}.answer")
        return sum(sizes.values())


def _shards(service: str, shards: list[EmbeddingShard] | list[DenseShard]) -> str:
    return ", ".join(f"{service}[{shard.index}] on {shard.host.name}" for shard in shards)
