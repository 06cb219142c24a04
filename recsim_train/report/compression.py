"""What a compression left out, in words: in values, and on the wire with the places. The density
is the real one: values that were sent / values that there were, both counted."""

from __future__ import annotations

from collections.abc import Iterator

from recsim_train.report import text
from recsim_train.results.figures import Summary
from recsim_train.results.rundir import RunRecord
from recsim_train.trace.facts import Compressed

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


def cell(summary: Summary) -> str:
    """A run's ratios in short, in values and on the wire."""
    parts = [
        f"{_SHORT.get(name, name)} {_times(t.value_compression)} "
        f"({_density(t, ' of values; ')}wire {_times(t.wire_compression)})"
        for name, t in summary.facts.compression.items()
    ]
    return "; ".join(parts) or text.NONE


def sentences(simulated: RunRecord, real: RunRecord) -> Iterator[str]:
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
