"""The prediction of a case: its simulation, and all that is to be said of it.

That is also how far it hangs on whether free-running trainers come to a server together or in turn.
Trainers that wait for each other at a server and stay in step all send, then all wait: each
direction of its NIC, its cores and its lock are idle half of the time. What parts them is chance.
On one machine that is the jitter of computations, on hosts of their own mostly what else waits for
a link (`recsim_train.sim.network`), which hangs on how packets wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log, log1p

from recsim_train.config.cluster import Cluster
from recsim_train.config.frames import BURST, SEGMENT
from recsim_train.data.counts import IdCounts
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.elasticity import elasticities
from recsim_train.evaluate.levels import HALVED, OTHERWISE, as_many, at, whole
from recsim_train.evaluate.simulations import (
    compared_steps,
    representatives,
    settling,
    simulation,
)
from recsim_train.placement.hosts import host_names, kinds_of, types_said
from recsim_train.placement.plan import SERVERS, Plan
from recsim_train.results.statistics import Z95
from recsim_train.sim.cluster.hosts import cores_beyond, rented
from recsim_train.sim.host.memory_check import check_memory, nearly_full
from recsim_train.sim.simulated_run import SimulatedRun, after
from recsim_train.strategy.registry import strategies
from recsim_train.trace.binding import name_of
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


_PASSING = float(BURST * SEGMENT)
"""Bytes that pass at once on an emulated link, where the profile does not say."""
_JITTER = 0.1
"""What parts trainers where the profile has no jitter."""
_IN_STEP = "how its loops come to the busiest server"
"""What is being done, on the progress line."""


@dataclass(frozen=True, slots=True)
class OtherPhase:
    """The throughput of trainers that are parted otherwise."""

    sentence: str
    cause: str | None
    """Why it may be that one, as `recsim_train.report.what_if.CAUSES` names it; None: it is known
    that it is not."""
    rate: float
    """Examples per second."""
    error: float
    """Standard error of a throughput whose 90 % interval just holds the other one."""


@dataclass(frozen=True, slots=True)
class Base:
    """A simulation that further ones are compared with."""

    case: Case
    simulated: SimulatedRun
    """The prediction, or the one of fewer representatives, which shows the same sooner."""
    outcome: Outcome
    """Of the prediction."""
    progress: Meter | None = None


def out_of_step(compared: Base) -> OtherPhase | None:
    """Where loops that do not wait for each other share a server that is the busiest resource: of
    a strategy without lock-step, or of groups that each go at their own pace."""
    case, outcome = compared.case, compared.outcome
    plan, cluster, binding = case.plan, case.cluster, outcome.binding
    free = not strategies()[plan.strategy.kind].lock_step or plan.apart > 1
    here = None if outcome.speed is None else outcome.speed.examples_per_second
    if not free or len(plan.training) < 2 or not here:
        return None
    if binding is None or not binding.resource.startswith(SERVERS):
        return None
    changes: dict[str, object]
    if cluster.colocate:
        varies = case.experiment.simulation.stragglers
        jitter = cluster.jitter if varies else 0.0
        other_jitter = 0.0 if jitter > 0.0 else _JITTER
        changes = {"cluster.jitter": other_jitter}
        if not varies:  # with no others of them
            changes |= {"simulation.stragglers": True, "cluster.stragglers": None}
        this, that = f"a jitter of {100 * jitter:.3g} %", f"{100 * other_jitter:.3g} %"
        cause, known = None, "How a machine parts them is not modelled"
    else:
        network = cluster.network
        other_queue = "fair" if network.queue == "fifo" else "fifo"
        changes = {"cluster.network.queue": other_queue}
        this, that = (f"network.queue: {queue}" for queue in (network.queue, other_queue))
        said = "queue" in network.model_fields_set
        cause, known = None if said else "queue", "How packets wait hangs on hosts and switches"
    times, steps = _times(compared, case.with_(changes))
    if times is None:
        return None
    other = here * times
    sentence = (
        f"Training loops run freely and share {name_of(binding.resource)} (the busiest resource): "
        "the throughput depends on whether they come to it all at once or in turn. With "
        f"{this} it is {here:,.0f} examples/s, with {that} it is {other:,.0f} ({steps:,} steps "
        f"were simulated once more). {known}: expect a value between the two."
    )
    return OtherPhase(sentence, cause, other, abs(log(other / here)) / Z95)


def passing_otherwise(compared: Base) -> float | None:
    """Where a profile of hosts of their own does not say whether frames pass a link at once, which
    parts loops or leaves them in step: standard error of a throughput whose 90 % interval just
    holds the one with two frames."""
    cluster = compared.case.cluster
    if cluster.colocate or cluster.network.passes_at_once is not None:
        return None
    times, _ = _times(compared, compared.case.with_({"cluster.network.passes_at_once": _PASSING}))
    return times and abs(log(times)) / Z95


def _times(compared: Base, case: Case) -> tuple[float | None, int]:
    """(How many times the throughput of some steps another case has; of how many steps)."""
    own, progress = compared.simulated, compared.progress
    enough = as_many(case.plan, OTHERWISE.steps)
    steps = min(compared_steps(own.folding, compared.outcome.steps), enough)

    def further(done: float, total: float, stage: str = "", so_far: str = "") -> None:
        if progress is not None:
            share = (own.warmup + steps) / own.total
            progress(min(done, share * total), share * total, _IN_STEP)

    other = at(case, OTHERWISE, own.folding)
    folding = representatives(other)
    shared = (own.counts, own.replay) if folding == own.folding else (None, None)
    again = simulation(other, folding=folding, counts=shared[0], replay=shared[1])
    done = again.run(after(steps), further).steps  # fewer where a host fails
    found = again.within(done).examples_per_second if done else None
    here = own.within(steps).examples_per_second
    return (found / here if found and here else None), steps
