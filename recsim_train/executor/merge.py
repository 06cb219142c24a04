"""One result from the parts of all processes."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.data.criteo import Malformed
from recsim_train.data.mixcache import merged_figures
from recsim_train.placement.plan import Plan
from recsim_train.trace.record import Outcome, Total, TotalKey, loop_of
from recsim_train.workload.compression import Tallies, documents


def merge(plan: Plan, parts: Sequence[Outcome], *, complete: bool) -> Outcome:
    """The whole run's outcome; a partial one covers the iterations that all loops finished."""
    training = plan.experiment.training
    whole = Outcome([], {}, [], 0, training.steps)
    malformed = Malformed()
    epochs, rows = 0, 0
    cpu: dict[str, float] = {}
    tallies: list[Tallies] = []
    caches: list[dict[str, object]] = []
    for part in parts:
        whole.iterations += part.iterations
        whole.rounds += part.rounds
        whole.syncs += part.syncs
        whole.spans += part.spans
        whole.totals.update(part.totals)
        whole.dropped_spans += part.dropped_spans
        for quality in ("loss", "auc", "normalized_entropy"):
            value = getattr(part, quality)
            if value is not None:
                setattr(whole, quality, value)
        busy = part.facts.get("cpu_seconds", {})
        assert isinstance(busy, dict)
        cpu.update(busy)
        counted = part.facts.get("tallies", [])
        assert isinstance(counted, list)
        tallies += counted
        cache = part.facts.get("cache")
        if isinstance(cache, dict):
            caches.append(cache)
        readings = part.facts.get("reading", [])
        assert isinstance(readings, list)
        for reading in readings:
            epochs = max(epochs, reading["epochs"])
            rows += reading["rows"]
            malformed.merge(reading["malformed"])
    whole.facts.update(malformed_rows=malformed.counts, epochs=epochs, rows_read=rows)
    if malformed.total:
        whole.facts["malformed"] = malformed.describe()
    whole.facts["cpu_seconds"] = cpu
    if compressed := documents(tallies):
        whole.facts["compression"] = compressed
    if caches:
        whole.facts["cache"] = merged_figures(caches)
    if not complete:
        _truncate(plan, whole)
    return whole


def _truncate(plan: Plan, whole: Outcome) -> None:
    warmup, steps = plan.experiment.training.warmup_steps, plan.experiment.training.steps
    finished = {loop.name: 0 for loop in plan.training}
    for iteration in whole.iterations:
        if warmup <= iteration.iteration < warmup + steps:
            finished[iteration.loop] += 1
    whole.steps = min(finished.values(), default=0)
    end = warmup + whole.steps
    whole.iterations = [i for i in whole.iterations if i.iteration < end]
    if whole.dropped_spans:
        whole.facts["warnings"] = [
            "times and bytes per step cover more iterations than all loops finished, because "
            "execution.max_spans was reached before the run stopped"
        ]
        return
    totals: dict[TotalKey, Total] = {}
    background = {loop.name for loop in plan.background}
    for span in whole.spans:
        loop = loop_of(span.loop)
        rounds = f"{span.instance}.{loop}" in background or loop in background
        if warmup <= span.iteration < end or (rounds and span.iteration >= 0):
            key = TotalKey(span.instance, span.loop, span.effect, span.name)
            total = totals.setdefault(key, Total())
            total.count += 1
            total.seconds += span.end - span.start
            total.bytes += span.bytes
    whole.totals = totals
