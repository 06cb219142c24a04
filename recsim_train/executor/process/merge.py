"""One result from the parts of all processes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from recsim_train.data.malformed import Malformed
from recsim_train.executor.part import ProcessPart
from recsim_train.placement.plan import Plan
from recsim_train.results.environment import allowed, cores
from recsim_train.results.statistics import counted
from recsim_train.trace.facts import Cached, Diverged, Slept, beyond_said
from recsim_train.trace.ledger import Ledger, MachineUse, between
from recsim_train.trace.record import Iteration, Outcome, Recorder, loop_of
from recsim_train.workload.arithmetic import add
from recsim_train.workload.compression import compressed


def merge(
    plan: Plan,
    parts: Sequence[ProcessPart],
    *,
    complete: bool,
    one_machine: bool = True,
    first: int = 0,
) -> Outcome:
    """The whole run's outcome; a partial one covers the iterations that all loops finished.

    ``first``: the iteration with which it went on from a checkpoint.
    """
    whole = Outcome([], {}, [], 0, plan.experiment.training.steps)
    facts = whole.facts
    for part in map(_timed, parts):
        whole.iterations += part.iterations
        whole.rounds += part.rounds
        whole.syncs += part.syncs
        whole.spans += part.spans
        whole.totals.update(part.totals)
        whole.dropped_spans += part.dropped_spans
        whole.began = part.began
        for quality in ("loss", "auc", "normalized_entropy"):
            value = getattr(part, quality)
            if value is not None:
                setattr(whole, quality, value)
    facts.diverged = diverged(whole.iterations, whole.loss)
    if facts.diverged is not None:
        whole.loss = whole.auc = whole.normalized_entropy = None
        whole.warn(
            [
                f"The model {facts.diverged.phrase} ({facts.diverged.why}): it has no held-out "
                "figures, and its throughput is no evidence of how fast these settings train."
            ]
        )
    readings = [reading for part in parts for reading in part.readings]
    malformed = Malformed()
    for reading in readings:
        malformed.merge(reading.malformed)
    facts.malformed_rows = malformed.counts
    facts.malformed = malformed.describe() if malformed.total else None
    facts.ids_beyond = malformed.beyond_rows(t.rows for t in plan.experiment.model.tables)
    whole.warn(beyond_said(facts.ids_beyond))
    facts.epochs = max((reading.epochs for reading in readings), default=0)
    facts.rows_read = sum(reading.rows for reading in readings)
    facts.cpu_seconds = {part.instance: part.cpu_seconds for part in parts}
    facts.clocks = {part.instance: part.clocks for part in parts if part.clocks is not None}
    facts.sched_batch = all(part.sched_batch for part in parts)
    facts.checkpoints = [made for part in parts for made in part.checkpoints]
    whole.warn(f"A checkpoint was not made: {c.problem}" for c in facts.checkpoints if c.problem)
    facts.header_bytes = sum(part.header_bytes for part in parts)
    facts.compression = compressed(tallies for part in parts for tallies in part.tallies)
    caches = [part.cache for part in parts if part.cache is not None]
    facts.cache = Cached.merged(caches) if caches else None
    if not complete:
        _truncate(plan, whole, {part.instance for part in parts})
    facts.ledger = _ledger(plan, whole, parts, one_machine)
    if first:
        facts.resumed_at = first
        whole.warn(
            [
                f"Went on from a checkpoint with iteration {first:,} of each loop: figures are of "
                "what came after it, another warm-up left out."
            ]
        )
    return whole


def _timed(part: ProcessPart) -> Outcome:
    """A part's records by rank 0's clock: its own was set by that when the run began, and has
    drifted evenly until its end."""
    clocks, records = part.clocks, part.records
    if clocks is None or clocks.after is None:
        return records
    drift = clocks.after.ahead - clocks.before.ahead
    ends = [s.end for s in records.spans] + [i.end for i in records.iterations]
    ends += [i.end for i in records.rounds]
    if abs(drift) <= clocks.before.error + clocks.after.error or not ends:
        return records  # no more than what the readings may be off by
    share = 1.0 - drift / max(ends)

    def scaled(done: Sequence[Iteration]) -> list[Iteration]:
        return [replace(i, start=i.start * share, end=i.end * share) for i in done]

    return replace(
        records,
        iterations=scaled(records.iterations),
        rounds=scaled(records.rounds),
        spans=[s._replace(start=s.start * share, end=s.end * share) for s in records.spans],
        syncs=[s._replace(end=s.end * share) for s in records.syncs],
    )


def diverged(iterations: Sequence[Iteration], held_out: float | None) -> Diverged | None:
    """Whether a training loss or the ``held_out`` loss is not finite; None: they all are."""
    losses = [i for i in iterations if i.loss is not None]
    beyond = [i.iteration for i in losses if i.loss is not None and not math.isfinite(i.loss)]
    if not beyond and (held_out is None or math.isfinite(held_out)):
        return None
    return Diverged(min(beyond, default=None), len(beyond), len(losses))


def _ledger(
    plan: Plan, whole: Outcome, parts: Sequence[ProcessPart], one_machine: bool
) -> Ledger | None:
    """Of the counted window; None where nothing was counted."""
    training = plan.experiment.training
    done = counted(whole.iterations, training.warmup_steps, training.steps)
    start, end = min((i.start for i in done), default=0.0), max((i.end for i in done), default=0.0)
    if end <= start:
        return None
    window, machine = end - start, None
    used = [between(part.samples, start, end) for part in parts]
    total = math.fsum(one.total for one in used)
    if one_machine:
        # where a control group gives less than all cores, others may have the rest of them
        left_over = len(allowed()) - cores()
        others = max(0.0, (used[0].busy - total) / window - left_over)
        machine = MachineUse(cores(), total / window, others, used[0].steal / window)
    if any(one.waited for one in used):
        waits = zip(parts, used, strict=True)
        whole.facts.core_waits = {part.instance: one.waited for part, one in waits}
    if all(one.slept for one in used):
        sleeps = zip(parts, used, strict=True)
        whole.facts.slept = {part.instance: Slept(*one.slept) for part, one in sleeps}
    return Ledger.of(window, total, add(*(one.booked for one in used)), machine)


def _truncate(plan: Plan, whole: Outcome, left: set[str]) -> None:
    """``left``: processes that have left a part: only of their loops is known what they did."""
    warmup, steps = plan.experiment.training.warmup_steps, plan.experiment.training.steps
    trainers = {f"trainer[{t}]": t for t in range(plan.experiment.roles.trainers)}
    if lost := [name for name in trainers if name not in left]:
        whole.warn(
            [f"{', '.join(lost)} left nothing: iterations and speeds are of the other trainers"]
        )
    known = {trainers[name] for name in left if name in trainers}
    within = (i.loop for i in whole.iterations if warmup <= i.iteration < warmup + steps)
    finished = Counter(within)
    loops = [loop.name for loop in plan.training if loop.trainer in known]
    whole.steps = min((finished[loop] for loop in loops), default=0)
    whole.iterations = [i for i in whole.iterations if i.iteration < warmup + whole.steps]
    if whole.dropped_spans:
        whole.warn(
            [
                "times and bytes per step cover more iterations than all loops finished, because "
                "execution.max_spans was reached before the run stopped"
            ]
        )
        return
    again = Recorder(warmup, whole.steps, max_spans=0)
    background = {loop.name for loop in plan.background}
    for span in whole.spans:
        loop = loop_of(span.loop)
        again.background = f"{span.instance}.{loop}" in background or loop in background
        again.add(span)
    whole.totals = again.totals
