"""Groups of hosts on one thread: the product's programs, kernels and shards, the test's schedule.

A loop is taken from effect to effect. Effects that several hosts do together happen when all of
them have come there. Nothing is timed: who goes when is said by the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import torch

from recsim_train.data.stream import open_stream
from recsim_train.executor.feed import to_batch
from recsim_train.executor.net.net_kernels import net_whole
from recsim_train.executor.runtime import PERFORM, LoopContext
from recsim_train.executor.shards.services import DenseServer, EmbeddingServer, central_order
from recsim_train.executor.shards.stubs import DenseStub, EmbeddingStub, Near
from recsim_train.executor.values import RealDense, RealFeatures, RealIds, RealParts
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.plan import LoopId, Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.strategy import effects
from recsim_train.strategy.base import Loop
from recsim_train.strategy.hierarchical import HOSTS, Hierarchical
from recsim_train.strategy.registry import create
from recsim_train.strategy.values import Batch
from tests.executor.by_hand import Given

LIMIT = 20.0
"""Seconds after which hosts that wait for each other have failed."""


@dataclass
class Running:
    """One loop of one trainer."""

    trainer: int
    loop: str
    program: Coroutine[Any, Any, None]
    context: LoopContext
    effect: Any = None
    """Asked for and not answered yet; None: the loop is over."""


class Fed:
    """A trainer's batches, as the stream deals them."""

    def __init__(self, plan: Plan, trainer: int) -> None:
        spec = plan.experiment
        self.batches: list[Batch] = []
        stream = open_stream(
            spec.model,
            spec.data,
            batch_size=plan.examples,
            positions=(plan.positions[LoopId(trainer, "worker", 0)],),
            total=plan.streams,
            iterations=spec.training.steps,
            seed=spec.seed,
        )
        self.batches = [to_batch(spec.model, fed.batch, fed.iteration) for fed in stream]
        self.at = 0

    def next(self) -> Batch | None:
        self.at += 1
        return self.batches[self.at - 1] if self.at <= len(self.batches) else None


def given(plan: Plan, batch: Batch) -> Given:
    """A batch's content."""
    assert isinstance(batch.ids, RealIds)
    assert isinstance(batch.features, RealFeatures)
    bags = []
    for t, table in enumerate(plan.experiment.model.tables):
        lengths = batch.ids.lengths[t]
        sizes = [table.ids] * batch.size if lengths is None else lengths.tolist()
        bags.append(list(batch.ids.table(t).split(sizes)))
    return Given(batch.features.dense, batch.features.labels, bags)


class GroupWorld:
    """All trainers of a hierarchical plan with one embedding shard."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        spec, net = plan.experiment, plan.net
        assert isinstance(net, TaggedNet)
        assert plan.embedding is not None
        (shard,) = plan.embedding.shards
        self.rows = EmbeddingServer(plan, shard)
        self.central = [DenseServer(plan, s) for s in plan.dense.shards] if plan.dense else []
        self.feeds = [Fed(plan, t) for t in range(spec.roles.trainers)]
        self.strategies: list[Hierarchical] = []
        self.loops: list[Running] = []
        for trainer, feed in enumerate(self.feeds):
            host = plan.host(trainer)
            replica = Replica(
                spec.model, spec.training, spec.seed, net.held(host), net.shared_numbers
            )
            strategy = create(plan.used, plan.place(trainer))
            assert isinstance(strategy, Hierarchical)
            self.strategies.append(strategy)
            topology = strategy.topology(1)
            for loop in topology.loops:
                context = self._context(loop, trainer, Worker(replica, "server", net, host))
                context.feed = feed
                running = Running(trainer, loop.name, strategy.program(loop.name), context)
                self.loops.append(running)
                running.effect = running.program.send(None)

    def _context(self, loop: Loop, trainer: int, worker: Worker) -> LoopContext:
        plan = self.plan
        dense = None
        if plan.dense is not None:
            like = torch.empty(sum(s.elements for s in plan.dense.shards)).double()
            dense = DenseStub([Near(s, trainer) for s in self.central], like, central_order(plan))
        return LoopContext(
            instance=f"trainer[{trainer}]",
            label="loop",
            definition=loop,
            topology=plan.topology,
            worker=worker,
            feed=None,
            embedding=EmbeddingStub([Near(self.rows, trainer)]),
            dense=dense,
            collectives={},
            clock=lambda: 0.0,
            recorder=None,
        )

    # ------------------------------------------------------------------ the schedule

    def of(self, loop: str, group: int | None = None) -> list[Running]:
        """Loops of one name, of all groups or of one."""
        size = self.plan.net.hosts
        chosen = [x for x in self.loops if x.loop == loop]
        return [x for x in chosen if group is None or x.trainer // size == group]

    def run(self, loops: list[Running], stop: Callable[[Any], bool]) -> None:
        """Take loops on until each is over, at an effect where it shall ``stop``, or waits."""
        moved = True
        while moved:
            moved = False
            for loop in loops:
                if loop.effect is not None and not stop(loop.effect):
                    moved |= self._do(loop)

    def next_batch(self, loops: list[Running]) -> None:
        for loop in loops:
            assert isinstance(loop.effect, effects.NextBatch)
            self._do(loop)

    def _do(self, loop: Running) -> bool:
        effect = loop.effect
        if isinstance(effect, effects.Synced):
            self._answer(loop, None)
            return True
        if isinstance(effect, effects.Barrier):
            return self._barrier(loop, effect)
        meeting = isinstance(effect, effects.AllReduce | effects.AllToAll | effects.NextRound)
        meeting = meeting and effect.group is not None
        name = effect.group if meeting else HOSTS if isinstance(effect, effects.Update) else None
        if name is None:
            self._answer(loop, PERFORM[type(effect)](loop.context, effect)[0])
            return True
        groups = (g for g in self.plan.groups if g.name == name)
        group = next(g for g in groups if g.place(loop.trainer) >= 0)
        trainers = [member.trainer for member in group.members]
        members = [x for x in self.loops if x.trainer in trainers and x.loop == loop.loop]
        if any(type(x.effect) is not type(effect) for x in members):
            return False
        if meeting and any(x.effect.group != name for x in members):
            return False
        answers = self._meet(members) if meeting else self._update(members)
        for member, answer in zip(members, answers, strict=True):
            self._answer(member, answer)
        return True

    def _barrier(self, loop: Running, effect: effects.Barrier) -> bool:
        """Of loops of one trainer: all that have not ended must be there."""
        (barrier,) = (b for b in self.plan.topology.barriers if b.name == effect.barrier)
        members = [
            x
            for x in self.loops
            if x.trainer == loop.trainer and x.loop in barrier.loops and x.effect is not None
        ]
        if any(not isinstance(x.effect, effects.Barrier) for x in members):
            return False
        for member in members:
            self._answer(member, len(members))
        return True

    def _answer(self, loop: Running, answer: Any) -> None:
        try:
            loop.effect = loop.program.send(answer)
        except StopIteration:
            loop.effect = None

    def _meet(self, members: list[Running]) -> list[Any]:
        asked = [member.effect for member in members]
        if isinstance(asked[0], effects.NextRound):
            return [all(effect.last for effect in asked)] * len(members)
        if isinstance(asked[0], effects.AllToAll):
            sent = [effect.parts.tensors for effect in asked]
            return [
                RealParts(tuple(parts[me].clone() for parts in sent)) for me in range(len(sent))
            ]
        total = torch.stack([effect.value.tensor for effect in asked]).sum(0)
        if asked[0].op == "mean":
            total /= len(asked)
        return [RealDense(total.clone(), effect.value.start) for effect in asked]

    def _update(self, members: list[Running]) -> list[Any]:
        """Each in a thread of its own: a shard may let them wait for each other."""
        failed: list[BaseException] = []

        def body(member: Running) -> None:
            try:
                PERFORM[type(member.effect)](member.context, member.effect)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=body, args=(m,), daemon=True) for m in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert not failed, failed
        assert not any(thread.is_alive() for thread in threads), "hosts wait for others in vain"
        return [None] * len(members)

    # ------------------------------------------------------------------ what is left

    def replica(self, group: int) -> torch.Tensor:
        """A group's whole net, from the parts that its hosts answer for."""
        parts = [net_whole(x.context.worker).tensor for x in self.of("worker", group)]
        return torch.stack(parts).sum(0)

    def tables(self) -> list[torch.Tensor]:
        """Rows of every table."""
        found = self.rows.state.rows.split([s.rows for s in self.rows.rules.shard.slices])
        order = [s.table for s in self.rows.rules.shard.slices]
        assert sorted(order) == list(range(len(order)))
        return [found[order.index(t)] for t in range(len(order))]
