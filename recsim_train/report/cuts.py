"""A net that is cut along tags, in sentences: how much of it, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recsim_train.results.rundir import RunRecord


def tagged(record: RunRecord) -> dict[str, Any]:
    """The net of a run that is cut along tags, as its manifest has it; empty: it has none."""
    net = record.manifest.get("plan", {}).get("net")
    return net if isinstance(net, dict) and net.get("kind") == "tagged" else {}


def sentences(record: RunRecord) -> list[str]:
    """How much of the net is cut, and what the tagger compared; without full stops."""
    net = tagged(record)
    return [f"Of its net {net['summary']}; {net['why']}"] if "summary" in net else []


def cautions(record: RunRecord) -> Iterator[str]:
    """A net that could be cut and is not."""
    if caution := tagged(record).get("caution"):
        yield f"This {record.strategy} plan {caution}."
