"""Figures of a validation: predicted over measured, and how errors are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recsim_train.report import text
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    GRID,
    INK,
    LINES,
    MARKERS,
    MEASURED,
    finish,
    grid_of,
    new_figure,
    style,
)
from recsim_train.validation import emulated
from recsim_train.validation.configurations import REGIMES, Row
from recsim_train.validation.fidelity import Fidelity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = 0.1
"""Errors between the scatter's dashed lines."""
_RAW, _LINEAR, _ROOFLINE = MEASURED, "#8C8C8C", "#CC79A7"


def draw(found: Fidelity) -> dict[str, Picture]:
    """Every figure that there is something to show in, by name."""
    if not found.measured:
        return {}
    drawn = (scatter_figure(found.measured), error_figure(found))
    return {picture.name: picture for picture in drawn}


def scatter_figure(rows: Sequence[Row]) -> Picture:
    """Predicted over measured throughput: a colour for each strategy, a marker for each regime;
    whiskers are the prediction's 90 % interval and the repeats' half range."""
    from matplotlib.ticker import LogLocator, NullLocator

    strategies = list(dict.fromkeys(row.predicted.strategy for row in rows))
    present = {row.predicted.regime for row in rows}
    regimes = [name for name in (*REGIMES, *emulated.REGIMES) if name in present]
    with style():
        figure, (axes,) = new_figure(6.2)
        axes.set_xscale("log")
        axes.set_yscale("log")
        ends = _ends(rows)
        axes.plot(ends, ends, color=INK, linewidth=1.0)
        for factor in (1 - BAND, 1 + BAND):
            axes.plot(ends, [factor * end for end in ends], color=GRID, linestyle=(0, (4, 3)))
        for row in rows:
            p, measured = row.predicted, row.measured
            assert measured is not None
            eps = p.examples_per_second
            low, high = row.predicted.interval or (eps, eps)
            fill = LINES[strategies.index(p.strategy) % len(LINES)]
            axes.errorbar(
                [measured], [eps], xerr=[(row.spread or 0.0) * measured],
                yerr=[[max(0.0, eps - low)], [max(0.0, high - eps)]], color=fill,
                marker=MARKERS[regimes.index(p.regime) % len(MARKERS)], markersize=6,
                linestyle="none", elinewidth=0.8, alpha=0.85,
            )  # fmt: skip
        axes.set_xlim(*ends)
        axes.set_ylim(*ends)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(lambda value, _: text.tick(value))
        grid_of(axes)
        axes.set_xlabel("measured (examples/s)")
        axes.set_ylabel(f"predicted (examples/s); dashed: ± {BAND:.0%}")
        _legend(axes, strategies, regimes)
        return finish(figure, "scatter", "Predicted over measured throughput")


def _ends(rows: Sequence[Row]) -> tuple[float, float]:
    speeds = [s for row in rows for s in (row.measured, row.predicted.examples_per_second) if s]
    return 0.8 * min(speeds), 1.25 * max(speeds)


def _legend(axes: Axes, strategies: Sequence[str], regimes: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    def handle(label: str, colour: str, marker: str) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, linestyle="none", label=label)

    coloured = [handle(s, LINES[k % len(LINES)], "o") for k, s in enumerate(strategies)]
    marked = [handle(r, INK, MARKERS[k % len(MARKERS)]) for k, r in enumerate(regimes)]
    assert axes.figure is not None
    axes.figure.legend(handles=[*coloured, *marked], loc="outside upper left", ncols=6, fontsize=9)


def error_figure(found: Fidelity) -> Picture:
    """Signed errors, and below the share of configurations within each absolute error, beside the
    naive baselines'."""
    raw = [100 * row.raw_error for row in found.measured if row.raw_error is not None]
    ours = [("raw", raw, _RAW)]
    with style():
        figure, (signed, absolute) = new_figure(6.4, 2)
        largest = max(10.0, *(abs(e) for _, errors, _ in ours for e in errors))
        bins = [largest * (k / 12 - 1) for k in range(25)]
        names, kinds, fills = zip(*ours, strict=True)
        signed.hist(kinds, bins=bins, color=fills, label=names)
        signed.axvline(0.0, color=INK, linewidth=1.0)
        signed.set_xlabel("signed error (%): predicted / measured − 1")
        signed.set_ylabel("configurations")
        signed.legend(fontsize=9)
        naive = zip(found.baselines, (_LINEAR, _ROOFLINE), strict=True)
        others = [(b.name, [100 * e for e in b.errors], colour) for b, colour in naive]
        for name, errors, colour in (*ours, *others):
            ordered = sorted(abs(e) for e in errors)
            if ordered:
                shares = [100 * (k + 1) / len(ordered) for k in range(len(ordered))]
                label = f"{name} ({len(ordered)})"
                absolute.step(ordered, shares, where="post", color=colour, label=label)
        absolute.set_xscale("symlog", linthresh=1.0)
        absolute.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        absolute.set_xlim(left=0.0)
        absolute.set_ylim(0, 105)
        absolute.set_xlabel("absolute error, at most (%)")
        absolute.set_ylabel("share of configurations (%)")
        grid_of(absolute)
        absolute.legend(fontsize=9)
        return finish(figure, "errors", "How errors are distributed, beside naive baselines")
