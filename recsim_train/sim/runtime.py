"""Drives a strategy's loops: sends each effect's answer back after the time that it takes.

A loop is a coroutine that yields effects; here it is wrapped in a process of simulated time. What
an effect costs is said in services.py, collectives.py and readers.py; this file only knows which
effect goes where, and records what happened.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts
from recsim_train.data.replay import Replay
from recsim_train.placement.plan import Plan
from recsim_train.placement.segments import Segment
from recsim_train.sim import cache, compression
from recsim_train.sim.accounts import WAITING, Account
from recsim_train.sim.arguments import ARGUMENTS
from recsim_train.sim.blame import (
    DeadlockError,
    StrategyError,
    raising_line,
    waiting_line,
    who_waits,
)
from recsim_train.sim.cache import CACHE_OPERATIONS, CacheRuntime
from recsim_train.sim.channel import Channel
from recsim_train.sim.collectives import GroupRuntime
from recsim_train.sim.folding import Folding, Lateness
from recsim_train.sim.ghosts import (
    GhostDense,
    GhostFeatures,
    GhostIds,
    GhostRows,
)
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.kernel import Handover, Kernel, Steps
from recsim_train.sim.ledger import Ledger
from recsim_train.sim.loop import LoopState
from recsim_train.sim.machines import Machines
from recsim_train.sim.net import NetRuntime
from recsim_train.sim.pricing import Pricing, plus
from recsim_train.sim.readers import SOURCE, Readers
from recsim_train.sim.services import DenseRuntime, EmbeddingRuntime
from recsim_train.sim.usage import Snapshot
from recsim_train.sim.world import World
from recsim_train.strategy import effects
from recsim_train.strategy.base import Strategy
from recsim_train.strategy.registry import create
from recsim_train.strategy.values import Batch, Block, Gradients
from recsim_train.trace.record import Iteration
from recsim_train.workload import shape


class Runtime:
    """One simulated run.

    ``ideal``: nothing is ever shared, everything runs as fast as it would alone.
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
        ideal: bool = False,
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
        self.kernel = Kernel(ideal=ideal)
        varies = experiment.simulation.stragglers and not ideal
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
            EmbeddingRuntime(
                self.world,
                plan.embedding,
                len(plan.training),
                sum(loop.trainer < folding.simulated for loop in plan.training),
            )
            if plan.embedding
            else None
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
        position = {loop: at for at, loop in enumerate(plan.feeding)}
        if plan.shares_batches:
            position = dict.fromkeys(position, 0)
        definitions = {loop.name: loop for loop in plan.topology.loops}
        loops = []
        for trainer, instance in enumerate(plan.of_role("trainer")[: self.folding.simulated]):
            place = plan.place(trainer)
            strategy = create(plan.strategy, place) if strategies is None else strategies[trainer]
            programs = {loop.name: loop.program for loop in strategy.topology(plan.threads).loops}
            process = self.machines.processes[instance]
            for loop in plan.loops(trainer):
                program = programs[loop.loop]()
                at = position.get(loop, -1)
                account = Account(plan.experiment.training.warmup_steps)
                loops.append(LoopState(loop, definitions[loop.loop], process, at, program, account))
        meeting = {member.name for group in plan.groups for member in group.members}
        if plan.embedding is not None and plan.embedding.service.apply == "together":
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
            perform = _PERFORM.get(type(effect))
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
            loop.account.close(_NAMES[type(effect)], loop.iteration, self.kernel.now - start)
            if name is None:
                continue
            series = loop.records.get((type(effect), name))
            if series is None:
                what = _NAMES[type(effect)]
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

    # ------------------------------------------------------------------ effects
    # Each returns (answer, name in the records or None for no record, payload bytes).

    def _next_batch(self, loop: LoopState, _: effects.NextBatch) -> Steps:
        if loop.queue is None:
            raise TypeError(f"loop {loop.loop.loop!r} does not consume batches: it has no queue")
        if loop.paced_by is None:
            self._begin_iteration(loop)
        loop.waiting = "a core"
        yield self.world.work(loop, self.world.overhead(), "next_batch")
        if loop.iteration >= self.iterations:
            loop.iteration = self.iterations
            return None, None, 0
        loop.waiting = "a batch from its reader queue"
        yield from self.world.wait_for_others(loop, loop.queue.get())
        ids, unique = self.counts.batch_counts(loop.position, loop.iteration)
        size = self.plan.examples
        ghost = GhostIds(loop.position, loop.iteration, ids, unique)
        return Batch(size, ghost, GhostFeatures(size)), SOURCE, 0

    def _begin_iteration(self, loop: LoopState) -> None:
        self._close_iteration(loop)
        loop.iteration += 1
        loop.started = self.kernel.now
        warmup = self.plan.experiment.training.warmup_steps
        if self.opening is None and loop.trains and loop.iteration == warmup:
            self.opening = (loop.started, self.kernel.used())

    def _compute(self, loop: LoopState, effect: effects.Compute[object]) -> Steps:
        name, arguments = effect.operation.name, effect.arguments
        if self.cache is not None and name in CACHE_OPERATIONS:
            return (yield from self.cache.compute(loop, name, arguments)), name, 0
        wanted = ARGUMENTS.get(name)
        if wanted is None:
            raise KeyError(f"no such operation: {name!r}")
        if len(arguments) != len(wanted) or not all(map(isinstance, arguments, wanted)):
            given = ", ".join(type(a).__name__ for a in arguments)
            raise TypeError(f"Compute({name}): {effect.operation.summary}; got ({given})")
        if name in compression.ARGUMENTS:
            loop.waiting = "a core"
            seconds, answer = compression.perform(self, loop, name, arguments)
            work = plus(self.world.overhead(), seconds)
            yield self.world.work(loop, work, name)
            return answer, name, 0
        net = self.nets.get(loop.loop.trainer) if name.startswith("net_") else None
        if net is None and name.startswith("net_"):
            raise TypeError(f"Compute({name}): the strategy's topology asks for no net")
        cut = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], int) else 0
        segment = Segment() if net is None else net.segment(name, cut)
        # the last ones: where rows are an argument, those that are really at hand
        counted = next((a for a in map(_ids_of, reversed(arguments)) if a is not None), None)
        seconds = self.pricing.operation(
            name,
            pieces=segment.pieces,
            numbers=segment.numbers,
            pooling=self.plan.embedding.service.pooling if self.plan.embedding else "server",
            ids=0 if counted is None else counted.ids,
            unique=0 if counted is None else counted.unique,
            tables=len(self.world.model.tables),
            elements=self.elements if net is None else net.elements_of(name),
        )
        loop.waiting = "a core"
        work = plus(self.world.overhead(), seconds)
        yield self.world.work(loop, work, name)
        if net is not None:
            return net.result(name, arguments), name, 0
        return self._result(name, arguments), name, 0

    def _result(self, name: str, arguments: tuple[object, ...]) -> object:
        if name == "deduplicate":
            (ids,) = arguments
            assert isinstance(ids, GhostIds)
            return GhostIds(ids.position, ids.batch, ids.ids, ids.unique, distinct=True)
        if name == "forward_backward":
            rows = arguments[1]
            assert isinstance(rows, GhostRows)
            return Gradients(
                GhostDense(self.elements, self.elements * self.bytes),
                rows.as_gradient(),
            )
        if name in ("snapshot", "drain", "towards", "block_step"):
            return GhostDense(self.elements, self.elements * self.bytes)
        return None

    def _embedding_service(self, name: str) -> EmbeddingRuntime:
        if self.embedding is None or self.embedding.name != name:
            raise KeyError(f"the strategy's topology has no embedding service {name!r}")
        return self.embedding

    def _dense_service(self, name: str) -> DenseRuntime:
        if self.dense is None or self.dense.name != name:
            raise KeyError(f"the strategy's topology has no dense service {name!r}")
        return self.dense

    def _lookup(self, loop: LoopState, effect: effects.Lookup) -> Steps:
        service = self._embedding_service(effect.service)
        answer, payload = yield from service.lookup(loop, effect.ids)
        return answer, effect.service, payload

    def _update(self, loop: LoopState, effect: effects.Update) -> Steps:
        service = self._embedding_service(effect.service)
        answer, payload = yield from service.update(loop, effect.gradient)
        return answer, effect.service, payload

    def _fetch(self, loop: LoopState, effect: effects.Fetch) -> Steps:
        service = self._embedding_service(effect.service)
        answer, payload = yield from cache.fetch(service, loop, effect.ids)
        return answer, effect.service, payload

    def _store(self, loop: LoopState, effect: effects.Store) -> Steps:
        service = self._embedding_service(effect.service)
        payload = yield from cache.store(service, loop, effect.rows)
        return None, effect.service, payload

    def _pull(self, loop: LoopState, effect: effects.Pull) -> Steps:
        answer, payload = yield from self._dense_service(effect.service).pull(loop)
        return answer, effect.service, payload

    def _push(self, loop: LoopState, effect: effects.Push) -> Steps:
        service = self._dense_service(effect.service)
        answer, payload = yield from service.push(loop, effect.gradient)
        return answer, effect.service, payload

    def _exchange(self, loop: LoopState, effect: effects.Exchange) -> Steps:
        service = self._dense_service(effect.service)
        answer, payload = yield from service.exchange(loop, effect.parameters, effect.central)
        return answer, effect.service, payload

    def _all_reduce(self, loop: LoopState, effect: effects.AllReduce[Block]) -> Steps:
        answer, payload = yield from self._group(loop, effect.group).all_reduce(loop, effect.value)
        return answer, effect.group, payload

    def _all_gather(self, loop: LoopState, effect: effects.AllGather) -> Steps:
        answer, payload = yield from self._group(loop, effect.group).all_gather(loop, effect.value)
        return answer, effect.group, payload

    def _all_to_all(self, loop: LoopState, effect: effects.AllToAll) -> Steps:
        answer, payload = yield from self._group(loop, effect.group).all_to_all(loop, effect.parts)
        return answer, effect.group, payload

    def _agree(self, loop: LoopState, effect: effects.Agree) -> Steps:
        if loop.background:
            self._begin_iteration(loop)
        if effect.group is None:
            yield self.world.work(loop, self.world.overhead(), "agree")
            return bool(effect.yes), "", 0
        group = self._group(loop, effect.group)
        answer = yield from group.agree(loop, effect.yes)
        return answer, effect.group, 0

    def _group(self, loop: LoopState, name: str) -> GroupRuntime:
        group = self.groups.get((name, loop.loop.trainer))
        if group is None:
            raise KeyError(f"the strategy's topology has no group {name!r}")
        return group

    def _queue(self, loop: LoopState, name: str) -> Handover:
        queue = self.queues.get((name, loop.loop.trainer))
        if queue is None:
            raise KeyError(f"the strategy's topology has no queue {name!r}")
        return queue

    def _put(self, loop: LoopState, effect: effects.Put) -> Steps:
        queue = self._queue(loop, effect.queue)
        yield self.world.work(loop, self.world.overhead(), "put")
        loop.waiting = f"room in queue {effect.queue!r}"
        start = self.kernel.now
        yield from queue.put(effect.item)
        loop.account.now[WAITING] += self.kernel.now - start
        return None, effect.queue, 0

    def _take(self, loop: LoopState, effect: effects.Take) -> Steps:
        queue = self._queue(loop, effect.queue)
        if loop.paced_by == effect.queue:
            self._begin_iteration(loop)
        yield self.world.work(loop, self.world.overhead(), "take")
        loop.waiting = f"an item of queue {effect.queue!r}"
        start = self.kernel.now
        item = yield from queue.take()
        loop.account.now[WAITING] += self.kernel.now - start
        if item is None and loop.paced_by == effect.queue:
            loop.iteration = self.iterations
            return None, None, 0
        return item, effect.queue, 0

    def _now(self, loop: LoopState, _: effects.Now) -> Steps:
        yield self.world.work(loop, self.world.overhead(), "now")
        return self.kernel.now, "", 0


def _ids_of(value: object) -> GhostIds | None:
    """The ids that a value is about, if it is about any."""
    ids: object = value.ids if isinstance(value, Batch | GhostRows) else value
    return ids if isinstance(ids, GhostIds) else None


_PERFORM: dict[type, Callable[..., Steps]] = {
    effects.NextBatch: Runtime._next_batch,
    effects.Compute: Runtime._compute,
    effects.Lookup: Runtime._lookup,
    effects.Update: Runtime._update,
    effects.Fetch: Runtime._fetch,
    effects.Store: Runtime._store,
    effects.Pull: Runtime._pull,
    effects.Push: Runtime._push,
    effects.Exchange: Runtime._exchange,
    effects.AllReduce: Runtime._all_reduce,
    effects.AllGather: Runtime._all_gather,
    effects.AllToAll: Runtime._all_to_all,
    effects.Agree: Runtime._agree,
    effects.Put: Runtime._put,
    effects.Take: Runtime._take,
    effects.Now: Runtime._now,
}

_NAMES = {kind: re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in _PERFORM}
