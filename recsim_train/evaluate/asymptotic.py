"""Asymptotic bounds of a case, and about how long it takes to simulate it.

A few steps are gone through contention-free (`recsim_train.sim.fluid.unshared`): the work that they
bring to each resource is that of the prediction, so that what a resource allows is nearly its
bound, without a solver and within tenths of a second. Background loops, which take what is left, do
not run, and the step counts that asks least of a resource: so it is a bound. How long the
prediction takes follows from how long these steps took here, just now.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from recsim_train.data.counts import expected_counts, feeding_data
from recsim_train.data.expected_cache import ExpectedCache
from recsim_train.data.replay import ids_of_step, replayed_steps
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.elasticity import iterations_asked
from recsim_train.evaluate.levels import BOUND, SHORT, at
from recsim_train.evaluate.remote_shards import with_remote_shards
from recsim_train.evaluate.simulations import least_steps, representatives, simulation
from recsim_train.placement.plan import Plan
from recsim_train.sim.folding import Folding
from recsim_train.sim.runtime import DeadlockError
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.sim.why.usage import by_class
from recsim_train.trace.garbage import collection_paused

_SOLVED = 1.5
"""What an iteration takes with the solver, of what it takes without: 0.6 to 3 times in most
settings, more where hundreds of loops share a resource."""
_REPLAYED = 3e-7
"""Seconds that it takes to draw an id and follow it through the caches, which these steps do
without: 0.27 to 0.41 us of 0.7 to 14 million ids a step."""


@dataclass(frozen=True, slots=True)
class AsymptoticBounds:
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


@collection_paused()
def asymptotic_bounds(case: Case) -> AsymptoticBounds:
    """Of a case. Raises as `recsim_train.evaluate.prediction.predict`."""
    plan = case.plan
    beside = 1.0 + len(plan.background) / len(plan.training)
    try:
        few, bounds, ends = _few_steps(case, background=False)
    except DeadlockError:  # workers wait for what those do
        few, bounds, ends = _few_steps(case, background=True)
        beside = 1.0
    first = len(few.runtime.training)  # what is worked out once is known after one of each loop
    each = (ends[-1] - ends[first - 1]) / max(1, len(ends) - first)
    folding, cost = representatives(case), _SOLVED * each * beside
    loops = _loops(plan, representatives(at(case, SHORT, folding)))
    asked = iterations_asked(case, few.runtime, loops)
    return AsymptoticBounds(bounds, _seconds(plan, folding, cost), cost * asked)


def _few_steps(
    case: Case, *, background: bool
) -> tuple[SimulatedRun, dict[str, float], list[float]]:
    """(a few steps, bounds by class, when each iteration ended here). Without ``background`` loops,
    which take what is left and would be as far ahead as nothing holds them back."""
    plan, (few, times) = case.plan, _few_loops(case, together=background)
    rules = few.experiment.training
    ahead = any(not (loop.training or loop.background) for loop in plan.topology.loops)
    most = (BOUND.steps.most if ahead else None) or BOUND.steps.least
    few = at(few, BOUND).with_(
        {
            "training.steps": max(most, rules.steps),  # with all of them, so that readers go on
            "data.queue_batches": 1,  # as much ahead throughout
            "simulation.stragglers": False,
        }
    )
    counts = caches = None
    if apart := with_remote_shards(few):
        few, folding, counts = apart.case, apart.folding, apart.counts
    else:
        folding = representatives(few)
    if _by_law(plan):
        own = {"training.steps": rules.steps, "training.warmup_steps": rules.warmup_steps}
        caches = ExpectedCache(few.with_(own).plan, folding.simulated)
    if not background:  # as little ahead as can be; where loops do not get on so, they all run
        queues = tuple(replace(q, capacity=1) for q in few.plan.topology.queues)
        topology = replace(few.plan.topology, queues=queues)
        few = Case.of(replace(few.plan, topology=topology), few.cluster)
    made = simulation(
        few, folding=folding, counts=counts or expected_counts(few.plan), replay=caches
    )
    if made.replay is not None:
        made.replay.check()
    ends: list[float] = []

    def ended(done: float, total: float, stage: str = "", so_far: str = "") -> None:
        ends.append(time.perf_counter())

    done = [Counter[tuple[str, str, str]]()]

    def enough(counted: int) -> bool:
        done.append(made.runtime.records.done())
        if counted == most:
            return True
        return counted > 0 and len(done) > 2 and done[-1] - done[-2] == done[-2] - done[-3]

    found = made.look(ended, enough, background=background, priced_as=plan, times=times)
    return made, apart.together_again(found) if apart else by_class(found), ends


def _few_loops(case: Case, *, together: bool) -> tuple[Case, float]:
    """A case with as many training loops of each trainer as its level says, and how many times as
    many there are: what each takes of what they share is the same, however many they are, if its
    work is priced as theirs. Not where other loops run beside them, ``together`` with all."""
    loops, each = case.plan.worker_threads, BOUND.few.each or 1
    if loops <= each or together:
        return case, 1.0
    return case.with_({"training.threads": each}), loops / each


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
