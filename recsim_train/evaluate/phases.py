"""How far a prediction hangs on whether free-running trainers come to a server together or in turn.

Trainers that wait for each other at a server and stay in step all send, then all wait: each
direction of its NIC, its cores and its lock are idle half of the time. What parts them is chance.
On one machine that is the jitter of computations, on hosts of their own mostly what else waits for
a link (`recsim_train.sim.network`), which hangs on how packets wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from recsim_train.config.frames import BURST, SEGMENT
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import OTHERWISE, as_many, at
from recsim_train.evaluate.simulations import compared_steps, representatives, simulation
from recsim_train.placement.plan import SERVERS
from recsim_train.results.statistics import Z95
from recsim_train.sim.simulated_run import SimulatedRun, after
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
