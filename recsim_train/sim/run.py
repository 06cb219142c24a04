"""The simulator's front door: a plan and a cluster profile in, an `Outcome` out, or the operations
that a prediction asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, log1p
from statistics import fmean
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts
from recsim_train.placement.hosts import host_names, kinds_of, types_said
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import Z95
from recsim_train.sim.cluster.hosts import cores_beyond, rented
from recsim_train.sim.folding import Folding, compared_steps, folding_of, of_short_runs
from recsim_train.sim.host.memory_check import check_memory, nearly_full
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.sim.why.elasticity import elasticities
from recsim_train.sim.why.in_step import out_of_step, passing_otherwise
from recsim_train.trace.facts import Folded, HalfFolded
from recsim_train.trace.garbage import collection_paused
from recsim_train.trace.modelled import OperationTime, ProcessTimes
from recsim_train.trace.progress import Meter
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import OPS
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import VARYING, signature

_COARSE = 0.1
"""A folded prediction that half as many trainers change by more than this needs more of them."""


def simulate(
    plan: Plan,
    cluster: Cluster,
    *,
    progress: Meter | None = None,
    counts: IdCounts | None = None,
    first: Callable[[Outcome], object] | None = None,
) -> Outcome:
    """Predict one run of ``plan`` on ``cluster``; equal inputs give equal outcomes.

    ``progress``: is told iterations done, and iterations at most, of all simulated loops, then
    short runs that ask "what if". ``counts``: ids per batch; none: from the plan's own data.
    ``first``: is told the prediction as soon as it stands, before what would change it is asked and
    how far calibration's errors carry, which takes longer. Raises UserError where a role does
    not fit into memory, RunFailed where the strategy or a host fails or a deadlock is reached.
    """
    memory = check_memory(plan, cluster)
    folding = folding_of(plan, cluster)
    simulated = SimulatedRun(plan, cluster, folding, counts)
    if simulated.replay is not None:
        simulated.replay.check()
    with collection_paused():
        outcome = simulated.run(progress)
        fewer = None if folding.exact else _say_folding(simulated, outcome)
        simulated.add_bounds(outcome)
    outcome.facts.memory = {use.name: use.figures() for host in memory for use in host.uses}
    if cluster.per_host:
        outcome.facts.hosts = host_names(plan.instances, cluster)
    kinds = kinds_of(plan.instances, cluster)
    outcome.facts.cores = {i.name: kind.cores for i, kind in kinds.items()}
    outcome.facts.host_types = types_said(plan.instances, cluster)
    outcome.facts.rented = rented(plan, cluster)
    outcome.warn(nearly_full(memory))
    outcome.warn(_extrapolated(plan, cluster))
    wanted = plan.experiment.simulation.what_if_steps
    predicted = None if outcome.speed is None else outcome.speed.examples_per_second
    if first is not None:
        first(outcome)
    with collection_paused():
        other = out_of_step(simulated, outcome, fewer, progress)
    if other is not None:
        outcome.warn([other.sentence])
        outcome.facts.met_otherwise = other.rate
    if wanted and predicted is not None:
        folding = of_short_runs(plan, cluster, folding)
        if simulated.period <= 2 * wanted:  # whole periods
            wanted = ceil(wanted / simulated.period) * simulated.period
        if not plan.topology.steady:
            outcome.warn(
                [
                    f"{plan.strategy.kind}'s steps are not alike: what 10 % more of a resource or "
                    "price would change, and the interval from calibration, are those of the first "
                    f"{wanted} counted steps."
                ]
            )
        answers = elasticities(
            plan, cluster, simulated.counts, wanted, simulated.replay, folding, progress=progress
        )
        if other is not None and other.cause is not None and answers.causes:
            answers.causes[other.cause] = other.error
        if answers.causes:
            unsaid = passing_otherwise(simulated, outcome, fewer, progress)
            if unsaid is not None:
                answers.causes["at_once"] = unsaid
            folded = outcome.facts.folding
            if folded is not None and folded.error is not None:
                answers.causes["folding"] = log1p(folded.error) / Z95
        answers.say(outcome.facts, predicted, simulated.runtime.engine.events)
    return outcome


def _extrapolated(plan: Plan, cluster: Cluster) -> Iterator[str]:
    """A sentence for each way in which there are more threads or cores than were measured."""
    threads, measured = plan.operation_threads, cluster.threads.measured
    if threads > measured:
        yield (
            f"Operations run on {threads} threads, and calibration has seen {measured}: Amdahl's "
            "law and what waking threads takes are extrapolated, and their uncertainty grows in "
            "proportion."
        )
    if busy := cores_beyond(plan, cluster):
        yield (
            f"Up to {busy} cores of a host are busy side by side, and the profile's prices were "
            f"measured with {cluster.measured_cores}: how much more of them slow each other down "
            "was not measured. They are taken to do so no more than those; how wrong that is, is "
            "not known, and no interval contains it."
        )


def _say_folding(simulated: SimulatedRun, outcome: Outcome) -> SimulatedRun | None:
    """Note what was folded, and by how much half as many simulated trainers change the answer;
    returns the run of those."""
    folding = simulated.folding
    facts = Folded(folding.trainers, folding.simulated)
    outcome.facts.folding = facts
    if outcome.speed is None:
        return None
    said = (
        f"{folding.simulated} of {folding.trainers:,} trainers are simulated, each of which stands "
        "for several"
    )
    half = folding_of(simulated.plan, simulated.cluster, most=folding.simulated // 2)
    fewer = None
    if half.simulated < folding.simulated:
        fewer = SimulatedRun(
            simulated.plan, simulated.cluster, half, simulated.counts, simulated.replay
        )
        steps = compared_steps(simulated.plan, folding, outcome.steps)
        other = fewer.run(None, steps).speed
        rate = outcome.speed.examples_per_second
        own = rate if steps == outcome.steps else simulated.within(steps).examples_per_second
        if other is not None and other.examples_per_second is not None and rate and own:
            change = other.examples_per_second / own
            error = abs(change - 1.0)
            compared = HalfFolded(half.simulated, rate * change)
            outcome.facts.folding = replace(facts, half=compared, error=error)
            said += f"; {half.simulated} instead change the examples/s by {error:.1%}"
            if error > _COARSE:
                said += ", too much to trust it: raise simulation.fold_above"
    outcome.warn([f"{said}."])
    return fewer


def operations_of(plan: Plan, cluster: Cluster) -> list[tuple[str, Scope]]:
    """Operations with their shapes, in the order in which a prediction asks for them.

    Shapes that differ only by what the data decide are one, of mean sizes; those of no size are
    left out. Raises as `recsim_train.sim.run.simulate`.
    """
    simulated = SimulatedRun(plan, cluster, folding_of(plan, cluster), None)
    asked: list[tuple[str, Scope]] = []
    simulated.run(None, asked=asked)
    shapes: dict[tuple[object, ...], list[Scope]] = {}
    for name, scope in asked:
        shape = signature(name, scope)
        if shape.sizes:
            shapes.setdefault((name, *shape.fixed()), []).append(scope)
    return [(str(key[0]), _mean(scopes)) for key, scopes in shapes.items()]


_COUNTED = 24
"""Steps from which the mean time of an operation is taken."""


def times_of(plan: Plan, cluster: Cluster) -> dict[str, ProcessTimes]:
    """What each process's operations take on its host, the mean of some steps, by process.

    Raises as `simulate`.
    """
    trainers = plan.experiment.roles.trainers
    simulated = SimulatedRun(plan, cluster, Folding(trainers, trainers), None)
    calls: dict[tuple[str, str], list[float]] = {}
    simulated.run(None, min(_COUNTED, plan.experiment.training.steps), calls=calls)
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
