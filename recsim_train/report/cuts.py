"""A net that is cut along tags: how much of it and why, in sentences, and as a figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    COLOURS,
    GRID,
    INK,
    SPARE,
    finish,
    new_figure,
    style,
)
from recsim_train.results.rundir import RunRecord

_HOSTS = (COLOURS["lookup"], COLOURS["push"], COLOURS["pull"], COLOURS["exchange"], *SPARE)
_SHARED = "#D0D0D0"


def tagged(record: RunRecord) -> dict[str, Any]:
    """The net of a run that is cut along tags, as its manifest has it; empty: it has none."""
    net = (record.manifest.get("plan") or {}).get("net")
    return net if isinstance(net, dict) and net.get("kind") == "tagged" else {}


def sentences(record: RunRecord) -> list[str]:
    """How much of the net is cut, and what the tagger compared; without full stops."""
    net = tagged(record)
    return [f"Of its net {net['summary']}; {net['why']}"] if "summary" in net else []


def cautions(record: RunRecord) -> Iterator[str]:
    """A net that could be cut and is not."""
    if caution := tagged(record).get("caution"):
        yield f"This {record.strategy} plan {caution}."


def net_figure(record: RunRecord, name: str, label: str) -> Picture | None:
    """Operators by level (a cut lies between two), coloured by the host that runs them; None where
    no net is cut along tags."""
    if not (net := tagged(record)):
        return None
    places = _places(net["operators"])
    rows = 1 + max(row for _, row in places.values())
    columns = 1 + max(column for column, _ in places.values())
    with style():
        figure, (axes,) = new_figure(1.2 + 0.62 * rows)
        for operator in net["operators"]:
            for value in operator["inputs"]:
                (x0, y0), (x1, y1) = places[value], places[operator["name"]]
                arrow = {"arrowstyle": "-|>", "color": GRID, "shrinkA": 16, "shrinkB": 16}
                axes.annotate("", (x1, y1), (x0, y0), arrowprops=arrow)
        for operator in net["operators"]:
            x, y = places[operator["name"]]
            tag = operator["tag"]
            shade = _SHARED if tag == "dp" else _HOSTS[int(tag.split()[1]) % len(_HOSTS)]
            words = f"{operator['name']}\n{tag}"
            box = {"boxstyle": "round,pad=0.35", "facecolor": shade, "edgecolor": "none"}
            axes.text(x, y, words, ha="center", va="center", fontsize=8, color="#111111", bbox=box)
        for cut, messages in enumerate(net["cuts"]):
            size = sum(m["bytes"] for m in messages if m["source"] != m["target"])
            line = ([cut + 0.5] * 2, [-0.45, rows - 0.5])
            axes.plot(*line, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            text = f"cut {cut}\n{size / 2**10:,.0f} KiB"
            axes.text(cut + 0.5, -0.75, text, ha="center", va="center", fontsize=8, color=INK)
        axes.set_xlim(-0.6, columns - 0.4)
        axes.set_ylim(rows - 0.4, -1.1)
        axes.axis("off")
        title = (
            f"{label}: operators of a group of {net['hosts']} hosts by level; dp: each host on "
            "its own examples; cuts with the bytes that hosts send each other, forward"
        )
        return finish(figure, name, title)


def _places(operators: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """(column, row) of each operator: its level, and its turn in it."""
    taken: dict[int, int] = {}
    places = {}
    for operator in operators:
        level = int(operator["level"])
        places[str(operator["name"])] = (level, taken.get(level, 0))
        taken[level] = taken.get(level, 0) + 1
    return places
