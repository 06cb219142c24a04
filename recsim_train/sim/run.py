"""The simulator's front door: a plan and a cluster profile in, an `Outcome` out."""

from __future__ import annotations

from collections.abc import Callable

from recsim_train.config.cluster import Cluster
from recsim_train.data.counts import IdCounts, counts_for
from recsim_train.data.replay import Replay, check_cache
from recsim_train.placement.plan import Plan
from recsim_train.sim.explain import Window, explain, iterations_within
from recsim_train.sim.folding import Folding, folding_of, unfold
from recsim_train.sim.memory import check_memory
from recsim_train.sim.runtime import Runtime
from recsim_train.sim.steady import Steady
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import documents

_ALONE_STEPS = 20
"""Iterations from which the speed without sharing is taken."""
_ALONE_WARMUP = 2
_ALONE_TRAINERS = 8
"""Trainers that are enough for it, where they can be folded."""

Progress = Callable[[int, int], None]


def simulate(
    plan: Plan,
    cluster: Cluster,
    *,
    progress: Progress | None = None,
    counts: IdCounts | None = None,
) -> Outcome:
    """Predict one run of ``plan`` on ``cluster``; equal inputs give equal outcomes.

    ``progress``: called with (iterations done, iterations at most) of all simulated loops.
    ``counts``: ids per batch; none: from the plan's own data. Raises UserError where a role does
    not fit into memory, RunFailed where the strategy fails or a deadlock is reached.
    """
    memory = check_memory(plan, cluster)
    folding = folding_of(plan, cluster)
    check_cache(plan, folding.simulated if folding.simulated < folding.trainers else None)
    job = _Job(plan, cluster, folding, counts)
    outcome = job.run(progress)
    outcome.facts["memory"] = {use.name: use.document() for use in memory}
    outcome.facts["cores"] = {i.name: cluster.host(i.role).cores for i in plan.instances}
    if folding.simulated < folding.trainers:
        _say_folding(job, outcome)
    job.explain(outcome)
    return outcome


class _Job:
    """One simulation of a plan."""

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        folding: Folding,
        counts: IdCounts | None,
        replay: Replay | None = None,
    ) -> None:
        self.plan, self.cluster, self.folding = plan, cluster, folding
        folded = folding.simulated < folding.trainers
        loops = len(plan.feeding) // folding.trainers * folding.simulated
        if counts is None:
            counts = counts_for(plan, loops if folded and not plan.shares_batches else None)
        self.counts = counts
        if replay is None and plan.topology.cache is not None:
            replay = Replay(plan, simulated=folding.simulated if folded else None)
        self.replay = replay
        self.warmup = plan.experiment.training.warmup_steps
        self.total = self.warmup + plan.experiment.training.steps

    def run(self, progress: Progress | None) -> Outcome:
        """Simulate to the end, or until the estimate has settled."""
        warmup, total = self.warmup, self.total
        done = 0

        def on_iteration() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total * len(runtime.training))

        def on_step(completed: int) -> None:
            if completed < total and steady.reached(completed - warmup, runtime.ledger.iterations):
                runtime.stop()

        self.runtime = runtime = Runtime(
            self.plan,
            self.cluster,
            self.counts,
            iterations=total,
            on_iteration=on_iteration,
            on_step=on_step,
            replay=self.replay,
            folding=self.folding,
        )
        steady = Steady(self.plan, self.folding)
        runtime.run()
        steps = max(0, runtime.settled() - warmup)
        outcome = self._outcome(steps)
        everything = outcome.iterations
        outcome.iterations = [i for i in everything if i.iteration < warmup + steps]
        if steps < self.plan.experiment.training.steps:
            outcome.facts["stopped"] = "estimate settled"
            outcome.speed = steady.estimate(steps, everything)
        else:
            outcome.facts["stopped"] = "every step done"
            outcome.speed = steady.overall(steps, everything)
        return outcome

    def _outcome(self, steps: int) -> Outcome:
        runtime, warmup, replay = self.runtime, self.warmup, self.replay
        outcome = Outcome(
            iterations=runtime.ledger.iterations,
            totals=runtime.ledger.totals(warmup, warmup + steps),
            spans=runtime.ledger.spans,
            dropped_spans=runtime.ledger.dropped_spans,
            steps=steps,
            rounds=runtime.ledger.rounds,
            facts={
                "events": runtime.kernel.events,
                "activities": runtime.kernel.fluid.added,
                "solves": runtime.kernel.fluid.solves,
                "simulated_seconds": runtime.kernel.now,
                "header_bytes": runtime.machines.header_bytes,
                "id_counts": self.counts.source,
            },
        )
        if compressed := documents(loop.tallies for loop in runtime.loops):
            outcome.facts["compression"] = compressed
        if replay is not None:
            outcome.facts["cache"] = replay.figures(warmup, warmup + steps)
            if said := replay.warnings(steps):
                outcome.facts["warnings"] = said
        unfold(outcome, self.folding)
        return outcome

    def explain(self, outcome: Outcome) -> None:
        """Add why the prediction is what it is."""
        runtime = self.runtime
        predicted = None if outcome.speed is None else outcome.speed.examples_per_second
        if outcome.steps == 0 or runtime.opening is None or predicted is None:
            return
        start, before = runtime.opening
        end, after = runtime.closings[self.warmup + outcome.steps]
        window = Window(
            start,
            end,
            [last - first for first, last in zip(before, after, strict=True)],
            iterations_within(outcome.iterations, start, end),
        )
        found = explain(
            self.plan,
            runtime.kernel.fluid.resources,
            window,
            outcome.totals,
            predicted=predicted,
            alone=self._alone(outcome.steps),
        )
        outcome.utilisation = found.utilisation
        outcome.bottleneck = found.bottleneck
        outcome.bound_eps = found.bound_eps
        outcome.facts["bounds"] = found.bounds

    def _alone(self, steps: int) -> float:
        """Examples per second of the same loops when everything runs as fast as it would alone.

        Trainers that share nothing need not be many: few of them stand for all.
        """
        warmup = min(_ALONE_WARMUP, self.warmup)
        count = min(_ALONE_STEPS, steps)
        few = folding_of(self.plan, self.cluster, most=_ALONE_TRAINERS)
        runtime = Runtime(
            self.plan,
            self.cluster,
            self.counts,
            iterations=warmup + count,
            ideal=True,
            replay=self.replay,
            folding=few if few.simulated < self.folding.simulated else self.folding,
        )
        runtime.run()
        chosen = [i for i in runtime.ledger.iterations if i.iteration >= warmup]
        seconds = sum(i.end - i.start for i in chosen) / len(chosen)
        loops = len(self.plan.training)
        return loops * self.plan.experiment.training.batch_size / seconds


def _say_folding(job: _Job, outcome: Outcome) -> None:
    """Note what was folded, and by how much half as many simulated trainers change the answer."""
    folding = job.folding
    facts: dict[str, object] = {
        "trainers": folding.trainers,
        "simulated": folding.simulated,
        "exact": folding.exact,
    }
    outcome.facts["folding"] = facts
    if folding.exact or outcome.speed is None:
        return
    said = (
        f"{folding.simulated} of {folding.trainers:,} trainers are simulated, each of which stands "
        "for several"
    )
    half = folding_of(job.plan, job.cluster, most=folding.simulated // 2)
    if half.simulated < folding.simulated:
        other = _Job(job.plan, job.cluster, half, job.counts, job.replay).run(None).speed
        rate = outcome.speed.examples_per_second
        if other is not None and other.examples_per_second is not None and rate:
            error = abs(other.examples_per_second / rate - 1.0)
            facts["half"] = {
                "simulated": half.simulated,
                "examples_per_second": other.examples_per_second,
            }
            facts["error"] = error
            said += f"; {half.simulated} instead change the examples/s by {error:.1%}"
    notes = outcome.facts.setdefault("warnings", [])
    assert isinstance(notes, list)
    notes.append(f"{said}.")
