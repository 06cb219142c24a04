"""One simulated run: every loop is a process of simulated time that performs what its driver asks.

Which effect goes where is said in perform.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import RunFailed
from recsim_train.data.counts import IdCounts
from recsim_train.data.replay import CacheSteps
from recsim_train.placement.hosts import kinds_of
from recsim_train.placement.plan import Instance, Plan
from recsim_train.placement.transport import request_head
from recsim_train.sim.engine import Engine, Steps
from recsim_train.sim.folding import Folding, Lateness
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.messages.cache import CacheRuntime
from recsim_train.sim.messages.collectives import GroupRuntime
from recsim_train.sim.messages.readers import Readers
from recsim_train.sim.messages.services import Service
from recsim_train.sim.messages.serving import Connection
from recsim_train.sim.messages.shards import DenseRuntime, EmbeddingRuntime
from recsim_train.sim.perform import PERFORM
from recsim_train.sim.pricing import Pricing
from recsim_train.sim.queues import LoopBarrier, LoopProgress, LoopQueue
from recsim_train.sim.records import Records
from recsim_train.sim.trainer import NetRuntime, Trainer
from recsim_train.sim.why.usage import Snapshot
from recsim_train.sim.world import LoopState, World
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.registry import create
from recsim_train.trace.progress import Meter

_GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly however many there are."""


class DeadlockError(RunFailed):
    """Nothing can happen any more, but loops have not finished."""


class Runtime:
    """One simulated run; it follows the `recsim_train.sim.world.Course` of its loops.

    ``strategies``: one per trainer; none: made from the plan's choice.
    ``progress``: is told iterations done, and those of all loops.
    ``on_step``: called with k whenever all training loops have completed k iterations.
    ``replay``: of the trainers' caches, where the strategy asks for one.
    ``folding``: which trainers stand for others; none: each is simulated. ``shared``: as of
    `recsim_train.sim.engine.Engine`. ``background``: whether background loops run; without them
    nothing is left of a run that waits for one. ``priced_as``: the plan by whose loops work is
    priced; none: this one.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        counts: IdCounts,
        *,
        iterations: int,
        strategies: Sequence[Strategy] | None = None,
        progress: Meter | None = None,
        on_step: Callable[[int], None] | None = None,
        replay: CacheSteps | None = None,
        folding: Folding | None = None,
        shared: bool = True,
        background: bool = True,
        priced_as: Plan | None = None,
    ) -> None:
        experiment, loops = plan.experiment, priced_as or plan
        trainers = experiment.roles.trainers
        self.folding = folding = folding or Folding(trainers, trainers)
        self.plan = plan
        self.iterations = iterations
        self.engine = Engine(shared=shared)
        varies = experiment.simulation.stragglers
        jitter = Jitter(experiment.seed, *((cluster.jitter, cluster.stragglers) if varies else ()))
        self.machines = Machines(plan, cluster, self.engine, jitter, folding)
        self.records = Records(experiment.execution.max_spans)
        self.pricing = Pricing(
            experiment,
            cluster,
            plan.examples,
            plan.operation_threads,
            beside=_beside(loops, cluster),
            queued=len(list(loops.loops(0))) > 1,
        )
        self.world = World(self.machines, self.pricing, self.records, counts)
        self.counts = counts
        self.embedding: dict[str, EmbeddingRuntime] = {}
        if plan.embedding is not None:
            embedding = EmbeddingRuntime(self.world, plan.embedding, plan, folding)
            self.embedding[embedding.name] = embedding
        self.dense: dict[str, DenseRuntime] = {}
        if plan.dense is not None:
            self.dense[plan.dense.service.name] = DenseRuntime(self.world, plan.dense)
        self.trainers = self._make_trainers(replay)
        self.loops = self._make_loops(strategies)
        self.feeding = [loop for loop in self.loops if loop.position >= 0]
        self.training = [loop for loop in self.loops if loop.trains]
        self._driven = [loop for loop in self.loops if background or not loop.background]
        if shared and folding.parted:
            for number, loop in enumerate(self.training):
                loop.held = number * _GOLDEN % 1.0
        self.opening: Snapshot | None = None
        """When the first counted iteration starts."""
        self.all_begun: Snapshot | None = None
        """When the last training loop starts its first counted iteration."""
        self.first_done: Snapshot | None = None
        """When the first training loop has completed all of its iterations."""
        self.closings: dict[int, Snapshot] = {}
        """When all training loops have completed k iterations, by k."""
        self._progress = progress
        self._on_step = on_step
        self._reached: dict[int, int] = {}
        self._counting = 0

    def _make_trainers(self, replay: CacheSteps | None) -> list[Trainer]:
        plan, folding, topology = self.plan, self.folding, self.plan.topology
        cache = None
        if replay is not None and plan.embedding is not None:
            cache = CacheRuntime(self.world, len(plan.embedding.shards), replay)
        made: list[Trainer] = []
        for index in range(folding.simulated):
            trains = (loop.name for loop in plan.loops(index) if plan.loop(loop.loop).training)
            trainer = Trainer(
                index,
                self.world,
                plan,
                self.iterations,
                self.embedding,
                self.dense,
                cache,
                NetRuntime(plan, index) if plan.net is not None else None,
                LoopProgress(self.engine, trains),
            )
            trainer.queues = {q.name: LoopQueue(self.engine, q.capacity) for q in topology.queues}
            for barrier in topology.barriers:
                members = sum(loop.loop in barrier.loops for loop in plan.loops(index))
                trainer.barriers[barrier.name] = LoopBarrier(self.engine, members)
            made.append(trainer)
        several = len(list(plan.loops(0))) > 1
        beside = several or topology.ahead > 0 or bool(plan.of_role("reader"))
        for group in plan.groups:
            if group.members[0].trainer < folding.simulated:
                runtime = GroupRuntime(self.world, group, folding, beside=beside)
                for member in runtime.simulated:
                    made[member.trainer].groups[group.name] = runtime
        return made

    def _make_loops(self, strategies: Sequence[Strategy] | None) -> list[LoopState]:
        plan = self.plan
        simulated = self.folding.simulated
        loops: list[LoopState] = []
        for trainer, instance in enumerate(plan.of_role("trainer")[:simulated]):
            place = plan.place(trainer)
            strategy = create(plan.used, place) if strategies is None else strategies[trainer]
            process = self.machines.processes[instance]
            loops += [
                LoopState(plan, loop, process, strategy.program(loop.loop), self)
                for loop in plan.loops(trainer)
            ]
        members = (member for group in plan.groups for member in group.members)
        meeting = {member.name for member in members if member.trainer < simulated}
        if len(plan.together) == 1:
            meeting |= {loop.name for loop in plan.training}
        jitter, head = self.machines.jitter, request_head(plan)
        for state in loops:
            others = self.folding.standing(state.loop.trainer) - 1
            if others and state.name in meeting:
                draw = jitter.draws(state.process.name, f"{state.label}/others")
                state.lateness = None if draw is None else Lateness(draw, others)
            self._serve(state, head)
        return loops

    def _serve(self, loop: LoopState, head: int) -> None:
        """Connect it to the processes with shards that it asks."""
        made: dict[Instance, Connection] = {}
        services: list[Service[Any]] = [*self.embedding.values(), *self.dense.values()]
        for service in services:
            for shard, host in zip(service.shards, service.hosts, strict=True):
                if service.own or host is loop.process:
                    continue
                if shard.host not in made:
                    made[shard.host] = Connection(
                        self.machines, self.pricing, head, loop.process, host, loop.name
                    )
                loop.serving[service.name, shard.index] = made[shard.host]

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        """Run to the end, or until `stop`.

        Raises StrategyError for what a strategy did wrong and DeadlockError when nothing can
        happen any more although loops have not finished.
        """
        Readers(self.world, self.plan, self.feeding, self.iterations)
        for loop in self._driven:
            self.engine.process(self._drive(loop, self.trainers[loop.loop.trainer]))
        self._stopped = False
        try:
            self.engine.run()
            if not self._stopped and not all(loop.driver.finished for loop in self._driven):
                raise DeadlockError(self._who_waits())
        finally:
            for loop in self.loops:
                with contextlib.suppress(RuntimeError):  # it may wait again while it is closed
                    loop.driver.program.close()

    def stop(self) -> None:
        """End the run after the present event."""
        self._stopped = True
        self.engine.stop()

    def _drive(self, loop: LoopState, trainer: Trainer) -> Steps:
        driver, account, engine = loop.driver, loop.account, self.engine
        while (effect := driver.next()) is not None:
            if loop.held and loop.completed:
                yield engine.timeout(loop.held * engine.now)
                loop.held = 0.0
            start = engine.now
            try:
                answer, sent = yield from PERFORM[type(effect)](trainer, loop, effect)
            except Exception as error:
                driver.failed(error)
                continue
            account.close(effect.kind, driver.iteration, engine.now - start)
            driver.answered(answer, sent)
        for barrier in self.plan.topology.barriers:
            if loop.loop.loop in barrier.loops:
                trainer.barriers[barrier.name].leave()

    # ------------------------------------------------------------------ the course of the run

    def began(self, loop: LoopState) -> None:
        """A training loop's iteration has begun."""
        if loop.iteration != self.plan.experiment.training.warmup_steps:
            return
        self._counting += 1
        if self._counting == 1:
            self.opening = self._snapshot()
        if self._counting == len(self.training):
            self.all_begun = self._snapshot()

    def _snapshot(self) -> Snapshot:
        self.machines.books.note(self.engine.now)
        return self.engine.now, self.engine.fluid.used()

    def completed(self, loop: LoopState) -> None:
        """A training loop's iteration is over."""
        self.trainers[loop.loop.trainer].progress.ended()
        if self._progress is not None:
            done = len(self.records.iterations)
            self._progress(done, self.iterations * len(self.training))
        if loop.completed == self.iterations and self.first_done is None:
            self.first_done = self._snapshot()
        reached = self._reached[loop.completed] = self._reached.get(loop.completed, 0) + 1
        if reached == len(self.training):
            self.closings[loop.completed] = self._snapshot()
            if self._on_step is not None:
                self._on_step(loop.completed)

    def over(self, loop: LoopState) -> None:
        """A training loop ends no more iterations."""
        self.trainers[loop.loop.trainer].progress.over(loop.name)

    def snapshots(self) -> list[Snapshot]:
        """What had been consumed at the start and whenever all loops had completed a step."""
        at_start = (0.0, [0.0] * len(self.engine.fluid.resources))
        return [at_start, *(self.closings[step] for step in sorted(self.closings))]

    def settled(self) -> int:
        """Iterations that all training loops have completed and no server still works on."""
        return min(loop.settled() for loop in self.loops if not loop.background)

    def _who_waits(self) -> str:
        """A deadlock as a table: what each loop that has not finished waits for, and where."""
        waiting = [loop for loop in self._driven if not loop.driver.finished]
        names, things = (
            max(map(len, c)) for c in zip(*((w.name, w.waiting) for w in waiting), strict=True)
        )
        groups = dict.fromkeys(g for trainer in self.trainers for g in trainer.groups.values())
        return "\n".join(
            [
                f"deadlock after {self.engine.now:.6g} s of simulated time: nothing can happen any "
                "more, and these loops have not finished",
                *(
                    f"  {loop.name:<{names}}  waits for {loop.waiting:<{things}}  at "
                    f"{loop.driver.line}"
                    for loop in waiting
                ),
                *(f"  group {group.name!r}: {group.arrived}" for group in groups),
            ]
        )


def _beside(plan: Plan, cluster: Cluster) -> float:
    """Of a trainer's machine the share of its other cores for which there is a loop."""
    machines = 1
    if not cluster.colocate:
        machines = ceil(plan.experiment.roles.trainers / cluster.together("trainer"))
    loops = len(plan.all_loops) * plan.operation_threads / machines
    cores = kinds_of(plan.instances, cluster)[plan.of_role("trainer")[0]].cores
    return min(1.0, (loops - 1.0) / (cores - 1.0)) if cores > 1.0 else 1.0
