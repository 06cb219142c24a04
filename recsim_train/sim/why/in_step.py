"""How far a prediction hangs on whether free-running trainers come to a server together or in turn.

Trainers that wait for each other at a server and stay in step all send, then all wait: each
direction of its NIC, its cores and its lock are idle half of the time. What parts them is chance.
On one machine that is the jitter of computations, on hosts of their own mostly what else waits for
a link (`recsim_train.sim.network`), which hangs on how packets wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from recsim_train.config.cluster import Cluster
from recsim_train.config.frames import BURST, SEGMENT
from recsim_train.placement.plan import SERVERS, Plan
from recsim_train.results.statistics import Z95
from recsim_train.sim.folding import compared_steps, folding_of
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.strategy.registry import strategies
from recsim_train.trace.binding import name_of
from recsim_train.trace.progress import Meter
from recsim_train.trace.record import Outcome

_PASSING = float(BURST * SEGMENT)
"""Bytes that pass at once on an emulated link, where the profile does not say."""
_JITTER = 0.1
"""What parts trainers where the profile has no jitter."""
_IN_STEP = "how its loops come to the busiest server"
"""What is being done, on the progress line."""
_STEPS = 24, 100
"""Counted steps of the second simulation: fewest, most."""
_ITERATIONS = 4_800
"""Of all loops together there: it is compared with as many steps of the first simulation, so that
what the beginning does is in both."""


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


def out_of_step(
    simulated: SimulatedRun,
    outcome: Outcome,
    fewer: SimulatedRun | None = None,
    progress: Meter | None = None,
) -> OtherPhase | None:
    """Where loops that do not wait for each other share a server that is the busiest resource: of
    a strategy without lock-step, or of groups that each go at their own pace.

    ``fewer``: the same with fewer simulated trainers, which shows it sooner.
    """
    plan, cluster, binding = simulated.plan, simulated.cluster, outcome.binding
    free = not strategies()[plan.strategy.kind].lock_step or plan.apart > 1
    here = None if outcome.speed is None else outcome.speed.examples_per_second
    if not free or len(plan.training) < 2 or not here:
        return None
    if binding is None or not binding.resource.startswith(SERVERS):
        return None
    if cluster.colocate:
        jitter = cluster.jitter if plan.experiment.simulation.stragglers else 0.0
        other_jitter = 0.0 if jitter > 0.0 else _JITTER
        changed = _with_jitter(plan, cluster, other_jitter)
        this, that = f"a jitter of {100 * jitter:.3g} %", f"{100 * other_jitter:.3g} %"
        cause, known = None, "How a machine parts them is not modelled"
    else:
        network = cluster.network
        other_queue = "fair" if network.queue == "fifo" else "fifo"
        update = {"network": network.model_copy(update={"queue": other_queue})}
        changed = plan, cluster.model_copy(update=update)
        this, that = (f"network.queue: {queue}" for queue in (network.queue, other_queue))
        said = "queue" in network.model_fields_set
        cause, known = None if said else "queue", "How packets wait hangs on hosts and switches"
    times, steps = _compared(fewer or simulated, outcome, *changed, progress)
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


def passing_otherwise(
    simulated: SimulatedRun, outcome: Outcome, fewer: SimulatedRun | None, progress: Meter | None
) -> float | None:
    """Where a profile of hosts of their own does not say whether frames pass a link at once, which
    parts loops or leaves them in step: standard error of a throughput whose 90 % interval just
    holds the one with two frames. ``fewer``: as `out_of_step`."""
    plan, cluster = simulated.plan, simulated.cluster
    if cluster.colocate or cluster.network.passes_at_once is not None:
        return None
    changed = cluster.model_copy(
        update={"network": cluster.network.model_copy(update={"passes_at_once": _PASSING})}
    )
    times, _ = _compared(fewer or simulated, outcome, plan, changed, progress)
    return times and abs(log(times)) / Z95


def _compared(
    compared: SimulatedRun, outcome: Outcome, plan: Plan, cluster: Cluster, progress: Meter | None
) -> tuple[float | None, int]:
    """(How many times the throughput of some steps a simulation of these has; of how many)."""
    least, most = _STEPS
    enough = max(least, min(most, _ITERATIONS // len(plan.training)))
    steps = min(compared_steps(plan, compared.folding, outcome.steps), enough)

    def further(done: float, total: float, stage: str = "", so_far: str = "") -> None:
        if progress is not None:
            share = (compared.warmup + steps) / compared.total
            progress(min(done, share * total), share * total, _IN_STEP)

    few = None if compared.folding.exact else compared.folding.simulated
    folding = folding_of(plan, cluster, most=few)
    shared = (compared.counts, compared.replay) if folding == compared.folding else (None, None)
    again = SimulatedRun(plan, cluster, folding, *shared)
    done = again.run(further, steps).steps  # fewer where a host fails
    found = again.within(done).examples_per_second if done else None
    own = compared.within(steps).examples_per_second
    return (found / own if found and own else None), steps


def _with_jitter(plan: Plan, cluster: Cluster, jitter: float) -> tuple[Plan, Cluster]:
    """Both with that jitter; where the experiment leaves stragglers out, with no others of them."""
    simulation = plan.experiment.simulation
    if simulation.stragglers:
        return plan, cluster.model_copy(update={"jitter": jitter})
    changed = {"simulation": simulation.model_copy(update={"stragglers": True})}
    plan = replace(plan, experiment=plan.experiment.model_copy(update=changed))
    return plan, cluster.model_copy(update={"jitter": jitter, "stragglers": None})
