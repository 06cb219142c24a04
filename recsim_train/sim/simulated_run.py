"""One simulation of a plan: run it until every step is done, or enough of them are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import RunFailed
from recsim_train.data.counts import IdCounts, counts_for
from recsim_train.data.replay import CacheSteps, FewerCaches, Replay
from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import throughput, throughput_within
from recsim_train.results.summary import data_dependent
from recsim_train.sim.cluster.faults import HostFailed
from recsim_train.sim.folding import Folding, everyones, unfold
from recsim_train.sim.runtime import Runtime
from recsim_train.sim.why import usage
from recsim_train.sim.why.bounds import add_bounds, least_bounds, nic_bytes
from recsim_train.sim.why.caveats import assumed, resting, resting_in_words, say_surroundings
from recsim_train.sim.why.usage import Snapshot
from recsim_train.trace.facts import Facts, PayloadSpread
from recsim_train.trace.ledger import Booked, Ledger
from recsim_train.trace.progress import Meter
from recsim_train.trace.record import Iteration, Outcome, Throughput
from recsim_train.workload.compression import compressed
from recsim_train.workload.scope import Scope

Until = Callable[[int, Callable[[int], Throughput]], bool]
"""Whether a simulation may stop now that all loops have so many counted iterations; what a number
of these says of the throughput is told by the second."""


class SimulatedRun:
    """A plan on a cluster, folded or not.

    ``counts``, ``replay``: of the plan's data, of as many trainers or more; none: made here. Raises
    as `open_stream` does where the data cannot be read.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        folding: Folding,
        counts: IdCounts | None,
        replay: CacheSteps | None = None,
    ) -> None:
        self.plan, self.cluster, self.folding = plan, cluster, folding
        self.counts = counts_for(plan, folding.loops(plan)) if counts is None else counts
        if replay is None and plan.topology.cache is not None:
            replay = Replay(plan, simulated=None if folding.exact else folding.simulated)
        if replay is not None and len(replay.slots) > folding.simulated:
            replay = FewerCaches(replay, folding.simulated)
        self.replay = replay
        self.warmup = plan.experiment.training.warmup_steps
        self.total = self.warmup + plan.experiment.training.steps
        self._window: tuple[Snapshot, Snapshot] | None = None
        """What the estimate covers."""
        self._all: list[Iteration] = []
        self.booked: Booked = {}
        """CPU seconds of the counted window, once its bounds are known."""

    def run(
        self,
        until: Until,
        progress: Meter | None = None,
        *,
        asked: list[tuple[str, Scope]] | None = None,
        calls: dict[tuple[str, str], list[float]] | None = None,
    ) -> Outcome:
        """Simulate until every step is done, or enough of them are.

        ``asked``: where operations are noted with their shapes when each is first asked for;
        ``calls``: where all computations are counted (`Machines.calls`).

        Raises RunFailed where the strategy fails, or a host before there is a figure.
        """
        warmup, total = self.warmup, self.total
        enough = 0

        def on_step(completed: int) -> None:
            nonlocal enough
            runtime.machines.there.faults.done(completed)
            # an early stop would not see what happens rarely, nor loops that have done all
            if completed == total or runtime.machines.there.changing or runtime.first_done:
                return
            counted = completed - warmup
            if until(counted, self.within):
                enough = counted
                runtime.stop()

        runtime = self._runtime(progress, on_step)
        runtime.pricing.asked, runtime.machines.calls = asked, calls
        aborted = ""
        try:
            runtime.run()
        except HostFailed as failure:
            aborted = str(failure)
        done = max(0, runtime.settled() - warmup)
        if aborted and done == 0:
            raise RunFailed(f"{aborted}, before all loops had done a counted iteration")
        outcome = self._outcome(done)
        everything = self._all = outcome.iterations
        outcome.iterations = [i for i in everything if i.iteration < warmup + done]
        if done in (0, total - warmup):
            outcome.facts.stopped = aborted or "every step done"
            batch = self.plan.experiment.training.batch_size
            outcome.speed = throughput(
                outcome.iterations, warmup=warmup, steps=done, batch_size=batch
            )
            if done:
                self._window = self._of_every_step(done)
        else:
            outcome.facts.stopped = aborted or "estimate settled"
            enough = enough or done
            # of the last steps servers may still be at work, but the estimate has them
            self._window = self._while_all_go_on(enough)
            outcome.speed = self.within(enough)
        say_surroundings(outcome, runtime, done, aborted)
        return outcome

    def look(
        self,
        progress: Meter,
        enough: Callable[[int], bool],
        *,
        background: bool,
        priced_as: Plan,
        times: float,
    ) -> dict[str, float]:
        """Examples per second that each resource allows at most, as so many counted iterations show
        it in which nobody waits for what others use.

        ``enough``: whether so many are; ``background``, ``priced_as``: as of `Runtime`; ``times``:
        as many training loops are there as go. Raises as `run`, and DeadlockError where loops wait
        for what background loops do.
        """

        def on_step(completed: int) -> None:
            if not runtime.machines.there.changing and enough(completed - self.warmup):
                runtime.stop()

        runtime = self._runtime(
            progress, on_step, shared=False, background=background, priced_as=priced_as
        )
        runtime.run()
        totals = runtime.records.totals(self.warmup, self.total)
        iterations = everyones(runtime.records.iterations, self.folding)
        return least_bounds(runtime, totals, iterations, runtime.snapshots()[self.warmup :], times)

    def _runtime(
        self, progress: Meter | None, on_step: Callable[[int], None], **how: Any
    ) -> Runtime:
        """Of one run; ``how``: as of `Runtime`."""
        self.runtime = runtime = Runtime(
            self.plan,
            self.cluster,
            self.counts,
            iterations=self.total,
            progress=progress,
            on_step=on_step,
            replay=self.replay,
            folding=self.folding,
            **how,
        )
        return runtime

    def _of_every_step(self, steps: int) -> tuple[Snapshot, Snapshot] | None:
        """The time that `recsim_train.results.statistics.throughput` counts."""
        runtime = self.runtime
        begun, done = runtime.all_begun, runtime.first_done
        if begun is not None and done is not None and begun[0] < done[0]:
            return begun, done
        return runtime.opening and (runtime.opening, runtime.closings[self.warmup + steps])

    def within(self, steps: int) -> Throughput:
        """The estimate of a run that ends after ``steps`` counted iterations of each loop.

        Loops that share nothing but servers drift apart, and at both ends only a few would count.
        """
        (start, _), (end, _) = self._while_all_go_on(steps)
        batch = self.plan.experiment.training.batch_size
        done = everyones(self.runtime.records.iterations, self.folding)
        return throughput_within(done, start, end, steps=steps, batch_size=batch)

    def _while_all_go_on(self, steps: int) -> tuple[Snapshot, Snapshot]:
        """From when all loops had done their warm-up to the last step of all whose end every loop
        has gone beyond, so that no iteration which goes on is missing.

        Where something is done every k-th step only, to the last such step that is whole periods
        away: 29 steps, of which 5 synchronise, are not like 30 of which 6 do.
        """
        ends = {i.loop: i.end for i in self.runtime.records.iterations}  # in order of time
        known = min(ends.values())
        closings, warmup = self.runtime.closings, self.warmup
        last = warmup + steps
        while last > warmup + 1 and closings[last][0] > known:
            last -= 1
        period = self.plan.topology.period
        last -= (last - warmup) % period if last - warmup >= period else 0
        first = closings[warmup] if warmup else self.runtime.snapshots()[0]
        return first, closings[last]

    def _outcome(self, steps: int) -> Outcome:
        runtime, warmup, replay = self.runtime, self.warmup, self.replay
        outcome = Outcome(
            iterations=runtime.records.iterations,
            totals=runtime.records.totals(warmup, warmup + steps),
            spans=runtime.records.spans,
            dropped_spans=runtime.records.dropped_spans,
            steps=steps,
            rounds=runtime.records.rounds,
            syncs=runtime.records.syncs,
            facts=Facts(
                compression=compressed(loop.tallies for loop in runtime.loops),
                events=runtime.engine.events,
                activities=runtime.engine.fluid.added,
                solves=runtime.engine.fluid.solves,
                simulated_seconds=runtime.engine.now,
                header_bytes=runtime.machines.header_bytes,
                id_counts=self.counts.source,
            ),
        )
        if varying := data_dependent(self.plan, thresholds=False):
            outcome.facts.payload_spread = PayloadSpread(
                steps=None if self.counts.steps is None else min(steps, self.counts.steps),
                exact=self.counts.exact and self.folding.exact,
                effects={e: runtime.records.spread(e, warmup, warmup + steps) for e in varying},
            )
        outcome.facts.resting = found = resting(runtime.machines, runtime.pricing)
        outcome.warn(resting_in_words(found))
        outcome.warn(assumed(runtime, outcome))
        if replay is not None:
            outcome.facts.cache = replay.figures(warmup, warmup + steps)
            outcome.warn(replay.warnings(steps))
        unfold(outcome, self.folding)
        return outcome

    def add_bounds(self, outcome: Outcome) -> None:
        """Add why the prediction is what it is."""
        runtime = self.runtime
        predicted = None if outcome.speed is None else outcome.speed.examples_per_second
        if self._window is None or predicted is None:
            return
        (start, before), (end, after) = self._window
        used = [last - first for first, last in zip(before, after, strict=True)]
        add_bounds(outcome, runtime, self._all, used, start, end)
        self.booked = runtime.machines.books.between(start, end)
        facts, spent = outcome.facts, runtime.machines.cpu_seconds(used)
        facts.nic_bytes = nic_bytes(runtime, self._all)
        facts.ledger = Ledger.of(end - start, spent, self.booked)
        facts.class_bounds = usage.by_class(facts.bounds)
        facts.servers_needed = usage.servers_needed(self.plan, self.cluster, facts.bounds)
        facts.over_time = usage.over_time(runtime.engine.fluid.resources, runtime.snapshots())


def after(steps: int) -> Until:
    """Once each loop has so many counted iterations."""
    return lambda counted, _: counted == steps


class Steady:
    """`Until` where the estimate has settled, decided after each step of all training loops."""

    def __init__(self, precision: float, least: int, growth: float | None) -> None:
        """``precision``: half of the 95 % interval that is narrow enough, relative; 0: every step
        is run. ``least``: counted iterations of each loop before. ``growth``: how many times as
        many there are at the next look; None: the first one is the last."""
        self._precision, self._next, self._growth = precision, least, growth

    def __call__(self, counted: int, estimate: Callable[[int], Throughput]) -> bool:
        """As `Until`."""
        if self._precision <= 0.0 or counted < self._next:
            return False
        if self._growth is None:
            return True
        self._next = max(counted + 1, int(counted * self._growth))
        found = estimate(counted)
        if found.ci95 is None or found.examples_per_second is None:
            return False
        low, high = found.ci95
        return (high - low) / 2 <= self._precision * found.examples_per_second
