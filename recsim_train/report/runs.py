"""Finished runs as a table, one a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recsim_train.report import anatomy, compression, text, what_if
from recsim_train.report.document import Column, Document, Lines, Section, Table, stopped


def finished(document: Mapping[str, Any]) -> Document:
    """``{"runs": [...]}``: a table, what limits each run, and where it lies."""
    runs = document["runs"]
    said = [Lines(stopped(limits(run)), lead=title(str(run["strategy"]), run)) for run in runs]
    places = Lines([str(run["run_dir"]) for run in runs], mark="note")
    return Document(items=[Section("", [run_table(runs), *said, places])])


def limits(summary: Mapping[str, Any]) -> list[str]:
    """Why a prediction is what it is and what would change it, without full stops."""
    costs = anatomy.reliability(summary)
    return [*anatomy.sentences(summary), *costs, *what_if.sentences(summary)]


def run_table(documents: Sequence[Mapping[str, Any]]) -> Table:
    """Entries of ``{"runs": [...]}``; empty columns are left out."""
    columns = {
        "strategy": [title(str(d["strategy"]), d) for d in documents],
        "world": [str(d["world"]) for d in documents],
        "examples/s": [text.rated(d["examples_per_second"], d["ci95"]) for d in documents],
        "goodput": [_goodput(d) for d in documents],
        "from calibration": [what_if.calibration(d) for d in documents],
        "steps": [text.exact(d["steps"]) for d in documents],
        "time": [text.seconds(d["seconds"]) for d in documents],
        "payload/step": [_payload(d) for d in documents],
        "sync gap": [text.sync_gap(d) for d in documents],
        "staleness": [text.staleness(d) for d in documents],
        "compression": [compression.cell(d) for d in documents],
        "bound by": [str(d.get("bottleneck") or text.NONE) for d in documents],
        "train loss": [_training(d) for d in documents],
        "loss": [text.number(d.get("loss"), 4) for d in documents],
        "AUC": [text.number(d.get("auc"), 4) for d in documents],
        "NE": [text.number(d.get("normalized_entropy"), 4) for d in documents],
        "status": [text.NONE if d["status"] == "complete" else d["status"] for d in documents],
    }
    words = ("strategy", "world", "compression", "bound by", "status")
    return Table(
        [
            Column(name, cells, name in words)
            for name, cells in columns.items()
            if any(c != text.NONE for c in cells)
        ]
    )


def title(strategy: str, document: Mapping[str, Any]) -> str:
    """A strategy's name with the options that are not at their default."""
    options = document.get("strategy_options", {})
    shown = [
        f"{name} {value['kind'] if isinstance(value, Mapping) else value}"
        for name, value in options.items()
    ]
    return f"{strategy} ({', '.join(shown)})" if shown else strategy


def _goodput(document: Mapping[str, Any]) -> str:
    """Examples per second without work that failures undid; only where hosts may fail."""
    found = (document.get("facts") or {}).get("reliability") or {}
    return text.rate(found.get("goodput"))


def _payload(document: Mapping[str, Any]) -> str:
    per_effect = [v for v in document["bytes_by_effect"].values() if v is not None]
    return text.size(sum(per_effect)) if per_effect else text.NONE


def _training(document: Mapping[str, Any]) -> str:
    first, last = document.get("train_loss_first"), document.get("train_loss_last")
    if first is None or last is None:
        return text.NONE
    return f"{text.number(first, 4)} → {text.number(last, 4)}"
