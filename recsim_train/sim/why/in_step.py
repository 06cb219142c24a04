"""Whether a prediction hangs on how free-running trainers come to a server: together or in turn.

Where chance does not part them, trainers that wait for each other at a server stay in step: all
send, then all wait, and each direction of its NIC, its cores and its lock are idle half of the
time. A little jitter parts them. No model of a network says which it is, so that a prediction
carries both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import SERVERS, Plan
from recsim_train.sim.folding import folding_of
from recsim_train.sim.simulated_run import SimulatedRun
from recsim_train.sim.why.bounds import name_of
from recsim_train.strategy.registry import strategies
from recsim_train.trace.record import Outcome

_JITTER = 0.1
"""What parts trainers where the profile has no jitter."""
_STEPS = 100
"""Counted steps of the second simulation at most: a quarter of what an estimate takes that settles
early, and what in any case is a small part of a prediction's what-if runs."""


def out_of_step(simulated: SimulatedRun, outcome: Outcome) -> Iterator[str]:
    """A sentence with the throughput with jitter and without, where loops of a strategy without
    lock-step share a server that is the busiest resource; the other throughput is a fact, too."""
    plan, busiest = simulated.plan, simulated.busiest
    free = not strategies()[plan.strategy.kind].lock_step and len(plan.training) > 1
    here = None if outcome.speed is None else outcome.speed.examples_per_second
    if not free or not here or busiest is None or busiest.partition("[")[0] not in SERVERS:
        return
    jitter = simulated.cluster.jitter if plan.experiment.simulation.stragglers else 0.0
    other_jitter = 0.0 if jitter > 0.0 else _JITTER
    steps = min(_STEPS, outcome.steps)
    other = _rate(simulated, *_with_jitter(plan, simulated.cluster, other_jitter), steps)
    if other is not None:
        outcome.facts.met_otherwise = other
        yield (
            f"Training loops run freely and share {name_of(busiest)} (the busiest resource): the "
            "throughput depends on whether they come to it all at once or in turn. With a jitter "
            f"of {100 * jitter:.3g} % it is {here:,.0f} examples/s, with {100 * other_jitter:.3g} "
            f"% it is {other:,.0f} ({steps:,} steps were simulated once more). How a network parts "
            "them is not modelled: expect a value between the two."
        )


def _with_jitter(plan: Plan, cluster: Cluster, jitter: float) -> tuple[Plan, Cluster]:
    """Both with that jitter; where the experiment leaves stragglers out, with no others of them."""
    simulation = plan.experiment.simulation
    if simulation.stragglers:
        return plan, cluster.model_copy(update={"jitter": jitter})
    changed = {"simulation": simulation.model_copy(update={"stragglers": True})}
    plan = replace(plan, experiment=plan.experiment.model_copy(update=changed))
    return plan, cluster.model_copy(update={"jitter": jitter, "stragglers": None})


def _rate(simulated: SimulatedRun, plan: Plan, cluster: Cluster, steps: int) -> float | None:
    folding = folding_of(plan, cluster)
    same = folding == simulated.folding
    again = SimulatedRun(
        plan,
        cluster,
        folding,
        simulated.counts if same else None,
        simulated.replay if same else None,
    )
    speed = again.run(None, steps).speed
    return None if speed is None else speed.examples_per_second
