"""The simulator's front door: a plan and a cluster profile in, an `Outcome` out."""

from __future__ import annotations

from collections.abc import Callable

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts, counts_for
from recsim_train.data.replay import Replay, check_cache
from recsim_train.placement.plan import Plan
from recsim_train.sim.elasticity import elasticities
from recsim_train.sim.explain import Window, explain, iterations_within
from recsim_train.sim.memory import check_memory, nearly_full
from recsim_train.sim.runtime import Runtime
from recsim_train.sim.steady import Steady
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import documents

_ALONE_STEPS = 20
"""Iterations from which the speed without sharing is taken."""
_ALONE_LEAST = 5
"""A short run must not spend most of its time on this."""
_ALONE_WARMUP = 2

Progress = Callable[[int, int], None]


def simulate(
    plan: Plan,
    cluster: Cluster,
    *,
    progress: Progress | None = None,
    counts: IdCounts | None = None,
) -> Outcome:
    """Predict one run of ``plan`` on ``cluster``; equal inputs give equal outcomes.

    ``progress``: called with (iterations done, iterations at most) of all loops together.
    ``counts``: ids per batch; none: from the plan's own data. Raises UserError where a role does
    not fit into memory, RunFailed where the strategy fails or a deadlock is reached.
    """
    memory = check_memory(plan, cluster)
    if counts is None:
        counts = counts_for(plan)
    check_cache(plan)
    replay = Replay(plan) if plan.topology.cache is not None else None
    training = plan.experiment.training
    warmup = training.warmup_steps
    total = warmup + training.steps
    steady = Steady(plan)
    done = 0

    def on_iteration() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total * len(plan.training))

    def on_step(completed: int) -> None:
        if completed < total and steady.reached(completed - warmup, runtime.ledger.iterations):
            runtime.stop()

    runtime = Runtime(
        plan,
        cluster,
        counts,
        iterations=total,
        on_iteration=on_iteration,
        on_step=on_step,
        replay=replay,
    )
    runtime.run()
    steps = max(0, runtime.settled() - warmup)
    iterations = [i for i in runtime.ledger.iterations if i.iteration < warmup + steps]
    totals = runtime.ledger.totals(warmup, warmup + steps)
    speed = steady.estimate(steps, iterations)
    outcome = Outcome(
        iterations=iterations,
        totals=totals,
        spans=runtime.ledger.spans,
        dropped_spans=runtime.ledger.dropped_spans,
        steps=steps,
        rounds=runtime.ledger.rounds,
        facts={
            "events": runtime.kernel.events,
            "activities": runtime.kernel.fluid.added,
            "solves": runtime.kernel.fluid.solves,
            "simulated_seconds": runtime.kernel.now,
            "stopped": "every step done" if steps == training.steps else "estimate settled",
            "header_bytes": runtime.machines.header_bytes,
            "id_counts": counts.source,
            "memory": {use.name: use.document() for use in memory},
            "cores": {i.name: cluster.host(i.role).cores for i in plan.instances},
        },
    )
    said = nearly_full(memory, cluster.colocate)
    if compressed := documents(loop.tallies for loop in runtime.loops):
        outcome.facts["compression"] = compressed
    if replay is not None:
        outcome.facts["cache"] = replay.figures(warmup, warmup + steps)
        said += replay.warnings(steps)
    if said:
        outcome.facts["warnings"] = said
    if steps == 0 or runtime.opening is None or speed.examples_per_second is None:
        return outcome
    start, before = runtime.opening
    end, after = runtime.closings[warmup + steps]
    window = Window(
        start,
        end,
        [last - first for first, last in zip(before, after, strict=True)],
        iterations_within(runtime.ledger.iterations, start, end),
    )
    found = explain(
        plan,
        runtime.kernel.fluid.resources,
        window,
        totals,
        predicted=speed.examples_per_second,
        alone=_alone(plan, cluster, counts, steps, replay),
    )
    outcome.utilisation = found.utilisation
    outcome.bottleneck = found.bottleneck
    outcome.bound_eps = found.bound_eps
    outcome.facts["bounds"] = found.bounds
    if wanted := plan.experiment.simulation.what_if_steps:
        answers = elasticities(plan, cluster, counts, wanted, replay)
        outcome.facts |= answers.facts(speed.examples_per_second, runtime.kernel.events)
    return outcome


def _alone(
    plan: Plan, cluster: Cluster, counts: IdCounts, steps: int, replay: Replay | None
) -> float:
    """Examples per second of the same loops when everything runs as fast as it would alone."""
    warmup = min(_ALONE_WARMUP, plan.experiment.training.warmup_steps)
    count = min(_ALONE_STEPS, max(_ALONE_LEAST, steps // 4), steps)
    runtime = Runtime(plan, cluster, counts, iterations=warmup + count, ideal=True, replay=replay)
    runtime.run()
    chosen = [i for i in runtime.ledger.iterations if i.iteration >= warmup]
    seconds = sum(i.end - i.start for i in chosen) / len(chosen)
    return len(runtime.training) * plan.experiment.training.batch_size / seconds
