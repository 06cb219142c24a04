"""A whole training at a predicted throughput: how long it takes, and what its hosts cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsim_train.report import text
from recsim_train.results.row import BILLION, Interval, Row, of_summary
from recsim_train.results.summary import Summary
from recsim_train.trace.facts import Rented

HEAD = "cost/1e9 examples"
"""Of a column."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Training on so many examples. Ends of intervals are those of the prediction's 90 % one."""

    examples: float
    seconds: float
    seconds90: tuple[float, float] | None
    cost: float | None = None
    """None: not all hosts have a price."""
    cost90: tuple[float, float] | None = None
    currency: str | None = None


def whole_training(summary: Summary, examples: float) -> Whole | None:
    """None where there is no throughput. What goes on beside training (evaluation, checkpoints,
    starting) is not in it."""
    eps = summary.examples_per_second
    return whole_of(examples, eps, of_summary(summary), summary.facts.rented) if eps else None


def whole_of(examples: float, eps: float, rates: Interval | None, rented: Rented | None) -> Whole:
    """At ``eps`` examples per second, of which ``rates`` are the 90 % interval."""
    ends = None if rates is None or not rates[0] else (examples / rates[1], examples / rates[0])
    if rented is None:
        return Whole(examples, examples / eps, ends)
    costs = None if ends is None else (rented.cost(ends[0]), rented.cost(ends[1]))
    seconds = examples / eps
    return Whole(examples, seconds, ends, rented.cost(seconds), costs, rented.currency)


def sentences(summary: Summary) -> list[str]:
    """What an hour and a billion examples cost; nothing where not every host has a price."""
    rented, whole = summary.facts.rented, whole_training(summary, BILLION)
    if rented is None or whole is None:
        return []
    hour = text.money(rented.per_hour, rented.currency)
    hosts = "The host costs" if rented.hosts == 1 else f"The {rented.hosts} hosts cost"
    said = f"{hosts} {hour} an hour ({'; '.join(rented.sources)})"
    return [f"{said}: {amount(whole, whole.cost90)} for a billion examples"]


def amount(whole: Whole, interval: Sequence[float] | None) -> str:
    """What it costs, with the ends of its interval."""
    if whole.cost is None or whole.currency is None:
        return text.NONE
    ends = [text.money(end, whole.currency) for end in interval or ()]
    return text.money(whole.cost, whole.currency) + (f" ({' to '.join(ends)})" if ends else "")


def cell(summary: Summary) -> str:
    """Of a billion examples, without its interval."""
    whole = whole_training(summary, BILLION)
    return text.NONE if whole is None else amount(whole, ())


def of_row(row: Row) -> str:
    """As `cell`, of a row of many."""
    if row.cost_per_billion is None or row.currency is None:
        return text.NONE
    return text.money(row.cost_per_billion, row.currency)


def whole_said(summary: Summary, examples: float) -> str:
    """How long a whole training takes and what it costs; empty without a throughput."""
    whole = whole_training(summary, examples)
    if whole is None:
        return ""
    ends = [text.duration(end) for end in whole.seconds90 or ()]
    said = f"Training on {text.rate(examples)} examples takes {text.duration(whole.seconds)}"
    said += f" ({' to '.join(ends)})" if ends else ""
    costs = "what it costs is not known, because not every host has a price (rent)"
    return f"{said}; {costs if whole.cost is None else f'it costs {amount(whole, whole.cost90)}'}"
