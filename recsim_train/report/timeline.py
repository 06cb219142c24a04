"""The first counted iterations of both worlds, loop by loop and server by server, over one time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_train.report import naming, text
from recsim_train.report.compare import Comparison
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    INK,
    along,
    colour,
    finish,
    for_any_window,
    in_order,
    legend,
    new_figure,
    rows_of,
)
from recsim_train.results.rundir import RunRecord
from recsim_train.results.summary import SERVED, folded
from recsim_train.trace.perfetto import order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
