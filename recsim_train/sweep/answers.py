"""A sweep's settings as axes, and what it answers of each: which value to take, or that it makes no
difference.

For each setting, points are compared that are equal in all others. Those tie that cannot be told
apart, as everywhere (`recsim_train.report.winner`): a dearer value is worth it only where it does
not tie with a cheaper one. Where the setting changes how many examples
a step of the job processes, the work is another, and the answer is how the throughput grows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from recsim_train.config.points import accepted
from recsim_train.config.sweep import written
from recsim_train.config.tables import rows_of
from recsim_train.config.units import SHARE
from recsim_train.report import text
from recsim_train.report.winner import (
    REPEATS,
    Entry,
    best_row,
    choose,
    contenders,
    listed,
    sizes,
)
from recsim_train.results.row import Row

SCALING = ("roles.trainers", "training.threads")
"""Settings of which twice as much would ideally be twice as fast."""
_COSTS = ("nic", "cores", "memory", "threads")
"""Last words of settings of which more is dearer, beside those of roles."""
_WORKLOAD = ("model", "data")
"""Sections that say what is to be done: nobody takes another value for speed alone."""
_NOTHING = 0.02
"""Relative differences of the predicted throughputs up to this are called none where intervals do
not tell them from it either."""
_STRATEGY = "strategy"
_MOST_CASES = 2
"""Named of those in which the answer is another."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One swept setting."""

    key: str
    label: str
    """Short name."""
    values: tuple[Any, ...]
    """As written, sorted where they are numbers."""
    numbers: tuple[float, ...] | None
    """The same as numbers; None: they are names."""
    unit: str = ""
    """Of the numbers, where they are quantities."""

    def number(self, value: Any) -> float:
        """A value's place on a numeric axis."""
        assert self.numbers is not None
        return self.numbers[self.values.index(value)]


def settings_of(row: Row, axes: Iterable[Axis]) -> list[str]:
    """Which values a point has, in words."""
    there = ((axis, row.settings.get(axis.key)) for axis in axes)
    return [f"{axis.label} {written(value)}" for axis, value in there if value is not None]


def axis_of(key: str, values: Iterable[Any], keys: Sequence[str]) -> Axis:
    """The axis of one swept setting; ``keys``: of all, among which its label must be unique."""
    last = key.rsplit(".", 1)[-1]
    unique = sum(k.rsplit(".", 1)[-1] == last for k in keys) == 1
    label = (last if unique else key).replace("_", " ")
    made = tuple(values)
    numbers, unit = _numbers(key, made)
    if numbers is not None:
        order = sorted(range(len(made)), key=numbers.__getitem__)
        made, numbers = tuple(made[i] for i in order), tuple(numbers[i] for i in order)
    return Axis(key, label, made, numbers, unit)


def _numbers(key: str, values: Sequence[Any]) -> tuple[tuple[float, ...] | None, str]:
    """Of a setting that takes quantities those in the unit of the first, of one that counts rows
    those in short, too; None where not all are numbers."""
    path = tuple(key.split("."))
    what = accepted((*path, "value")) or accepted(path)  # a price may be written as its value
    quantity = SHARE if path[0] == "strategy" else None if what is None else what.quantity
    if quantity is not None and all(isinstance(value, str) for value in values):
        unit = values[0].lstrip("+-._0123456789eE ").rstrip()
        with suppress(ValueError):
            return tuple(quantity.read(value) / quantity.units[unit] for value in values), unit
        return None, ""
    read = map(rows_of, values) if re.match(r"model\.(.*\.)?(max_)?rows$", key) else values
    numbers = [v for v in read if isinstance(v, int | float) and not isinstance(v, bool)]
    return (tuple(map(float, numbers)) if len(numbers) == len(values) else None), ""


@dataclass(frozen=True, slots=True)
class SettingAnswer:
    """To what value one setting should have."""

    setting: str
    short: str
    """In a few words."""
    why: str
    """A sentence without a full stop."""

    def document(self) -> dict[str, str]:
        """The entry of ``answers`` in the report's JSON."""
        return {"setting": self.setting, "answer": self.short, "why": self.why}


Case = dict[Any, Entry[Row]]
"""Points that differ in one setting only, by its value; at least two."""


Points = Sequence[tuple[str, Row]]
"""Those of a sweep that have a throughput, each with what its strategy is called."""


def answers(points: Points, axes: Sequence[Axis]) -> list[SettingAnswer]:
    """One for each setting that has several values somewhere, strategies among them. ``axes``:
    settings of several values."""
    strategies = {name: name for name, _ in points}
    others = [axis for axis in axes if axis.key != REPEATS]
    made = [_answer(points, axis, others, named=len(strategies) > 1) for axis in others]
    if len(strategies) > 1:
        # what is an option of one of them says nothing of the others
        shared = [axis for axis in others if not axis.key.startswith("strategy.")]
        cases = _cases(points, None, shared, named=False, mixed=False)
        made.append(_same_work(_STRATEGY, strategies, cases, costs=False) if cases else None)
    return [answer for answer in made if answer is not None]


def _answer(
    points: Points, axis: Axis, others: Sequence[Axis], *, named: bool
) -> SettingAnswer | None:
    there = [(name, row) for name, row in points if row.settings.get(axis.key) is not None]
    cases = _cases(there, axis, others, named=named, mixed=axis.numbers is not None)
    if not cases:
        return None
    values = {_key(value): written(value) for value in axis.values}
    of_steps = (sizes(entry.item for entry in case.values()) for _, case in cases)
    if axis.numbers and any(len(examples) > 1 for examples in of_steps):
        return _growth(axis, values, [case for _, case in cases])
    costs = axis.numbers is not None and (
        axis.key.startswith("roles.") or axis.key.rsplit(".", 1)[-1] in _COSTS
    )
    answer = _same_work(axis.label, values, cases, costs=costs)
    if axis.key.partition(".")[0] in _WORKLOAD:
        return replace(answer, short=re.sub("^take (.*)", r"\1 is the fastest", answer.short))
    return answer


def _key(value: Any) -> Any:
    """A value as a dictionary takes it."""
    return written(value) if isinstance(value, list | dict) else value


def _cases(
    points: Points, axis: Axis | None, others: Sequence[Axis], *, named: bool, mixed: bool
) -> list[tuple[str, Case]]:
    """Points that are equal but for one setting, or, None, for the strategy, with what they share.
    ``named``: that is told with the strategy; ``mixed``: they may differ in the examples of a step,
    too."""
    fixed = [other for other in others if other is not axis]
    grouped: dict[tuple[str, int | None], dict[Any, list[Row]]] = {}
    for name, row in points:
        shared = [*([name] if named else ()), *settings_of(row, fixed)]
        value = name if axis is None else _key(row.settings.get(axis.key))
        size = None if mixed else row.examples_per_step
        grouped.setdefault((", ".join(shared), size), {}).setdefault(value, []).append(row)
    cases = []
    for (shared_by, _), by_value in grouped.items():
        case = {v: _entry(same, best=axis is None) for v, same in by_value.items()}
        if len(case) > 1:
            cases.append((shared_by, case))
    return cases


def _entry(rows: Sequence[Row], *, best: bool) -> Entry[Row]:
    """Of repeats the middle one; of a strategy's options the ``best``."""
    entries = contenders(rows)
    if best and len(entries) > 1:
        chosen = best_row(rows)
        return next(e for e in entries if e.item is chosen)
    return choose(entries).top


def _growth(axis: Axis, values: dict[Any, str], cases: Sequence[Case]) -> SettingAnswer:
    """How the throughput grows with a setting that changes the work of a step."""
    factors, shares, enough = [], [], []
    for case in cases:
        there = [value for value in values if value in case]
        first, last = there[0], there[-1]
        factors.append(case[last].eps / case[first].eps)
        if axis.key in SCALING and axis.number(first):
            shares.append(factors[-1] * axis.number(first) / axis.number(last))
        tied = [entry.item for entry in choose(list(case.values())).tied]
        enough.append(next(value for value in there if case[value].item in tied))
    ends = list(values)
    most = max(enough, key=ends.index)
    times = _range(factors, lambda factor: f"{factor:.2g}")
    said = [f"{_range(shares, text.percent)} of linear"] if shares else []
    if most != ends[-1] and all(choose(list(case.values())).known for case in cases):
        said.append(f"beyond {values[most]} no growth that the intervals tell")
    short = f"{times} times as fast with {values[ends[-1]]} as with {values[ends[0]]}"
    return SettingAnswer(
        axis.label, short, "; ".join(said) or "a step processes more examples, too"
    )


def _same_work(
    label: str, values: dict[Any, str], cases: Sequence[tuple[str, Case]], *, costs: bool
) -> SettingAnswer:
    """Which value to take, where all do the same work. ``costs``: later values are dearer."""
    tied = []
    for _, case in cases:
        best = [entry.item for entry in choose(list(case.values())).tied]
        tied.append([value for value in values if value in case and case[value].item in best])
    there = [value for value in values if any(value in case for _, case in cases)]
    common = [
        value for value in there
        if all(value in best or value not in case
               for best, (_, case) in zip(tied, cases, strict=True))
    ]  # fmt: skip
    if not common:
        return _depends(label, values, cases, tied)
    speeds = {v: fmean(case[v].eps for _, case in cases if v in case) for v in common}
    chosen = common[0] if costs else max(common, key=speeds.__getitem__)
    apart = {v: _gains(chosen, v, cases) for v in there if v != chosen}
    alike = {v: gains for v, gains in apart.items() if v in common}
    rest = {v: gains for v, gains in apart.items() if v not in common}
    nothing = all(abs(gain) <= _NOTHING for gains in alike.values() for gain in gains)
    signed = partial(text.percent, signed=True)
    why = [f"{values[v]} gives {_range(gains, signed)}" for v, gains in (alike | rest).items()]
    if not rest:
        short = "no difference" if nothing else "no sure difference"
        if costs:
            short = f"keep {values[chosen]}: {short if nothing else 'no sure gain'}"
        told = "" if nothing else ", within the intervals"
        if told and not any(choose(list(case.values())).known for _, case in cases):
            short, told = "not known", ", and no interval is known"
        return SettingAnswer(label, short, f"{listed(why)}{told}")
    short = f"{values[chosen]} is enough" if costs and alike else f"take {values[chosen]}"
    return SettingAnswer(label, short, listed(why))


def _depends(
    label: str, values: dict[Any, str], cases: Sequence[tuple[str, Case]], tied: Sequence[list[Any]]
) -> SettingAnswer:
    first = [best[0] for best in tied]
    counts = Counter(first).most_common()
    said = []
    for value, count in counts:
        where = [shared for (shared, _), best in zip(cases, first, strict=True) if best == value]
        named = f" ({'; '.join(where)})" if count <= _MOST_CASES else ""
        said.append(f"{values[value]} in {count} of {len(cases)} cases{named}")
    return SettingAnswer(label, "it depends", f"best, or as good as the best: {listed(said)}")


def _gains(chosen: Any, other: Any, cases: Sequence[tuple[str, Case]]) -> list[float]:
    """How much faster the other is, relative, in each case that has both."""
    both = [case for _, case in cases if chosen in case and other in case]
    return [case[other].eps / case[chosen].eps - 1 for case in both]


def _range(figures: Sequence[float], said: Any) -> str:
    """Of all cases: one figure where they agree."""
    if not figures:
        return text.NONE
    low, high = said(min(figures)), said(max(figures))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"
