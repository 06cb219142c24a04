"""The shards of both kinds of servers: Lookup and Update, and what the ids of a batch make of them;
and Pull, Push and Exchange of the central dense parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from recsim_train.data.counts import ShardCount
from recsim_train.data.draws import expected_distinct
from recsim_train.placement.plan import (
    DensePlan,
    DenseShard,
    EmbeddingPlan,
    EmbeddingShard,
    Instance,
    Plan,
)
from recsim_train.sim.engine import Steps
from recsim_train.sim.folding import Folding
from recsim_train.sim.ghosts import GhostDense, GhostIds, GhostRows, GhostSparse
from recsim_train.sim.host.process import Process, Thread
from recsim_train.sim.messages.services import Service
from recsim_train.sim.messages.serving import Request
from recsim_train.sim.pricing import NOTHING, Priced, Pricing, plus
from recsim_train.sim.queues import JointWork
from recsim_train.sim.world import LoopState, World
from recsim_train.workload import shape
from recsim_train.workload.compression import (
    ACTIVATION_GRADIENTS,
    ACTIVATIONS,
    Mask,
    MaskOver,
    Tallies,
    Tally,
)


class PooledMask:
    """What a mask makes of one shard's pooled values of a batch."""

    def __init__(self, pricing: Pricing, slices: int, share: float, over: MaskOver) -> None:
        model, batch = pricing.experiment.model, pricing.examples
        self._pricing = pricing
        mask = Mask.of(slices, model.row_width, share, over)
        self._value = shape.value_bytes(model)
        self._values, self._kept = batch * mask.values, batch * mask.all_kept
        self.answer = batch * mask.bytes(self._value)
        """Bytes of an answer."""
        self.gradient = self._kept * self._value
        """Bytes of its gradient: no places."""

    def seconds(self, operation: str) -> Priced:
        """Of "mask", "unmask", "pick" or "unpick"."""
        return self._pricing.operation(operation, elements=self._values, kept=self._kept)

    def count(self, tallies: Tallies, *, gradient: bool) -> None:
        """Add one answer, or one gradient, to a loop's tallies."""
        name = ACTIVATION_GRADIENTS if gradient else ACTIVATIONS
        sent = self.gradient if gradient else self.answer
        tallies.setdefault(name, Tally()).add(
            self._values, self._kept, self._values * self._value, sent
        )


class EmbeddingRuntime(Service[EmbeddingShard]):
    """The embedding shards."""

    price = "row_request"

    def __init__(self, world: World, plan: EmbeddingPlan, job: Plan, folding: Folding) -> None:
        service = plan.service
        super().__init__(world, service.name, plan.shards, own=service.access == "own")
        self.pooled = service.pooling == "server"
        self._pooling = service.pooling
        self.slices = sum(len(shard.slices) for shard in plan.shards)
        self.masks = {
            shard.index: PooledMask(world.pricing, len(shard.slices), service.keep, service.mask)
            for shard in plan.shards
            if service.keep is not None
        }
        """By shard, where a share of the pooled values travels."""
        self._joint: dict[int, float] = {}
        self._sums: tuple[object, int, int] = (None, 0, 0)
        self.everyone = len(job.together) == 1
        """Whether all trainers' gradients make one step."""
        self._whose = "all trainers'" if self.everyone else "the group's"
        self.barriers: dict[tuple[int, int], JointWork] = {}
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
                barrier = JointWork(world.engine, loops * len(simulated), work)
                self.barriers |= {(shard.index, t): barrier for t in simulated}

    # ------------------------------------------------------------------ what it takes

    def _all_masked(self, operation: str) -> list[Priced]:
        return [mask.seconds(operation) for mask in self.masks.values()]

    def _count_masks(self, loop: LoopState, *, gradient: bool) -> None:
        for mask in self.masks.values():
            mask.count(loop.tallies, gradient=gradient)

    def _numbers(self, shard: EmbeddingShard, count: ShardCount) -> int:
        """Of the answer to a lookup, and of its gradient."""
        vectors = len(shard.slices) * self.world.pricing.examples if self.pooled else count.unique
        return vectors * self.world.model.row_width

    def _client(self, operation: str, counts: Sequence[ShardCount]) -> Priced:
        if self._sums[0] is not counts:
            self._sums = counts, sum(c.ids for c in counts), sum(c.unique for c in counts)
        _, ids, unique = self._sums
        return self.clients(operation, ids if self.pooled else unique, unique, len(counts))

    def clients(self, operation: str, ids: int, unique: int, shards: int) -> Priced:
        """What a client does with ids for all shards, or with their rows."""
        return self.world.pricing.operation(
            operation,
            pooling=self._pooling,
            ids=ids,
            unique=unique,
            tables=self.slices,
            shards=shards,
        )

    def _shard(self, operation: str, shard: EmbeddingShard, ids: int, unique: int) -> Priced:
        return self.world.pricing.operation(
            f"{operation}_pooled" if self.pooled else f"{operation}_rows",
            pooling=self._pooling,
            ids=ids,
            unique=unique,
            tables=len(shard.slices),
        )

    def _apply_together(
        self,
        shard: EmbeddingShard,
        clients: int,
        client: Process | None,
        brought: list[tuple[int, int]],
        thread: Thread,
    ) -> Steps:
        """One update with the ids of all ``clients``, of which some are the same, by the thread of
        whoever came last.

        ``clients``: loops, those that others stand for included. ``client``: one of them, where
        there are groups beside theirs.
        """
        stand_for = clients / len(brought)
        ids = round(sum(i for i, _ in brought) * stand_for)
        unique = round(sum(u for _, u in brought) * stand_for * self._joint_share(shard, clients))
        work = self._shard("update", shard, ids, unique)
        purpose = f"{self.name}[{shard.index}].update"
        yield self.world.machines.compute(thread, work, purpose, client=client).done

    @property
    def joint_shares(self) -> list[float]:
        """By shard, where gradients of clients that have ids in common made one step."""
        return [share for share in self._joint.values() if share < 1.0]

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
                apart += share * clients * expected_distinct(rows, exponent, ids)
                joint += share * expected_distinct(rows, exponent, clients * ids)
            known = self._joint[shard.index] = joint / apart
        return known

    # ------------------------------------------------------------------ effects

    def lookup(self, loop: LoopState, ids: object) -> Steps:
        """Returns (rows, payload bytes)."""
        if not isinstance(ids, GhostIds):
            raise TypeError(f"Lookup needs ids, not {type(ids).__name__}")
        if ids.distinct == self.pooled:
            wanted = "ids as they come" if self.pooled else "ids after deduplicate"
            raise TypeError(f"{self.name} pools on the {self._pooling}: give {wanted}")
        world, counts = self.world, self.world.counts.shard_counts(ids.position, ids.batch)
        size = world.number_bytes(loop)

        def request(shard: EmbeddingShard) -> Request:
            count = counts[shard.index]
            payload = shape.ID_BYTES * count.unique
            if self.pooled:
                payload = shape.ID_BYTES * count.ids + shape.LENGTH_BYTES * count.lengths
            work = self._shard("lookup", shard, count.ids, count.unique)
            if (mask := self.masks.get(shard.index)) is not None:
                return Request(payload, plus(work, mask.seconds("mask")), mask.answer)
            numbers = self._numbers(shard, count)
            rounded = 0, numbers * (size < world.value_bytes)
            return Request(payload, work, numbers * size, rounded=rounded)

        first, last = self._client("route_ids", counts), self._client("assemble_rows", counts)
        sent, answers = yield from self.ask(
            loop, "lookup", self.split(loop), request, first=[first], purpose="route_ids"
        )
        self._count_masks(loop, gradient=False)
        back = plus(answers, *self._all_masked("unmask"), last)
        yield world.work(loop, back, "assemble_rows")
        return GhostRows(ids), sent

    def update(self, loop: LoopState, gradient: object) -> Steps:
        """Returns (None, payload bytes)."""
        if not isinstance(gradient, GhostRows) or not gradient.gradient:
            raise TypeError("Update needs the gradient of a Lookup's answer")
        world, ids = self.world, gradient.ids
        counts = world.counts.shard_counts(ids.position, ids.batch)
        together, trainer = bool(self.barriers), loop.loop.trainer
        size = world.number_bytes(loop)

        def request(shard: EmbeddingShard) -> Request:
            count, mask = counts[shard.index], self.masks.get(shard.index)
            payload = 0 if self.pooled else shape.ID_BYTES * count.unique
            numbers = self._numbers(shard, count)
            payload += numbers * size
            part = (count.ids if self.pooled else count.unique), count.unique
            work = NOTHING if together else self._shard("update", shard, *part)
            return Request(
                payload if mask is None else mask.gradient,
                plus(NOTHING if mask is None else mask.seconds("unpick"), work),
                barrier=self.barriers.get((shard.index, trainer)),
                contribution=part,
                rounded=(numbers * (mask is None and size < world.value_bytes), 0),
            )

        self._count_masks(loop, gradient=True)
        sent, answers = yield from self.ask(
            loop,
            "update",
            self.split(loop),
            request,
            first=[self._client("route_gradient", counts), *self._all_masked("pick")],
            purpose="route_gradient",
            everyone=self.everyone,  # else those that it stands for are in other groups
            whose=self._whose if together else "",
        )
        if answers != NOTHING:
            yield world.work(loop, answers, "acknowledged")
        return None, sent


class DenseRuntime(Service[DenseShard]):
    """The shards of the central dense parameters."""

    def __init__(self, world: World, plan: DensePlan) -> None:
        super().__init__(world, plan.service.name, plan.shards)
        self.elements = sum(shard.elements for shard in plan.shards)

    def pull(self, loop: LoopState) -> Steps:
        """Returns (dense, payload bytes)."""
        sent = yield from self._talk(
            loop, "pull", "dense_read", down=self.world.number_bytes(loop), here=True
        )
        return GhostDense(self.elements, self.elements * self.world.value_bytes), sent

    def push(self, loop: LoopState, gradient: object, *, add: bool = False) -> Steps:
        """Returns (None, payload bytes). ``add``: it is a difference, which travels in full."""
        if isinstance(gradient, GhostSparse):
            return None, (yield from self._talk(loop, "push", "sparse_apply", share=gradient.share))
        if not isinstance(gradient, GhostDense):
            raise TypeError(f"Push needs dense values, not {type(gradient).__name__}")
        if gradient.elements != self.elements:
            raise TypeError(f"Push needs {self.elements} values, not {gradient.elements}")
        size = self.world.value_bytes if add else self.world.number_bytes(loop)
        whole = self.world.number_bytes(loop) == self.world.value_bytes
        made = gradient.maker == loop.name and whole
        return None, (yield from self._talk(loop, "push", "dense_apply", up=size, made=made))

    def exchange(self, loop: LoopState, parameters: object, central: str = "old") -> Steps:
        """Returns (dense difference, payload bytes)."""
        if not isinstance(parameters, GhostDense):
            raise TypeError(f"Exchange needs dense values, not {type(parameters).__name__}")
        part = (parameters.start, parameters.start + parameters.elements)
        operation = "dense_elastic" if central == "old" else "dense_elastic_new"
        size = self.world.value_bytes
        sent = yield from self._talk(loop, "exchange", operation, up=size, down=size, part=part)
        return GhostDense(parameters.elements, parameters.size, parameters.start), sent

    def cut(self, start: int, stop: int) -> list[DenseShard]:
        cut = [replace(s, start=max(s.start, start), stop=min(s.stop, stop)) for s in self.shards]
        return [s for s in cut if s.elements > 0]

    def _talk(
        self,
        loop: LoopState,
        effect: str,
        operation: str,
        *,
        up: int = 0,
        down: int = 0,
        share: float | None = None,
        made: bool = False,
        part: tuple[int, int] | None = None,
        here: bool = False,
    ) -> Steps:
        """Returns payload bytes. ``up``, ``down``: bytes of each element that is sent and of each
        that is answered; ``share``: of the entries, what is sent; ``made``: in memory from
        which it can be sent to one shard; ``part``: of the copy; ``here``: only shards in the
        loop's own process do the operation."""
        world = self.world
        shards = self.split(loop, part)
        several = len(shards.remote) + len(shards.local) > 1

        def request(shard: DenseShard) -> Request:
            elements, kept = shard.elements, 0
            payload = up * elements
            if share is not None:
                payload = world.sparse_bytes(share, shard.start, shard.stop)
                kept = sum(world.layout.within(share, shard.start, shard.stop))
            work = NOTHING
            if not here or shard.host.name == loop.process.name:
                work = world.pricing.operation(operation, elements=elements, kept=kept)
            rounded = [elements * (0 < size < world.value_bytes) for size in (up, down)]
            gathered = several and not rounded[1]  # what is widened then is used where it lies
            lies, answer = made and not several, down * elements
            narrow = rounded[0], rounded[1]
            return Request(payload, work, answer, uncopied=lies, gathered=gathered, rounded=narrow)

        sent, answers = yield from self.ask(loop, effect, shards, request)
        if answers != NOTHING:
            yield world.work(loop, answers, f"{effect}.answer")
        return sent
