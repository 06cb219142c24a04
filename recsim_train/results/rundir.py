"""Run directories: one per run, written aside and renamed into place, read back with checks.

A simulated run's directory depends on its input alone: the same input gives the same name and the
same bytes, so nothing in it may hold a time, a host or a folder. A measurement is never
overwritten: a second one of the same settings gets "-2" behind its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recsim_train.config.cluster import Cluster
from recsim_train.config.dump import comparison_key, resolved
from recsim_train.config.errors import UserError
from recsim_train.placement.describe import plan_document
from recsim_train.placement.plan import Plan
from recsim_train.results import tables
from recsim_train.results.environment import code_of, machine, made_anew, repeatable, versions
from recsim_train.results.folder import (
    clean,
    clean_document,
    hash_of,
    json_bytes,
    newest_first,
    numbered,
    read_json,
    slug,
    writing,
)
from recsim_train.results.row import of_summary
from recsim_train.results.summary import Summary, data_dependent, document_of, summarise, summary_of
from recsim_train.signals import held, note_finished
from recsim_train.trace.facts import Facts
from recsim_train.trace.garbage import collection_paused
from recsim_train.trace.record import Iteration, Outcome, Span, Total, TotalKey

World = Literal["simulated", "real"]
Status = Literal["complete", "partial", "interrupted"]

FORMAT = 1
MANIFEST, ENVIRONMENT, SUMMARY = "manifest.json", "environment.json", "summary.json"
_NEEDED = {
    MANIFEST: (
        *("format", "run_id", "world", "strategy.kind", "comparison_key"),
        *(f"configuration.training.{steps}" for steps in ("steps", "warmup_steps")),
    ),
    ENVIRONMENT: ("versions",),
    SUMMARY: (),  # `summary_of` checks it
}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run directory that was read: small documents at once, tables on demand."""

    path: Path
    manifest: dict[str, Any]
    """What was run: resolved configuration, strategy, seed, plan, profile, status."""
    environment: dict[str, Any]
    """On what it was run."""
    summary: Summary
    """Its figures."""

    @property
    def run_id(self) -> str:
        """Name of the directory and of the run."""
        return str(self.manifest["run_id"])

    @property
    def world(self) -> World:
        """Predicted or measured."""
        return "simulated" if self.manifest["world"] == "simulated" else "real"

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return str(self.manifest["strategy"]["kind"])

    @property
    def facts(self) -> Facts:
        """What its world says of it as a whole."""
        return self.summary.facts

    @property
    def status(self) -> str:
        """How it ended: complete, partial, interrupted; or "diverged since iteration 12", which may
        also stand behind the last two."""
        return str(self.manifest.get("status", "complete"))

    @property
    def whole(self) -> bool:
        """Whether it made all of its steps: it is complete, or diverged and went on to its end."""
        return self.status in ("complete", _status("complete", self.facts))

    def iterations(self) -> list[Iteration]:
        """All iterations of all training loops."""
        return [Iteration(*row) for row in self._rows(tables.ITERATIONS)]

    def totals(self) -> dict[TotalKey, Total]:
        """Exact totals over the counted iterations."""
        return {TotalKey(*row[:4]): Total(*row[4:]) for row in self._rows(tables.TOTALS)}

    def spans(self) -> list[Span]:
        """The spans that were kept."""
        return [Span(*row) for row in self._rows(tables.SPANS)]

    def _rows(self, file: str) -> list[tuple[Any, ...]]:
        with _damage(self.path):
            return tables.read_table(self.path, file)


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UserError(f"{path} is a damaged run directory: {error}") from None


def _status(ended: Status, facts: Facts) -> str:
    """With what is to be said of the model."""
    if facts.diverged is None:
        return ended
    said = facts.diverged.phrase
    return said if ended == "complete" else f"{ended}, {said}"


def identity(plan: Plan, world: str, cluster: Cluster | None) -> str:
    """SHA-256 of everything that decides a run's outcome: settings, strategy, seed, profile."""
    return hash_of(
        {
            "key": comparison_key(plan.experiment, plan.strategy),
            "experiment": plan.experiment.model_dump(
                mode="json", exclude={"strategies", "cluster", "validation"}
            ),
            "strategy": plan.strategy.model_dump(mode="json"),
            "cluster": cluster.model_dump(mode="json") if cluster is not None else None,
            "world": world,
        }
    )


def base_name(plan: Plan, world: str, cluster: Cluster | None) -> str:
    """The run's name before a repeat's suffix: experiment-strategy-world-digest."""
    name = slug(plan.experiment.name, "experiment")
    return f"{name}-{plan.strategy.kind}-{world}-{identity(plan, world, cluster)[:6]}"


def manifest_of(plan: Plan, world: World, cluster: Cluster | None, run_id: str) -> dict[str, Any]:
    """What is run, without what becomes of it."""
    return {
        "tool": "recsim-train",
        "format": FORMAT,
        "run_id": run_id,
        "experiment": plan.experiment.name,
        "world": world,
        "strategy": {"kind": plan.strategy.kind, "options": plan.strategy.options},
        "seed": plan.experiment.seed,
        "identity": identity(plan, world, cluster),
        "code": code_of([plan.strategy]),
        "comparison_key": comparison_key(plan.experiment, plan.strategy),
        "configuration": resolved(plan.experiment),
        "cluster": cluster.model_dump(mode="json") if cluster is not None else None,
        "plan": plan_document(plan),
        "data_dependent_effects": data_dependent(plan),
        "thresholded_effect": plan.topology.thresholded,
    }


@dataclass(frozen=True, slots=True)
class Keep:
    """Where run directories go."""

    out: Path
    resume: bool = False
    """Whether a complete run of the same settings that lies there is taken instead."""
    emulate: bool = False
    """Whether processes of a measurement run on emulated hosts."""
    command: tuple[str, ...] = ()
    """What asked for them."""

    @held()
    @collection_paused()
    def write(
        self,
        plan: Plan,
        world: World,
        cluster: Cluster | None,
        outcome: Outcome,
        status: Status = "complete",
        message: str = "",
    ) -> RunRecord:
        """Write one run and return it as read back.

        ``status``: how it ended, to which is added where its model diverged. Raises RunFailed if
        the disk does not take it; nothing half-written stays behind. Ctrl-C and SIGTERM wait until
        it is written, see `recsim_train.signals.held`. Of a simulated run the versions are kept of
        where it was made, and nothing else: equal inputs give equal files.
        """
        out, base, said = self.out, base_name(plan, world, cluster), _status(status, outcome.facts)
        if outcome.facts.diverged is not None:
            message = message or outcome.facts.diverged.why
        with writing(out, "the run "):
            out.mkdir(parents=True, exist_ok=True)
            run_id = base if world == "simulated" else _claim(out, base)
        here = {"versions": versions()} if world == "simulated" else machine()
        manifest = {
            **manifest_of(plan, world, cluster, run_id),
            "status": said,
            "message": message,
            "dropped_spans": outcome.dropped_spans,
        }
        figures = summarise(plan, outcome=outcome, world=world, status=said)
        documents = {
            MANIFEST: manifest,
            ENVIRONMENT: {**here, "command": repeatable(self.command)},
            SUMMARY: {"run_id": run_id, "run_dir": ".", **document_of(figures)},
        }
        target = out / run_id
        aside = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))  # `clear` knows the name
        try:
            with writing(target, "the run "):
                aside.chmod(0o755)
                for file, content in documents.items():
                    (aside / file).write_bytes(json_bytes(clean(content)))
                tables.write_tables(
                    aside, iterations=outcome.iterations, totals=outcome.totals, spans=outcome.spans
                )
                _into_place(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            with contextlib.suppress(OSError):
                target.rmdir()  # only an empty claim can be removed like this
        if status == "complete":
            note_finished()
        return read_run(target)


def clear(out: Path) -> None:
    """Remove what a process that was killed while it wrote a run has left. Nobody may write."""
    for left in out.glob(".writing-*"):
        shutil.rmtree(left, ignore_errors=True)


def _claim(out: Path, base: str) -> str:
    """Reserve the first free name with an empty directory, onto which the run is renamed."""
    names = numbered(base)
    while True:
        name = next(names)
        with contextlib.suppress(FileExistsError):
            (out / name).mkdir()
            return name


def _into_place(aside: Path, target: Path) -> None:
    """Rename onto nothing, onto an empty claim, or instead of an older run."""
    try:
        aside.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        # A full directory cannot be renamed over: the old one steps aside first.
        old = Path(tempfile.mkdtemp(prefix=".replaced-", dir=target.parent))
        try:
            target.rename(old / "run")
            aside.rename(target)
        finally:
            if not target.exists():
                (old / "run").rename(target)
            shutil.rmtree(old, ignore_errors=True)


def is_run(path: Path) -> bool:
    """Whether a folder looks like a run directory: it has a manifest."""
    return (path / MANIFEST).is_file()


def read_run(path: Path) -> RunRecord:
    """Read and check a run directory. Raises UserError, one sentence, for anything else."""
    if not path.exists():
        raise UserError(f"{path}: there is no such run directory")
    if not path.is_dir():
        raise UserError(f"{path} is a file; a run directory is expected")
    if not is_run(path):
        raise UserError(f"{path} is not a run directory: it has no {MANIFEST}")
    manifest = _document(path, MANIFEST)
    if manifest.get("tool") != "recsim-train":
        raise UserError(f"{path} is not a run directory of recsim-train: its manifest is another's")
    if manifest.get("format") != FORMAT:
        raise UserError(
            f"{path} was written in format {manifest.get('format')!r}, this version reads {FORMAT}"
        )
    found = {file: _document(path, file) for file in _NEEDED}
    damaged = (
        f"{path} is a damaged run directory, or another version's (recsim-train "
        f"{_at(found[ENVIRONMENT], 'versions.recsim-train')}, code {manifest.get('code')}):"
    )
    for file, keys in _NEEDED.items():
        missing = [key for key in keys if _at(found[file], key) is None]
        if missing:
            raise UserError(f"{damaged} {file} lacks {missing[0]!r}")
    if manifest["world"] not in ("simulated", "real"):
        raise UserError(f"{path} is a damaged run directory: {MANIFEST} names no known world")
    with _damage(path):
        tables.check_tables(path)
    try:
        summary = summary_of(found[SUMMARY])
    except ValueError as error:
        raise UserError(f"{damaged} {SUMMARY} {error}") from None
    return RunRecord(path, manifest, found[ENVIRONMENT], summary)


def _at(document: Any, key: str) -> Any:
    """What a document has under a dotted key; None: nothing."""
    for part in key.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def _document(path: Path, file: str) -> dict[str, Any]:
    try:
        content = read_json(path / file)
    except FileNotFoundError:
        raise UserError(f"{path} is a damaged run directory: {file} is missing") from None
    except OSError:
        raise UserError(f"{path} is a damaged run directory: {file} cannot be read") from None
    except ValueError as error:
        raise UserError(f"{path} is a damaged run directory: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is a damaged run directory: {file} is not a mapping")
    return content


def find_complete(
    out: Path,
    plan: Plan,
    world: World,
    cluster: Cluster | None,
    *,
    emulated: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> RunRecord | None:
    """The newest run of exactly these settings and this code under ``out`` that made all of its
    steps, for ``--resume``: one that diverged would diverge again. ``emulated``: on emulated hosts;
    ``say``: hears of the newest where all are of other code."""
    base, wanted = base_name(plan, world, cluster), identity(plan, world, cluster)
    code, others = code_of([plan.strategy]), []
    for path in newest_first(out / base):
        try:
            record = read_run(path)
        except UserError:
            continue  # damaged or still being written: it is done again
        alike = (record.facts.emulated is not None) == emulated
        if not (record.whole and alike and record.manifest.get("identity") == wanted):
            continue
        if record.manifest.get("code") == code:
            note_finished()
            return record
        others.append(record)
    for record in others[:1]:
        say(made_anew(record.path, record.manifest.get("code"), code))
    return None


def run_document(record: RunRecord) -> dict[str, Any]:
    """One entry of ``{"runs": [...]}``: what ``simulate --json`` and ``run --json`` print.

    ``interval90``: of a prediction, as `recsim_train.results.row`; ``ci95`` is its part of the
    simulation alone, ``calibration_ci95`` in ``facts`` that of the prices.
    """
    leading = {
        "run_id": record.run_id,
        "run_dir": os.fspath(record.path),
        "world": record.world,
        "strategy": record.strategy,
        "strategy_options": record.manifest["strategy"].get("options") or {},
        "key": record.manifest["comparison_key"],
        "experiment": record.manifest.get("experiment"),
        "seed": record.manifest.get("seed"),
        "status": record.status,
        "message": record.manifest.get("message") or None,
    }
    figures = document_of(record.summary)
    if record.world == "simulated":
        figures["interval90"] = of_summary(record.summary)
    return clean_document({**leading, **figures, **leading})
