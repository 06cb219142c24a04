"""Throughput against cost."""

from __future__ import annotations

from recsim_train.designs.answer import Recommended
from recsim_train.designs.searching import Design
from recsim_train.report import text
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    GRID,
    LINES,
    MARKERS,
    along,
    finish,
    for_any_window,
    grid_of,
    legend,
    new_figure,
    style,
    tip,
)


def draw(answer: Recommended) -> dict[str, Picture]:
    """Every figure that there is something to show in, by name."""
    drawn = frontier(answer)
    return {} if drawn is None else {drawn.name: drawn}


@for_any_window
def frontier(answer: Recommended) -> Picture | None:
    """Designs by what they cost and give; the best at each cost joined by a line."""
    designs = answer.found.simulated
    if len(designs) < 2:
        return None
    currencies = {d.candidate.rented.currency if d.candidate.rented else "" for d in designs}
    priced = len(currencies) == 1 and "" not in currencies
    unit = f"{currencies.pop()} an hour" if priced else "hosts"

    def cost(design: Design) -> float:
        if priced and design.candidate.per_hour is not None:
            return design.candidate.per_hour
        return float(design.candidate.hosts)

    with style():
        figure, (axes,) = new_figure(4.2)
        for k, kind in enumerate(dict.fromkeys(d.kind for d in designs)):
            own = [d for d in designs if d.kind == kind]
            axes.plot(
                [cost(d) for d in own], [d.eps or 0.0 for d in own], label=kind, linestyle="none",
                color=LINES[k % len(LINES)], marker=MARKERS[k % len(MARKERS)], markersize=5,
                zorder=3,
            )  # fmt: skip
            for design in own:
                said = f"{kind}, {cost(design):g} {unit}: {text.rate(design.eps)} examples/s"
                (point,) = axes.plot(
                    [cost(design)], [design.eps or 0.0], marker="o", markersize=9, alpha=0.0,
                    zorder=5,
                )  # fmt: skip
                tip(point, said)
        best, edge = 0.0, []
        for design in sorted(designs, key=lambda d: (cost(d), -(d.eps or 0.0))):
            if (design.eps or 0.0) > best:
                best = design.eps or 0.0
                edge.append((cost(design), best))
        axes.step(*zip(*edge, strict=True), where="post", color=GRID, linewidth=1.2, zorder=2)
        chosen = answer.chosen
        axes.plot(
            [cost(chosen)], [chosen.eps or 0.0], marker="o", markersize=13, fillstyle="none",
            color="#d43f3f", markeredgewidth=1.6, linestyle="none", zorder=4, label="taken",
        )  # fmt: skip
        if answer.wanted.target is not None:
            axes.axhline(answer.wanted.target, color=GRID, linestyle=(0, (4, 3)), linewidth=1.2)
        axes.set_ylim(0, 1.15 * max(best, answer.wanted.target or 0.0))
        axes.set_xlim(0, None)
        axes.locator_params(axis="x", integer=unit == "hosts")
        axes.set_ylabel("predicted examples/s")
        axes.yaxis.set_major_formatter(lambda value, _: text.tick(value))
        dashed = "" if answer.wanted.target is None else "; dashed: the target"
        along(axes, f"{unit} (line: the most up to there{dashed})")
        grid_of(axes)
        legend(figure, 3)
        return finish(figure, "frontier", f"Predicted throughput over {unit}")
