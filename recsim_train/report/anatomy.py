"""Why a prediction is what it is: an iteration taken apart, resources over time, and bounds."""

from __future__ import annotations

from recsim_train.report import text
from recsim_train.report.document import Picture
from recsim_train.report.drawing import GRID, INK, LINES, PREDICTED, finish, new_figure, rows_of
from recsim_train.report.drawing import style as figure_style
from recsim_train.results.figures import Summary

PARTS = {
    "compute": ("#0072B2", "compute: work on cores, as long as it takes alone"),
    "transfer": ("#009E73", "transfer: latency, and bytes at the rate they have alone"),
    "queueing": ("#D55E00", "queueing: what sharing cores, locks, NICs and servers costs"),
    "waiting": ("#8C8C8C", "waiting: until others are there, or have made what is needed"),
}
HIDDEN = "#CC79A7"
_DASHES = ("-", "--", "-.", ":")
_WORTH_A_LINE = 0.03
"""Busy share that a class must reach at some time."""
_MOST_LINES = 8
_WORTH_SAYING = 0.1
"""Share of an iteration that an effect must take to be named."""
_SMALL = 0.001
"""Of an iteration: effects below it have no row."""


def pictures(summary: Summary, number: str, label: str) -> list[Picture | None]:
    """All three figures of one prediction; None for what it has nothing to show in."""
    return [
        critical_path_figure(summary, f"critical-path-{number}", label),
        bounds_figure(summary, f"bounds-{number}", label),
        over_time_figure(summary, f"over-time-{number}", label),
    ]


def critical_path_figure(summary: Summary, name: str, label: str) -> Picture | None:
    """Each effect of a training loop's iteration by part; below, what hides beside it."""
    path = summary.facts.critical_path
    if path is None or path.seconds <= 0.0:
        return None
    whole = path.seconds
    rows: list[tuple[str, dict[str, float]]] = [
        (text.effect(effect), parts)
        for effect, parts in sorted(path.effects.items(), key=lambda item: -sum(item[1].values()))
        if sum(parts.values()) >= _SMALL * whole
    ]
    rows += [
        (f"{text.effect(effect)}, beside it", {"hidden": seconds})
        for effect, seconds in path.hidden.items()
        if seconds >= _SMALL * whole
    ]
    if not rows:
        return None
    with figure_style():
        from matplotlib.patches import Patch

        figure, (axes,) = new_figure(1.9 + 0.36 * len(rows))
        rows_of(axes, [row for row, _ in rows])
        for y, (_, parts) in enumerate(rows):
            left = 0.0
            for part, seconds in parts.items():
                fill = HIDDEN if part == "hidden" else PARTS[part][0]
                hatch = "//" if part == "hidden" else None
                axes.barh(
                    y, 1e3 * seconds, 0.62, left, color=fill, hatch=hatch, edgecolor="white",
                    linewidth=0.4,
                )  # fmt: skip
                left += 1e3 * seconds
            share = left / (10.0 * whole)
            axes.text(left, y, f" {share:.0f} %", va="center", fontsize=8)
        axes.set_xlim(0, 1.09e3 * max(sum(parts.values()) for _, parts in rows))
        axes.set_xlabel(f"time per iteration of a training loop, {1e3 * whole:.3g} ms in all (ms)")
        present = {part for _, parts in rows for part, seconds in parts.items() if seconds > 0}
        handles = [Patch(color=c, label=w) for part, (c, w) in PARTS.items() if part in present]
        if "hidden" in present:
            words = "hidden: communication of other loops meanwhile"
            handles.append(Patch(facecolor=HIDDEN, hatch="//", edgecolor="white", label=words))
        figure.legend(handles=handles, loc="outside upper left", ncols=2, fontsize=8)
        return finish(figure, name, f"{label}: the predicted iteration, taken apart")


def bounds_figure(summary: Summary, name: str, label: str) -> Picture | None:
    """What each class of resources would allow, beside the prediction."""
    found = bounds(summary)
    predicted = summary.examples_per_second
    if not found or not predicted:
        return None
    with figure_style():
        figure, (axes,) = new_figure(1.2 + 0.34 * len(found))
        rows_of(axes, [row for row, _ in found])
        for y, (_, bound) in enumerate(found):
            axes.barh(y, bound, 0.6, color=PREDICTED)
            axes.text(bound * 1.05, y, text.rate(bound), va="center", fontsize=8)
        axes.axvline(predicted, color=INK, linewidth=1.4)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: text.tick(value))
        axes.minorticks_off()
        axes.set_xlim(0.5 * predicted, 3.0 * max(bound for _, bound in found))
        axes.set_xlabel(
            f"examples/s that it would allow; line: the prediction, {text.rate(predicted)}"
        )
        return finish(figure, name, f"{label}: bounds on the prediction, the tightest first")


def bounds(summary: Summary, most: int = 10) -> list[tuple[str, float]]:
    """(what allows it, examples/s), the tightest first."""
    words = {"loops": "training loops that share nothing"}
    ordered = sorted(summary.facts.class_bounds.items(), key=lambda item: (item[1], item[0]))[:most]
    return [(words.get(name, name), bound) for name, bound in ordered]


def over_time_figure(summary: Summary, name: str, label: str) -> Picture | None:
    """How busy the busiest resource of each class is, from the start of the run."""
    found = summary.facts.over_time
    if found is None or len(found.seconds) < 2:
        return None
    curves = {
        f"{title} ({entry.resource})": entry.busy
        for title, entry in found.busiest.items()
        if max(entry.busy, default=0.0) >= _WORTH_A_LINE
    }
    if not curves:
        return None
    ordered = sorted(curves, key=lambda title: (-sum(curves[title]), title))[:_MOST_LINES]
    with figure_style():
        figure, (axes,) = new_figure(3.6)
        edges = [found.start, *found.seconds]
        for k, title in enumerate(ordered):
            axes.stairs(
                [100 * share for share in curves[title]],
                edges,
                baseline=None,
                color=LINES[k % len(LINES)],
                linestyle=_DASHES[k % len(_DASHES)],
                linewidth=1.5,
                label=title,
            )
        top = max(max(curves[title]) for title in ordered)
        axes.set_ylim(0, min(104.0, 115.0 * top))
        axes.set_xlim(edges[0], edges[-1])
        axes.grid(color=GRID, alpha=0.35, linewidth=0.6)
        axes.set_ylabel("busy (%)")
        axes.set_xlabel("simulated time (s); one step of the line: one or more steps of all loops")
        figure.legend(loc="outside upper left", ncols=2, fontsize=8)
        return finish(figure, name, f"{label}: the busiest resource of each class over time")


def reliability(summary: Summary) -> list[str]:
    """What failures and checkpoints cost, where hosts may fail."""
    found = summary.facts.reliability
    if found is None:
        return []
    failed, saved = found.failures, found.checkpoints
    return [
        f"{failed} {'failure' if failed == 1 else 'failures'} and "
        f"{saved} {'checkpoint' if saved == 1 else 'checkpoints'}: all stood still for "
        f"{text.seconds(found.standstill_seconds)}, {found.lost_examples:,.0f} examples were "
        f"lost; without those, {text.rate(found.goodput)} examples/s (goodput)"
    ]


def largest(summary: Summary) -> list[str]:
    """What most of a training loop's iteration goes into."""
    path = summary.facts.critical_path
    if path is None or path.seconds <= 0.0:
        return []
    whole, effects = path.seconds, path.effects
    taken = sorted(((sum(parts.values()), name) for name, parts in effects.items()), reverse=True)
    found = []
    for seconds, name in taken[:2]:
        if seconds >= _WORTH_SAYING * whole:
            most = max(effects[name], key=effects[name].__getitem__)
            within = "" if most == name else f", mostly {most}"
            found.append(f"{text.effect(name)} takes {text.percent(seconds / whole)}{within}")
    if not found:
        return []
    return [f"Of an iteration's {text.seconds(whole)}, {'; '.join(found)}"]


def sentences(summary: Summary) -> list[str]:
    """Where the time goes, how far the prediction is from its tightest bound, and how many servers
    it would take."""
    predicted = summary.examples_per_second
    found = bounds(summary)
    if not found or not predicted:
        return []
    what, bound = found[0]
    said = [
        *largest(summary),
        f"The tightest bound is {text.rate(bound)} examples/s ({what}); "
        f"the prediction reaches {text.percent(min(1.0, predicted / bound))} of it",
    ]
    more, fewer = [], []
    for role, entry in (summary.facts.servers_needed or {}).items():
        present, needed = entry.present, entry.needed
        names = f"{needed} {role.replace('_', ' ')}{'' if needed == 1 else 's'}"
        if needed > present:
            more.append(f"{names} instead of {present}")
        elif needed < present:
            fewer.append(f"{names} instead of {present}")
    if more:
        said.append(f"Servers would bind no longer with {' and '.join(more)}")
    if fewer:
        said.append(
            f"If the load divides evenly, {' and '.join(fewer)} would not bind either, memory aside"
        )
    return said
