"""Descriptions of users' modules: found in a process of its own, and kept beside the file."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from recsim_train.checkpoints.manifest import table_names
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Model, ModuleShape
from recsim_train.config.load import Loaded
from recsim_train.results.environment import versions
from recsim_train.results.folder import hash_of, json_bytes

_FORMAT = 1
_LONGEST = 300.0
"""Seconds that a dry pass may take."""


def with_modules(points: Sequence[Loaded]) -> tuple[Loaded, ...]:
    """The points of an experiment, each with the description of its module, if it has one.

    Raises UserError: why a module cannot be trained.
    """
    known: dict[tuple[Model, tuple[str, ...]], Model] = {}
    return tuple(_described(point, known) for point in points)


def check_there(points: Sequence[Loaded]) -> None:
    """Raise UserError where a run would find no file of its module: a prediction needs none."""
    for point in points:
        place = (point.experiment.model.module or "").rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            raise UserError(f"model.module: there is no file {place}")


def _described(point: Loaded, known: dict[tuple[Model, tuple[str, ...]], Model]) -> Loaded:
    spec = point.experiment
    if spec.model.module is None:
        return point
    key = spec.model, table_names(spec.model, spec.data)
    if key not in known:
        known[key] = _found(*key, point.path.parent)
    return replace(point, experiment=spec.with_({"model": known[key]}))


def _found(model: Model, tables: tuple[str, ...], beside: Path) -> Model:
    """With the description that belongs to the code as it is now."""
    assert model.module is not None
    place, _, name = model.module.rpartition(":")
    folder = Path.cwd()
    if place.endswith(".py"):
        file = (beside / place).resolve()
        folder = file.parent
        if not file.is_file() and model.described is not None:
            return model  # of a run's directory: a prediction needs no more
        if not file.is_file():
            raise UserError(f"model.module: there is no file {file}")
        model = model.with_({"module": f"{file}:{name}"})
    given = {
        "module": model.module,
        "dense_features": model.dense_features,
        "tables": tables,
        "embedding_dim": model.embedding_dim,
        "dtype": model.dtype,
        "format": _FORMAT,
        "torch": versions().get("torch"),
    }
    digest = hash_of(given)[:12]
    kept = folder / ".recsim-train" / f"{name}-{digest}.json"
    if (answer := _kept(kept)) is None:
        answer = _asked(model, tables)
        if "problem" in answer:
            raise UserError(answer["problem"])
        with suppress(OSError):  # a folder that is read-only has it made anew each time
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(json_bytes(answer))
    sums = sorted((Path(path).name, one) for path, one in answer["sources"].items())
    # the same on every machine
    own = {key: value for key, value in given.items() if key not in ("module", "torch")}
    whole = hash_of({**own, "name": name, "sources": sums})[:12]
    described = ModuleShape.model_validate(answer["described"])
    return model.with_({"described": described.with_({"digest": whole})})


def _kept(path: Path) -> dict[str, Any] | None:
    """What was found before, if no file that it was found from has changed."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        answer: dict[str, Any] = json.loads(path.read_text())
        sums = {path: sha256(Path(path).read_bytes()).hexdigest() for path in answer["sources"]}
        ModuleShape.model_validate(answer["described"])
        return answer if sums == answer["sources"] else None
    return None


def _asked(model: Model, tables: Sequence[str]) -> dict[str, Any]:
    """By a dry pass now. Raises UserError where it does not end."""
    with tempfile.TemporaryDirectory(prefix="recsim-module-") as folder:
        asked = {"model": model.model_dump(mode="json"), "tables": list(tables)}
        question, answer = Path(folder) / "asked.json", Path(folder) / "answer.json"
        question.write_bytes(json_bytes(asked))
        program = "recsim_train.executor.net.dry"
        command = [sys.executable, "-m", program, str(question), str(answer)]
        try:
            ended = subprocess.run(command, capture_output=True, timeout=_LONGEST, check=False)
        except subprocess.TimeoutExpired:
            raise UserError(
                f"model.module: a dry pass of {model.module} takes more than {_LONGEST:.0f} s"
            ) from None
        if not answer.exists():
            last = ended.stderr.decode(errors="replace").strip().splitlines()
            raise UserError(
                f"model.module: a dry pass of {model.module} ended with code {ended.returncode}"
                + (f": {last[-1]}" if last else "")
            )
        found: dict[str, Any] = json.loads(answer.read_text())
        return found
