"""Figures of predictions beside measurements, drawn without a display and the same bytes every time
for the same runs; the first counted iterations of both worlds among them, loop by loop."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_train.report import naming, text
from recsim_train.report.compare import Comparison
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    INK,
    LINES,
    MARKERS,
    MEASURED,
    PREDICTED,
    along,
    colour,
    finish,
    for_any_window,
    grid_of,
    in_order,
    legend,
    narrow,
    new_figure,
    new_rows,
    rows_of,
    tip,
)
from recsim_train.results.rundir import RunRecord
from recsim_train.results.summary import OTHER, SERVED, folded
from recsim_train.trace.perfetto import order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROWS, _POINTS = 10, 60
"""Of resources in a figure; of a curve."""
IDLE = 0.005
"""Busy share below which a resource is not worth a row."""


class Rated(NamedTuple):
    """A configuration's throughputs, in examples per second."""

    label: str
    predicted: float | None = None
    interval: tuple[float, float] | None = None
    """Of the prediction, 90 %."""
    measured: float | None = None
    spread: float | None = None
    """Relative to the measurement."""


@for_any_window
def throughput_figure(rated: Sequence[Rated]) -> Picture | None:
    """Bars of predicted and measured examples per second; whiskers are 90 % of a prediction, with
    what calibration leaves open, and 95 % or the range of repeats of a measurement."""
    worlds = any(r.predicted for r in rated), any(r.measured for r in rated)
    labels = [r.label for r in rated]
    figure, axes = new_rows(labels, 0.75 if all(worlds) else 0.45, 1.3)
    top = max(max(r.predicted or 0.0, r.measured or 0.0) for r in rated)
    widest = 0.0
    for y, r in enumerate(rated):
        bars, error = [], ""
        if r.predicted:
            low, high_end = r.interval or (r.predicted, r.predicted)
            apart = max(0.0, r.predicted - low), max(0.0, high_end - r.predicted)
            bars.append(("predicted", r.predicted, PREDICTED, apart))
        if r.measured:
            half = (r.spread or 0.0) * r.measured
            bars.append(("measured", r.measured, MEASURED, (half, half)))
        if r.predicted and r.measured:
            error = f"  ({text.percent(r.predicted / r.measured - 1, signed=True)})"
        for k, (world, value, fill, (less, more)) in enumerate(bars):
            place = y + 0.19 * (2 * k - 1) if len(bars) > 1 else y
            bar = axes.barh(
                place, value, 0.34, color=fill, label=world if y == 0 else None
            )  # fmt: skip
            ends = f", {text.rate(value - less)} to {text.rate(value + more)}" * bool(more)
            tip(bar, f"{r.label}, {world}: {text.rate(value)} examples/s{ends}")
            if less or more:
                reach = [[less], [more]]
                axes.errorbar(value, place, xerr=reach, color=INK, capsize=3, linewidth=1.2)
            words = text.rate(value) + error * (k == 0)
            axes.text(value + more + 0.012 * top, place, words, va="center", fontsize=9)
            widest = max(widest, value + more)
    axes.set_xlim(0, max(1.2 * top, (1.36 if narrow() else 1.17) * widest))
    axes.xaxis.set_major_formatter(lambda value, _: text.tick(value))
    there = all(worlds) or any(r.interval or r.spread for r in rated)
    said = {(True, True): "90 % predicted, 95 % or range measured", (False, True): "95 %"}
    along(axes, "throughput (examples/s)" + f"; whiskers: {said.get(worlds, '90 %')}" * there)
    if all(worlds):
        legend(figure, 2)
    title = {(True, True): "Predicted and measured", (False, True): "Measured"}
    return finish(figure, "throughput", f"{title.get(worlds, 'Predicted')} throughput")


@for_any_window
def breakdown_figure(comparisons: Sequence[Comparison]) -> Picture | None:
    """Where an iteration's time goes, both worlds below each other; None without any record."""
    single = len(comparisons) == 1
    rows = [
        (world if single else f"{c.label}: {world}", record.summary.time_by_effect)
        for c in comparisons
        for world, record in (("predicted", c.simulated), ("measured", c.real))
    ]
    present = {effect for _, parts in rows for effect in parts}
    effects = [e for e in in_order(present) if e != OTHER] + [OTHER] * (OTHER in present)
    if not effects:
        return None
    labels = [label for label, _ in rows]
    figure, axes = new_rows(labels, 0.46, 1.6)
    widest = max(sum(parts.values()) for _, parts in rows)
    left, least = [0.0] * len(rows), 130 if narrow() else 55
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6}
    for effect in effects:
        fill, milli = colour(effect), [1e3 * max(0.0, p.get(effect, 0.0)) for _, p in rows]
        name = naming.effect(effect)
        bars = axes.barh(range(len(rows)), milli, 0.66, left, label=name, color=fill, **edge)
        words: dict[str, Any] = {
            "ha": "center",
            "va": "center",
            "fontsize": 8,
            "color": _contrast(fill),
        }
        for y, (bar, width) in enumerate(zip(bars, milli, strict=True)):
            tip([bar], f"{labels[y]}: {name} {text.seconds(width / 1e3)}")
            if width > least * widest:  # a number only where it fits
                axes.text(left[y] + width / 2, y, f"{width:.3g}", **words)
            left[y] += width
    along(axes, "mean time of one iteration of a training loop (ms)")
    legend(figure, 5)
    title = "Where an iteration's time goes, predicted and measured"
    return finish(figure, "breakdown", title)


def _contrast(fill: str) -> str:
    red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    # Not INK: the page turns that into its own text colour, these stand on the bar.
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "#ffffff"


@for_any_window
def utilisation_figure(c: Comparison, name: str) -> Picture | None:
    """Busy shares of the busiest resources; None where neither world tells any."""
    p, m = (r.summary.utilisation for r in (c.simulated, c.real))
    both = {key: max(p.get(key, 0.0), m.get(key, 0.0)) for key in p.keys() | m.keys()}
    ordered = sorted(both, key=lambda key: (-both[key], key))[:_MOST_ROWS]
    shown = ordered[:3] + [key for key in ordered[3:] if both[key] >= IDLE]
    if not shown:
        return None
    names = [naming.resource(key) for key in shown]
    figure, axes = new_rows(names, 0.42 if p and m else 0.3, 1.2)
    for y, key in enumerate(shown):
        apart = 0.18 if p and m else 0.0
        for shift, values, fill in ((-apart, p, PREDICTED), (apart, m, MEASURED)):
            if values.get(key) is not None:
                busy = 100 * values[key]
                bar = axes.barh(y + shift, busy, 0.32 if apart else 0.6, color=fill)
                tip(bar, f"{key}: {text.percent(values[key])} busy")
                axes.text(busy + 1, y + shift, f"{busy:.0f}", va="center", fontsize=8)
    axes.set_xlim(0, max(105.0, 112 * max(both.values())))
    along(axes, "busy share of the resource in the counted steps (%)")
    from matplotlib.patches import Patch

    worlds = (("predicted", PREDICTED, p), ("measured", MEASURED, m))
    handles = [Patch(color=fill, label=world) for world, fill, there in worlds if there]
    legend(figure, 2, handles=handles)
    return finish(figure, name, f"{c.label}: how busy each resource was")


@for_any_window
def loss_figure(comparisons: Sequence[Comparison]) -> Picture | None:
    """Training loss of the real runs against examples seen, averaged over loops and neighbours."""
    curves = [(c.label, *_loss_curve(c)) for c in comparisons]
    curves = [curve for curve in curves if curve[1]]
    if not curves:
        return None
    figure, (axes,) = new_figure(3.4)
    for k, (label, x, y) in enumerate(curves):
        marks: dict[str, Any] = {}
        if len(curves) > 1:  # told apart by more than colour
            marks = {"marker": MARKERS[k % len(MARKERS)], "markevery": max(1, len(x) // 12)}
        fill = LINES[k % len(LINES)]
        axes.plot(x, y, color=fill, markersize=3.5, linewidth=1.6, label=label, **marks)
    grid_of(axes)
    axes.xaxis.set_major_formatter(lambda value, _: text.tick(value))
    along(axes, "examples trained on, all loops (warm-up included)")
    axes.set_ylabel("training loss (nats per example)")
    if len(curves) > 1:
        legend(figure, 2)
    return finish(figure, "loss", "Training loss of the real runs")


def _loss_curve(c: Comparison) -> tuple[list[float], list[float]]:
    """(examples, mean loss) in at most `_POINTS` groups of neighbouring iterations."""
    iterations = [i for i in c.real.iterations() if i.loss is not None and math.isfinite(i.loss)]
    if not iterations:
        return [], []
    last = max(i.iteration for i in iterations)
    group = max(1, -(-(last + 1) // _POINTS))
    losses: dict[int, list[float]] = {}
    for i in iterations:
        losses.setdefault(i.iteration // group, []).append(float(i.loss or 0.0))
    examples = float(c.real.summary.batch_size) * len({i.loop for i in iterations})
    x = [min((g + 1) * group, last + 1) * examples for g in sorted(losses)]
    return x, [sum(losses[g]) / len(losses[g]) for g in sorted(losses)]


ITERATIONS = 3
MOST_LANES = 14
_LONGER = 5
"""So many times as long as the iterations of the faster world take, at most, are shown."""


@for_any_window
def timeline_figure(c: Comparison, name: str) -> Picture | None:
    """The first counted iterations of both worlds, over equally long a time; None without spans."""
    worlds = (("predicted", c.simulated), ("measured", c.real))
    lasting = [w[1] - w[0] for _, record in worlds if (w := window(record)) is not None]
    if not lasting:
        return None
    span = min(max(lasting), _LONGER * min(lasting))
    shown = [(title, lanes) for title, r in worlds if (lanes := timeline(r, span))]
    if not shown:
        return None
    counts = [len(lanes) for _, lanes in shown]
    height, ratios = 1.5 + sum(0.55 + 0.27 * n for n in counts), [n + 1 for n in counts]
    figure, axes = new_figure(
        height, len(shown), sharex=True, gridspec_kw={"height_ratios": ratios}
    )
    present: dict[str, None] = {}
    for axis, (title, lanes) in zip(axes, shown, strict=True):
        _draw_lanes(axis, lanes, present)
        axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes[-1].set_xlim(0, 1e3 * span)
    along(
        axes[-1],
        "time since the first counted iteration began (ms); pale: a server's work for it",
    )
    _effects_legend(figure, present)
    return finish(figure, name, f"{c.label}: the first {text.seconds(span)} that count")


def _draw_lanes(axes: Axes, lanes: Sequence[Lane], present: dict[str, None]) -> None:
    rows_of(axes, [naming.loop(lane.label) for lane in lanes])
    axes.tick_params(axis="y", labelsize=8)
    for y, lane in enumerate(lanes):
        for served in (False, True):
            for effect in dict.fromkeys(b.effect for b in lane.bars if b.served is served):
                bars = [b for b in lane.bars if b.effect == effect and b.served is served]
                present[effect] = None
                spans = [(1e3 * b.start, 1e3 * (b.end - b.start)) for b in bars]
                fill, alpha = colour(effect), 0.55 if served else 1.0
                axes.broken_barh(spans, (y - 0.38, 0.76), facecolor=fill, alpha=alpha, linewidth=0)
        for mark in lane.marks:
            axes.plot([1e3 * mark] * 2, [y - 0.47, y + 0.47], color=INK, linewidth=1.1)


def _effects_legend(figure: Figure, effects: Collection[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=colour(e), label=naming.effect(e)) for e in in_order(effects)]
    mark = Line2D([], [], color=INK, marker="|", linestyle="none", markersize=9)
    mark.set_label("iteration begins")
    legend(figure, 5, handles=[*handles, mark])


class Bar(NamedTuple):
    """One effect; seconds from the start of the first counted iteration."""

    effect: str
    served: bool
    start: float
    end: float


class Lane(NamedTuple):
    """One loop, or everything that one server did; where iterations begin there is a mark."""

    label: str
    bars: tuple[Bar, ...]
    marks: tuple[float, ...]


def window(record: RunRecord) -> tuple[float, float] | None:
    """When the first loop's first `ITERATIONS` counted iterations began and ended; None: it
    counted none."""
    warmup = int(record.manifest["configuration"]["training"]["warmup_steps"])
    found = [i for i in record.iterations() if warmup <= i.iteration < warmup + ITERATIONS]
    if not found:
        return None
    first = min(found, key=lambda i: (order(i.loop.partition(".")[0]), i.loop))
    own = [i for i in found if i.loop == first.loop]
    return min(i.start for i in own), max(i.end for i in own)


def timeline(record: RunRecord, seconds: float) -> list[Lane]:
    """Lanes of the training loops, then of the servers, from where its `window` begins; empty where
    no span was kept."""
    if (first := window(record)) is None:
        return []
    begin, end = first[0], first[0] + seconds
    lanes: dict[tuple[str, str], list[Bar]] = {}
    for s in record.spans():
        if s.end <= begin or s.start >= end or s.end <= s.start:
            continue
        served = s.effect.startswith(SERVED)
        # A server answers its clients from several threads: one lane shows when it is at work.
        lane = (s.instance, "" if served else s.loop)
        start, stop = max(s.start, begin) - begin, min(s.end, end) - begin
        lanes.setdefault(lane, []).append(Bar(folded(s.effect), served, start, stop))
    if not lanes:
        return []
    starts = [(i.loop, i.start - begin) for i in record.iterations() if begin <= i.start < end]
    found = []
    for instance, loop in sorted(lanes, key=lambda lane: (order(lane[0]), lane[1]))[:MOST_LANES]:
        label = f"{instance}.{loop}" if loop else instance
        if not loop and instance.startswith("trainer"):
            label = f"{instance} (own shard)"
        bars = tuple(sorted(lanes[instance, loop], key=lambda b: (b.start, b.end, b.effect)))
        own_starts = sorted(start for name, start in starts if name == f"{instance}.{loop}")
        found.append(Lane(label, bars, tuple(own_starts)))
    return found
