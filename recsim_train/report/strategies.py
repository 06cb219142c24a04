"""What reports say of single strategies: what a compression left out, and how a net is cut.

Of a compression in values, and on the wire with the places; its density is the real one: values
that were sent / values that there were, both counted. Of a net that is cut along tags how much of
it and why, in sentences and as a figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recsim_train.report import text
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
from recsim_train.results.summary import Summary
from recsim_train.trace.facts import Compressed

_HOSTS = (COLOURS["lookup"], COLOURS["push"], COLOURS["pull"], COLOURS["exchange"], *SPARE)
_SHARED = "#D0D0D0"


def tagged(record: RunRecord) -> dict[str, Any]:
    """The net of a run that is cut along tags, as its manifest has it; empty: it has none."""
    net = (record.manifest.get("plan") or {}).get("net")
    return net if isinstance(net, dict) and net.get("kind") == "tagged" else {}


def cut_said(record: RunRecord) -> list[str]:
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
            words = f"cut {cut}\n{size / 2**10:,.0f} KiB"
            axes.text(cut + 0.5, -0.75, words, ha="center", va="center", fontsize=8, color=INK)
        axes.set(xlim=(-0.6, columns - 0.4), ylim=(rows - 0.4, -1.1))
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


_NOUNS = {
    "gradients": "dense gradients",
    "differences": "differences of dense parameters",
    "activations": "pooled embeddings",
    "activation_gradients": "gradients of pooled embeddings",
}

_SHORT = {
    "gradients": "dense",
    "differences": "dense",
    "activations": "pooled",
    "activation_gradients": "pooled back",
}


def compression_cell(summary: Summary) -> str:
    """A run's ratios in short, in values and on the wire."""
    parts = [
        f"{_SHORT.get(name, name)} {_times(t.value_compression)} "
        f"({_density(t, ' of values; ')}wire {_times(t.wire_compression)})"
        for name, t in summary.facts.compression.items()
    ]
    return "; ".join(parts) or text.NONE


def compression_said(simulated: RunRecord, real: RunRecord) -> Iterator[str]:
    """One for each kind of content that was compressed."""
    predicted, measured = simulated.facts.compression, real.facts.compression
    for name, ours in measured.items():
        theirs = predicted.get(name)
        values, wire = _times(ours.value_compression), _times(ours.wire_compression)
        assumed = ""
        if theirs is not None:
            assumed = (
                f" (the prediction assumed {_times(theirs.value_compression)} and "
                f"{_times(theirs.wire_compression)})"
            )
        yield (
            f"Compression of {_NOUNS.get(name, name)}, warm-up included: {values} in values, "
            f"{wire} on the wire{assumed}{_density(ours, ' of the values travelled', '; ')}"
        )


def _density(tally: Compressed, after: str, before: str = "") -> str:
    share = tally.density
    return "" if share is None else f"{before}{text.small_percent(share)}{after}"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×"


def reconstructions(record: RunRecord) -> Iterator[str]:
    """Which parts of a strategy are a reconstruction."""
    for name, chosen in (record.manifest["strategy"].get("options") or {}).items():
        if isinstance(chosen, dict) and chosen.get("kind") == "dct":
            yield (
                f"The {name} dct is a reconstruction where arXiv 2010.08899's abstract is silent: "
                "the ramp of thresholds, what elastic averaging sends, masks shard by shard, of "
                "each table or of all, and all defaults."
            )
