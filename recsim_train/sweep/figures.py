"""Figures of sweeps: throughput over one setting, a map over two, and what binds where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recsim_train.config.sweep import written
from recsim_train.report import text
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    GRID,
    INK,
    LINES,
    MARKERS,
    SPARE,
    along,
    finish,
    for_any_window,
    grid_of,
    legend,
    narrow,
    new_figure,
    new_rows,
    tip,
    wrapped,
)
from recsim_train.report.winner import best_row
from recsim_train.sweep.answers import SCALING, Axis
from recsim_train.sweep.findings import SweepFindings, binding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_MAPS = 6
_MOST_BOUNDS = 3
"""Lines whose bounds are drawn, too: more cannot be told apart."""
MOST_CELLS = 24
"""Columns or rows of a map that can still be read."""


def draw(findings: SweepFindings) -> Iterator[Picture | None]:
    """Every figure that the sweep has something to show in."""
    yield scaling_figure(findings)
    yield map_figure(findings)
    yield binding_figure(findings)


@for_any_window
def scaling_figure(findings: SweepFindings) -> Picture | None:
    """Throughput over a numeric setting with its bounds; None without such a setting."""
    x = findings.x
    lines = [line for line in findings.lines if line.dots]
    if x is None or not lines:
        return None
    from matplotlib.ticker import LogLocator, NullLocator

    figure, (axes,) = new_figure(4.6 + (0.17 * len(lines) if narrow() else 0.0))
    for k, line in enumerate(lines):
        at = [x.number(dot.value) for dot in line.dots]
        rows = [dot.row for dot in line.dots]
        speed = [r.examples_per_second or 0.0 for r in rows]
        fill, marker = LINES[k % len(LINES)], MARKERS[k % len(MARKERS)]
        ends = [r.interval90() or (eps, eps) for r, eps in zip(rows, speed, strict=True)]
        around = [(eps - low, high - eps) for eps, (low, high) in zip(speed, ends, strict=True)]
        axes.errorbar(
            at, speed, yerr=[*zip(*around, strict=True)], color=fill, marker=marker,
            markersize=5, capsize=2.5, linewidth=1.8, elinewidth=1.0, label=line.label, zorder=3,
        )  # fmt: skip
        for place, dot, eps in zip(at, line.dots, speed, strict=True):
            said = f"{line.label}, {x.label} {written(dot.value)}: {text.rate(eps)} examples/s"
            point = axes.plot([place], [eps], marker="o", markersize=9, alpha=0.0, zorder=5)
            tip(point, f"{said}; {binding(dot.row)} binds")
        bounds = [r.bound_eps for r in rows if r.bound_eps]
        if len(bounds) == len(rows) and len(lines) <= _MOST_BOUNDS:
            axes.plot(at, bounds, color=fill, linestyle=(0, (4, 3)), linewidth=1.1, alpha=0.8)
        gone = [x.number(value) for value in line.missing]
        bottom = axes.get_xaxis_transform()
        axes.plot(
            gone, [0.03] * len(gone), transform=bottom, color=fill, marker="x", markersize=8,
            markeredgewidth=2, linestyle="none", zorder=4,
        )  # fmt: skip
    notes = ["whiskers: 90 %"] * any(r.interval90() for r in findings.done)
    if len(lines) <= _MOST_BOUNDS:
        notes.append("dashed: the bound that nothing can beat")
    if x.key in SCALING and x.numbers is not None and len(x.numbers) > 1:
        first = [line.dots[0] for line in lines]
        slope = max((d.row.examples_per_second or 0.0) / x.number(d.value) for d in first)
        over = [x.numbers[0], x.numbers[-1]]
        axes.plot(over, [slope * n for n in over], color=GRID, linestyle=":", linewidth=1.6)
        notes.append("dotted: linear")
    if any(line.missing for line in lines):
        notes.append("×: no figure (does not fit, or failed)")
    grows = _numeric_ticks(axes, x)
    if grows and x.key in SCALING:
        axes.set_yscale("log")  # then linear scaling is a straight line
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        top = max(d.row.examples_per_second or 0.0 for line in lines for d in line.dots)
        axes.set_ylim(0, 1.25 * top)
    along(axes, f"{_named(x)} ({'; '.join(notes)})")
    axes.set_ylabel("predicted throughput (examples/s)")
    axes.yaxis.set_major_formatter(lambda value, _: text.tick(value))
    grid_of(axes)
    legend(figure, 3)
    best = findings.best_of
    rest = f"; of {', '.join(a.label for a in best)} the best value" if best else ""
    return finish(figure, "scaling", f"Predicted throughput over {x.label}{rest}")


def _numeric_ticks(axes: Axes, x: Axis) -> bool:
    """A tick at every value; a logarithmic axis where the values grow by factors, which is said."""
    assert x.numbers is not None
    low, high = x.numbers[0], x.numbers[-1]
    steps = [b - a for a, b in zip(x.numbers, x.numbers[1:], strict=False)]
    grows = low > 0 and high / low >= 8 and max(steps) > 2.5 * min(steps)
    if grows:
        axes.set_xscale("log", base=2)
    if len(x.values) <= 12:
        axes.set_xticks(list(x.numbers), [f"{n:g}" for n in x.numbers])
    axes.minorticks_off()
    return grows


@for_any_window
def map_figure(findings: SweepFindings) -> Picture | None:
    """Throughput over two settings, one map for each strategy; None with fewer settings."""
    across = [a for a in findings.free if len(a.values) <= MOST_CELLS]
    first = findings.x or max(across, key=lambda a: len(a.values), default=None)
    across = [a for a in across if a is not first]
    if first is None or not across or len(first.values) > MOST_CELLS:
        return None
    second = max(across, key=lambda a: (a.numbers is not None, len(a.values)))
    told = {findings.strategy(r) for r in findings.done if r.settings.get(second.key) is not None}
    names = [name for name in findings.strategies if name in told][:MOST_MAPS]
    if not names:
        return None
    height = 0.75 + 0.42 * len(second.values)
    figure, axes = new_figure(1.0 + height * len(names), len(names))
    top = max(r.examples_per_second or 0.0 for r in findings.done)
    for axis, name in zip(axes, names, strict=True):
        _draw_map(axis, findings, name, first, second, top)
    axes[-1].set_xlabel(_named(first))
    title = f"Predicted throughput (examples/s) over {first.label} and {second.label}"
    others = [a.label for a in findings.free if a not in (first, second)]
    rest = f"; of {', '.join(others)} the best value" if others else ""
    return finish(figure, "map", title + rest)


def _named(axis: Axis) -> str:
    return f"{axis.label} ({axis.unit})" if axis.unit else axis.label


def _draw_map(
    axes: Axes, findings: SweepFindings, name: str, first: Axis, second: Axis, top: float
) -> None:
    import matplotlib as mpl
    import numpy as np

    own = [r for r in findings.done if findings.strategy(r) == name]
    cells = np.full((len(second.values), len(first.values)), np.nan)
    for i, b in enumerate(second.values):
        for j, a in enumerate(first.values):
            at = [r for r in own if (r.settings[first.key], r.settings[second.key]) == (a, b)]
            if at:
                cells[i, j] = best_row(at).examples_per_second
    colours = mpl.colormaps["Blues"]
    axes.pcolormesh(
        np.ma.masked_invalid(cells), cmap=colours, vmin=0, vmax=1.15 * top, edgecolors="white",
        linewidth=1.5,
    )  # fmt: skip
    small = 8 if len(first.values) <= (6 if narrow() else 12) else 6
    for (i, j), value in np.ndenumerate(cells):
        known = not np.isnan(value)
        dark = known and value > 0.6 * top
        axes.text(
            j + 0.5, i + 0.5, text.rate(float(value)) if known else "×", ha="center", va="center",
            fontsize=small, color="#ffffff" if dark else "#111111" if known else INK,
        )  # fmt: skip
    axes.set_xticks([j + 0.5 for j in range(len(first.values))], _cells(first))
    axes.set_yticks([i + 0.5 for i in range(len(second.values))], _cells(second))
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_ylabel(wrapped(_named(second), 18))
    if len(findings.strategies) > 1:
        axes.set_title(name, loc="left", fontsize=10, fontweight="bold")


def _cells(axis: Axis) -> list[str]:
    if axis.numbers is not None:
        return [f"{n:g}" for n in axis.numbers]
    return [wrapped(written(value), 16) for value in axis.values]


@for_any_window
def binding_figure(findings: SweepFindings) -> Picture | None:
    """What binds at every point of every line; None without a line."""
    x = findings.x
    lines = [line for line in findings.lines if line.dots]
    if x is None or not lines:
        return None
    from matplotlib.patches import Patch

    fills = dict(zip(findings.bindings, (*LINES, *SPARE) * 3, strict=False))
    names = [line.label for line in lines]
    legends = len(fills) if narrow() else (len(fills) + 1) // 2
    figure, axes = new_rows(names, 0.36, 1.3 + 0.2 * legends)
    for y, line in enumerate(lines):
        for dot in line.dots:
            place = x.values.index(dot.value)
            what = binding(dot.row)
            bar = axes.barh(y, 0.94, 0.7, place - 0.47, color=fills[what])
            tip(bar, f"{line.label}, {x.label} {written(dot.value)}: {what}")
        for value in line.missing:
            axes.text(x.values.index(value), y, "×", ha="center", va="center", fontsize=11)
    axes.grid(visible=False)
    axes.set_xticks(range(len(x.values)), _cells(x))
    axes.set(xlim=(-0.6, len(x.values) - 0.4), xlabel=_named(x))
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)
    shown = {binding(d.row) for line in lines for d in line.dots}
    handles = [Patch(color=fills[n], label=n) for n in findings.bindings if n in shown]
    legend(figure, 2, handles=handles)
    return finish(figure, "binding", f"What binds, over {x.label}")
