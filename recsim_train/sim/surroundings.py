"""Figures and warnings of a run's hosts, racks and failures, beside its throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import counted
from recsim_train.sim.bounds import iterations_within
from recsim_train.sim.hosts import racks_of, sites_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recsim_train.sim.runtime import Runtime
    from recsim_train.trace.record import Iteration, Outcome

_FEW = 5
"""Below so many random failures their effect is one of chance."""
_APART = 1.05
"""How much faster training is while all loops train, for a warning."""


def say_surroundings(outcome: Outcome, runtime: Runtime, steps: int, aborted: str = "") -> None:
    """Note racks, slow hosts, failures, and trainers that differ, where there are any.

    ``aborted``: which failure has ended the run.
    """
    plan, cluster = runtime.plan, runtime.machines.cluster
    sites = sites_of(plan, cluster)
    facts = outcome.facts
    eps = None if outcome.speed is None else outcome.speed.examples_per_second
    if cluster.topology is not None:
        facts.racks = {i.name: rack for i, rack in racks_of(plan.instances, cluster).items()}
    facts.slow_hosts = {i.name: site.slow for i, site in sites.items() if site.slow > 1.0}
    chosen = counted(runtime.ledger.iterations, plan.experiment.training.warmup_steps, steps)
    faults, batch = runtime.machines.faults, plan.experiment.training.batch_size
    said = [f"{aborted}: recovery.policy is abort, so the run ends there"] if aborted else []
    if faults.any:
        facts.reliability = faults.reliability(chosen, batch=batch, examples_per_second=eps)
        random = cluster.failures is not None and cluster.failures.mtbf is not None
        if random and len(faults.failures) < _FEW:
            said.append(
                f"hosts failed {len(faults.failures)} times in {runtime.engine.now:.3g} s of "
                "simulated time, too few for a mean; raise training.steps"
            )
    if cluster.mixed or cluster.stragglers or cluster.failures:
        together = while_all_train(plan, runtime.ledger.iterations, chosen)
        facts.eps_while_all_train = together
        if together is not None and eps is not None and together > _APART * eps:
            said.append(
                f"trainers end at different times: while all of them train it is {together:,.0f} "
                f"examples/s; {eps:,.0f} counts until the slowest has done its steps"
            )
    outcome.warn(said)


def while_all_train(
    plan: Plan, iterations: Sequence[Iteration], chosen: Sequence[Iteration]
) -> float | None:
    """Examples per second until the first training loop has done its counted iterations.

    ``chosen``: the counted ones of all ``iterations``. None where there are none.
    """
    ends: dict[str, float] = {}
    for i in chosen:
        ends[i.loop] = max(ends.get(i.loop, 0.0), i.end)
    if not ends:
        return None
    start, end = min(i.start for i in chosen), min(ends.values())
    if end <= start:
        return None
    done = iterations_within(iterations, start, end)
    return done * plan.experiment.training.batch_size / (end - start)
