"""The one maker of simulations: who is simulated of many trainers that do the same, until when.

Both follow from a case alone: its cluster, its plan, and what its settings say. So do the
operations that a prediction asks for, and what they take on its hosts.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, lcm
from statistics import fmean
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts
from recsim_train.data.replay import CacheSteps
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import BUSY, GROWTH, TIMES, USUAL, at, requests_of, trainers_of
from recsim_train.placement.hosts import kinds_of
from recsim_train.placement.plan import Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.sim.cluster.hosts import sites_of
from recsim_train.sim.folding import Folding
from recsim_train.sim.simulated_run import SimulatedRun, Steady, after
from recsim_train.strategy.registry import strategies
from recsim_train.trace.garbage import collection_paused
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import OPS, OperationTime, ProcessTimes
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import VARYING, signature


def simulation(
    case: Case,
    *,
    folding: Folding | None = None,
    counts: IdCounts | None = None,
    replay: CacheSteps | None = None,
) -> SimulatedRun:
    """One that is yet to run. What is given is not worked out."""
    return SimulatedRun(case.plan, case.cluster, folding or representatives(case), counts, replay)


def briefly(case: Case, counts: IdCounts | None = None) -> Outcome:
    """How fast a case is, and what is busy, without what a prediction says of itself. Raises as
    `recsim_train.evaluate.prediction.predict`."""
    simulated = simulation(case, counts=counts)
    with collection_paused():
        outcome = simulated.run(settling(case.plan, simulated.folding))
        simulated.add_bounds(outcome)
    return outcome


def representatives(case: Case) -> Folding:
    """Which trainers are simulated, and whether free loops are put out of step.

    Many of these that begin together part by themselves within some dozen steps, and are slower
    until then. Fewer steps are simulated of those that stand for others. (A few may stay in step.)
    """
    plan = case.plan
    found = Folding(plan.experiment.roles.trainers, _simulated(plan, case.cluster))
    free = not strategies()[plan.strategy.kind].lock_step
    many = not found.exact and requests_of(plan) > BUSY
    parted = free and many and plan.experiment.training.warmup_steps > 1
    return replace(found, parted=parted)


def _simulated(plan: Plan, cluster: Cluster) -> int:
    """Of how many trainers all do as one of these does."""
    trainers = plan.experiment.roles.trainers
    most = plan.experiment.simulation.fold_above
    if most is None:
        most = _usual(plan)
    if not most or plan.trainers_serve or not _alike(cluster):
        return trainers
    # places in a group differ where the net is cut
    hosts = max([1, *(group.size for group in plan.topology.groups)])
    if plan.embedding is not None:
        hosts = max(hosts, plan.embedding.service.group)
    if isinstance(plan.net, TaggedNet):
        hosts = max(hosts, plan.net.hosts)
    # trainers of one host share it, so that only whole hosts are alike
    together = cluster.together("trainer")
    if trainers % together:
        return trainers
    hosts = lcm(hosts, together)
    if cluster.topology is not None:
        hosts = lcm(hosts, together * cluster.topology.racks)
    blocks = trainers // hosts
    wanted = max(1, most // hosts)
    if blocks <= wanted:
        return trainers
    simulated = hosts * _some(blocks, wanted)
    return simulated if _same_places(plan, cluster, Folding(trainers, simulated)) else trainers


def _usual(plan: Plan) -> int:
    """From how many trainers on some stand for others, where the experiment does not say."""
    few = trainers_of(plan, USUAL.few)
    busy = requests_of(plan) > BUSY and plan.experiment.roles.trainers >= 2 * few
    return few if busy else USUAL.few.trainers or 0


def _some(blocks: int, most: int) -> int:
    """At most ``most`` of ``blocks``: a divisor where one is not much smaller."""
    even = next(n for n in range(min(most, blocks), 0, -1) if blocks % n == 0)
    return even if 2 * even > most else ceil(blocks / ceil(blocks / most))


def _same_places(plan: Plan, cluster: Cluster, folding: Folding) -> bool:
    """Whether each trainer is in the rack, and on a type of host, of the one that stands for it."""
    if cluster.topology is None and not cluster.mixed:
        return True
    sites = sites_of(plan, cluster)
    hosts = [sites[trainer].host for trainer in plan.of_role("trainer")]
    places = [(host.rack, host.kind) for host in hosts]
    return all(place == places[folding.stand_in(n)] for n, place in enumerate(places))


def _alike(cluster: Cluster) -> bool:
    """Whether all trainers' surroundings are the same but for racks and types of hosts, and stay
    so."""
    stragglers = cluster.stragglers
    differ = stragglers is not None and (stragglers.slow or stragglers.episodes)
    others = cluster.background or cluster.failures
    return not (cluster.colocate or differ or others)


def settling(plan: Plan, folding: Folding) -> Steady:
    """When the estimate of a simulation may have settled.

    Never with a precision of 0 or where the strategy's steps are not alike: then every step is run.
    Where trainers stand for others a simulation stops at once: a narrower interval would say more
    than is known.
    """
    precision = plan.experiment.simulation.precision if plan.topology.steady else 0.0
    return Steady(precision, least_steps(plan, folding), GROWTH if folding.exact else None)


def least_steps(plan: Plan, folding: Folding) -> int:
    """Counted iterations of each loop before a prediction may end early; where loops are put out of
    step those that one stands for count, too."""
    simulation, loops = plan.experiment.simulation, len(plan.training)
    if not folding.parted:
        loops = loops // folding.trainers * folding.simulated
    together = ceil(simulation.minimum_iterations / loops)
    return min(simulation.minimum_steps, max(USUAL.steps.least, together))


def compared_steps(folding: Folding, steps: int) -> int:
    """Of so many counted ones those of a second run that is compared with the first over the same:
    of parted loops half, which differ by as much (over sixteen predictions 3.9 % for 3.5 % where
    half as many trainers are simulated, 2.8 for 2.7 % where another queue is)."""
    return ceil((steps + 1) / 2) if folding.parted else steps


def operations_of(case: Case) -> list[tuple[str, Scope]]:
    """Operations with their shapes, in the order in which a prediction asks for them.

    Shapes that differ only by what the data decide are one, of mean sizes; those of no size are
    left out. Raises as `recsim_train.evaluate.prediction.predict`.
    """
    simulated = simulation(case)
    asked: list[tuple[str, Scope]] = []
    simulated.run(settling(case.plan, simulated.folding), asked=asked)
    shapes: dict[tuple[object, ...], list[Scope]] = {}
    for name, scope in asked:
        shape = signature(name, scope)
        if shape.sizes:
            shapes.setdefault((name, *shape.fixed()), []).append(scope)
    return [(str(key[0]), _mean(scopes)) for key, scopes in shapes.items()]


def times_of(case: Case) -> dict[str, ProcessTimes]:
    """What each process's operations take on its host, the mean of some steps, by process.

    Raises as `recsim_train.evaluate.prediction.predict`.
    """
    plan, cluster = case.plan, case.cluster
    simulated = simulation(at(case, TIMES))
    calls: dict[tuple[str, str], list[float]] = {}
    steps = min(TIMES.steps.most or 0, plan.experiment.training.steps)
    simulated.run(after(steps), calls=calls)
    locked = simulated.runtime.pricing.locked
    found = {
        i.name: ProcessTimes(max(1, kind.cores // cluster.together(i.role)), {})
        for i, kind in kinds_of(plan.instances, cluster).items()
    }
    for (process, what), (count, seconds) in calls.items():
        if what in OPS:
            whole, held = locked.get(what, (0.0, 0.0))
            mean = seconds / count
            share = held / whole if whole else 0.0
            found[process].operations[what] = OperationTime(mean, mean * share)
    return found


def _mean(scopes: list[Scope]) -> Scope:
    means: dict[str, Any] = {
        name: float(f"{fmean(getattr(scope, name) for scope in scopes):.6g}") for name in VARYING
    }
    return replace(scopes[0], **means)
