"""Finished runs as a table, one a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from recsim_train.config.experiment import Data
from recsim_train.config.validate import parse
from recsim_train.report import anatomy, compression, text, what_if
from recsim_train.report.document import Column, Document, Lines, Section, Table, stopped
from recsim_train.results.figures import Summary
from recsim_train.results.rundir import RunRecord


def finished(runs: Sequence[RunRecord]) -> Document:
    """A table, what limits each run, and where it lies."""
    said = [Lines(stopped(limits(run.summary)), lead=_title(run)) for run in runs]
    places = Lines([str(run.path) for run in runs], mark="note")
    return Document(items=[Section("", [run_table(runs), *said, places])])


def limits(summary: Summary) -> list[str]:
    """Why a prediction is what it is and what would change it, without full stops."""
    costs = anatomy.reliability(summary)
    return [*anatomy.sentences(summary), *costs, *what_if.sentences(summary)]


def run_table(runs: Sequence[RunRecord]) -> Table:
    """One run a row; empty columns are left out."""
    found = [run.summary for run in runs]
    columns: dict[str, list[str]] = {
        "strategy": [_title(run) for run in runs],
        "world": [run.world for run in runs],
        "examples/s": [text.rated(d.examples_per_second, d.ci95) for d in found],
        "examples/step": _examples(found),
        "goodput": [_goodput(d) for d in found],
        "from calibration": [what_if.calibration(d) for d in found],
        "threads": [_threads(d) for d in found],
        "steps": [text.exact(d.steps) for d in found],
        "time": [text.seconds(d.seconds) for d in found],
        "payload/step": [_payload(d) for d in found],
        "sync gap": [text.sync_gap(d.synchronisation) for d in found],
        "staleness": [text.staleness(d.synchronisation) for d in found],
        "compression": [compression.cell(d) for d in found],
        "bound by": [d.bottleneck or text.NONE for d in found],
        "train loss": [_training(d) for d in found],
        "loss": [text.number(d.loss, 4) for d in found],
        "AUC": [text.number(d.auc, 4) for d in found],
        "NE": [text.number(d.normalized_entropy, 4) for d in found],
        "status": [text.NONE if run.status == "complete" else run.status for run in runs],
    }
    words = ("strategy", "world", "threads", "compression", "bound by", "status")
    return Table(
        [
            Column(name, cells, name in words)
            for name, cells in columns.items()
            if any(c != text.NONE for c in cells)
        ]
    )


def data_of(configurations: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where training and held-out rows of runs came from, each way once.

    ``configurations``: as manifests hold them; one that this version cannot read says nothing.
    """
    said: dict[str, None] = {}
    for configuration in configurations:
        with suppress(ValidationError):
            said[parse(Data, configuration.get("data", {})).said] = None
    return stopped(said)


def _examples(found: Sequence[Summary]) -> list[str]:
    """Of one step of the whole job, where runs differ in it."""
    counts = [d.synchronisation.elp for d in found]
    return [text.exact(n) if len(set(counts)) > 1 else text.NONE for n in counts]


def title(strategy: str, document: Mapping[str, Any]) -> str:
    """A strategy's name with the options that are not at their default."""
    options = document.get("strategy_options", {})
    shown = [
        f"{name} {value['kind'] if isinstance(value, Mapping) else value}"
        for name, value in options.items()
    ]
    return f"{strategy} ({', '.join(shown)})" if shown else strategy


def _title(run: RunRecord) -> str:
    return title(run.strategy, {"strategy_options": run.manifest["strategy"].get("options", {})})


def _threads(summary: Summary) -> str:
    """Of each trainer; nothing where it is one."""
    if summary.operation_threads > 1:
        return f"{summary.operation_threads} within operations"
    return f"{summary.threads} workers" if summary.threads > 1 else text.NONE


def _goodput(summary: Summary) -> str:
    """Examples per second without work that failures undid; only where hosts may fail."""
    found = summary.facts.reliability
    return text.NONE if found is None else text.rate(found.goodput)


def _payload(summary: Summary) -> str:
    per_effect = [v for v in summary.bytes_by_effect.values() if v is not None]
    return text.size(sum(per_effect)) if per_effect else text.NONE


def _training(summary: Summary) -> str:
    first, last = summary.train_loss_first, summary.train_loss_last
    if first is None or last is None:
        return text.NONE if summary.facts.diverged is None else _overflowed(first)
    return f"{text.number(first, 4)} → {text.number(last, 4)}"


def _overflowed(first: float | None) -> str:
    """The training loss of a run that diverged."""
    return "not finite" if first is None else f"{text.number(first, 4)} → not finite"
