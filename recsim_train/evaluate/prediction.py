"""The prediction of a case: its simulation, and all that is to be said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import log1p

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.elasticity import elasticities
from recsim_train.evaluate.levels import HALVED, at, whole
from recsim_train.evaluate.phases import Base, OtherPhase, out_of_step, passing_otherwise
from recsim_train.evaluate.simulations import (
    compared_steps,
    representatives,
    settling,
    simulation,
)
from recsim_train.placement.hosts import host_names, kinds_of, types_said
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import Z95
from recsim_train.sim.cluster.hosts import cores_beyond, rented
from recsim_train.sim.host.memory_check import check_memory, nearly_full
from recsim_train.sim.simulated_run import SimulatedRun, after
from recsim_train.trace.facts import Folded, HalfFolded
from recsim_train.trace.garbage import collection_paused
from recsim_train.trace.progress import Meter
from recsim_train.trace.record import Outcome

_COARSE = 0.1
"""A folded prediction that half as many trainers change by more than this needs more of them."""


def predict(
    case: Case,
    *,
    progress: Meter | None = None,
    counts: IdCounts | None = None,
    first: Callable[[Outcome], object] | None = None,
) -> Outcome:
    """Predict one run; equal cases give equal outcomes.

    ``progress``: is told iterations done, and iterations at most, of all simulated loops, then
    short runs that ask "what if". ``counts``: ids per batch; none: from the plan's own data.
    ``first``: is told the prediction as soon as it stands, before what would change it is asked and
    how far calibration's errors carry, which takes longer. Raises UserError where a role does
    not fit into memory, RunFailed where the strategy or a host fails or a deadlock is reached.
    """
    plan, cluster = case.plan, case.cluster
    memory = check_memory(plan, cluster)
    simulated = simulation(case, counts=counts)
    folding = simulated.folding
    if simulated.replay is not None:
        simulated.replay.check()
    with collection_paused():
        outcome = simulated.run(settling(plan, folding), progress)
        fewer = None if folding.exact else _say_folding(case, simulated, outcome)
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
    if first is not None:
        first(outcome)
    compared = Base(case, fewer or simulated, outcome, progress)
    with collection_paused():
        other = out_of_step(compared)
    if other is not None:
        outcome.warn([other.sentence])
        outcome.facts.met_otherwise = other.rate
    predicted = None if outcome.speed is None else outcome.speed.examples_per_second
    if plan.experiment.simulation.what_if_steps and predicted is not None:
        _ask(case, simulated, compared, other, predicted)
    return outcome


def _ask(
    case: Case,
    simulated: SimulatedRun,
    compared: Base,
    other: OtherPhase | None,
    predicted: float,
) -> None:
    """Add what would change a prediction, and how far calibration's errors carry."""
    outcome, wanted = compared.outcome, case.experiment.simulation.what_if_steps or 0
    if (period := case.plan.topology.period) <= 2 * wanted:
        wanted = whole(wanted, period)
    if not case.plan.topology.steady:
        outcome.warn(
            [
                f"{case.choice.kind}'s steps are not alike: what 10 % more of a resource or "
                "price would change, and the interval from calibration, are those of the first "
                f"{wanted} counted steps."
            ]
        )
    answers = elasticities(case, simulated, wanted, progress=compared.progress)
    if other is not None and other.cause is not None and answers.causes:
        answers.causes[other.cause] = other.error
    if answers.causes:
        if (unsaid := passing_otherwise(compared)) is not None:
            answers.causes["at_once"] = unsaid
        folded = outcome.facts.folding
        if folded is not None and folded.error is not None:
            answers.causes["folding"] = log1p(folded.error) / Z95
    answers.say(outcome.facts, predicted, simulated.runtime.engine.events)


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


def _say_folding(case: Case, simulated: SimulatedRun, outcome: Outcome) -> SimulatedRun | None:
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
    other_case = at(case, HALVED, folding)
    half, fewer = representatives(other_case), None
    if half.simulated < folding.simulated:
        fewer = simulation(
            other_case, folding=half, counts=simulated.counts, replay=simulated.replay
        )
        steps = compared_steps(folding, outcome.steps)
        other = fewer.run(after(steps)).speed
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
