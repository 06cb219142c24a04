"""The fastest of several, as far as intervals can tell; of those that tie, the cheapest.

Those tie that none of the others is surely faster than (`recsim_train.results.row.tie`). One
of whose errors nothing is known ties with everything. Only those are compared that process as many
examples in one step of the whole job: others do not do the same work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from recsim_train.config.units import RATES, parse_quantity
from recsim_train.report import text
from recsim_train.results.row import Evidence, Interval, Row, cores_of, evidence, of_summary, tie
from recsim_train.results.rundir import RunRecord

T = TypeVar("T")
REPEATS = "seed"
"""Points that differ only here are repeats: their median counts."""
UNKNOWN: Interval = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One configuration with a throughput."""

    item: T
    eps: float
    """Examples per second."""
    interval: Interval
    """Of them, 90 %."""
    evidence: Evidence
    cost: tuple[int, float, int, float]
    """Processes, cores of their hosts, computing threads, rate of their network cards where that is
    swept: what is compared in this order."""
    examples_per_step: int | None = None
    """Of one step of the whole job; None: not known."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """What some entries show."""

    tied: tuple[Entry[T], ...]
    """Those that the evidence does not tell from the fastest, it included; the cheapest first, or
    the fastest where it says nothing of any."""

    @property
    def preferred(self) -> Entry[T]:
        """The fastest; of several that tie the cheapest, and of equally cheap ones the fastest."""
        return self.tied[0]

    @property
    def clear(self) -> bool:
        """Whether one is faster than all others."""
        return len(self.tied) == 1

    @property
    def known(self) -> bool:
        """Whether one of them has an interval."""
        return any(e.interval != UNKNOWN for e in self.tied)

    @property
    def cheaper(self) -> bool:
        """Whether the preferred one needs less than each of the others that tie."""
        return not self.clear and self.known and self.tied[0].cost < self.tied[1].cost

    @property
    def top(self) -> Entry[T]:
        """The one with the highest throughput."""
        return max(self.tied, key=lambda e: e.eps)

    @property
    def how(self) -> str:
        """Why there is no winner, as the verb of a sentence."""
        if any(e.interval == UNKNOWN for e in self.tied):
            return "cannot be told apart, as some have no interval,"
        return "cannot be told apart"


def choose(entries: Sequence[Entry[T]]) -> Choice[T]:
    """Of one entry or more, those that none of the others is surely faster than."""
    faster = ([f for f in entries if f.eps > e.eps] for e in entries)
    tied = [
        e
        for e, those in zip(entries, faster, strict=True)
        if all(tie(e.evidence, f.evidence) for f in those)
    ]
    choice = Choice(tuple(sorted(tied, key=lambda e: -e.eps)))
    return Choice(tuple(sorted(choice.tied, key=lambda e: e.cost))) if choice.known else choice


def sizes(rows: Iterable[Row]) -> list[int | None]:
    """Examples of one step of the whole job, each number once, from the least on; None: of older
    sweeps, which do not say."""
    return sorted({row.examples_per_step for row in rows}, key=lambda size: size or 0)


def of_size(rows: Iterable[Row], size: int | None) -> list[Row]:
    """Those of so many examples in one step of the whole job."""
    return [row for row in rows if row.examples_per_step == size]


def not_compared(counts: Sequence[int]) -> str:
    """Why there is no winner among what processes ``counts`` examples in a step of the job."""
    least, most = min(counts), max(counts)
    return (
        f"one step of the job processes {least:,} to {most:,} examples, and only where it "
        "processes as many is one compared with another"
    )


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def sentence(choice: Choice[T], among: str, named: Callable[[Sequence[T]], str]) -> str:
    """The finding: who is the fastest ``among`` what.

    ``named``: how some of the items are called together.
    """
    preferred = choice.preferred
    first = named([preferred.item])
    if choice.clear:
        return f"{first} is the fastest of {among} with {rated(preferred)}"
    if not choice.known:
        return (
            f"no interval is known, so that none of {among} is surely the fastest; the highest is "
            f"{first} with {rated(preferred)}"
        )
    said = f"{named([e.item for e in choice.tied])} {choice.how} and are the fastest of {among}"
    if not choice.cheaper:
        return f"{said} with up to {rated(choice.top)}; none of them is the cheapest"
    count, rate = preferred.cost[0], preferred.cost[-1]
    needs = f"{count:,} {'process' if count == 1 else 'processes'}"
    if rate and rate < choice.tied[1].cost[-1]:
        needs = f"{needs}, slower network cards"
    return f"{said}; {first} is the cheapest of them ({needs}) with {rated(preferred)}"


def rated(entry: Entry[T]) -> str:
    """The throughput with its interval: "473k examples/s (450k to 496k)"."""
    if entry.interval == UNKNOWN:
        return f"{text.rate(entry.eps)} examples/s"
    return f"{text.rate(entry.eps)} examples/s ({text.between(entry.interval)})"


def entry_of_run(record: RunRecord) -> Entry[RunRecord]:
    """A finished prediction with a throughput."""
    summary, cluster = record.summary, record.manifest.get("cluster") or {}
    eps, facts = summary.examples_per_second or 0.0, record.facts
    processes = len((record.manifest.get("plan") or {}).get("processes") or ())
    threads = summary.trainers * summary.computing_threads
    return Entry(
        record,
        eps,
        of_summary(summary) or UNKNOWN,
        evidence(
            eps,
            summary.ci95,
            facts.calibration_ci95,
            facts.calibration_errors,
            prices=cluster.get("name"),
            strategy=f"{record.strategy} {record.manifest['strategy'].get('options') or {}}",
        ),
        (processes, cores_of(facts, bool(cluster.get("colocate"))) or 0.0, threads, 0.0),
        summary.synchronisation.elp,
    )


def best_row(rows: Sequence[Row]) -> Row:
    """The fastest row, of those that tie the cheapest; of repeats the middle one counts. Of rows
    that differ in the examples of a step, one of those with most."""
    return choose(contenders(of_size(rows, sizes(rows)[-1]))).preferred.item


def contenders(rows: Sequence[Row]) -> list[Entry[Row]]:
    """Rows with a throughput; of repeats the middle one, with the range of all of them."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        swept = [value for key, value in row.settings.items() if key != REPEATS]
        groups.setdefault(repr((row.strategy, row.options, row.profile, swept)), []).append(row)
    return [_contender(group) for group in groups.values()]


def _contender(group: Sequence[Row]) -> Entry[Row]:
    found = [row.examples_per_second or 0.0 for row in group]
    middle = median(found)
    eps, row = min(zip(found, group, strict=True), key=lambda pair: abs(pair[0] - middle))
    roles = row.trainers, row.embedding_servers, row.dense_servers, row.readers
    threads = (row.trainers or 0) * (row.threads or 0) * (row.operation_threads or 1)
    cards = [
        parse_quantity(value, RATES, "", "")
        for key, value in row.settings.items()
        if key.endswith(".nic") and isinstance(value, str)
    ]
    cost = sum(count or 0 for count in roles), row.cores or 0.0, threads, sum(cards)
    return Entry(row, eps, row.interval90(found) or UNKNOWN, row.evidence(found), cost)
