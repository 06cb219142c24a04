"""Asymptotic bounds of a case, and about how long it takes to simulate it.

A few steps are gone through contention-free (`recsim_train.sim.fluid.resources`): the work that
they bring to each resource is that of the prediction, so that what a resource allows is nearly its
bound, without a solver and within tenths of a second. Background loops, which take what is left, do
not run, and the step counts that asks least of a resource: so it is a bound. How long the
prediction takes follows from how long these steps took here, just now.

Where trainers have the shards, servers on hosts like theirs are taken to have all but a few of
them: remote shards. Trainers that ask each other do not stand for each other
(`recsim_train.evaluate.simulations`), so that T of them send T times T requests. Where servers have
the shards n trainers, those of one group of hosts, stand for all. They have shards of their own, as
all do, and are charged afterwards with what the busiest server does for the T - n others.

The trainer with that shard asks others for less than they do. So of network cards is taken off what
a server receives from the trainers of a host (or sends them), of the busiest one more than of the
idlest one. Cores and interpreter locks are spared less than they do more for the other trainers of
the group; where there are none the same is taken off of them. What is left is a bound.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recsim_train.data.counts import IdCounts, expected_counts, feeding_data
from recsim_train.data.expected_cache import ExpectedCache
from recsim_train.data.replay import ids_of_step, replayed_steps, spread
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.elasticity import iterations_asked
from recsim_train.evaluate.levels import BOUND, SHORT, at
from recsim_train.evaluate.simulations import least_steps, representatives, simulation
from recsim_train.placement.plan import SERVERS, Plan, ServerRole
from recsim_train.sim.folding import Folding
from recsim_train.sim.runtime import DeadlockError
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.sim.why.usage import by_class, tightest_first
from recsim_train.trace.binding import class_of
from recsim_train.trace.garbage import collection_paused

_OTHER_END = {"NIC send": "NIC receive", "NIC receive": "NIC send"}
"""What a server receives its clients send."""


@dataclass(frozen=True, slots=True)
class RemoteShards:
    """A plan whose simulated trainers have a shard each, and servers the others."""

    case: Case
    folding: Folding
    moved: tuple[ServerRole, ...]
    """Who has what trainers had."""
    counts: IdCounts
    """By shard, wherever these are."""

    def together_again(self, bounds: Mapping[str, float]) -> dict[str, float]:
        """Of bounds by resource those by class, with the shards in trainers."""
        trainers, simulated = self.folding.trainers, self.folding.simulated
        names = {role.replace("_", " ") for role in self.moved}
        served: dict[str, list[float]] = {}
        for resource, bound in bounds.items():
            name = resource if resource == "loops" else class_of(resource)
            if name.partition(": ")[0] in names:
                served.setdefault(name, []).append(1.0 / bound)
        known = by_class(bounds)
        demand = {name: 1.0 / bound for name, bound in known.items() if name not in served}
        for name, each in served.items():
            owner, _, part = name.partition(": ")
            spared = served.get(f"{owner}: {_OTHER_END.get(part, part)}", [0.0])
            if part in _OTHER_END:
                sparing = self.case.cluster.together("trainer")
            else:
                sparing = int(simulated == 1)
            here = (trainers - simulated) * max(each) - sparing * (max(spared) - min(spared))
            mine = f"trainer: {part}"
            demand[mine] = demand.get(mine, 0.0) + here / trainers
        return tightest_first({name: 1.0 / each for name, each in demand.items() if each > 0.0})


def with_remote_shards(case: Case) -> RemoteShards | None:
    """A case of few representatives with as many servers as trainers for what all trainers ask each
    other for, and few of these that stand for all, or one group of hosts; None: they do not, are
    few, or their hosts differ."""
    plan, cluster = case.plan, case.cluster
    trainers, together = plan.experiment.roles.trainers, cluster.together("trainer")
    alike = not (cluster.colocate or cluster.mixed or cluster.topology or trainers % together)
    if not plan.trainers_serve or not alike:
        return None
    shared = plan.embedding if plan.embedding and plan.embedding.service.access == "all" else None
    services = zip(SERVERS, (shared, plan.dense), strict=True)
    moved = [role for role, service in services if service and not plan.of_role(role)]
    changes: dict[str, object] = {}
    for role in moved:
        changes |= {
            f"roles.{role}s": trainers,
            f"cluster.hosts.{role}": cluster.host("trainer"),
            f"cluster.per_host.{role}": together,
        }
    apart = case.with_(changes)
    if apart.plan.followed != plan.followed or apart.plan.topology != plan.topology:
        return None
    folding = representatives(apart)
    if trainers % folding.simulated:
        folding = representatives(apart.with_({"simulation.fold_above": BOUND.few.trainers}))
    if trainers <= 3 * folding.simulated or trainers % folding.simulated:
        return None
    counts = expected_counts(apart.plan)
    home = Case.of(_at_home(apart.plan, moved, counts, folding.simulated), apart.cluster)
    return RemoteShards(home, folding, tuple(moved), counts)


def _at_home(plan: Plan, moved: list[ServerRole], counts: IdCounts, count: int) -> Plan:
    """The simulated trainers have shards of their own."""
    embedding, dense = plan.embedding, plan.dense
    homes = dict(zip(_homes(plan, moved, counts, count), plan.of_role("trainer"), strict=False))
    if embedding is not None and "embedding_server" in moved:
        shards = (replace(s, host=homes.get(s.index, s.host)) for s in embedding.shards)
        embedding = replace(embedding, shards=tuple(shards))
    if dense is not None and "dense_server" in moved:
        parts = (replace(s, host=homes.get(s.index, s.host)) for s in dense.shards)
        dense = replace(dense, shards=tuple(parts))
    return replace(plan, embedding=embedding, dense=dense)


def _homes(plan: Plan, moved: list[ServerRole], counts: IdCounts, count: int) -> Sequence[int]:
    """Which shards: those of a group of so many that is neither large nor small; of trainers that
    own rows those of the ones that are simulated."""
    if "embedding_server" not in moved:
        return range(count)
    shards = range(plan.experiment.roles.trainers)
    if plan.topology.cache is not None:
        return spread(count, len(shards))
    ids = [shard.ids for shard in counts.shard_counts(0, 0)]
    groups = sorted(shards[::count], key=lambda n: sum(ids[n : n + count]))
    first = groups[len(groups) // 2]
    return shards[first : first + count]


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
