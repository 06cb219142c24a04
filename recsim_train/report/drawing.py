"""What all figures share: colours, sizes, rendering to SVG and PNG.

Each is drawn twice for the page, for wide windows and for narrow ones, with letters of one size:
what is scaled down to a telephone cannot be read.
"""

from __future__ import annotations

import functools
import io
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

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
WIDTH, NARROW = 8.6, 4.1
"""Inches."""
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#8C8C8C")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""One for each line of a figure."""

GAP = "\N{NO-BREAK SPACE}"
"""Between a bar and its figure: browsers drop plain spaces at the start of a text."""
_width = ContextVar("width", default=WIDTH)
_TIP = "tip:"
P = ParamSpec("P")


def for_any_window(
    draw: Callable[P, Picture | None],
) -> Callable[P, Picture | None]:
    """A figure that is drawn in our style for a wide window, and again for a narrow one."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Picture | None:
        with style(WIDTH):
            wide = draw(*args, **kwargs)
        if wide is None:
            return None
        with style(NARROW):
            small = draw(*args, **kwargs)
        assert small is not None
        return replace(wide, narrow=small.svg)

    return drawn


def narrow() -> bool:
    """Whether the figure that is being drawn is for a narrow window."""
    return _width.get() == NARROW


def colour(effect: str) -> str:
    """The colour of an effect (a served one has its client's)."""
    name = folded(effect)
    return COLOURS.get(name) or SPARE[sum(name.encode()) % len(SPARE)]


def in_order(effects: Collection[str]) -> list[str]:
    """In the order of the colours, then by name."""
    return [e for e in COLOURS if e in effects] + sorted(set(effects) - set(COLOURS))


@contextmanager
def style(width: float = WIDTH) -> Iterator[None]:
    """Fonts, colours and the fixed salt of every figure. ``width``: of the window, `WIDTH` or
    `NARROW`."""
    import matplotlib as mpl

    settings: Any = {
        "svg.hashsalt": "recsim-train",
        "svg.fonttype": "none",
        "font.size": 10,
        "text.parse_math": False,
        "font.family": ["DejaVu Sans", "sans-serif"],
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
    token = _width.set(width)
    try:
        with mpl.rc_context(settings):
            yield
    finally:
        _width.reset(token)


def new_figure(height: float, rows: int = 1, **settings: Any) -> tuple[Figure, list[Axes]]:
    """A figure of the window's width and its axes, top down."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_width.get(), height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, squeeze=False, **settings)
    return figure, [axes[row][0] for row in range(rows)]


def new_rows(labels: Sequence[str], row: float, beside: float) -> tuple[Figure, Axes]:
    """A figure with a labelled row for each bar, the first on top. ``row``: inches of one where a
    label is one line; all are high enough for the longest. ``beside``: inches of all else."""
    lines = max((wrapped(label).count("\n") + 1 for label in labels), default=1)
    figure, (axes,) = new_figure(beside + len(labels) * max(row, 0.16 + 0.155 * lines))
    rows_of(axes, labels)
    return figure, axes


def finish(figure: Figure, name: str, title: str) -> Picture:
    """Render as SVG and, unless it is narrow, as PNG."""
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Title": title}, transparent=True)
    if not narrow():
        figure.set_layout_engine("none")  # as it was laid out for the SVG: that takes long
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    said = re.sub(
        rf'<g id="{_TIP}([^"]*)">', r"<g><title>\1</title>", svg.getvalue().decode("utf-8")
    )
    return Picture(name, title, said, png.getvalue())


def tip(artists: Iterable[Any], words: str) -> None:
    """What the page shows of bars or points that are pointed at."""
    for artist in artists:
        artist.set_gid(_TIP + words)


def wrapped(label: str, width: int = 30) -> str:
    """A long label on several lines, of so many characters in a wide window."""
    room = width if not narrow() else min(width, 17)
    return "\n".join(textwrap.wrap(label, room, break_long_words=False)) or label


def rows_of(axes: Axes, labels: Sequence[str]) -> None:
    """One labelled row per bar or lane, the first on top."""
    axes.set_yticks(range(len(labels)), [wrapped(label) for label in labels])
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    if narrow():
        axes.tick_params(axis="y", labelsize=8.5)
    grid_of(axes, "x")


def along(axes: Axes, words: str) -> None:
    """What the horizontal axis is, on as many lines as it takes."""
    axes.set_xlabel("\n".join(textwrap.wrap(words, 46 if narrow() else 105)))


def legend(figure: Figure, columns: int, **settings: Any) -> None:
    """Above the figure, in so many columns in a wide window."""
    many = max(1, columns // 2) if narrow() else columns
    figure.legend(loc="outside upper left", ncols=many, fontsize=9, columnspacing=1.4, **settings)


def grid_of(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Faint lines at the ticks."""
    axes.grid(axis=axis, color=GRID, alpha=0.35, linewidth=0.6)


def svg_for_page(picture: Picture) -> str:
    """The figure as inline elements, one for each width of window: text in the page's colour, named
    for screen readers."""

    def inline(svg: str, kind: str) -> str:
        body = svg[svg.index("<svg") :].replace(INK, "currentColor")
        named = f'<svg class="{kind}" role="img" aria-label="{escape(picture.title)}" '
        return body.replace("<svg ", named, 1)

    if not picture.narrow:
        return inline(picture.svg, "")
    return inline(picture.svg, "wide") + inline(picture.narrow, "narrow")
