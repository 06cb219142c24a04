"""What all figures share: colours, sizes, rendering to SVG and PNG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from recsim_train.report.document import Picture
from recsim_train.results.summary import OTHER, folded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PREDICTED, MEASURED = "#8FB8DE", "#2F6DB0"
# Okabe and Ito's colours, told apart by colour-blind readers; the same effect everywhere.
COLOURS = {
    "compute": "#0072B2",
    "lookup": "#E69F00",
    "update": "#D55E00",
    "pull": "#009E73",
    "push": "#56B4E9",
    "exchange": "#CC79A7",
    "all_reduce": "#F0E442",
    "next_batch": "#8C8C8C",
    OTHER: "#D0D0D0",
}
SPARE = ("#882255", "#117733", "#AA4499", "#332288", "#999933")
INK = "#20262e"
"""Text and axes; the page replaces it by its own text colour (see `svg_for_page`)."""
GRID = "#9aa3ad"
WIDTH = 8.6
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""One for each line of a figure."""


def colour(effect: str) -> str:
    """The colour of an effect (a served one has its client's)."""
    name = folded(effect)
    return COLOURS.get(name) or SPARE[sum(name.encode()) % len(SPARE)]


@contextmanager
def style() -> Iterator[None]:
    """Fonts, colours and the fixed salt of every figure."""
    import matplotlib as mpl

    settings: Any = {
        "svg.hashsalt": "recsim-train",
        "svg.fonttype": "path",
        "font.size": 10,
        "text.parse_math": False,
        "font.family": ["DejaVu Sans"],
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": GRID,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "figure.facecolor": "white",
        "axes.facecolor": "none",
    }
    with mpl.rc_context(settings):
        yield


def new_figure(height: float, rows: int = 1, **settings: Any) -> tuple[Figure, list[Axes]]:
    """A figure of the page's width and its axes, top down."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, squeeze=False, **settings)
    return figure, [axes[row][0] for row in range(rows)]


def finish(figure: Figure, name: str, title: str) -> Picture:
    """Render as SVG and PNG."""
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Title": title}, transparent=True)
    figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return Picture(name, title, svg.getvalue().decode("utf-8"), png.getvalue())


def wrapped(label: str, width: int = 30) -> str:
    """A long label on several lines."""
    return "\n".join(textwrap.wrap(label, width, break_long_words=False)) or label


def rows_of(axes: Axes, labels: Sequence[str], *, grid: bool = True) -> None:
    """One labelled row per bar or lane, the first on top."""
    axes.set_yticks(range(len(labels)), [wrapped(label) for label in labels])
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    if grid:
        grid_of(axes, "x")


def grid_of(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Faint lines at the ticks."""
    axes.grid(axis=axis, color=GRID, alpha=0.35, linewidth=0.6)


def svg_for_page(picture: Picture) -> str:
    """The figure as an inline element: text in the page's colour, named for screen readers."""
    body = picture.svg[picture.svg.index("<svg") :].replace(INK, "currentColor")
    named = f'<svg role="img" aria-label="{escape(picture.title)}" '
    return body.replace("<svg ", named, 1)


def most_lines(labels: Sequence[str]) -> int:
    """Lines of the longest label: rows must be high enough for it."""
    return max((wrapped(label).count("\n") + 1 for label in labels), default=1)
