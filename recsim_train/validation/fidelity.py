"""How true predictions are: what a validation's predictions and measurements come to; and its
gates: each a bar, the figure that is held to it, and what comes of it.

Pure functions of both: nothing is run, read or written here. Nothing is left out quietly: where one
run of one configuration is missing, or what a figure needs of it is not known, there is not enough
data for the figure, and its gate does not hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import comb
from statistics import median
from typing import Any, Literal

from recsim_train.config.experiment import Gates
from recsim_train.config.measured import MachineSpeeds
from recsim_train.results.statistics import quantile
from recsim_train.results.undisturbed import Moved, moved
from recsim_train.validation.configurations import MOST_DROPPED, Configuration, Measured, Predicted

LINEAR, ROOFLINE = "linear scaling from one trainer", "roofline bound"


@dataclass(frozen=True, slots=True)
class Errors:
    """Signed errors in short."""

    count: int
    median_signed: float
    median: float
    """Of the absolute values, as the next two."""
    p90: float
    """Nine in ten are at most this."""
    largest: float


def errors_of(signed: Sequence[float]) -> Errors | None:
    """None where there are none."""
    if not signed:
        return None
    absolute = [abs(value) for value in signed]
    largest = max(absolute)
    return Errors(len(signed), median(signed), median(absolute), quantile(absolute, 0.9), largest)


def raw_errors(rows: Iterable[Configuration]) -> Errors | None:
    """Of all runs of some configurations."""
    return errors_of([error for row in rows for error in row.raw_errors])


@dataclass(frozen=True, slots=True)
class Baseline:
    """A naive prediction beside ours, where it can be made."""

    name: str
    left_out: int
    """Measured ones that do not."""
    errors: tuple[float, ...]
    """Its signed errors."""
    ours: float | None
    """Our median absolute error, of the configurations that have it; None without any."""

    @property
    def count(self) -> int:
        """Configurations that have it."""
        return len(self.errors)

    @property
    def error(self) -> float | None:
        """Its median absolute error; None without any."""
        return median([abs(error) for error in self.errors]) if self.errors else None

    @property
    def ratio(self) -> float | None:
        """How many times as large as ours; None where that is not defined."""
        return self.error / self.ours if self.error is not None and self.ours else None


@dataclass(frozen=True, slots=True)
class RightOrder:
    """Pairs of configurations whose measured difference is beyond their noise."""

    pairs: int
    right: int
    """Of them, predicted in the order measured."""
    within: int
    """Other pairs: their measured difference may be noise, or their noise is not known."""

    @property
    def share(self) -> float | None:
        """Right ones; None without a pair."""
        return self.right / self.pairs if self.pairs else None


LINE_COUNTS, LINE_OFF = 0.03, 0.15
"""Share of all CPU time from which a line counts; and how far it may be off."""


@dataclass(frozen=True, slots=True)
class CpuLine:
    """One line of the ledgers of several configurations. Shares are of all measured CPU time."""

    name: str
    predicted: float
    """Share, mean over configurations."""
    measured: float
    counts: int
    """Configurations in which it is more than `LINE_COUNTS`, predicted or measured."""
    off: int
    """Of them, those in which it is more than `LINE_OFF` away from what was measured."""
    misplaced: float
    """Mean share of CPU time by which the prediction is wrong here."""
    worst: str
    """The configuration in which that is most."""

    @property
    def ratio(self) -> float | None:
        """Predicted / measured; None where nothing was measured."""
        return self.predicted / self.measured if self.measured else None


def cpu_lines(rows: Iterable[Configuration]) -> list[CpuLine]:
    """Both ledgers of some configurations, what is wrong by most first; those without left out."""
    known = [(row.predicted.label, cpu) for row in rows if (cpu := row.cpu)]
    found = []
    for name in sorted({name for _, cpu in known for name in cpu}):
        pairs = [cpu.get(name, (0.0, 0.0)) for _, cpu in known]
        apart = [abs(p - m) for p, m in pairs]
        large = [(p, m) for p, m in pairs if max(p, m) > LINE_COUNTS]
        count = len(known)
        found.append(
            CpuLine(
                name,
                sum(p for p, _ in pairs) / count,
                sum(m for _, m in pairs) / count,
                len(large),
                sum(abs(p - m) > LINE_OFF * m for p, m in large),
                sum(apart) / count,
                known[apart.index(max(apart))][0],
            )
        )
    return sorted(found, key=lambda line: -line.misplaced)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """All that follows from predictions and measurements."""

    rows: tuple[Configuration, ...]
    """One for each configuration that was predicted, measured or not."""
    repeats: int
    """How often each was to be measured."""
    at_calibration: MachineSpeeds | None = None
    """The machine's speed then; None: not known, or that of another machine."""

    @property
    def measured(self) -> list[Configuration]:
        """Those that were measured."""
        return [row for row in self.rows if row.runs]

    @property
    def with_dropped(self) -> Fidelity:
        """The same as if runs that break an invariant counted."""
        return replace(self, rows=tuple(row.with_dropped for row in self.rows))

    @property
    def complete(self) -> bool:
        """Whether every repeat of every configuration was measured."""
        return all(len(row.runs) >= self.repeats for row in self.rows)

    @property
    def raw(self) -> Errors | None:
        """Errors of all single runs of all configurations."""
        return raw_errors(self.rows)

    @property
    def moved(self) -> Moved | None:
        """How the machine's speed, idle before and after the runs, moved since its calibration."""
        return moved(self.at_calibration, [run.speeds for row in self.rows for run in row.runs])

    @property
    def order(self) -> RightOrder:
        """A pair counts where its difference exceeds the sum of both noises. A configuration's
        noise is its own spread, and at least the median of all: few repeats may agree by luck."""
        rows = self.measured
        known = [row.spread for row in rows if row.spread is not None]
        usual = median(known) if known else 0.0
        pairs = right = 0
        for a, b in itertools.combinations(rows, 2):
            first, second = a.measured, b.measured
            assert first is not None
            assert second is not None
            if a.spread is None or b.spread is None:
                continue
            noise = first * max(a.spread, usual) + second * max(b.spread, usual)
            if abs(first - second) > noise:
                pairs += 1
                apart = a.predicted.examples_per_second - b.predicted.examples_per_second
                right += apart * (first - second) > 0
        return RightOrder(pairs, right, comb(len(rows), 2) - pairs)

    @property
    def coverage(self) -> tuple[int, int]:
        """(intervals that hold the measurement, all of measured configurations)."""
        known = [row.covered for row in self.rows if row.covered is not None]
        return sum(known), len(known)

    @property
    def half_width(self) -> float | None:
        """Median half width of the 90 % intervals, relative."""
        known = [row.half_width for row in self.measured if row.half_width is not None]
        return median(known) if known else None

    @property
    def baselines(self) -> tuple[Baseline, Baseline]:
        """What could be had without a simulator: linear scaling from one trainer that was measured,
        and the roofline (Williams et al. 2009), the lower of arithmetic and memory's rate."""
        singles = [row for row in self.measured if row.predicted.trainers == 1]
        alone = {row.predicted.setting: row.measured for row in singles}

        def scaled(row: Configuration) -> float | None:
            one = alone.get(row.predicted.setting)
            return None if one is None else one * row.predicted.trainers

        several = [row for row in self.measured if row.predicted.trainers > 1]
        roofline = _baseline(ROOFLINE, self.measured, lambda row: row.predicted.roofline)
        return _baseline(LINEAR, several, scaled), roofline

    def grouped(self, by: Callable[[Predicted], str]) -> dict[str, list[Configuration]]:
        """Measured configurations by some property that they have, in order of appearance."""
        found: dict[str, list[Configuration]] = {}
        for row in self.measured:
            if value := by(row.predicted):
                found.setdefault(value, []).append(row)
        return found


GROUPS: Mapping[str, Callable[[Predicted], str]] = {
    "strategy": lambda p: p.strategy,
    "regime": lambda p: p.regime,
    "model": lambda p: p.model,
    "trainers": lambda p: str(p.trainers),
    "threads": lambda p: str(p.threads),
    "batch size": lambda p: str(p.batch_size),
    "queue": lambda p: p.queue,
    "compute": lambda p: p.compute,
}
"""What errors are summed up by."""


def _baseline(
    name: str, rows: Sequence[Configuration], predict: Callable[[Configuration], float | None]
) -> Baseline:
    theirs: list[float] = []
    ours: list[float] = []
    for row in rows:
        naive, measured, error = predict(row), row.measured, row.raw_error
        if naive is not None and measured and error is not None:
            theirs.append(naive / measured - 1)
            ours.append(error)
    own = median([abs(error) for error in ours]) if ours else None
    return Baseline(name, len(rows) - len(theirs), tuple(theirs), own)


def fidelity(
    predictions: Iterable[Predicted],
    measurements: Iterable[Measured],
    repeats: int,
    at_calibration: MachineSpeeds | None = None,
    dropped: Iterable[Measured] = (),
) -> Fidelity:
    """Each prediction beside its repeats, of which there should be so many. Measurements of what
    was not predicted are left out. ``dropped``: runs that break an invariant."""
    both = list(measurements), list(dropped)
    rows = (
        Configuration(p, *(tuple(run for run in runs if run.key == p.key) for runs in both))
        for p in predictions
    )
    return Fidelity(tuple(rows), repeats, at_calibration)


def document(found: Fidelity) -> dict[str, Any]:
    """The figures as JSON can hold them (`recsim_train.results.folder.clean`)."""
    order, (held, intervals) = found.order, found.coverage
    every = found.with_dropped
    return {
        "configurations": {"predicted": len(found.rows), "measured": len(found.measured)},
        **_errors(found.rows, every.rows),
        "moved": found.moved,
        "order": {"pairs": order.pairs, "right": order.right, "within_noise": order.within},
        "coverage": {"held": held, "of": intervals},
        "median_half_width": found.half_width,
        "baselines": [
            {
                "name": b.name, "count": b.count, "left_out": b.left_out,
                "median_abs_error": b.error, "ours": b.ours, "ratio": b.ratio,
            }
            for b in found.baselines
        ],
        "cpu_lines": cpu_lines(found.measured),
        "by": {
            name: {
                value: _errors(found.grouped(by).get(value, ()), rows)
                for value, rows in every.grouped(by).items()
            }
            for name, by in GROUPS.items()
        },
    }  # fmt: skip


def _errors(
    rows: Sequence[Configuration], every: Sequence[Configuration]
) -> dict[str, Errors | None]:
    """Of runs that count and of all, and of the bound in place of the prediction."""
    return {
        "raw": raw_errors(rows),
        "with_dropped": raw_errors(every),
        "bound": raw_errors(row.by_bound for row in rows),
    }


_ROUNDING = 1e-9
"""95 % as it is read is no 95 / 100 to the last digit."""
Verdict = Literal["pass", "fail", "not enough data"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate."""

    name: str
    """The setting that states its bar."""
    says: str
    """What is held to which bar, in words."""
    figure: str
    verdict: Verdict

    @property
    def holds(self) -> bool:
        """Whether nothing is to be said against it."""
        return self.verdict == "pass"

    @property
    def sentence(self) -> str:
        """Bar, figure and verdict in one line, without a full stop."""
        return f"{self.says}: {self.figure}: {self.verdict}"

    def document(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**asdict(self), "holds": self.holds}


def judge(found: Fidelity, gates: Gates) -> list[Gate]:
    """Every gate that has a bar, in the order of the settings."""
    held: dict[str, Callable[[Fidelity, float], Iterable[Held]]] = {
        "configurations": _configurations,
        "raw_median": partial(_raw, "median absolute raw error", lambda e: e.median),
        "raw_p90": partial(_raw, "nine in ten absolute raw errors", lambda e: e.p90),
        "order": partial(_order, gates.order_min_pairs),
        "coverage_least": partial(_coverage, "at least", 1),
        "coverage_most": partial(_coverage, "at most", -1),
        "half_width": _half_width,
        "baseline_factor": _baselines,
    }
    bars = {name: bar for name in held if (bar := getattr(gates, name)) is not None}
    return [_gate(name, *one) for name, bar in bars.items() for one in held[name](found, bar)]


Held = tuple[str, str, bool, bool]
"""What is held to which bar, its figure, whether there are enough data for it, and whether it is
within the bar."""


def _gate(name: str, says: str, figure: str, enough: bool, within: bool) -> Gate:
    verdict: Verdict = "pass" if within else "fail"
    return Gate(name, says, figure, verdict if enough else "not enough data")


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"


def _configurations(found: Fidelity, bar: float) -> Iterator[Held]:
    here, of = len(found.measured), len(found.rows)
    says = f"all of at least {bar} configurations are measured"
    yield says, f"{here} of {of}", True, here == of >= bar


def _raw(
    what: str, value_of: Callable[[Errors], float], found: Fidelity, bar: float
) -> Iterator[Held]:
    raw, every = found.raw, found.repeats * len(found.rows)
    value = None if raw is None else value_of(raw)
    within = value is not None and value <= bar + _ROUNDING
    figure = f"{_percent(value)} ({0 if raw is None else raw.count} of {every} runs)"
    says = f"{what} at most {_percent(bar)}"
    yield says, figure, found.complete and value is not None, within


def _order(least: int, found: Fidelity, bar: float) -> Iterator[Held]:
    order = found.order
    says = f"order right in at least {_percent(bar)} of at least {least} pairs beyond the noise"
    figure = f"{_percent(order.share)} ({order.right:,} of {order.pairs:,} pairs)"
    known = all(row.spread is not None for row in found.rows)
    enough = found.complete and known and order.pairs >= least
    yield says, figure, enough, order.share is not None and order.share >= bar - _ROUNDING


def _coverage(words: str, way: int, found: Fidelity, bar: float) -> Iterator[Held]:
    held, of = found.coverage
    share = held / of if of else 0.0
    figure = f"{_percent(share)} ({held} of {of})" if of else "no intervals"
    says = f"90 % intervals hold {words} {_percent(bar)} of the measurements"
    yield says, figure, _intervals_known(found), way * (share - bar) >= -_ROUNDING


def _half_width(found: Fidelity, bar: float) -> Iterator[Held]:
    width = found.half_width
    says = f"median half width of the 90 % intervals at most {_percent(bar)}"
    within = width is not None and width <= bar + _ROUNDING
    figure = "no intervals" if width is None else _percent(width)
    yield says, figure, _intervals_known(found), within


def _intervals_known(found: Fidelity) -> bool:
    """Of all configurations."""
    return found.complete and 0 < found.coverage[1] == len(found.rows)


def _baselines(found: Fidelity, bar: float) -> Iterator[Held]:
    for b in found.baselines:
        says = f"median absolute error of {b.name} at least {bar:g} times ours"
        if b.error is None or b.ours is None:
            yield says, "no configuration has it", False, False
            continue
        times = "" if b.ratio is None else f", {b.ratio:.1f} times"
        figure = f"{_percent(b.error)} against {_percent(b.ours)} ({b.count} configurations{times})"
        yield says, figure, found.complete, b.error >= bar * b.ours


def sound(runs: int, broken: int) -> Gate:
    """Of ``runs`` that were made on emulated hosts, how many break an invariant; no setting states
    this bar."""
    says = f"at most {_percent(MOST_DROPPED)} of the runs that were made break an invariant"
    within = broken <= MOST_DROPPED * runs + _ROUNDING
    return _gate("sound", says, f"{broken} of {runs}", runs > 0, within)
