"""Figures, drawn without a display and the same bytes every time for the same runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_train.report import text
from recsim_train.report.compare import Comparison
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    COLOURS,
    INK,
    LINES,
    MARKERS,
    MEASURED,
    PREDICTED,
    colour,
    finish,
    grid_of,
    most_lines,
    new_figure,
    rows_of,
    style,
)
from recsim_train.results.rundir import RunRecord
from recsim_train.results.statistics import counted
from recsim_train.results.summary import OTHER, SERVED, folded
from recsim_train.trace.perfetto import order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IDLE = 0.005
"""Busy share below which a resource is not worth a row."""
MOST_LANES = 14


def throughput_figure(comparisons: Sequence[Comparison]) -> Picture:
    """Bars of predicted and measured examples per second; whiskers are 90 % of a prediction, with
    what calibration leaves open, and 95 % or the range of repeats of a measurement."""
    with style():
        figure, (axes,) = new_figure(1.3 + 0.75 * len(comparisons))
        rows_of(axes, [c.label for c in comparisons])
        top = max(max(c.predicted_eps, c.measured_eps) for c in comparisons)
        widest = 0.0
        for y, c in enumerate(comparisons):
            half = (c.measured_spread or 0.0) * c.measured_eps
            error = f"  ({text.percent(c.signed_error, signed=True)})"
            low, high = c.predicted_interval or (c.predicted_eps, c.predicted_eps)
            apart = max(0.0, c.predicted_eps - low), max(0.0, high - c.predicted_eps)
            for place, value, fill, (less, more), label, note in (
                (y - 0.19, c.predicted_eps, PREDICTED, apart, "predicted", error),
                (y + 0.19, c.measured_eps, MEASURED, (half, half), "measured", ""),
            ):
                axes.barh(place, value, 0.34, color=fill, label=label if y == 0 else None)
                if less or more:
                    ends = [[less], [more]]
                    axes.errorbar(value, place, xerr=ends, color=INK, capsize=3, linewidth=1.2)
                end, words = value + more + 0.012 * top, text.rate(value) + note
                axes.text(end, place, words, va="center", fontsize=9)
                widest = max(widest, value + more)
        axes.set_xlim(0, max(1.2 * top, 1.17 * widest))
        axes.xaxis.set_major_formatter(lambda value, _: text.tick(value))
        axes.set_xlabel("throughput (examples/s); whiskers: 90 % predicted, 95 % or range measured")
        figure.legend(loc="outside upper left", ncols=2)
        return finish(figure, "throughput", "Predicted and measured throughput")


def breakdown_figure(comparisons: Sequence[Comparison]) -> Picture | None:
    """Where an iteration's time goes, both worlds below each other; None without any record."""
    rows: list[tuple[str, dict[str, float]]] = []
    for c in comparisons:
        for world, record in (("predicted", c.simulated), ("measured", c.real)):
            label = world if len(comparisons) == 1 else f"{c.label}: {world}"
            rows.append((label, record.summary.time_by_effect))
    present = {effect for _, parts in rows for effect in parts}
    effects = [e for e in _ordered(present) if e != OTHER] + [OTHER] * (OTHER in present)
    if not effects:
        return None
    labels = [label for label, _ in rows]
    with style():
        figure, (axes,) = new_figure(1.6 + (0.28 + 0.18 * most_lines(labels)) * len(rows))
        rows_of(axes, labels)
        widest = max(sum(parts.values()) for _, parts in rows)
        left = [0.0] * len(rows)
        edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6}
        for effect in effects:
            fill, milli = colour(effect), [1e3 * max(0.0, p.get(effect, 0.0)) for _, p in rows]
            axes.barh(
                range(len(rows)), milli, 0.66, left, label=_legend(effect), color=fill, **edge
            )
            words: dict[str, Any] = {
                "ha": "center",
                "va": "center",
                "fontsize": 8,
                "color": _contrast(fill),
            }
            for y, width in enumerate(milli):
                if width > 55 * widest:  # a number only where it fits
                    axes.text(left[y] + width / 2, y, f"{width:.3g}", **words)
                left[y] += width
        axes.set_xlabel("mean time of one iteration of a training loop (ms)")
        figure.legend(loc="outside upper left", ncols=5, fontsize=9, columnspacing=1.4)
        title = "Where an iteration's time goes, predicted and measured"
        return finish(figure, "breakdown", title)


def _ordered(effects: Collection[str]) -> list[str]:
    """In the order of the colours, then by name."""
    return [e for e in COLOURS if e in effects] + sorted(set(effects) - set(COLOURS))


def _legend(effect: str) -> str:
    return "between effects" if effect == OTHER else text.effect(effect)


def _contrast(fill: str) -> str:
    red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    # Not INK: the page turns that into its own text colour, these stand on the bar.
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "#ffffff"


def utilisation_figure(c: Comparison, name: str, most: int = 10) -> Picture | None:
    """Busy shares of the busiest resources; None where neither world tells any."""
    p, m = (r.summary.utilisation for r in (c.simulated, c.real))
    both = {key: max(p.get(key, 0.0), m.get(key, 0.0)) for key in p.keys() | m.keys()}
    ordered = sorted(both, key=lambda key: (-both[key], key))[:most]
    shown = ordered[:3] + [key for key in ordered[3:] if both[key] >= IDLE]
    if not shown:
        return None
    with style():
        figure, (axes,) = new_figure(1.2 + (0.42 if p and m else 0.3) * len(shown))
        rows_of(axes, shown)
        for y, key in enumerate(shown):
            apart = 0.18 if p and m else 0.0
            for shift, values, fill in ((-apart, p, PREDICTED), (apart, m, MEASURED)):
                if values.get(key) is not None:
                    busy = 100 * values[key]
                    axes.barh(y + shift, busy, 0.32 if apart else 0.6, color=fill)
                    axes.text(busy + 1, y + shift, f"{busy:.0f}", va="center", fontsize=8)
        axes.set_xlim(0, max(105.0, 112 * max(both.values())))
        axes.set_xlabel("busy share of the resource in the counted steps (%)")
        from matplotlib.patches import Patch

        worlds = (("predicted", PREDICTED, p), ("measured", MEASURED, m))
        handles = [Patch(color=fill, label=world) for world, fill, there in worlds if there]
        figure.legend(handles=handles, loc="outside upper left", ncols=2)
        return finish(figure, name, f"{c.label}: how busy each resource was")


def timeline_figure(c: Comparison, name: str, iterations: int = 3) -> Picture | None:
    """A few counted iterations of both worlds on one time axis; None without spans."""
    worlds = (("predicted", c.simulated), ("measured", c.real))
    shown = [(title, lanes) for title, r in worlds if (lanes := timeline(r, iterations))]
    if not shown:
        return None
    span = max(bar.end for _, lanes in shown for lane in lanes for bar in lane.bars)
    counts = [len(lanes) for _, lanes in shown]
    with style():
        height, ratios = 1.5 + sum(0.55 + 0.27 * n for n in counts), [n + 1 for n in counts]
        figure, axes = new_figure(
            height, len(shown), sharex=True, gridspec_kw={"height_ratios": ratios}
        )
        present: dict[str, None] = {}
        for axis, (title, lanes) in zip(axes, shown, strict=True):
            _draw_lanes(axis, lanes, present)
            axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes[-1].set_xlim(0, 1e3 * span)
        axes[-1].set_xlabel(
            "time since the first counted iteration began (ms); pale: a server's work for it"
        )
        _effects_legend(figure, present)
        return finish(figure, name, f"{c.label}: the first {iterations} counted iterations")


def _draw_lanes(axes: Axes, lanes: Sequence[Lane], present: dict[str, None]) -> None:
    rows_of(axes, [lane.label for lane in lanes])
    axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes], fontsize=8)
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

    handles: list[Any] = [Patch(color=colour(e), label=_legend(e)) for e in _ordered(effects)]
    mark = Line2D([], [], color=INK, marker="|", linestyle="none", markersize=9)
    mark.set_label("iteration begins")
    figure.legend(
        handles=[*handles, mark], loc="outside upper left", ncols=5, fontsize=9, columnspacing=1.4
    )


def loss_figure(comparisons: Sequence[Comparison], points: int = 60) -> Picture | None:
    """Training loss of the real runs against examples seen, averaged over loops and neighbours."""
    curves = [(c.label, *_loss_curve(c, points)) for c in comparisons]
    curves = [curve for curve in curves if curve[1]]
    if not curves:
        return None
    with style():
        figure, (axes,) = new_figure(3.4)
        for k, (label, x, y) in enumerate(curves):
            axes.plot(
                x, y, color=LINES[k % len(LINES)], marker=MARKERS[k % len(MARKERS)], markersize=3.5,
                markevery=max(1, len(x) // 12), linewidth=1.6, label=label,
            )  # fmt: skip
        grid_of(axes)
        axes.xaxis.set_major_formatter(lambda value, _: text.tick(value))
        axes.set_xlabel("examples trained on, all loops (warm-up included)")
        axes.set_ylabel("training loss (nats per example)")
        figure.legend(loc="outside upper left", ncols=2, fontsize=9)
        return finish(figure, "loss", "Training loss of the real runs")


def _loss_curve(c: Comparison, points: int) -> tuple[list[float], list[float]]:
    """(examples, mean loss) in at most ``points`` groups of neighbouring iterations."""
    iterations = [
        i
        for i in counted(c.real.iterations(), 0, 2**62)
        if i.loss is not None and math.isfinite(i.loss)
    ]
    if not iterations:
        return [], []
    last = max(i.iteration for i in iterations)
    group = max(1, -(-(last + 1) // points))
    losses: dict[int, list[float]] = {}
    for i in iterations:
        losses.setdefault(i.iteration // group, []).append(float(i.loss or 0.0))
    examples = float(c.real.summary.batch_size) * len({i.loop for i in iterations})
    x = [min((g + 1) * group, last + 1) * examples for g in sorted(losses)]
    return x, [sum(losses[g]) / len(losses[g]) for g in sorted(losses)]


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


def timeline(record: RunRecord, iterations: int) -> list[Lane]:
    """Lanes of the training loops, then of the servers; empty where no span was kept.

    The window is that of the first loop's ``iterations`` first counted iterations.
    """
    warmup = int(record.manifest["configuration"]["training"]["warmup_steps"])
    marks = record.iterations()
    window = [i for i in marks if warmup <= i.iteration < warmup + iterations]
    if not window:
        return []
    first = min(window, key=lambda i: (order(i.loop.partition(".")[0]), i.loop))
    own = [i for i in window if i.loop == first.loop]
    begin, end = min(i.start for i in own), max(i.end for i in own)
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
    starts = [(i.loop, i.start - begin) for i in marks if begin <= i.start < end]
    found = []
    for instance, loop in sorted(lanes, key=lambda lane: (order(lane[0]), lane[1]))[:MOST_LANES]:
        label = f"{instance}.{loop}" if loop else instance
        if not loop and instance.startswith("trainer"):
            label = f"{instance} (own shard)"
        bars = tuple(sorted(lanes[instance, loop], key=lambda b: (b.start, b.end, b.effect)))
        own_starts = sorted(start for name, start in starts if name == f"{instance}.{loop}")
        found.append(Lane(label, bars, tuple(own_starts)))
    return found
