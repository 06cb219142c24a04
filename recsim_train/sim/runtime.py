"""Drives a strategy's loops: sends each effect's answer back after the time that it takes.

A loop is a coroutine that yields effects; here it is wrapped in a process of simulated time, and
what happens is recorded. Which effect goes where is said in perform.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts
from recsim_train.data.replay import Replay
from recsim_train.placement.plan import Plan
from recsim_train.sim.accounts import Account
from recsim_train.sim.blame import (
    DeadlockError,
    StrategyError,
    raising_line,
    waiting_line,
    who_waits,
)
from recsim_train.sim.cache import CacheRuntime
from recsim_train.sim.channel import Channel
from recsim_train.sim.collectives import GroupRuntime
from recsim_train.sim.folding import Folding, Lateness
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.kernel import Handover, Kernel, Steps
from recsim_train.sim.ledger import Ledger
from recsim_train.sim.loop import LoopState
from recsim_train.sim.machines import Machines
from recsim_train.sim.net import NetRuntime
from recsim_train.sim.perform import NAMES, PERFORM
from recsim_train.sim.pricing import Pricing
from recsim_train.sim.readers import Readers
from recsim_train.sim.services import DenseRuntime, EmbeddingRuntime
from recsim_train.sim.usage import Snapshot
from recsim_train.sim.world import World
from recsim_train.strategy import effects
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.registry import create
from recsim_train.trace.record import Iteration
from recsim_train.workload import shape


class Runtime:
    """One simulated run.

    ``strategies``: one per trainer; none: made from the plan's choice.
    ``on_step``: called with k whenever all training loops have completed k iterations.
    ``replay``: of the trainers' caches, where the strategy asks for one.
    ``folding``: which trainers stand for others; none: each is simulated.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        counts: IdCounts,
        *,
        iterations: int,
        strategies: Sequence[Strategy] | None = None,
        on_iteration: Callable[[], None] | None = None,
        on_step: Callable[[int], None] | None = None,
        replay: Replay | None = None,
        folding: Folding | None = None,
    ) -> None:
        experiment = plan.experiment
        trainers = experiment.roles.trainers
        self.folding = folding = folding or Folding(trainers, trainers)
        self.plan = plan
        self.iterations = iterations
        self.kernel = Kernel()
        varies = experiment.simulation.stragglers
        chance = (cluster.jitter, cluster.stragglers) if varies else ()
        jitter = Jitter(experiment.seed, *chance)
        self.machines = Machines(plan, cluster, self.kernel, jitter, folding)
        self.ledger = Ledger(experiment.execution.max_spans)
        self.pricing = Pricing(experiment, cluster, plan.examples)
        self.world = World(self.machines, self.pricing, self.ledger, counts)
        self.counts = counts
        self.elements = shape.dense_parameters(experiment.model)
        self.bytes = shape.value_bytes(experiment.model)
        self.embedding = (
            EmbeddingRuntime(self.world, plan.embedding, plan, folding) if plan.embedding else None
        )
        self.dense = DenseRuntime(self.world, plan.dense) if plan.dense else None
        self.cache = (
            None
            if replay is None or self.embedding is None
            else CacheRuntime(self.world, self.embedding, replay)
        )
        groups = [
            (group, GroupRuntime(self.world, group, folding))
            for group in plan.groups
            if group.members[0].trainer < folding.simulated
        ]
        self.groups = {
            (group.name, member.trainer): made for group, made in groups for member in group.members
        }
        self.queues = {
            (queue.name, trainer): Handover(self.kernel, queue.capacity)
            for queue in plan.topology.queues
            for trainer in range(folding.simulated)
        }
        cut = range(folding.simulated if plan.net is not None else 0)
        self.nets = {trainer: NetRuntime(plan, trainer) for trainer in cut}
        self.loops = self._make_loops(strategies)
        self.feeding = [loop for loop in self.loops if loop.position >= 0]
        self.training = [loop for loop in self.loops if loop.trains]
        self.opening: Snapshot | None = None
        """When the first counted iteration starts."""
        self.closings: dict[int, Snapshot] = {}
        """When all training loops have completed k iterations, by k."""
        self._on_iteration = on_iteration
        self._on_step = on_step
        self._reached: dict[int, int] = {}

    def _make_loops(self, strategies: Sequence[Strategy] | None) -> list[LoopState]:
        plan = self.plan
        simulated = self.folding.simulated
        definitions = {loop.name: loop for loop in plan.topology.loops}
        loops = []
        for trainer, instance in enumerate(plan.of_role("trainer")[:simulated]):
            place = plan.place(trainer)
            strategy = create(plan.used, place) if strategies is None else strategies[trainer]
            programs = {loop.name: loop.program for loop in strategy.topology(plan.threads).loops}
            process = self.machines.processes[instance]
            for loop in plan.loops(trainer):
                program = programs[loop.loop]()
                at = plan.positions.get(loop, -1)
                account = Account(plan.experiment.training.warmup_steps)
                loops.append(LoopState(loop, definitions[loop.loop], process, at, program, account))
        members = (member for group in plan.groups for member in group.members)
        meeting = {member.name for member in members if member.trainer < simulated}
        if len(plan.together) == 1:
            meeting |= {loop.name for loop in plan.training}
        jitter = self.machines.jitter
        for state in loops:
            others = self.folding.standing(state.loop.trainer) - 1
            if others and state.name in meeting:
                draw = jitter.draws(state.process.name, f"{state.label}/others")
                state.lateness = None if draw is None else Lateness(draw, others)
            for service in (self.embedding, self.dense):
                if service is not None and not service.own:
                    for index, host in enumerate(service.hosts):
                        if host is not state.process:
                            channel = Channel(self.machines, self.pricing, state.process, host)
                            state.channels[service.name, index] = channel
        return loops

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        """Run to the end, or until `stop`.

        Raises StrategyError for what a strategy did wrong and DeadlockError when nothing can
        happen any more although loops have not finished.
        """
        Readers(self.world, self.plan, self.feeding, self.iterations)
        for loop in self.loops:
            self.kernel.process(self._drive(loop))
        self._stopped = False
        try:
            self.kernel.run()
            if not self._stopped and not all(loop.finished for loop in self.loops):
                raise DeadlockError(self._who_waits())
        finally:
            for loop in self.loops:
                with contextlib.suppress(RuntimeError):  # it may wait again while it is closed
                    loop.coroutine.close()

    def stop(self) -> None:
        """End the run after the present event."""
        self._stopped = True
        self.kernel.stop()

    def _drive(self, loop: LoopState) -> Steps:
        answer: object = None
        failure: Exception | None = None
        program = loop.coroutine
        while True:
            try:
                effect = program.send(answer) if failure is None else program.throw(failure)
            except StopIteration:
                break
            except StrategyError:
                raise
            except Exception as error:
                line = raising_line(error.__traceback__)
                raise StrategyError(
                    f"{loop.name} failed at {line}: {type(error).__name__}: {error}"
                ) from error
            answer, failure = None, None
            loop.acted = not isinstance(effect, effects.Agree)
            perform = PERFORM.get(type(effect))
            if perform is None:
                raise StrategyError(
                    f"{waiting_line(program)}: {loop.name} awaits {type(effect).__name__}, which "
                    "is not an effect; a strategy may await effects only"
                )
            start = self.kernel.now
            try:
                answer, name, payload = yield from perform(self, loop, effect)
            except Exception as error:
                failure = error
                continue
            loop.account.close(NAMES[type(effect)], loop.iteration, self.kernel.now - start)
            if name is None:
                continue
            series = loop.records.get((type(effect), name))
            if series is None:
                what = NAMES[type(effect)]
                series = self.ledger.series(loop.process.name, loop.label, what, name)
                loop.records[type(effect), name] = series
            series.add(loop.iteration, start, self.kernel.now, payload)
        if not loop.background or loop.acted:  # a round that only learned of the end is none
            self._close_iteration(loop)
        loop.finished = True

    def _close_iteration(self, loop: LoopState) -> None:
        """A loop begins its next iteration, or ends: the one before is over."""
        done = loop.iteration
        if done != loop.completed or (done >= self.iterations and not loop.background):
            return
        loop.completed += 1
        now = self.kernel.now
        if loop.background:
            self.ledger.rounds.append(Iteration(loop.name, done, loop.started, now))
        if not loop.trains:
            return
        self.ledger.iterations.append(Iteration(loop.name, done, loop.started, now))
        if self._on_iteration is not None:
            self._on_iteration()
        reached = self._reached[done] = self._reached.get(done, 0) + 1
        if reached == len(self.training):
            self.closings[loop.completed] = (now, self.kernel.used())
            if self._on_step is not None:
                self._on_step(loop.completed)

    def snapshots(self) -> list[Snapshot]:
        """What had been consumed at the start and whenever all loops had completed a step."""
        at_start = (0.0, [0.0] * len(self.kernel.fluid.resources))
        return [at_start, *(self.closings[step] for step in sorted(self.closings))]

    def settled(self) -> int:
        """Iterations that all training loops have completed and no server still works on."""
        return min(loop.settled() for loop in self.loops if not loop.background)

    def _who_waits(self) -> str:
        waiting = [
            (loop.name, loop.waiting, waiting_line(loop.coroutine))
            for loop in self.loops
            if not loop.finished
        ]
        groups = dict.fromkeys(self.groups.values())
        return who_waits(
            self.kernel.now, waiting, [f"group {g.name!r}: {g.arrived}" for g in groups]
        )

    def begin_iteration(self, loop: LoopState) -> None:
        self._close_iteration(loop)
        loop.iteration += 1
        loop.started = self.kernel.now
        warmup = self.plan.experiment.training.warmup_steps
        if self.opening is None and loop.trains and loop.iteration == warmup:
            self.opening = (loop.started, self.kernel.used())
