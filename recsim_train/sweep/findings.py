"""What a sweep shows: axes, lines over one of them, best points, and what binds where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from recsim_train.config.sweep import written
from recsim_train.report import naming
from recsim_train.report.runs import title
from recsim_train.report.what_if import NOT_ASKED
from recsim_train.report.winner import (
    REPEATS,
    Choice,
    best_row,
    choose,
    contenders,
    listed,
    not_compared,
    of_size,
    rated,
    sentence,
    sizes,
)
from recsim_train.results.row import Row
from recsim_train.sweep.answers import (
    SCALING,
    Axis,
    SettingAnswer,
    answers,
    axis_of,
    settings_of,
)
from recsim_train.sweep.folder import SweepRecord

MOST_LINES = 8
"""Lines that can be told apart in one figure."""

MOST_NAMED = 4
"""Points that tie are named one by one up to so many."""


class Dot(NamedTuple):
    """One point of a line, with its value of the line's axis."""

    value: Any
    row: Row


@dataclass(frozen=True, slots=True)
class SweepLine:
    """Points that differ in one setting only, or the best of those that differ in more."""

    label: str
    dots: tuple[Dot, ...]
    missing: tuple[Any, ...]
    """Values of the axis without a figure: what did not fit, or failed."""


@dataclass(frozen=True)
class SweepFindings:
    """A sweep and what follows from it."""

    record: SweepRecord

    @cached_property
    def done(self) -> list[Row]:
        """Points with a throughput."""
        return [r for r in self.record.rows if r.examples_per_second]

    @cached_property
    def without(self) -> list[Row]:
        """Points without one."""
        return [r for r in self.record.rows if not r.examples_per_second]

    @cached_property
    def axes(self) -> list[Axis]:
        """Swept settings with two values or more."""
        keys = [k for k in self.record.keys if len(self.record.header["axes"][k]) > 1]
        return [axis_of(key, self.record.header["axes"][key], keys) for key in keys]

    @cached_property
    def x(self) -> Axis | None:
        """The numeric axis that lines are drawn over: trainers or threads if they are swept, else
        the one with most values."""
        numeric = [a for a in self.axes if a.numbers is not None and a.key != REPEATS]
        scaling = [a for key in SCALING for a in numeric if a.key == key]
        return scaling[0] if scaling else max(numeric, key=lambda a: len(a.values), default=None)

    @cached_property
    def free(self) -> list[Axis]:
        """Axes that do not follow from x, repeats left out."""
        return [
            axis
            for axis in self.axes
            if axis is not self.x and axis.key != REPEATS and not self._follows(axis)
        ]

    def _follows(self, axis: Axis) -> bool:
        if self.x is None:
            return False
        keys = self.x.key, axis.key
        both = {tuple(repr(row.settings.get(k)) for k in keys) for row in self.record.rows}
        return len(both) == len({x for x, _ in both})

    def strategy(self, row: Row) -> str:
        """A row's strategy with the options that are not swept."""
        swept = {k.removeprefix("strategy.").split(".")[0] for k in self.record.keys}
        options = {k: v for k, v in (row.options or {}).items() if k not in swept}
        return title(row.strategy, options)

    @cached_property
    def strategies(self) -> list[str]:
        """In the order of the points."""
        return list(dict.fromkeys(map(self.strategy, self.record.rows)))

    @cached_property
    def told_apart(self) -> list[Axis]:
        """The axes whose values have lines of their own; of the others the best counts."""
        chosen: list[Axis] = []
        for axis in self.free:
            if len({self._label(row, [*chosen, axis]) for row in self.record.rows}) <= MOST_LINES:
                chosen.append(axis)
        return chosen

    @property
    def best_of(self) -> list[Axis]:
        """The axes of which a line holds the best value."""
        return [a for a in self.free if a not in self.told_apart]

    def _label(self, row: Row, axes: Sequence[Axis]) -> str:
        parts = settings_of(row, axes)
        name = self.strategy(row) if len(self.strategies) > 1 or not parts else ""
        return ", ".join([name, *parts] if name else parts)

    @cached_property
    def lines(self) -> list[SweepLine]:
        """Throughput over x."""
        if self.x is None:
            return []
        order = self.strategies.index
        grouped: dict[str, list[Row]] = {}
        for row in sorted(self.record.rows, key=lambda r: order(self.strategy(r))):
            grouped.setdefault(self._label(row, self.told_apart), []).append(row)
        lines = []
        for label, rows in grouped.items():
            key = self.x.key
            at = {v: [r for r in rows if r.settings.get(key) == v] for v in self.x.values}
            done = {v: [r for r in there if r.examples_per_second] for v, there in at.items()}
            dots = tuple(Dot(value, best_row(there)) for value, there in done.items() if there)
            lines.append(SweepLine(label, dots, tuple(v for v in at if at[v] and not done[v])))
        return lines[:MOST_LINES]

    @cached_property
    def sizes(self) -> list[int | None]:
        """Of points with a throughput: examples of one step of the whole job, each number once."""
        return sizes(self.done)

    @cached_property
    def fastest(self) -> Choice[Row] | None:
        """Of all points with a throughput; None: there is none, or they differ in the examples of a
        step, so that they are not compared."""
        return choose(contenders(self.done)) if len(self.sizes) == 1 else None

    @cached_property
    def best(self) -> list[tuple[str, Row]]:
        """(strategy, its fastest point; of those that tie the cheapest), for each number of
        examples of a step. Strategies that tie with the fastest come first, the cheapest of them
        leading, then the others by throughput."""
        return [pair for size in self.sizes for pair in self._best_of(of_size(self.done, size))]

    def _best_of(self, done: list[Row]) -> list[tuple[str, Row]]:
        tied = [e.item for e in choose(contenders(done)).tied]
        best = []
        for name in self.strategies:
            if rows := [r for r in done if self.strategy(r) == name]:
                own = [row for row in tied if self.strategy(row) == name]
                best.append((name, own[0] if own else best_row(rows)))

        def place(pair: tuple[str, Row]) -> tuple[int, float]:
            last = len(tied), -(pair[1].examples_per_second or 0.0)
            return (tied.index(pair[1]), 0.0) if pair[1] in tied else last

        return sorted(best, key=place)

    @cached_property
    def bindings(self) -> list[str]:
        """What binds anywhere, most frequent first."""
        counts = Counter(map(binding, self.done))
        return sorted(counts, key=lambda name: (-counts[name], name))

    @cached_property
    def changes(self) -> list[str]:
        """Of each line: what binds, and where that changes."""
        best = " and ".join(axis.label for axis in self.best_of)
        at = f" (with the best {best} at each place)" if best else ""
        return [s + at for line in self.lines if (s := self._changes(line))]

    def _changes(self, line: SweepLine) -> str:
        assert self.x is not None
        same = groupby(line.dots, key=lambda dot: binding(dot.row))
        runs = [(name, [written(dot.value) for dot in dots]) for name, dots in same]
        if len(runs) < 2:
            return f"{line.label}: {runs[0][0]} throughout" if runs else ""
        said = [f"{runs[0][0]} up to {self.x.label} {runs[0][1][-1]}"]
        for name, values in runs[1:-1]:
            at = f"at {values[0]}" if len(values) == 1 else f"from {values[0]} to {values[-1]}"
            said.append(f"{name} {at}")
        said.append(f"{runs[-1][0]} from {runs[-1][1][0]} on")
        return f"{line.label}: {', '.join(said)}"

    def settings(self, row: Row) -> str:
        """A row's swept settings."""
        return ", ".join(settings_of(row, self.axes))

    def named(self, rows: Sequence[Row]) -> str:
        """Points in a sentence: "trainers 1, 2 and 4", "flat_ps at nic 5 Gbit/s and allreduce"."""
        if len(rows) > MOST_NAMED:
            return f"{len(rows)} points"
        differing = [a for a in self.axes if len({repr(r.settings.get(a.key)) for r in rows}) > 1]
        alike = len({self.strategy(r) for r in rows}) == 1
        if len(self.strategies) == 1 and alike and len(differing) == 1:
            (axis,) = differing
            values = sorted((r.settings[axis.key] for r in rows), key=axis.values.index)
            others = [a for a in self.axes if a is not axis and a.key != REPEATS]
            shared = settings_of(rows[0], others)
            at = f" (at {', '.join(shared)})" if shared else ""
            return f"{axis.label} {listed([written(v) for v in values])}{at}"
        several = len(self.strategies) > 1
        names = [
            " at ".join(filter(None, [self.strategy(row) * several, self.settings(row)]))
            for row in rows
        ]
        return listed([name or self.strategy(rows[0]) for name in names])

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        if not self.done:
            return "No point has a throughput"
        if self.fastest is None:
            known = [size for size in self.sizes if size is not None]
            return f"There is no fastest of {len(self.done)} points: {not_compared(known)}"
        return self._finding(self.fastest, self.done)

    @property
    def findings(self) -> list[str]:
        """Where points differ in the examples of a step: a sentence for each number of them that
        more than one point has."""
        if self.fastest is not None:
            return []
        return [
            f"At {size or 0:,} examples a step {self._finding(choose(entries), rows)}"
            for size in self.sizes
            if len(entries := contenders(rows := of_size(self.done, size))) > 1
        ]

    @cached_property
    def answers(self) -> list[SettingAnswer]:
        """Setting by setting, which value to take."""
        return answers([(self.strategy(row), row) for row in self.done], self.axes)

    @cached_property
    def notes(self) -> list[str]:
        """What predictions say of themselves, each sentence once, and of how many points it is
        where it is not of all. Of those that differ in their figures only, the first stands for
        all."""
        notes = (note for row in self.record.rows for note in row.notes or ())
        said = Counter(map(naming.phrase, notes))
        alike: dict[str, list[str]] = {}
        for note in said:
            alike.setdefault(re.sub(r"[\d.,]*\d", "#", note), []).append(note)
        many, found = len(self.done), []
        if unsure := [row for row in self.done if row.interval90() is None]:
            found = [
                f"{len(unsure)} of {many} points have no interval, so that nothing tells them "
                f"apart: {NOT_ASKED}, or the profile says nothing of them."
            ]
        for first, *others in alike.values():
            count = said[first] + sum(said[note] for note in others)
            figures = ", each with figures of its own" if others else ""
            of = f" ({count} of {many} points{figures})" if count < many or others else ""
            found.append(f"{first}{of}")
        return found

    def _finding(self, choice: Choice[Row], rows: Sequence[Row]) -> str:
        row = choice.preferred.item
        points = f"{len(rows)} {'point' if len(rows) == 1 else 'points'}"
        if not choice.clear:
            where = "there" if choice.cheaper else "at the highest"
            shown = row if choice.cheaper else choice.top.item
            return f"{sentence(choice, points, self.named)}; {binding(shown)} binds {where}"
        at = f" at {self.settings(row)}" if self.settings(row) else ""
        return (
            f"{self.strategy(row)} is the fastest of {points} with {rated(choice.preferred)}{at}; "
            f"{binding(row)} binds there"
        )

    def document(self) -> dict[str, Any]:
        """The document of ``report --json`` and of summary.json."""
        return {
            "sweep": {
                "name": self.record.header["name"],
                "axes": self.record.header["axes"],
                "points": len(self.record.header["points"]),
                "finished": len(self.record.rows),
                "without_figure": len(self.without),
                "complete": self.record.complete,
            },
            "headline": self.headline,
            "answers": [answer.document() for answer in self.answers],
            "findings": self.findings,
            "fastest": self._fastest_document(),
            "examples_per_step": self.sizes,
            "best": [{"label": name, "point": _short(row)} for name, row in self.best],
            "over": self.x.key if self.x else None,
            "lines": [
                {
                    "label": line.label,
                    "points": [
                        {
                            "value": dot.value,
                            "examples_per_second": dot.row.examples_per_second,
                            "ci95": [dot.row.eps_low, dot.row.eps_high],
                            "calibration_ci95": [
                                dot.row.calibration_low,
                                dot.row.calibration_high,
                            ],
                            "examples_per_step": dot.row.examples_per_step,
                            "bound_eps": dot.row.bound_eps,
                            "binding": binding(dot.row),
                        }
                        for dot in line.dots
                    ],
                    "missing": list(line.missing),
                }
                for line in self.lines
            ],
            "best_of": [a.key for a in self.best_of],
            "binding": self.bindings,
            "changes": self.changes,
            "notes": self.notes,
            "not_fitting": [
                {"point": r.number, "status": r.status, "message": r.message} for r in self.without
            ],
        }

    def _fastest_document(self) -> dict[str, Any] | None:
        if (choice := self.fastest) is None:
            return None
        row = choice.preferred.item
        return {
            "clear": choice.clear,
            "cheapest": choice.cheaper,
            "label": self.strategy(row),
            "point": row.number,
            "examples_per_second": row.examples_per_second,
            "tied": [e.item.number for e in choice.tied],
        }


def _short(row: Row) -> dict[str, Any]:
    figures = row.document.items()
    return {k: v for k, v in figures if k == "binding" or not isinstance(v, dict)}


def binding(row: Row) -> str:
    """What binds, without which one of several equal processes: "network card of dense server,
    receiving"."""
    return naming.binds(row.what_binds, numbered=False)
