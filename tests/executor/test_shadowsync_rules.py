"""ShadowSync's arithmetic against the paper's rules in numpy, on given interleavings of loops.

The strategy's own programs run on the executor's own kernels; only time and transport are the
test's: a seeded schedule lets one loop after the other do one effect. What happened, as a list of
events, is then done again by the rules, in another language of arrays.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
import torch

from recsim_train.config.experiment import Model, Table, Training
from recsim_train.executor.net.kernels import (
    dense_elastic,
    dense_elastic_new,
    interpolate,
    load,
)
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.values import RealDense
from recsim_train.executor.worker import DenseState, Replica, Worker
from recsim_train.strategy import effects
from recsim_train.strategy.base import Place
from recsim_train.strategy.effects import Effect
from recsim_train.strategy.shadowsync import ShadowSync
from recsim_train.strategy.synchronisers import Bmuf, Easgd, ModelAveraging
from recsim_train.strategy.values import Batch, Features, Gradients, Ids, Rows
from recsim_train.workload.shape import dense_parameters

MODEL = Model(
    embedding_dim=2, bottom_mlp=(3, 2), top_mlp=(2, 1), tables=(Table(rows=5),), dtype="float64"
)
LR = 0.125
TRAINING = Training(dense_lr=LR, dense_optimizer="sgd")
SIZE = dense_parameters(MODEL)
Event = tuple[str, int, int, int]
"""(what, trainer, loop number within the trainer, iteration)."""


def target(trainer: int, loop: int, iteration: int) -> np.ndarray:
    """Where the loss of one batch has its minimum; its gradient at w is w - target."""
    return np.random.default_rng([trainer, loop, iteration]).normal(size=SIZE)


@dataclass
class Running:
    """One loop of one trainer."""

    trainer: int
    number: int
    label: str
    program: Coroutine[Effect[Any], Any, None]
    worker: Worker
    iteration: int = -1
    answer: Any = None
    effect: Any = None
    """Asked for and not answered yet."""


@dataclass
class World:
    """Trainers on one thread, with a schedule instead of time."""

    strategies: list[ShadowSync]
    threads: int
    steps: int
    seed: int
    lead: int = 0
    """How many times more often a trainer is chosen than the one before it."""
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.replicas = [Replica(MODEL, TRAINING, seed=3) for _ in self.strategies]
        self.central = DenseState(MODEL, TRAINING, 3, 0, SIZE)
        self.barriers: dict[str, tuple[str, ...]] = {}
        self.loops: list[Running] = []
        for trainer, strategy in enumerate(self.strategies):
            strategy.place = Place(trainer, len(self.strategies), self.threads)
            topology = strategy.topology(self.threads)
            self.barriers = {barrier.name: barrier.loops for barrier in topology.barriers}
            programs = [
                (definition.name, strategy.program(definition.name))
                for definition in topology.loops
                for _ in range(definition.copies)
            ]
            for number, (name, program) in enumerate(programs):
                worker = Worker(self.replicas[trainer], "server")
                self.loops.append(Running(trainer, number, name, program, worker))

    def run(self) -> None:
        """Until all loops have ended, each with one effect at a time in a random order."""
        chance = random.Random(self.seed)
        live = list(self.loops)
        for loop in live:
            loop.effect = loop.program.send(None)
        while live:
            ready = [loop for loop in live if self.can(loop)]
            assert ready, [type(loop.effect).__name__ for loop in live]
            loop = chance.choices(ready, [1 + self.lead * x.trainer for x in ready])[0]
            if isinstance(loop.effect, effects.AllReduce | effects.NextRound) and loop.effect.group:
                members = [x for x in live if x.label == loop.label]
                self.meet(members)
            elif isinstance(loop.effect, effects.Barrier):
                members = self.sharing(loop, live)
                for member in members:
                    member.answer = len(members)
            else:
                members = [loop]
                loop.answer = self.do(loop, loop.effect)
            for member in members:
                try:
                    member.effect = member.program.send(member.answer)
                except StopIteration:
                    live.remove(member)
                    member.effect = None

    def can(self, loop: Running) -> bool:
        effect = loop.effect
        if isinstance(effect, effects.Barrier):
            here = self.sharing(loop, [x for x in self.loops if x.effect is not None])
            return all(isinstance(other.effect, effects.Barrier) for other in here)
        if isinstance(effect, effects.AllReduce | effects.NextRound) and effect.group:
            others = [x.effect for x in self.loops if x.label == loop.label]
            return all(type(other) is type(effect) for other in others)
        if isinstance(effect, effects.Progress):
            done, over = self.progress(loop.trainer)
            return done >= effect.iterations or over
        return True

    def progress(self, trainer: int) -> tuple[int, bool]:
        """Iterations that a trainer's workers have ended, and whether they will end no more."""
        workers = [x for x in self.loops if x.trainer == trainer and x.label == "worker"]
        return sum(max(0, x.iteration) for x in workers), all(x.effect is None for x in workers)

    def sharing(self, loop: Running, live: list[Running]) -> list[Running]:
        """Who shares the barrier that a loop waits at, itself included."""
        loops = self.barriers[loop.effect.barrier]
        return [x for x in live if x.trainer == loop.trainer and x.label in loops]

    def meet(self, members: list[Running]) -> None:
        asked = [member.effect for member in members]
        if isinstance(asked[0], effects.NextRound):
            answer: Any = all(effect.last for effect in asked)
        else:
            mean = torch.stack([effect.value.tensor for effect in asked]).mean(0)
            answer = RealDense(mean)
            self.events.append(("mean", 0, 0, 0))
        for member in members:
            member.answer = answer

    def do(self, loop: Running, effect: Any) -> Any:
        match effect:
            case effects.NextBatch():
                loop.iteration += 1
                more = loop.iteration < self.steps
                return Batch(1, Ids(), Features(), loop.iteration) if more else None
            case effects.Compute(operation=operation, arguments=arguments):
                return self.compute(loop, operation.name, arguments)
            case effects.Exchange():
                self.note("exchange", loop)
                elastic = dense_elastic if effect.central == "old" else dense_elastic_new
                return RealDense(elastic(self.central, effect.parameters.tensor, effect.alpha))
            case effects.Pull():
                return RealDense(self.central.values.clone())
            case effects.Progress():
                return self.progress(loop.trainer)[0]
            case effects.NextRound():
                return effect.last
            case _:
                return Rows()

    def compute(self, loop: Running, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "forward_backward":
            here = loop.worker.replica.parameters
            aim = torch.from_numpy(target(loop.trainer, loop.number, loop.iteration))
            self.note("learn", loop)
            return Gradients(RealDense(here - aim), Rows())
        if name in ("apply", "snapshot", "subtract", "interpolate"):
            self.note(name, loop)
            if name == "interpolate" and arguments[1] == 1.0:
                self.events[-1] = ("settle", *self.events[-1][1:])
        return KERNELS[name](loop.worker, *arguments)

    def note(self, what: str, loop: Running) -> None:
        self.events.append((what, loop.trainer, loop.number, loop.iteration))


def by_the_rules(world: World, options: dict[str, Any]) -> tuple[list[np.ndarray], np.ndarray]:
    """(replicas, central copy) after the world's events, by the rules as the papers give them."""
    algorithm, alpha = options["algorithm"], options["alpha"]
    start = Replica(MODEL, TRAINING, seed=3).parameters.numpy().copy()
    w = [start.copy() for _ in world.replicas]
    central, block, momentum = start.copy(), start.copy(), np.zeros(SIZE)
    gradient: dict[tuple[int, int], np.ndarray] = {}
    held: dict[tuple[int, int], np.ndarray] = {}
    common = start
    for what, i, loop, iteration in world.events:
        at = i, loop
        if what == "learn":
            gradient[at] = w[i] - target(i, loop, iteration)
        elif what == "apply":
            w[i] = w[i] - LR * gradient[at]
        elif what == "snapshot":
            held[at] = w[i].copy()
        elif what == "exchange":
            old = central
            central = (1 - alpha) * central + alpha * held[at]
            held[at] = held[at] - (old if options.get("central") != "new" else central)
        elif what == "subtract":
            w[i] = w[i] - alpha * held[at]
        elif what == "mean":
            common = sum(held.values()) / len(held)
            if algorithm == "bmuf":
                momentum = options["block_momentum"] * momentum
                momentum = momentum + options["block_lr"] * (common - block)
                common = block = block + momentum
        elif what == "interpolate":
            w[i] = (1 - alpha) * w[i] + alpha * common
        elif what == "settle":
            w[i] = common
        else:
            raise AssertionError(what)
    return w, central


KINDS = {"easgd": Easgd, "ma": ModelAveraging, "bmuf": Bmuf}


def strategy_of(options: dict[str, Any]) -> ShadowSync:
    kind = KINDS[options["algorithm"]]
    own = {f.name: options[f.name] for f in fields(kind)}
    return ShadowSync(kind(**own), options["sync"], options["every"], options["gap"])


def options_of(algorithm: str, sync: str, central: str = "old", gap: int = 0) -> dict[str, Any]:
    options = {"algorithm": algorithm, "sync": sync, "every": 3, "alpha": 0.375, "central": central}
    return options | {"gap": gap, "block_lr": 0.75, "block_momentum": 0.5}


CASES = [
    options_of(algorithm, sync, central)
    for algorithm, centrals in (("easgd", ("old", "new")), ("ma", ("old",)), ("bmuf", ("old",)))
    for sync in ("shadow", "foreground")
    for central in centrals
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("trainers", [1, 3])
@pytest.mark.parametrize("options", CASES, ids=lambda o: "-".join(map(str, list(o.values())[:5])))
def test_the_rules_of_the_papers(options: dict[str, Any], trainers: int, seed: int) -> None:
    world = World([strategy_of(options) for _ in range(trainers)], threads=2, steps=7, seed=seed)
    world.run()
    done = [what for what, *_ in world.events]
    assert done.count("apply") == 7 * 2 * trainers
    if options["sync"] == "foreground" and options["algorithm"] == "easgd":
        assert done.count("exchange") == 2 * 2 * trainers
    else:
        assert done.count("mean") + done.count("exchange") >= 2
    replicas, central = by_the_rules(world, options)
    for mine, ruled in zip(world.replicas, replicas, strict=True):
        np.testing.assert_allclose(mine.parameters.numpy(), ruled, rtol=0, atol=1e-12)
    np.testing.assert_allclose(world.central.values.numpy(), central, rtol=0, atol=1e-12)
    if options["algorithm"] != "easgd":  # all end at the common weights
        np.testing.assert_array_equal(world.replicas[0].parameters, world.replicas[-1].parameters)


@pytest.mark.parametrize("lead", [0, 20])
@pytest.mark.parametrize("gap", [1, 3, 100])
@pytest.mark.parametrize("algorithm", ["easgd", "ma", "bmuf"])
def test_rounds_with_a_gap(algorithm: str, gap: int, lead: int) -> None:
    """None hangs, whoever is fast; no more rounds than the gap leaves room for; the rules hold."""
    options, steps = options_of(algorithm, "shadow", gap=gap), 11
    strategies = [strategy_of(options) for _ in range(3)]
    world = World(strategies, threads=2, steps=steps, seed=5, lead=lead)
    world.run()
    done = [(what, trainer) for what, trainer, *_ in world.events]
    for trainer in range(3):
        assert done.count(("apply", trainer)) == 2 * steps
        # at the start, after every gap, and when all has ended
        assert 2 <= done.count(("snapshot", trainer)) <= 1 + steps // gap + 1
    replicas, central = by_the_rules(world, options)
    for mine, ruled in zip(world.replicas, replicas, strict=True):
        np.testing.assert_allclose(mine.parameters.numpy(), ruled, rtol=0, atol=1e-12)
    np.testing.assert_allclose(world.central.values.numpy(), central, rtol=0, atol=1e-12)


def test_the_comparison_can_fail() -> None:
    options = options_of("bmuf", "shadow")
    world = World([strategy_of(options) for _ in range(2)], threads=2, steps=7, seed=1)
    world.run()
    wrong = by_the_rules(world, options | {"block_momentum": 0.4})[0]
    assert np.abs(world.replicas[0].parameters.numpy() - wrong[0]).max() > 1e-3


@pytest.mark.parametrize("algorithm", ["ma", "bmuf"])
def test_foreground_workers_stand_still_while_weights_are_averaged(algorithm: str) -> None:
    options = options_of(algorithm, "foreground")
    world = World([strategy_of(options) for _ in range(3)], threads=2, steps=9, seed=4)
    world.run()
    for trainer in range(3):
        mine = [what for what, owner, *_ in world.events if owner == trainer and what != "mean"]
        for at, what in enumerate(mine):
            if what == "snapshot":
                assert mine[at + 1] in ("interpolate", "settle")
    # each worker's k iterations between two meetings, no more and no less
    for trainer in range(3):
        counts, count = [], 0
        for what, owner, *_ in world.events:
            if owner == trainer and what == "apply":
                count += 1
            if owner == trainer and what == "snapshot":
                counts.append(count)
                count = 0
        assert counts == [6, 6, 6, 0, 0]


def test_interpolation_keeps_a_concurrent_workers_update() -> None:
    replica = Replica(MODEL, TRAINING, seed=1)
    shadow, worker = Worker(replica, "server"), Worker(replica, "server")
    start = replica.parameters.clone()
    mean = RealDense(start + 1.0)  # of copies that were taken before the worker's step
    KERNELS["apply"](worker, RealDense(torch.full_like(start, 2.0)))
    interpolate(shadow, mean, 0.25)
    torch.testing.assert_close(
        replica.parameters, 0.75 * (start - 2.0 * LR) + 0.25 * (start + 1.0), rtol=0, atol=1e-14
    )
    load(shadow, mean)  # what overwriting would have done
    torch.testing.assert_close(replica.parameters, start + 1.0, rtol=0, atol=0)


def test_interpolation_is_in_place() -> None:
    """Threads' modules alias the replica's storage, so that it must never be rebound."""
    replica = Replica(MODEL, TRAINING, seed=1)
    worker = Worker(replica, "server")
    where, weights = replica.parameters.data_ptr(), replica.parameters
    interpolate(worker, RealDense(torch.zeros(SIZE, dtype=torch.float64)), 0.5)
    assert replica.parameters is weights
    assert replica.parameters.data_ptr() == where
