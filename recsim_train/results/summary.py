"""The figures of one run, typed: from its records; their JSON document, and back.

What has a default is left out of the document where it has that value (facts that a world does not
state); everything else is always there, null where there is none.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter, ValidationError

from recsim_train.placement.plan import Plan
from recsim_train.results.folder import clean_document
from recsim_train.results.statistics import (
    Distribution,
    counted,
    distribution,
    staleness,
    sync_gaps,
    throughput,
)
from recsim_train.strategy.registry import strategies
from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import Facts
from recsim_train.trace.record import Iteration, Outcome, Total, TotalKey, loop_of


@dataclass(frozen=True, slots=True)
class Performed:
    """How often an effect was performed, client side."""

    count: int
    """In counted iterations of all loops."""
    loops: int
    """By so many."""


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """How far apart trainers train; see the glossary."""

    elp: int
    """Example-level parallelism, examples."""
    staleness: Distribution | None
    """Iterations of others meanwhile; None in lock-step or without another loop."""
    sync_gap: Distribution | None
    """Iterations of a trainer between two of its syncs; None without them."""
    sync_gap_per_thread: float | None
    """Its mean / the trainer's loops."""
    rounds_per_second: float | None
    """Of one background loop; None without any."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Every figure of one run. Times in seconds, payload in bytes; None where a world has none."""

    world: str
    strategy: str
    status: str
    """complete, partial or interrupted, and whether it diverged, see `rundir.RunRecord.status`."""
    examples_per_second: float | None
    """None where nothing was counted."""
    ci95: tuple[float, float] | None
    """Of the same; None below two windows."""
    steps: int
    """Counted iterations of each training loop."""
    seconds: float
    """The counted window's."""
    examples: int
    bytes_sent: int
    """By all processes in the counted window."""
    binding: Binding | None
    bound_eps: float | None
    """Examples per second that no prediction can exceed."""
    loss: float | None
    """Held-out log loss."""
    auc: float | None
    normalized_entropy: float | None
    train_loss_first: float | None
    """Mean over the first tenth of the counted iterations."""
    train_loss_last: float | None
    batch_size: int
    trainers: int
    threads: int
    """Training loops of each trainer."""
    seconds_per_iteration: float | None
    time_by_effect: dict[str, float]
    """Of a mean iteration, with "other": what effects leave of it."""
    time_by_operation: dict[str, float]
    """The same with computations by name."""
    bytes_by_effect: dict[str, float | None]
    """Of one counted step of every loop, rounds of background loops in proportion."""
    total_bytes_by_effect: dict[str, int]
    """Of the counted steps, without background loops."""
    round_bytes_by_effect: dict[str, float]
    """If every background loop goes round once."""
    counted_iterations: int
    """Of all training loops."""
    count_by_effect: dict[str, Performed]
    synchronisation: Synchronisation
    utilisation: dict[str, float]
    """By resource: busy share of the counted window, 0..1."""
    facts: Facts
    operation_threads: int = 1
    """Threads that each operation of these loops runs on."""

    @property
    def computing_threads(self) -> int:
        """Of each trainer's training loops together."""
        return self.threads * self.operation_threads

    @property
    def cpu_per_example(self) -> dict[tuple[str, str], float] | None:
        """CPU seconds by (role, what), see `recsim_train.trace.ledger`; None without a ledger."""
        ledger, rate = self.facts.ledger, self.examples_per_second
        if ledger is None or not rate or ledger.total <= 0.0:
            return None
        return ledger.per_example(rate)


_SUMMARY = TypeAdapter(Summary)


def document_of(summary: Summary) -> dict[str, Any]:
    """As JSON can hold it."""
    return clean_document(_SUMMARY.dump_python(summary, exclude_defaults=True, warnings=False))


def summary_of(document: dict[str, Any]) -> Summary:
    """Back from `document_of`; what it does not know is left out. An earlier version's says what
    binds in words.

    Raises ValueError, a phrase that names the first key that is missing or not what it should be.
    """
    older = {"binding": (said := document.get("bottleneck")) and {"said": said}}
    try:
        return _SUMMARY.validate_python(older | document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise ValueError(f"lacks {key!r}") from None
        raise ValueError(f"holds no usable {key!r}: {first['msg'].lower()}") from None


SERVED = "serve_"
OTHER = "other"


def summarise(plan: Plan, *, outcome: Outcome, world: str, status: str) -> Summary:
    """Every figure of a run that follows from its records; null where a world has none."""
    training = plan.resumed(outcome.facts.resumed_at or 0).experiment.training
    warmup, steps = training.warmup_steps, outcome.steps
    speed = outcome.speed or throughput(
        outcome.iterations, warmup=warmup, steps=steps, batch_size=training.batch_size
    )
    # Totals cover every counted iteration that was done; loops of a run that ended early did
    # different numbers of them, so means over totals divide by what is really there.
    done = counted(outcome.iterations, warmup, training.steps)
    feeding = {loop.name for loop in plan.training}
    per_loop = len(done) / len(feeding)
    first, last = loss_ends(done, warmup, steps)
    trained, beside = divide(plan, outcome.totals)
    payload = bytes_by_effect(trained)
    per_round = bytes_per_round(outcome.rounds, beside)
    rounds = 0.0  # of one background loop per counted iteration of one training loop
    if done and plan.background:
        rounds = len(within(outcome.rounds, done)) / len(plan.background) / per_loop
    per_step: dict[str, float | None] = {
        effect: payload.get(effect, 0) / per_loop + per_round.get(effect, 0.0) * rounds
        for effect in sorted(payload.keys() | per_round.keys())
        if done
    }
    return Summary(
        world=world,
        strategy=plan.strategy.kind,
        status=status,
        examples_per_second=speed.examples_per_second,
        ci95=speed.ci95,
        steps=outcome.steps,
        seconds=speed.seconds,
        examples=speed.examples,
        bytes_sent=sum(t.bytes for t in outcome.totals.values()),
        binding=outcome.binding,
        bound_eps=outcome.bound_eps,
        loss=outcome.loss,
        auc=outcome.auc,
        normalized_entropy=outcome.normalized_entropy,
        train_loss_first=first,
        train_loss_last=last,
        batch_size=training.batch_size,
        trainers=plan.experiment.roles.trainers,
        threads=plan.worker_threads,
        operation_threads=plan.operation_threads,
        seconds_per_iteration=mean_iteration(done),
        time_by_effect=time_by(outcome.totals, feeding, done),
        time_by_operation=time_by(outcome.totals, feeding, done, operations=True),
        bytes_by_effect=per_step if done else dict.fromkeys(payload),
        total_bytes_by_effect=payload,
        round_bytes_by_effect=per_round,
        counted_iterations=len(done),
        count_by_effect=counts_by_effect(trained),
        synchronisation=synchronisation(plan, outcome, done),
        utilisation=outcome.utilisation,
        facts=outcome.facts,
    )


Totals = dict[TotalKey, Total]


def divide(plan: Plan, totals: Totals) -> tuple[Totals, Totals]:
    """(totals of iterations, totals of background loops' rounds), servers' work for them included.

    The second ones are keyed by the full name of the loop instead of the process.
    """
    names = {loop.name for loop in plan.background}
    trained: Totals = {}
    beside: Totals = {}
    for key, total in totals.items():
        loop = loop_of(key.loop)
        client = loop if key.effect.startswith(SERVED) else f"{key.instance}.{loop}"
        if client in names:
            beside[TotalKey(client, key.instance, key.effect, key.name)] = total
        else:
            trained[key] = total
    return trained, beside


def bytes_per_round(rounds: Iterable[Iteration], beside: Totals) -> dict[str, float]:
    """Payload bytes by effect if every background loop goes round once."""
    done = Counter(i.loop for i in rounds)
    found: dict[str, float] = defaultdict(float)
    for key, total in beside.items():
        if total.bytes and done[key.instance]:
            found[folded(key.effect)] += total.bytes / done[key.instance]
    return dict(found)


def within(rounds: Iterable[Iteration], done: Sequence[Iteration]) -> list[Iteration]:
    """The rounds that ended while counted iterations ran."""
    start, end = min(i.start for i in done), max(i.end for i in done)
    return [r for r in rounds if start < r.end <= end]


def synchronisation(plan: Plan, outcome: Outcome, done: Sequence[Iteration]) -> Synchronisation:
    """Example-level parallelism, staleness, and the gap between the trainers' syncs (`Synced`): of
    workers in their counted iterations, of background loops while these run."""
    spec = plan.experiment
    threads = len(plan.training) / spec.roles.trainers
    elp = spec.training.batch_size * plan.worker_threads * spec.roles.trainers
    if not done:
        return Synchronisation(elp, None, None, None, None)
    free = not strategies()[plan.strategy.kind].lock_step and len(plan.training) > 1
    trainer_of = {loop.name: loop.trainer for loop in plan.all_loops}
    syncs: dict[int, list[float]] = defaultdict(list)
    background = {loop.name for loop in plan.background}
    counted_ones = {(i.loop, i.iteration) for i in done}
    start, end = min(i.start for i in done), max(i.end for i in done)
    rate = None
    if background and end > start:
        rate = len(within(outcome.rounds, done)) / len(background) / (end - start)
    for sync in outcome.syncs:
        inside = start < sync.end <= end
        if inside if sync.loop in background else sync[:2] in counted_ones:
            syncs[trainer_of[sync.loop]].append(sync.end)
    ends: dict[int, list[float]] = defaultdict(list)
    for i in done:
        ends[trainer_of[i.loop]].append(i.end)
    gap = distribution([g for t, s in sorted(syncs.items()) for g in sync_gaps(ends[t], s)])
    return Synchronisation(
        elp=elp,
        staleness=distribution(staleness(done)) if free else None,
        sync_gap=gap,
        sync_gap_per_thread=None if gap is None else gap.mean / threads,
        rounds_per_second=rate,
    )


def folded(effect: str) -> str:
    """The client's name of an effect: what a server hands out belongs to the request."""
    return effect.removeprefix(SERVED)


def bytes_by_effect(totals: dict[TotalKey, Total]) -> dict[str, int]:
    """Payload bytes of all roles in the counted steps, by effect; effects without any left out."""
    found: dict[str, int] = defaultdict(int)
    for key, total in totals.items():
        found[folded(key.effect)] += total.bytes
    return {effect: found[effect] for effect in sorted(found) if found[effect]}


def counts_by_effect(totals: dict[TotalKey, Total]) -> dict[str, Performed]:
    """How often each effect was performed (client side), and by how many loops."""
    count: dict[str, int] = defaultdict(int)
    loops: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for key, total in totals.items():
        if not key.effect.startswith(SERVED):
            count[key.effect] += total.count
            loops[key.effect].add((key.instance, loop_of(key.loop)))
    return {effect: Performed(count[effect], len(loops[effect])) for effect in sorted(count)}


def mean_iteration(iterations: Sequence[Iteration]) -> float | None:
    """Mean seconds of one iteration of one training loop."""
    return fmean(i.end - i.start for i in iterations) if iterations else None


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
    losses = [(i.iteration, i.loss) for i in iterations if i.loss is not None]
    early = [loss for number, loss in losses if number < warmup + tenth]
    late = [loss for number, loss in losses if number >= warmup + steps - tenth]
    return fmean(early) if early else None, fmean(late) if late else None


def data_dependent(plan: Plan, *, thresholds: bool = True) -> list[str]:
    """Effects whose payload depends on which ids the data holds or, ``thresholds``, on how many
    values reach a threshold, so that worlds may differ within bounds (`report.gap`)."""
    found: set[str] = set()
    if thresholds and plan.topology.thresholded:
        found.add(plan.topology.thresholded)
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
