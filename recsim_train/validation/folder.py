"""Folders of validations: predictions, written once before the first run, then run after run.

``predictions.json`` holds everything that is settled beforehand: every prediction, the profile and
its hash, the gates, the order of the runs, and when it was written. It is never written again, and
each run's file names its hash, so that predictions that came after a run are found out.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.measured import MachineSpeeds
from recsim_train.results.folder import (
    PREDICTIONS,
    clean_document,
    free_path,
    hash_of,
    is_validation,
    json_bytes,
    newest_first,
    put,
    read_json,
    writing,
)
from recsim_train.results.row import COMPLETE, FAILED
from recsim_train.signals import held, note_finished
from recsim_train.validation.configurations import Measured, Predicted

FORMAT = 2
RESULT, TABLE, MEASURED = "validation.json", "validation.csv", "measured"
AGREED = {
    "configurations": "the configurations",
    "profile": "the cluster profile",
    "gates": "the gates",
    "seed": "the order's seed",
    "code": "the code",
}
"""What ``predictions.json`` has as a hash (``agreed``), and what must be the same to go on."""


def now() -> str:
    """The time, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def profile_hash(cluster: Cluster) -> str:
    """SHA-256 of all that a profile says."""
    return hash_of(cluster.model_dump(mode="json"))


def order(configurations: int, seed: int, repeat: int) -> list[int]:
    """In which order a repeat (from 1) goes through all configurations."""
    numbers = list(range(configurations))
    random.Random(f"{seed}-{repeat}").shuffle(numbers)
    return numbers


@dataclass(slots=True)
class ValidationFolder:
    """One validation on disk."""

    path: Path
    predictions: dict[str, Any]
    """What ``predictions.json`` holds."""
    sha256: str
    """Of its bytes."""
    runs: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """By repeat (from 1) and number of the configuration."""

    @classmethod
    @held()
    def start(cls, base: Path, content: Mapping[str, Any]) -> ValidationFolder:
        """A new folder, ``base`` or the next free name after it, with its predictions, dated."""
        path = free_path(base)
        predictions = clean_document(
            {"tool": "recsim-train", "format": FORMAT, "made": now(), **content}
        )
        written = json_bytes(predictions, indent=1)
        with writing(path):
            (path / MEASURED).mkdir(parents=True)
            try:
                put(path / PREDICTIONS, written)
            except OSError:
                shutil.rmtree(path, ignore_errors=True)
                raise
        note_finished()
        return cls(path, predictions, hashlib.sha256(written).hexdigest())

    @classmethod
    def read(cls, path: Path) -> ValidationFolder:
        """What lies there. Raises UserError where it is damaged, or where a run was made before its
        predictions or under others."""
        try:
            written = (path / PREDICTIONS).read_bytes()
            found = cls(path, read_json(path / PREDICTIONS), hashlib.sha256(written).hexdigest())
            if found.predictions["format"] != FORMAT:
                raise UserError(
                    f"{path} was written in format {found.predictions['format']!r}, this version "
                    f"reads {FORMAT}"
                )
            for file in sorted((path / MEASURED).glob("*.json")):
                run = read_json(file)
                found._check(file, run)
                found.runs[run["repeat"], run["number"]] = run
            note_finished()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is a damaged validation: {type(error).__name__}: {error}"
            ) from None
        return found

    def _check(self, file: Path, run: Mapping[str, Any]) -> None:
        made, started = self.predictions["made"], run["started"]
        if run["predictions"] != self.sha256:
            raise UserError(f"{file} was measured under other predictions than {PREDICTIONS} holds")
        if datetime.fromisoformat(made) > datetime.fromisoformat(started):
            raise UserError(
                f"{self.path / PREDICTIONS} is newer ({made}) than the run {file.name} ({started})"
            )

    def add(self, run: Mapping[str, Any]) -> None:
        """Keep a run; one of the same repeat and configuration is replaced."""
        kept = clean_document({**run, "predictions": self.sha256})
        self.runs[kept["repeat"], kept["number"]] = kept
        with writing(self.path):
            name = f"{kept['repeat']:03d}-{kept['number']:04d}.json"
            put(self.path / MEASURED / name, json_bytes(kept, indent=1))

    def done(self, repeat: int, number: int) -> bool:
        """Whether that run is there and need not be made again: one that diverged stays, so that
        nobody measures until it does not."""
        run = self.runs.get((repeat, number))
        return run is not None and run["status"] != FAILED

    @property
    def diverged(self) -> list[dict[str, Any]]:
        """Runs that made all of their steps with a model that diverged."""
        return [r for r in self.runs.values() if r["status"] not in (COMPLETE, FAILED)]

    @property
    def broken(self) -> list[dict[str, Any]]:
        """Runs on emulated hosts that break an invariant."""
        return [run for run in self.runs.values() if run.get("broken")]

    def predicted(self) -> list[Predicted]:
        """All configurations."""
        return [predicted_of(entry) for entry in self.predictions["predictions"]]

    @property
    def at_calibration(self) -> MachineSpeeds | None:
        """The machine's speed then; None: not known, or that of another machine."""
        told = self.predictions["speeds_at_calibration"]
        return told and MachineSpeeds.model_validate(told)

    def measured(self, *, dropped: bool = False) -> list[Measured]:
        """Complete runs, in the order in which they were made. One that diverged is no measurement
        of its settings, nor is one whose emulated hosts were not left alone: ``dropped``: those."""
        complete = [
            run for run in self.runs.values()
            if run["status"] == COMPLETE and bool(run.get("broken")) is dropped
        ]  # fmt: skip
        return [measured_of(run) for run in sorted(complete, key=lambda r: str(r["started"]))]


predicted_of: Callable[[Mapping[str, Any]], Predicted] = TypeAdapter(Predicted).validate_python
"""Back from an entry of ``predictions``."""
_MEASURED = TypeAdapter(Measured)


def measured_of(run: Mapping[str, Any]) -> Measured:
    """A run from its file."""
    return _MEASURED.validate_python({**run, "cpu": run.get("cpu") or {}})


def find_started(base: Path, agreed: Mapping[str, str]) -> ValidationFolder | None:
    """The newest validation of exactly this, for ``--resume``; None: there is none of this name.

    Raises UserError, which says what changed, where there are only others.
    """
    changed = ""
    for path in filter(is_validation, newest_first(base)):
        found = ValidationFolder.read(path)
        theirs = found.predictions.get("agreed", {})
        differing = [said for key, said in AGREED.items() if theirs.get(key) != agreed[key]]
        if not differing:
            return found
        if theirs.get("code") != agreed["code"]:
            differing[-1] += f" (from {theirs.get('code')} to {agreed['code']})"
        changed = changed or (
            f"{path} cannot be resumed: {', '.join(differing)} changed since its predictions were "
            "made; without --resume everything is predicted anew, beside it"
        )
    if changed:
        raise UserError(changed)
    return None
