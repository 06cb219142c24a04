"""The gates of a validation: each a bar, the figure that is held to it, and what comes of it.

Nothing is left out quietly: where one run of one configuration is missing, or what a figure needs
of it is not known, there is not enough data for the figure, and its gate does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from recsim_train.config.experiment import Gates
from recsim_train.validation.configurations import MOST_DROPPED
from recsim_train.validation.fidelity import Errors, Fidelity

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
    return [gate for of in _GATES for gate in of(found, gates)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _verdict(enough: bool, within: bool) -> Verdict:
    if not enough:
        return "not enough data"
    return "pass" if within else "fail"


def _configurations(found: Fidelity, gates: Gates) -> Iterator[Gate]:
    if (least := gates.configurations) is None:
        return
    here, of = len(found.measured), len(found.rows)
    says = f"all of at least {least} configurations are measured"
    yield Gate("configurations", says, f"{here} of {of}", _verdict(True, here == of >= least))


def _raw(found: Fidelity, gates: Gates) -> Iterator[Gate]:
    raw, every = found.raw, found.repeats * len(found.rows)
    figures: tuple[tuple[str, str, Callable[[Errors], float]], ...] = (
        ("raw_median", "median absolute raw error", lambda e: e.median),
        ("raw_p90", "nine in ten absolute raw errors", lambda e: e.p90),
    )
    for name, what, of in figures:
        if (bar := getattr(gates, name)) is None:
            continue
        value = None if raw is None else of(raw)
        said = "unknown" if value is None else _percent(value)
        within = value is not None and value <= bar + _ROUNDING
        figure = f"{said} ({0 if raw is None else raw.count} of {every} runs)"
        says = f"{what} at most {_percent(bar)}"
        yield Gate(name, says, figure, _verdict(found.complete and value is not None, within))


def _order(found: Fidelity, gates: Gates) -> Iterator[Gate]:
    if (bar := gates.order) is None:
        return
    order = found.order
    share, least = order.share, gates.order_min_pairs
    said = "unknown" if share is None else _percent(share)
    says = f"order right in at least {_percent(bar)} of at least {least} pairs beyond the noise"
    figure = f"{said} ({order.right:,} of {order.pairs:,} pairs)"
    within = share is not None and share >= bar - _ROUNDING
    known = all(row.spread is not None for row in found.rows)
    enough = found.complete and known and order.pairs >= least
    yield Gate("order", says, figure, _verdict(enough, within))


def _intervals(found: Fidelity, gates: Gates) -> Iterator[Gate]:
    held, of = found.coverage
    enough = found.complete and 0 < of == len(found.rows)
    share = held / of if of else 0.0
    figure = f"{_percent(share)} ({held} of {of})" if of else "no intervals"
    for name, words, way in (("coverage_least", "at least", 1), ("coverage_most", "at most", -1)):
        if (bar := getattr(gates, name)) is not None:
            says = f"90 % intervals hold {words} {_percent(bar)} of the measurements"
            within = way * (share - bar) >= -_ROUNDING
            yield Gate(name, says, figure, _verdict(enough, within))
    if (bar := gates.half_width) is not None:
        width = found.half_width
        said = "no intervals" if width is None else _percent(width)
        says = f"median half width of the 90 % intervals at most {_percent(bar)}"
        narrow = width is not None and width <= bar + _ROUNDING
        yield Gate("half_width", says, said, _verdict(enough, narrow))


def _baselines(found: Fidelity, gates: Gates) -> Iterator[Gate]:
    if (bar := gates.baseline_factor) is None:
        return
    for b in found.baselines:
        says = f"median absolute error of {b.name} at least {bar:g} times ours"
        if b.error is None or b.ours is None:
            yield Gate("baseline_factor", says, "no configuration has it", "not enough data")
            continue
        times = "" if b.ratio is None else f", {b.ratio:.1f} times"
        figure = f"{_percent(b.error)} against {_percent(b.ours)} ({b.count} configurations{times})"
        verdict = _verdict(found.complete, b.error >= bar * b.ours)
        yield Gate("baseline_factor", says, figure, verdict)


def sound(runs: int, broken: int) -> Gate:
    """Of ``runs`` that were made on emulated hosts, how many break an invariant; no setting states
    this bar."""
    says = f"at most {_percent(MOST_DROPPED)} of the runs that were made break an invariant"
    figure = f"{broken} of {runs}"
    verdict = _verdict(runs > 0, broken <= MOST_DROPPED * runs + _ROUNDING)
    return Gate("sound", says, figure, verdict)


_GATES = (_configurations, _raw, _order, _intervals, _baselines)
