"""Figures of a validation: predicted over measured, and how errors are distributed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from recsim_train.report import text
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    GRID,
    INK,
    LINES,
    MARKERS,
    MEASURED,
    along,
    finish,
    for_any_window,
    grid_of,
    legend,
    narrow,
    new_figure,
    tip,
)
from recsim_train.validation.configurations import EMULATED_REGIMES, REGIMES, Configuration
from recsim_train.validation.fidelity import Fidelity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_SHOWN = 100.0
"""Per cent: larger errors, of baselines, are beyond the end of the axis."""
BAND = 0.1
"""Errors between the scatter's dashed lines."""
_RAW, _LINEAR, _ROOFLINE = MEASURED, "#8C8C8C", "#CC79A7"


def draw(found: Fidelity) -> Iterator[Picture | None]:
    """Every figure that there is something to show in."""
    if found.measured:
        yield scatter_figure(found.measured)
        yield error_figure(found)


@for_any_window
def scatter_figure(rows: Sequence[Configuration]) -> Picture | None:
    """Predicted over measured throughput: a colour for each strategy, a marker for each regime;
    whiskers are the prediction's 90 % interval and the repeats' half range."""
    from matplotlib.ticker import LogLocator, NullLocator

    strategies = list(dict.fromkeys(row.predicted.strategy for row in rows))
    present = {row.predicted.regime for row in rows}
    regimes = [name for name in (*REGIMES, *EMULATED_REGIMES) if name in present]
    figure, (axes,) = new_figure(5.4 if narrow() else 6.2)
    speeds = [s for row in rows for s in (row.measured, row.predicted.examples_per_second) if s]
    ends = 0.8 * min(speeds), 1.25 * max(speeds)
    axes.set(xscale="log", yscale="log")
    axes.plot(ends, ends, color=INK, linewidth=1.0)
    for factor in (1 - BAND, 1 + BAND):
        axes.plot(ends, [factor * end for end in ends], color=GRID, linestyle=(0, (4, 3)))
    for row in rows:
        p, measured = row.predicted, row.measured
        assert measured is not None
        eps = p.examples_per_second
        low, high = row.predicted.interval or (eps, eps)
        fill = LINES[strategies.index(p.strategy) % len(LINES)]
        drawn = axes.errorbar(
            [measured], [eps], xerr=[(row.spread or 0.0) * measured],
            yerr=[[max(0.0, eps - low)], [max(0.0, high - eps)]], color=fill,
            marker=MARKERS[regimes.index(p.regime) % len(MARKERS)], markersize=6,
            linestyle="none", elinewidth=0.8, alpha=0.85,
        )  # fmt: skip
        error = text.percent(row.raw_error, signed=True)
        tip(drawn[:1], f"{p.label}: {text.rate(eps)}, measured {text.rate(measured)}: {error}")
    axes.set(xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: text.tick(value))
    grid_of(axes)
    along(axes, "measured (examples/s)")
    axes.set_ylabel(f"predicted (examples/s); dashed: ± {BAND:.0%}")
    _legend(figure, strategies, regimes)
    return finish(figure, "scatter", "Predicted over measured throughput")


def _legend(figure: Figure, strategies: Sequence[str], regimes: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    def handle(label: str, colour: str, marker: str) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, linestyle="none", label=label)

    coloured = [handle(s, LINES[k % len(LINES)], "o") for k, s in enumerate(strategies)]
    marked = [handle(r, INK, MARKERS[k % len(MARKERS)]) for k, r in enumerate(regimes)]
    legend(figure, 5, handles=[*coloured, *marked])


@for_any_window
def error_figure(found: Fidelity) -> Picture | None:
    """Signed errors, and below the share of configurations within each absolute error, beside the
    naive baselines'."""
    raw = [100 * row.raw_error for row in found.measured if row.raw_error is not None]
    from matplotlib.ticker import MaxNLocator

    figure, (signed, absolute) = new_figure(6.4, 2)
    ends = _bins(max(10.0, *map(abs, raw)))
    for low, high in pairwise(ends):
        count = sum(low <= error < high for error in raw)
        bar = signed.bar(low, count, high - low, align="edge", color=_RAW, edgecolor="white")
        tip(bar, f"{low:g} to {high:g} %: {count} configurations")
    signed.axvline(0.0, color=INK, linewidth=1.0)
    signed.yaxis.set_major_locator(MaxNLocator(integer=True))
    along(signed, "signed error (%): predicted / measured − 1")
    signed.set(xlim=(ends[0], ends[-1]), ylabel="configurations")
    naive = zip(found.baselines, (_LINEAR, _ROOFLINE), strict=True)
    others = [(b.name, [100 * e for e in b.errors], colour) for b, colour in naive]
    for name, errors, colour in (("raw", raw, _RAW), *others):
        ordered = sorted(abs(e) for e in errors)
        if ordered:
            shares = [100 * (k + 1) / len(ordered) for k in range(len(ordered))]
            gone = ": all larger" if ordered[0] > _MOST_SHOWN else ""
            label = f"{name} ({len(ordered)}){gone}"
            absolute.step(ordered, shares, where="post", color=colour, label=label)
    most = min(_MOST_SHOWN, absolute.get_xlim()[1])
    along(absolute, "absolute error, at most (%)")
    absolute.set(xlim=(0.0, most), ylim=(0, 105), ylabel="share of configurations (%)")
    grid_of(absolute)
    absolute.legend(fontsize=9)
    return finish(figure, "errors", "How errors are distributed, beside naive baselines")


def _bins(largest: float) -> list[float]:
    """Ends of at most 24 bins of a round width, in per cent, in the middle 0."""
    width = next(w for w in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, largest) if 12 * w >= largest)
    many = int(largest // width) + 1
    return [width * k for k in range(-many, many + 1)]
