"""The figures of one run: the JSON document that ``--json`` prints, from an `Outcome`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import counted, throughput
from recsim_train.trace.record import Iteration, Outcome, Total, TotalKey

SERVED = "serve_"
OTHER = "other"


def summarise(plan: Plan, *, outcome: Outcome, world: str, status: str) -> dict[str, Any]:
    """Every figure of a run that follows from its records; null where a world has none."""
    training = plan.experiment.training
    warmup, steps = training.warmup_steps, outcome.steps
    batch = training.batch_size
    speed = throughput(outcome.iterations, warmup=warmup, steps=steps, batch_size=batch)
    # Totals cover every counted iteration that was done; loops of a run that ended early did
    # different numbers of them, so means over totals divide by what is really there.
    done = counted(outcome.iterations, warmup, training.steps)
    feeding = {loop.name for loop in plan.training}
    per_loop = len(done) / len(feeding)
    first, last = loss_ends(done, warmup, steps)
    iteration = mean_iteration(done)
    payload = bytes_by_effect(outcome.totals)
    figures: dict[str, Any] = clean(
        {
            "world": world,
            "strategy": plan.strategy.kind,
            "status": status,
            "examples_per_second": speed.examples_per_second,
            "ci95": speed.ci95,
            "steps": outcome.steps,
            "seconds": speed.seconds,
            "examples": speed.examples,
            "bytes_sent": sum(t.bytes for t in outcome.totals.values()),
            "bottleneck": outcome.bottleneck,
            "bound_eps": outcome.bound_eps,
            "loss": outcome.loss,
            "auc": outcome.auc,
            "normalized_entropy": outcome.normalized_entropy,
            "train_loss_first": first,
            "train_loss_last": last,
            "batch_size": training.batch_size,
            "trainers": plan.experiment.roles.trainers,
            "threads": plan.threads,
            "seconds_per_iteration": iteration,
            "time_by_effect": time_by(outcome.totals, feeding, done),
            "time_by_operation": time_by(outcome.totals, feeding, done, operations=True),
            "bytes_by_effect": {
                effect: total / per_loop if done else None for effect, total in payload.items()
            },
            "total_bytes_by_effect": payload,
            "counted_iterations": len(done),
            "count_by_effect": counts_by_effect(outcome.totals),
            "utilisation": {u.resource: u.busy for u in outcome.utilisation},
            "facts": outcome.facts,
        }
    )
    return figures


def folded(effect: str) -> str:
    """The client's name of an effect: what a server hands out belongs to the request."""
    return effect.removeprefix(SERVED)


def bytes_by_effect(totals: dict[TotalKey, Total]) -> dict[str, int]:
    """Payload bytes of all roles in the counted steps, by effect; effects without any left out."""
    found: dict[str, int] = defaultdict(int)
    for key, total in totals.items():
        found[folded(key.effect)] += total.bytes
    return {effect: found[effect] for effect in sorted(found) if found[effect]}


def counts_by_effect(totals: dict[TotalKey, Total]) -> dict[str, dict[str, int]]:
    """How often each effect was performed (client side), and by how many loops."""
    count: dict[str, int] = defaultdict(int)
    loops: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for key, total in totals.items():
        if not key.effect.startswith(SERVED):
            count[key.effect] += total.count
            loops[key.effect].add((key.instance, key.loop))
    return {
        effect: {"count": count[effect], "loops": len(loops[effect])} for effect in sorted(count)
    }


def mean_iteration(iterations: Sequence[Iteration]) -> float | None:
    """Mean seconds of one iteration of one training loop."""
    if not iterations:
        return None
    return math.fsum(i.end - i.start for i in iterations) / len(iterations)


def time_by(
    totals: dict[TotalKey, Total],
    feeding: set[str],
    iterations: Sequence[Iteration],
    *,
    operations: bool = False,
) -> dict[str, float]:
    """Mean seconds per iteration of the training loops, by effect; "other" is what the effects
    leave of the iteration, so that the parts sum to it. ``operations``: computations by name."""
    iteration = mean_iteration(iterations)
    if iteration is None:
        return {}
    found: dict[str, float] = defaultdict(float)
    for key, total in totals.items():
        if f"{key.instance}.{key.loop}" in feeding and not key.effect.startswith(SERVED):
            split = operations and key.effect == "compute"
            named = f"{key.effect} {key.name}" if split else key.effect
            found[named] += total.seconds
    parts = {name: found[name] / len(iterations) for name in sorted(found)}
    parts[OTHER] = iteration - math.fsum(parts.values())
    return parts


def loss_ends(
    iterations: Iterable[Iteration], warmup: int, steps: int
) -> tuple[float | None, float | None]:
    """Mean training loss over the first and the last tenth of the counted iterations."""
    tenth = max(1, math.ceil(steps / 10))
    early, late = [], []
    for i in iterations:
        if i.loss is None:
            continue
        if i.iteration < warmup + tenth:
            early.append(i.loss)
        if i.iteration >= warmup + steps - tenth:
            late.append(i.loss)
    return _mean(early), _mean(late)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def data_dependent(plan: Plan) -> list[str]:
    """Effects whose payload depends on which ids the data holds, so worlds may differ slightly."""
    found: set[str] = {plan.topology.thresholded} if plan.topology.thresholded else set()
    variable = any(t.variable for t in plan.experiment.model.tables)
    if plan.embedding is not None:
        remote = any(shard.host.role == "trainer" for shard in plan.embedding.shards)
        if plan.embedding.service.pooling == "worker":
            found |= {"lookup", "update"}
        elif variable or (remote and plan.embedding.split_tables):
            # A trainer's own shard costs no transport, so it matters which ids fall on it.
            found.add("lookup")
    if variable and plan.of_role("reader"):
        found.add("next_batch")
    return sorted(found)


def clean(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinity become null, tuples lists."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [clean(v) for v in items]
    item = getattr(value, "item", None)  # a numpy scalar
    if callable(item) and getattr(value, "shape", None) == ():
        return clean(item())
    return str(value)
