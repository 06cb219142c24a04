"""A folder's runs in a table, and two runs beside each other: settings and figures that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from recsim_train.report import text
from recsim_train.report.document import Chapter, Document, Lines, TextTable
from recsim_train.report.runs import title
from recsim_train.results.row import flat_settings
from recsim_train.results.rundir import MANIFEST, RunRecord, run_document

_BESIDE = ("loss", "auc", "normalized_entropy", "steps", "seconds", "ci95")
"""Figures of a run, beside its throughput."""


def newest_first(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """By when they were written."""
    return sorted(runs, key=lambda run: -_written(run))


def _written(run: RunRecord) -> float:
    return (run.path / MANIFEST).stat().st_mtime


def listed(runs: Sequence[RunRecord], root: Path) -> Document:
    """One run a row, by its name within ``root``."""
    found = [run.summary for run in runs]
    when = [datetime.fromtimestamp(_written(run)).astimezone() for run in runs]
    columns: dict[str, Sequence[Any]] = {
        "run": [str(run.path.relative_to(root)) for run in runs],
        "written": [time.strftime("%Y-%m-%d %H:%M") for time in when],
        "experiment": [str(run.manifest.get("experiment") or text.NONE) for run in runs],
        "strategy": [
            title(run.strategy, run.manifest["strategy"].get("options") or {}) for run in runs
        ],
        "world": [run.world for run in runs],
        "examples/s": [text.rated(one.examples_per_second, one.ci95) for one in found],
        "loss": [text.number(one.loss, 4) for one in found],
        "AUC": [text.number(one.auc, 4) for one in found],
        "status": [run.status for run in runs],
    }
    words = ("run", "written", "experiment", "strategy", "world", "status")
    table = TextTable.filled(columns, words, order="newest first")
    return Document(items=[Chapter("", [table])])


def documents(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """The same for programs: what `run --json` says of each."""
    return {"runs": [run_document(run) for run in runs]}


def apart(one: RunRecord, other: RunRecord) -> dict[str, dict[str, tuple[Any, Any]]]:
    """What differs, by kind and name: of both runs the value, None where one has none."""
    return {
        "settings": _apart(_settings(one), _settings(other)),
        "profile": _apart(_profile(one), _profile(other)),
        "versions": _apart(_versions(one), _versions(other)),
        "figures": _apart(_figures(one), _figures(other)),
    }


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys((*one, *other))
    return {
        name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)
    }


def _settings(run: RunRecord) -> dict[str, Any]:
    """As they are written with `--set`; the strategy is the run's own of those of its file."""
    own = {k: v for k, v in run.manifest["configuration"].items() if k != "strategy"}
    if (described := own.get("model", {}).get("described")) is not None:
        own["model"] = {**own["model"], "described": described["digest"]}
    options = run.manifest["strategy"].get("options") or {}
    return flat_settings({"world": run.world, "strategy": {"kind": run.strategy, **options}, **own})


def _profile(run: RunRecord) -> dict[str, Any]:
    return flat_settings({"cluster": run.manifest.get("cluster") or {}})


def _versions(run: RunRecord) -> dict[str, Any]:
    return {**run.environment.get("versions", {}), "code": run.manifest.get("code")}


def _figures(run: RunRecord) -> dict[str, Any]:
    document = run_document(run)
    known = {"examples_per_second": document.get("examples_per_second"), "status": run.status}
    if run.facts.reliability is not None:
        known["goodput"] = run.facts.reliability.goodput
    return known | {name: document.get(name) for name in _BESIDE}


def compared(one: RunRecord, other: RunRecord) -> Document:
    """The same as tables, one for each kind that has something to say."""
    chapters = []
    for kind, found in apart(one, other).items():
        rows = [(name, *map(_said, values), _ratio(*values)) for name, values in found.items()]
        heads = (kind, one.path.name, other.path.name, "second / first")
        if rows:
            chapters.append(Chapter("", [TextTable.of(heads, rows, heads[:3])]))
    return Document(items=chapters or [Lines(["They do not differ."])])


def _said(value: Any) -> str:
    if value is None:
        return text.NONE
    if isinstance(value, float):
        return f"{value:,.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _ratio(one: Any, other: Any) -> str:
    numbers = all(isinstance(value, int | float) and value for value in (one, other))
    return f"{other / one:.3g}" if numbers else text.NONE
