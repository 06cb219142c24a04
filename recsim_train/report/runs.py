"""The runs of a report: found at paths, told apart by their settings, listed in a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data
from recsim_train.config.validate import parse
from recsim_train.report import anatomy, cost, naming, text, what_if
from recsim_train.report.document import (
    Cell,
    Chapter,
    Document,
    Lines,
    TextTable,
    Where,
    stopped,
)
from recsim_train.report.strategies import compression_cell
from recsim_train.results.folder import is_sweep, is_validation
from recsim_train.results.row import flat_settings, memory_of_hosts, of_summary
from recsim_train.results.rundir import MANIFEST, RunRecord, is_run, read_run
from recsim_train.results.summary import Summary
from recsim_train.strategy.options import flat


def finished(runs: Sequence[RunRecord], examples: float | None = None) -> Document:
    """A table, what limits each run, and where it lies; how long training on so many ``examples``
    takes."""

    def said_of(run: RunRecord) -> list[str]:
        whole = "" if examples is None else cost.whole_said(run.summary, examples)
        return [*([whole] if whole else ()), *limits(run.summary)]

    said = [Lines(stopped(said_of(run)), lead=_title(run)) for run in runs]
    places = Lines([str(run.path) for run in runs], mark="note")
    return Document(items=[Chapter("", [run_table(runs, "as in the experiment"), *said, places])])


def limits(summary: Summary) -> list[str]:
    """Why a prediction is what it is and what would change it, without full stops."""
    return [
        *anatomy.sentences(summary),
        *anatomy.reliability(summary),
        *cost.sentences(summary),
        *what_if.sentences(summary),
    ]


def run_table(runs: Sequence[RunRecord], order: str) -> TextTable:
    """One run a row. ``order``: which the runs are in."""
    found = [run.summary for run in runs]
    counts = [d.synchronisation.elp for d in found]
    failing = [d.facts.reliability for d in found]
    columns: dict[str, Sequence[str | Cell]] = {
        "strategy": [_title(run) for run in runs],
        "world": [run.world for run in runs],
        "examples/s": [_rate(d, d.world) for d in found],
        "examples/step": [text.exact(n) if len(set(counts)) > 1 else text.NONE for n in counts],
        "goodput": [text.rate(None if f is None else f.goodput) for f in failing],
        "predicted": [_rate(d, "simulated") for d in found],
        "measured": [_rate(d, "real") for d in found],
        "90 % interval": [
            text.between(of_summary(d) if d.world == "simulated" else None) for d in found
        ],
        "threads": [_threads(d) for d in found],
        "steps": [_steps(run) for run in runs],
        "counted time": [text.seconds(d.seconds) for d in found],
        "payload/step": [_payload(d) for d in found],
        "sync gap": [text.sync_gap(d.synchronisation) for d in found],
        "staleness": [text.staleness(d.synchronisation) for d in found],
        "compression": [compression_cell(d) for d in found],
        "memory": [_memory(run) for run in runs],
        cost.HEAD: [cost.cell(d) for d in found],
        "what binds": [naming.binds(d.binding) if d.binding else text.NONE for d in found],
        "bound by": [naming.phrase(naming.bottleneck(d.binding) or text.NONE) for d in found],
        "train loss": [_training(d) for d in found],
        "loss": [text.number(d.loss, 4) for d in found],
        "AUC": [text.number(d.auc, 4) for d in found],
        "NE": [text.number(d.normalized_entropy, 4) for d in found],
        "status": [text.NONE if run.status == "complete" else run.status for run in runs],
    }
    words = ("strategy", "world", "threads", "compression", "what binds", "bound by", "status")
    one = len({run.world for run in runs}) == 1  # which the page's title says
    where = _WHERE | ({"world": Where.SHORT} if one else {})
    return TextTable.filled(columns, words, where, order=order)


_WHERE = {
    "examples/s": Where.SHORT,
    "predicted": Where.PAGE,
    "measured": Where.PAGE,
    "memory": Where.SHORT,
    "what binds": Where.PAGE,
    "bound by": Where.SHORT,
}
"""Of columns that not all show: on a terminal there is room for one throughput, and the page says
all of what binds below."""


def _rate(summary: Summary, world: str) -> str:
    if summary.world != world:
        return text.NONE
    eps = summary.examples_per_second
    return text.rate(eps) if world == "simulated" else text.rated(eps, summary.ci95)


def data_of(configurations: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where training and held-out rows of runs came from, each way once.

    ``configurations``: as manifests hold them; one that this version cannot read says nothing.
    """
    said: dict[str, None] = {}
    for configuration in configurations:
        with suppress(ValidationError):
            said[parse(Data, configuration.get("data", {})).said] = None
    return stopped(said)


def title(strategy: str, options: Mapping[str, Any]) -> str:
    """A strategy's name with its ``options``, those that are not at their default."""
    shown = [
        f"{name} {value['kind'] if isinstance(value, Mapping) else value}"
        for name, value in options.items()
    ]
    return f"{strategy} ({', '.join(shown)})" if shown else strategy


def _title(run: RunRecord) -> str:
    return title(run.strategy, run.manifest["strategy"].get("options") or {})


def _threads(summary: Summary) -> str:
    """Of each trainer; nothing where it is one."""
    if summary.operation_threads > 1:
        return f"{summary.operation_threads} within operations"
    return f"{summary.threads} workers" if summary.threads > 1 else text.NONE


def _steps(run: RunRecord) -> str:
    """Of a prediction that was sure earlier: how many of those that were asked for."""
    done, asked = run.summary.steps, run.manifest["configuration"]["training"]["steps"]
    return text.exact(done) if done >= asked else f"{text.exact(done)} of {text.exact(asked)}"


def _memory(run: RunRecord) -> str:
    if (used := fullest(run)) is None:
        return text.NONE
    _, filled, there = used
    return f"{text.size(filled)} of {text.size(there)}"


def fullest(run: RunRecord) -> tuple[str, float, float] | None:
    """Of the host whose memory a prediction fills most: which one, and the bytes that are needed
    and that there are; None: not known."""
    colocate = bool((run.manifest.get("cluster") or {}).get("colocate"))
    hosts = memory_of_hosts(run.summary.facts, colocate)
    if not hosts:
        return None
    name, (filled, there) = max(hosts.items(), key=lambda host: host[1][0] / host[1][1])
    where = "all on one machine" if colocate else f"host of {naming.instance(name)}, the fullest"
    return where, filled, there


def _payload(summary: Summary) -> str:
    per_effect = [v for v in summary.bytes_by_effect.values() if v is not None]
    return text.size(sum(per_effect)) if per_effect else text.NONE


def _training(summary: Summary) -> str:
    ends = summary.train_loss_first, summary.train_loss_last
    missing = text.NONE if summary.facts.diverged is None else "not finite"
    if ends[0] is None or (ends[1] is None and missing == text.NONE):
        return missing
    return " → ".join(missing if end is None else text.number(end, 4) for end in ends)


def load_runs(paths: Iterable[Path]) -> list[RunRecord]:
    """Every run directory named, or lying directly in a folder named; each one once.

    Raises UserError for a path that is neither, or a damaged run directory.
    """
    runs: dict[Path, RunRecord] = {}
    for path in paths:
        folders = [path]  # read_run says what is wrong with it, if anything
        if path.is_dir() and not is_run(path):
            folders = [p for p in _inside(path) if is_run(p)]
            if not folders:
                raise UserError(f"{path} neither is a run directory nor holds any")
        for folder in folders:
            place = folder.resolve()
            if place not in runs:
                runs[place] = read_run(folder)
    if not runs:
        raise UserError("no run directory was given")
    return list(runs.values())


def find_sweep(paths: Sequence[Path]) -> Path | None:
    """The sweep among the paths, or in the one folder that is named; None: there are only runs.

    Raises UserError where a sweep is named beside something else.
    """
    if named := [path for path in paths if is_sweep(path)]:
        if len(paths) > 1:
            raise UserError(f"{named[0]} is a sweep: it has a report of its own, name it alone")
        return named[0]
    inside = _inside(paths[0]) if len(paths) == 1 and not is_run(paths[0]) else []
    if any(map(is_run, inside)):
        return None  # the runs are compared; a sweep beside them has a report of its own
    sweeps = [path for path in inside if is_sweep(path)]
    if len(sweeps) > 1:
        names = ", ".join(map(str, sweeps))
        raise UserError(f"{paths[0]} holds several sweeps, one a report: {names}")
    return sweeps[0] if sweeps else None


def left_out(paths: Iterable[Path]) -> list[str]:
    """A sentence for each folder beside the runs that could be one but has no manifest."""
    inside = {p for path in paths if not is_run(path) for p in _inside(path)}
    known = (is_run, is_sweep, is_validation)
    strange = sorted(p for p in inside if not any(looks(p) for looks in known))
    return [f"{p} is left out, as it has no {MANIFEST}: it is no run." for p in strange]


def _inside(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


MODEL = "model.name"
FREE = ("simulation.", "execution.timeout", "execution.max_spans")
"""Settings that a prediction and its measurement need not share."""
LENGTHS = ("training.steps", "training.warmup_steps", *FREE)
"""Settings that hardly change a throughput: named only where nothing else differs."""


def labels(records: Sequence[RunRecord]) -> list[str]:
    """The strategies' names, with the settings, options and profiles in which they differ."""
    facts = [_facts(record) for record in records]
    names = []
    for fact in facts:
        same = [other for other in facts if other["strategy"] == fact["strategy"]]
        differing = [
            key
            for key in sorted(fact)
            if key not in ("strategy", "parts")
            and any(other.get(key) != fact[key] for other in same)
        ]
        # What a strategy is composed of belongs to its name, whatever else is compared.
        differing = [*(k for k in fact["parts"] if k not in differing), *differing]
        differing = [key for key in differing if not _named_by_model(key, same)]
        telling = [key for key in differing if not key.startswith(LENGTHS)] or differing
        shown = ", ".join(_said(key, fact[key]) for key in telling[:4])
        names.append(f"{fact['strategy']} ({shown})" if shown else str(fact["strategy"]))
    return names


def _named_by_model(key: str, facts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the model's name alone tells what a setting of the model is, so that it need not be
    listed: models differ in many widths at once."""
    if key == MODEL or not key.startswith("model."):
        return False
    pairs = {(fact.get(MODEL), fact.get(key)) for fact in facts}
    models = {model for model, _ in pairs}
    return 1 < len(models) == len(pairs)


def _said(key: str, value: Any) -> str:
    name = "model" if key == MODEL else key.rsplit(".", 1)[-1]
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _facts(record: RunRecord) -> dict[str, Any]:
    """Flat settings of a run by which a reader tells it from others."""
    facts: dict[str, Any] = {"strategy": record.strategy}
    options = record.manifest["strategy"].get("options") or {}
    facts |= {f"strategy.{key}": value for key, value in flat(options).items()}
    facts["parts"] = [
        f"strategy.{key}" for key, value in options.items() if isinstance(value, dict)
    ]
    facts["profile"] = (record.manifest.get("cluster") or {}).get("name")
    elsewhere = ("strategies", "strategy", "seed", "cluster")
    kept = {k: v for k, v in record.manifest["configuration"].items() if k not in elsewhere}
    listed = {
        k: json.dumps(v) if isinstance(v, list) else v for k, v in flat_settings(kept).items()
    }
    return facts | listed


def why_alone(record: RunRecord, records: Sequence[RunRecord]) -> str:
    """Why a run found no partner: the settings that the nearest candidate has otherwise."""
    other = "measurement" if record.world == "simulated" else "prediction"
    nearest: list[str] | None = None
    for candidate in records:
        if candidate.world == record.world or candidate.strategy != record.strategy:
            continue
        a, b = _facts(record), _facts(candidate)
        keys = sorted(
            k
            for k in a.keys() | b.keys()
            if k not in ("profile", "parts") and not k.startswith(FREE) and a.get(k) != b.get(k)
        )
        if nearest is None or len(keys) < len(nearest):
            nearest = [f"{k} is {a.get(k)} here and {b.get(k)} there" for k in keys]
    if nearest:
        more = f" and {len(nearest) - 3} more" if len(nearest) > 3 else ""
        return f"no {other} of the same settings: {', '.join(nearest[:3])}{more}"
    return f"no {other} of this strategy was given"
