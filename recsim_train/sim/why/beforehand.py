"""What is known of a prediction before it is simulated: its bounds, and about how long it takes.

A few steps are gone through as if nobody shared anything (`recsim_train.sim.fluid.unshared`): the
work that they bring to each resource is that of the prediction, so that what a resource allows is
nearly its bound, without a solver and within tenths of a second. Background loops, which take what
is left, do not run, and the step counts that asks least of a resource: so it is a bound. How long
the prediction takes follows from how long these steps took here, just now.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import expected_counts, feeding_data
from recsim_train.data.expected_cache import ExpectedCache
from recsim_train.data.replay import ids_of_step, replayed_steps
from recsim_train.placement.build import retrained
from recsim_train.placement.plan import Plan
from recsim_train.sim.folding import (
    Folding,
    folding_of,
    least_steps,
    of_short_runs,
)
from recsim_train.sim.runtime import DeadlockError
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.sim.why.elasticity import iterations_asked
from recsim_train.sim.why.shards_apart import with_shards_apart
from recsim_train.sim.why.usage import by_class
from recsim_train.trace.garbage import collected_at_end

_TRAINERS = 1
"""So many stand for all, where they may, or one group of hosts: of a few steps those of two paces
would be cut at different places."""
_OWNERS = 4
"""The same of trainers that own rows, each of which lie in few shards."""
_THREADS = 1
"""So many of a trainer stand for all of its threads, where they may."""
_WARMUP, _STEPS, _AHEAD = 1, 2, 8
"""Iterations of each loop, and those where loops prepare batches ahead of training, for several
steps in each of the first ones; a counted one is enough in which all loops do as much as in the one
before."""
_SOLVED = 1.5
"""What an iteration takes with the solver, of what it takes without: 0.6 to 3 times in most
settings, more where hundreds of loops share a resource."""

_REPLAYED = 3e-7
"""Seconds that it takes to draw an id and follow it through the caches, which a look does without:
0.27 to 0.41 us of 0.7 to 14 million ids a step."""


@dataclass(frozen=True, slots=True)
class Beforehand:
    """What is known before a prediction is made."""

    bounds: Mapping[str, float]
    """About how many examples per second each class of resources allows, the tightest first; as
    `recsim_train.trace.facts.Facts.class_bounds`."""
    seconds: tuple[float, float]
    """About how long it takes to simulate it here: where its estimate settles as early as it may,
    and where every step is done."""
    asking: float
    """About how many seconds it takes afterwards to ask what would change it."""

    @property
    def bound(self) -> float | None:
        """Examples per second at most, as a few steps show it; None: unknown."""
        return next(iter(self.bounds.values()), None)

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {"bounds": dict(self.bounds), "seconds": list(self.seconds), "asking": self.asking}


@collected_at_end()
def beforehand(plan: Plan, cluster: Cluster) -> Beforehand:
    """A look at a prediction. Raises as `recsim_train.sim.run.simulate`."""
    beside = 1.0 + len(plan.background) / len(plan.training)
    try:
        looked, bounds, ends = _looked(plan, cluster, background=False)
    except DeadlockError:  # workers wait for what those do
        looked, bounds, ends = _looked(plan, cluster, background=True)
        beside = 1.0
    first = len(looked.runtime.training)  # what is worked out once is known after one of each loop
    each = (ends[-1] - ends[first - 1]) / max(1, len(ends) - first)
    folding, cost = folding_of(plan, cluster), _SOLVED * each * beside
    loops = _loops(plan, of_short_runs(plan, cluster, folding))
    asked = iterations_asked(plan, cluster, looked.runtime, loops)
    return Beforehand(bounds, _seconds(plan, folding, cost), cost * asked)


def _looked(
    plan: Plan, cluster: Cluster, *, background: bool
) -> tuple[SimulatedRun, dict[str, float], list[float]]:
    """(a few steps, bounds by class, when each iteration ended here). Without ``background`` loops,
    which take what is left and would be as far ahead as nothing holds them back."""
    looked_at, times = _few_loops(plan, together=background)
    most = _TRAINERS if plan.topology.cache is None else _OWNERS
    if apart := with_shards_apart(looked_at, cluster, most):
        looked_at, cluster, folding = apart.plan, apart.cluster, apart.folding
    else:
        folding = folding_of(looked_at, cluster, most=most)
    spec = looked_at.experiment
    rules = spec.training  # with all their steps, so that readers go on
    ahead = any(not (loop.training or loop.background) for loop in plan.topology.loops)
    most_steps = _AHEAD if ahead else _STEPS
    short = {
        "warmup_steps": min(_WARMUP, rules.warmup_steps),
        "steps": max(most_steps, rules.steps),
    }
    update = {
        "training": rules.model_copy(update=short),
        "data": spec.data.model_copy(update={"queue_batches": 1}),  # as much ahead throughout
        "execution": spec.execution.model_copy(update={"max_spans": 0}),
        "simulation": spec.simulation.model_copy(update={"stragglers": False}),
    }
    topology = looked_at.topology
    if not background:  # as little ahead as can be; where loops do not get on so, they all run
        queues = tuple(replace(queue, capacity=1) for queue in topology.queues)
        topology = replace(topology, queues=queues)
    few = replace(looked_at, experiment=spec.model_copy(update=update), topology=topology)
    quiet = cluster.model_copy(update={"failures": None})
    caches = ExpectedCache(looked_at, folding.simulated) if _by_law(plan) else None
    counts = apart.counts if apart else expected_counts(few)
    looked = SimulatedRun(few, quiet, folding, counts, caches)
    if looked.replay is not None:
        looked.replay.check()
    ends: list[float] = []

    def ended(done: float, total: float, stage: str = "", so_far: str = "") -> None:
        ends.append(time.perf_counter())

    done = [Counter[tuple[str, str, str]]()]

    def enough(counted: int) -> bool:
        done.append(looked.runtime.records.done())
        if counted == most_steps:
            return True
        return counted > 0 and len(done) > 2 and done[-1] - done[-2] == done[-2] - done[-3]

    found = looked.look(ended, enough, background=background, priced_as=plan)
    if "loops" in found:
        found["loops"] *= times
    return looked, apart.together_again(found) if apart else by_class(found), ends


def _few_loops(plan: Plan, *, together: bool) -> tuple[Plan, float]:
    """A plan with one training loop for each trainer, and how many times as many there are: what
    each takes of what they share is the same, however many they are, if its work is priced as
    theirs. Not where other loops run beside them, ``together`` with all."""
    if plan.worker_threads <= _THREADS or together:
        return plan, 1.0
    return retrained(plan, threads=_THREADS), plan.worker_threads / _THREADS


def _by_law(plan: Plan) -> bool:
    """Whether what caches do follows from the generator's law: of a file its ids tell."""
    return plan.topology.cache is not None and feeding_data(plan.experiment.data).path is None


def _loops(plan: Plan, folding: Folding) -> int:
    """How many training loops are simulated."""
    return len(plan.training) // folding.trainers * folding.simulated


def _seconds(plan: Plan, folding: Folding, cost: float) -> tuple[float, float]:
    """``cost``: of one iteration of one loop."""
    rules, simulation = plan.experiment.training, plan.experiment.simulation
    loops = _loops(plan, folding)
    every = rules.warmup_steps + rules.steps
    least = every
    if simulation.precision and plan.topology.steady:
        least = min(every, rules.warmup_steps + least_steps(plan, folding))
        every = every if folding.exact else least
    drawn, each = 0, 0.0
    if _by_law(plan):
        drawn = replayed_steps(plan, folded=folding.simulated < folding.trainers)
        each = _REPLAYED * ids_of_step(plan)
    low, high = (cost * loops * steps + each * min(steps, drawn) for steps in (least, every))
    return low, high
