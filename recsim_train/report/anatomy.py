"""Why a prediction is what it is: an iteration taken apart, resources over time, and bounds."""

from __future__ import annotations

from recsim_train.report import naming, text
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    GAP,
    INK,
    LINES,
    PREDICTED,
    along,
    finish,
    for_any_window,
    grid_of,
    legend,
    narrow,
    new_figure,
    new_rows,
    tip,
)
from recsim_train.report.what_if import servers_lacking
from recsim_train.results.summary import Summary

PARTS = {
    "compute": ("#0072B2", "work on cores"),
    "transfer": ("#009E73", "bytes on their way"),
    "queueing": ("#D55E00", "queueing for what others use"),
    "waiting": ("#8C8C8C", "waiting for others"),
}
"""Of the time of an effect: colour and name. Work, and bytes, as long as they take alone."""
HIDDEN = "#CC79A7"
_DASHES = ("-", "--", "-.", ":")
_WORTH_A_LINE = 0.03
"""Busy share that a class must reach at some time."""
_MOST_LINES = 8
_WORTH_SAYING = 0.1
"""Share of an iteration that an effect must take to be named."""
_SMALL = 0.001
"""Of an iteration: effects below it have no row."""
_FAR, _SHOWN = 10.0, 4.0
"""Times the prediction: bounds beyond it are not drawn; where the bars of others end."""


def pictures(summary: Summary, number: str, label: str) -> list[Picture | None]:
    """All three figures of one prediction; None for what it has nothing to show in."""
    return [
        critical_path_figure(summary, f"critical-path-{number}", label),
        bounds_figure(summary, f"bounds-{number}", label),
        over_time_figure(summary, f"over-time-{number}", label),
    ]


@for_any_window
def critical_path_figure(summary: Summary, name: str, label: str) -> Picture | None:
    """Each effect of a training loop's iteration by part; below, what hides beside it."""
    path = summary.facts.critical_path
    if path is None or path.seconds <= 0.0:
        return None
    whole = path.seconds
    rows: list[tuple[str, dict[str, float]]] = [
        (naming.effect(effect), parts)
        for effect, parts in sorted(path.effects.items(), key=lambda item: -sum(item[1].values()))
        if sum(parts.values()) >= _SMALL * whole
    ]
    rows += [
        (f"{naming.effect(effect)}, beside it", {"hidden": seconds})
        for effect, seconds in path.hidden.items()
        if seconds >= _SMALL * whole
    ]
    if not rows:
        return None
    from matplotlib.patches import Patch

    names = [row for row, _ in rows]
    figure, axes = new_rows(names, 0.36, 1.6)
    for y, (_, parts) in enumerate(rows):
        left = 0.0
        for part, seconds in parts.items():
            fill = HIDDEN if part == "hidden" else PARTS[part][0]
            hatch = "//" if part == "hidden" else None
            bar = axes.barh(
                y, 1e3 * seconds, 0.62, left, color=fill, hatch=hatch, edgecolor="white",
                linewidth=0.4,
            )  # fmt: skip
            means = "hidden" if part == "hidden" else PARTS[part][1]
            tip(bar, f"{names[y]}: {means} {text.seconds(seconds)}")
            left += 1e3 * seconds
        share = left / (10.0 * whole)
        axes.text(left, y, f"{GAP}{share:.0f} %", va="center", fontsize=8)
    axes.set_xlim(0, 1.12e3 * max(sum(parts.values()) for _, parts in rows))
    along(axes, f"time per iteration of a training loop, {1e3 * whole:.3g} ms in all (ms)")
    present = {part for _, parts in rows for part, seconds in parts.items() if seconds > 0}
    handles = [Patch(color=c, label=w) for part, (c, w) in PARTS.items() if part in present]
    if "hidden" in present:
        words = "hidden: others' communication meanwhile"
        handles.append(Patch(facecolor=HIDDEN, hatch="//", edgecolor="white", label=words))
    legend(figure, 3, handles=handles)
    return finish(figure, name, f"{label}: the predicted iteration, taken apart")


@for_any_window
def bounds_figure(summary: Summary, name: str, label: str) -> Picture | None:
    """What each class of resources would allow, beside the prediction: those near it, on an axis
    from 0; bars beyond its end say so."""
    predicted = summary.examples_per_second
    if not predicted:
        return None
    found = [(what, bound) for what, bound in bounds(summary) if bound <= _FAR * predicted]
    if not found:
        return None
    names = [what for what, _ in found]
    end = min(_SHOWN * predicted, max(bound for _, bound in found))
    figure, axes = new_rows(names, 0.34, 1.1)
    for y, (what, bound) in enumerate(found):
        bar = axes.barh(y, min(bound, end), 0.6, color=PREDICTED)
        tip(bar, f"{what}: at most {text.rate(bound)} examples/s")
        beyond = "\N{RIGHTWARDS ARROW} " if bound > end else ""
        axes.text(min(bound, end), y, f"{GAP}{beyond}{text.rate(bound)}", va="center", fontsize=8)
    axes.axvline(predicted, color=INK, linewidth=1.4)
    axes.xaxis.set_major_formatter(lambda value, _: text.tick(value))
    axes.set_xlim(0, 1.22 * end)
    along(axes, f"examples/s that it would allow; line: the prediction, {text.rate(predicted)}")
    return finish(figure, name, f"{label}: bounds on the prediction, the tightest first")


def bounds(summary: Summary, most: int = 10) -> list[tuple[str, float]]:
    """(what allows it, examples/s), the tightest first."""
    ordered = sorted(summary.facts.class_bounds.items(), key=lambda item: (item[1], item[0]))[:most]
    return [(naming.phrase(name), bound) for name, bound in ordered]


@for_any_window
def over_time_figure(summary: Summary, name: str, label: str) -> Picture | None:
    """How busy the busiest resource of each class is, from the start of the run."""
    found = summary.facts.over_time
    if found is None or len(found.seconds) < 2:
        return None
    curves = {
        naming.phrase(title): entry.busy
        for title, entry in found.busiest.items()
        if max(entry.busy, default=0.0) >= _WORTH_A_LINE
    }
    if not curves:
        return None
    ordered = sorted(curves, key=lambda title: (-sum(curves[title]), title))[:_MOST_LINES]
    figure, (axes,) = new_figure(3.6 + (0.15 * len(ordered) if narrow() else 0.0))
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
    shown = min(104.0, 115.0 * top)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, shown), ylabel="busy (%)")
    grid_of(axes)
    along(axes, "simulated time (s); one step of the line: one or more steps of all loops")
    legend(figure, 2)
    return finish(figure, name, f"{label}: the busiest resource of each class over time")


def reliability(summary: Summary) -> list[str]:
    """What failures and checkpoints cost, where hosts may fail."""
    found = summary.facts.reliability
    if found is None:
        return []
    failed, saved = found.failures, found.checkpoints
    said = [
        f"{failed} {'failure' if failed == 1 else 'failures'} and "
        f"{saved} {'checkpoint' if saved == 1 else 'checkpoints'}: all stood still for "
        f"{text.seconds(found.standstill_seconds)}, {found.lost_examples:,.0f} examples were "
        f"lost; without those, {text.rate(found.goodput)} examples/s (goodput)",
    ]
    if found.best_interval is not None and found.between_failures is not None:
        said.append(
            "To first order (Young 1974, Daly 2006) checkpoints and lost work cost least with one "
            f"every {text.duration(found.best_interval)}: it takes "
            f"{text.seconds(found.checkpoint_seconds)} of training, and one of all hosts fails "
            f"every {text.duration(found.between_failures)}"
        )
    return said


def largest(summary: Summary) -> list[str]:
    """What most of a training loop's iteration goes into."""
    path = summary.facts.critical_path
    if path is None or path.seconds <= 0.0:
        return []
    whole, effects = path.seconds, path.effects
    taken = sorted(((sum(parts.values()), name) for name, parts in effects.items()), reverse=True)
    most = {name: max(parts, key=parts.__getitem__) for name, parts in effects.items()}
    found = [
        f"{naming.effect(name)} takes {text.percent(seconds / whole)}"
        f"{'' if most[name] == name else f', mostly {PARTS[most[name]][1]}'}"
        for seconds, name in taken[:2]
        if seconds >= _WORTH_SAYING * whole
    ]
    return [f"Of an iteration's {text.seconds(whole)}, {'; '.join(found)}"] if found else []


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
    fewer = [
        f"{entry.needed} {role.replace('_', ' ')}{'' if entry.needed == 1 else 's'} instead of "
        f"{entry.present}"
        for role, entry in (summary.facts.servers_needed or {}).items()
        if entry.needed < entry.present
    ]
    if lacking := servers_lacking(summary):
        said.append(f"Servers would bind no longer with {lacking}")
    if fewer:
        said.append(
            f"If the load divides evenly, {' and '.join(fewer)} would not bind either, memory aside"
        )
    return said
