"""Outer synchronisation of groups of hosts against its rules, written out for whole replicas.

The product runs its programs, kernels and shards, with the net cut over two hosts, on a schedule;
the reference does the same steps and rounds with one vector for each group (`by_hand`).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.placement.build import build_plan
from recsim_train.strategy import effects
from recsim_train.strategy.hierarchical import OWNERS
from recsim_train.strategy.operations import NET_APPLY
from tests.executor.by_hand import Dense, Given, Rows, gradients, together
from tests.executor.group_world import GroupWorld, given

BOTTOM, TOP, DIM = (8, 4), (8, 6, 1), 4
HOSTS, RATE = 2, 0.05
ALPHA, BLOCK_LR, BLOCK_MOMENTUM, EVERY = 0.375, 0.75, 0.5, 2
TAGS = "bottom.0=dp,bottom.1=0,interaction=1,top.0=1,top.1=dp,top.2=dp"
SIZES = [13 * 8 + 8, 8 * 4 + 4, 14 * 8 + 8, 8 * 6 + 6, 6 * 1 + 1]
SHARED = torch.cat(
    [torch.full((n,), s) for n, s in zip(SIZES, (1, 0, 0, 1, 1), strict=True)]
).bool()
"""Which parameters every host of a group holds, after TAGS."""
TOLERANCE = 1e-12


def world(outer: str, sync: str, groups: int, steps: int) -> GroupWorld:
    how: dict[str, Any] = {"kind": outer, "alpha": ALPHA}
    if outer == "bmuf":
        how |= {"block_lr": BLOCK_LR, "block_momentum": BLOCK_MOMENTUM}
    options: dict[str, Any] = {"hosts": HOSTS, "tags": TAGS, "outer": how, "sync": sync}
    options |= {"every": EVERY}
    choice = StrategyChoice(kind="hierarchical", options=options)
    adagrad = outer == "easgd"
    tables = (Table(rows=40), Table(rows=30), Table(rows=20, ids=3), Table(rows=25))
    spec = Experiment(
        name="outer",
        model=Model(
            embedding_dim=DIM, bottom_mlp=BOTTOM, top_mlp=TOP, tables=tables, dtype="float64"
        ),
        data=Data(eval_rows=0, synthetic=Synthetic(rows=1000)),
        roles=Roles(
            trainers=groups * HOSTS,
            embedding_servers=1,
            dense_servers=2 if outer == "easgd" else 0,
        ),
        training=Training(
            batch_size=6,
            steps=steps,
            warmup_steps=0,
            dense_optimizer="adagrad" if adagrad else "sgd",
            sparse_optimizer="rowwise_adagrad" if adagrad else "sgd",
            dense_lr=RATE,
            sparse_lr=RATE,
        ),
        strategies=(choice,),
    )
    return GroupWorld(build_plan(spec, choice))


class Reference:
    """Whole replicas, one for each group, and the rules by which they meet.

    What all hosts hold moves with the group's next step; until then the move is kept ``back``.
    """

    def __init__(self, start: Tensor, tables: list[Tensor], groups: int, outer: str) -> None:
        adagrad = outer == "easgd"
        self.outer, self.groups = outer, range(groups)
        self.w = [start.clone() for _ in self.groups]
        self.back = [torch.zeros_like(start) for _ in self.groups]
        self.carried = [torch.zeros_like(start) for _ in self.groups]
        self.optimizers = [Dense(start, RATE, adagrad) for _ in self.groups]
        self.rows = Rows(tables, RATE, adagrad)
        self.central, self.block = start.clone(), start.clone()
        self.momentum = torch.zeros_like(start)
        self.gradient: dict[int, Tensor] = {}
        self.copy: dict[int, Tensor] = {}
        self.moved = 0.0

    def learn(self, g: int, batch: Given) -> None:
        self.gradient[g], rows = gradients(self.w[g], self.rows.tables, batch, BOTTOM, TOP)
        self.rows.step(rows)
        self.carried[g] = self.back[g].clone()

    def apply(self, g: int) -> None:
        self.optimizers[g].step(self.w[g], self.gradient[g])
        self.w[g] -= self.carried[g]
        self.back[g] -= self.carried[g]

    def seen(self, g: int) -> Tensor:
        """A group's parameters as others see them."""
        return self.w[g] - self.back[g]

    def move(self, g: int, difference: Tensor) -> None:
        self.moved += float(difference.norm())
        self.w[g] -= torch.where(SHARED, 0.0, difference)
        self.back[g] += torch.where(SHARED, difference, 0.0)

    def snapshot(self, g: int) -> None:
        self.copy[g] = self.seen(g).clone()

    def synchronise(self, last: bool) -> None:
        """The rest of a round of all groups, after every group's snapshot."""
        if self.outer == "easgd":
            for g in self.groups:
                difference = ALPHA * (self.copy[g] - self.central)
                self.central += difference
                self.move(g, difference)
            return
        common = sum(self.copy.values()) / len(self.groups)
        assert isinstance(common, Tensor)
        if self.outer == "bmuf":
            self.momentum = BLOCK_MOMENTUM * self.momentum + BLOCK_LR * (common - self.block)
            common = self.block = self.block + self.momentum
        for g in self.groups:
            self.move(g, (1.0 if last else ALPHA) * (self.seen(g) - common))


def batch_of(job: GroupWorld, g: int, step: int) -> Given:
    hosts = range(g * HOSTS, (g + 1) * HOSTS)
    return together([given(job.plan, job.feeds[t].batches[step]) for t in hosts])


def reference_of(job: GroupWorld, groups: int, outer: str) -> Reference:
    """From the initial values that the product has."""
    held = {
        o: w for loop in job.of("worker", 0) for o, w in loop.context.worker.net.weights.items()
    }
    names = ("bottom.0", "bottom.1", "top.0", "top.1", "top.2")
    start = torch.cat([p.detach().reshape(-1) for name in names for p in held[name]])
    assert start.numel() == len(SHARED)
    return Reference(start, [table.clone() for table in job.tables()], groups, outer)


def at_batch(effect: Any) -> bool:
    return isinstance(effect, effects.NextBatch)


def at_apply(effect: Any) -> bool:
    return isinstance(effect, effects.Compute) and effect.operation is NET_APPLY


def at_round(effect: Any) -> bool:
    return isinstance(effect, effects.NextRound)


def at_meeting(effect: Any) -> bool:
    owners = isinstance(effect, effects.AllReduce) and effect.group == OWNERS
    return owners or isinstance(effect, effects.Exchange)


def never(effect: Any) -> bool:
    return False


def foreground(job: GroupWorld, plain: Reference, steps: int) -> None:
    for step in range(steps):
        for g in plain.groups if step % 3 else reversed(plain.groups):
            job.next_batch(job.of("worker", g))
            job.run(job.of("worker", g), lambda e: at_batch(e) or at_meeting(e))
            plain.learn(g, batch_of(job, g, step))
            plain.apply(g)
            plain.snapshot(g)
        for g in plain.groups:
            job.run(job.of("worker", g), at_batch)
        job.run(job.of("worker"), at_batch)
        if (step + 1) % EVERY == 0:
            plain.synchronise(last=False)
    for g in plain.groups:
        job.next_batch(job.of("worker", g))
        job.run(job.of("worker", g), never)
        plain.snapshot(g)
    job.run(job.of("worker"), never)
    plain.synchronise(last=True)


def shadow(job: GroupWorld, plain: Reference, steps: int) -> None:
    """Rounds at scripted moments: before a step, within one, several without a step, within two."""

    def learn(g: int, step: int) -> None:
        job.next_batch(job.of("worker", g))
        job.run(job.of("worker", g), at_apply)
        plain.learn(g, batch_of(job, g, step))

    def apply(g: int) -> None:
        job.run(job.of("worker", g), at_batch)
        plain.apply(g)

    def snapshot() -> None:
        job.run(job.of("shadow"), at_meeting)
        for g in plain.groups:
            plain.snapshot(g)

    def rest(last: bool = False) -> None:
        for g in plain.groups:  # in this order at the central copy
            job.run(job.of("shadow", g), never if last else at_round)
        job.run(job.of("shadow"), never if last else at_round)
        plain.synchronise(last)

    for step in range(steps):
        for g in plain.groups:
            learn(g, step)
            if step % 4 == 0:  # a copy that is older than the step, a move that is younger
                snapshot()
            if step % 4 == 1:  # all of a round between a step's gradient and its move
                snapshot()
                rest()
            apply(g)
            if step % 4 == 0:
                rest()
        for _ in range(3 if step % 4 == 2 else 0):
            snapshot()
            rest()
    for g in plain.groups:
        job.next_batch(job.of("worker", g))
        job.run(job.of("worker", g), never)
    for last in (False, True):  # the first was asked before the workers had ended
        snapshot()
        rest(last)
    job.run(job.of("worker"), never)  # who waited for the last round


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("sync", ["foreground", "shadow"])
@pytest.mark.parametrize("outer", ["easgd", "ma", "bmuf"])
def test_groups_meet_by_the_rules(outer: str, sync: str, groups: int, steps: int) -> None:
    job = world(outer, sync, groups, steps)
    plain = reference_of(job, groups, outer)
    (foreground if sync == "foreground" else shadow)(job, plain, steps)
    assert all(loop.effect is None for loop in job.loops)
    for group in range(groups):
        assert distance(job.replica(group), plain.seen(group)) < TOLERANCE
    if outer != "easgd":  # its central copy is what is evaluated
        for trainer, strategy in enumerate(job.strategies):
            assert isinstance(strategy.trained.tensor, Tensor)
            assert distance(strategy.trained.tensor, plain.seen(trainer // HOSTS)) < TOLERANCE
    for found, wanted in zip(job.tables(), plain.rows.tables, strict=True):
        assert distance(found, wanted) < TOLERANCE
    if outer == "easgd":
        stub = job.loops[0].context.dense
        assert stub is not None
        assert distance(stub.pull(0)()[0].tensor, plain.central) < TOLERANCE
    assert steps == 1 or groups == 1 or plain.moved > 1e-3  # there was something to synchronise
