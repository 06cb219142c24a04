"""The manifest of a checkpoint: which tensors there are, of which blocks in which files.

    step-000001000/
        trainer-0.0.safetensors
        embedding_server-0.0.safetensors, embedding_server-0.1.safetensors, ...
        checkpoint.json             written last, by a rename: without it there is no checkpoint

A tensor is named by what it is, never by who held it. Each file is safetensors with the keys by
which torch's `HuggingFaceStorageReader` puts blocks together (``DCP_SHARDING_INFO``).
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open

from recsim_train.config.dump import of_any_machine, resolved
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Experiment, Model, StrategyChoice
from recsim_train.placement.plan import Plan
from recsim_train.results.environment import versions
from recsim_train.results.folder import hash_of, json_bytes, read_json, slug
from recsim_train.workload.graph import graph_of

FORMAT = 1
MANIFEST = "checkpoint.json"
_STEP = "step-"
_FREE = ("steps", "warmup_steps", "threads")
"""Settings of training that may differ where a run goes on."""


@dataclass(frozen=True, slots=True)
class SavedBlock:
    """A part of a tensor, in one file under the tensor's name."""

    file: str
    offsets: tuple[int, ...]
    """Where it begins, by dimension."""
    shape: tuple[int, ...]
    crc32: int
    """Of its bytes."""
    step: int = 1
    """Of the first dimension: each so-manieth of the tensor's."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor."""

    dtype: str
    shape: tuple[int, ...]
    blocks: tuple[SavedBlock, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Of a complete checkpoint."""

    iteration: int
    """That each training loop goes on with."""
    examples: int
    """That all of them together have trained on."""
    ended: bool
    """Whether training is over: the model's dense parameters are then those that were evaluated."""
    trainers: int
    carried: str
    """See `carried`."""
    experiment: str
    strategy: dict[str, Any]
    tables: tuple[str, ...]
    """Names of the embedding tables, in the model's order."""
    parameters: dict[str, tuple[int, tuple[int, ...]]]
    """Of the dense net: where each begins among all, and its shape."""
    columns: dict[str, Any]
    """How the data's columns become features and rows of tables; empty: rows were generated."""
    configuration: dict[str, Any]
    versions: dict[str, str]
    tensors: dict[str, SavedTensor]
    files: dict[str, int]
    """Bytes of each."""
    tool: str = "recsim-train"
    format: int = FORMAT


_MANIFEST = TypeAdapter(Manifest)


def merged(parts: Iterable[Mapping[str, SavedTensor]]) -> dict[str, SavedTensor]:
    """Tensors with the blocks that all parts have of them, part by part."""
    found: dict[str, SavedTensor] = {}
    for part in parts:
        for name, tensor in part.items():
            before = found[name].blocks if name in found else ()
            found[name] = replace(tensor, blocks=(*before, *tensor.blocks))
    return found


def table_names(model: Model, data: Data) -> tuple[str, ...]:
    """Of the embedding tables: their columns', or their numbers."""
    columns = [c for c in data.columns if c.type == "categorical"]
    named = tuple(name for column in columns for name in column.name)
    return named or tuple(map(str, range(len(model.tables))))


def carried(experiment: Experiment, choice: StrategyChoice) -> dict[str, Any]:
    """The settings that have to be the same where a run goes on: what is learned, from what, and by
    which rule; not by how many processes."""
    known = resolved(experiment)
    training = {k: v for k, v in known["training"].items() if k not in _FREE}
    own = {name: known[name] for name in ("data", "seed")}
    model = of_any_machine(known["model"])
    # a word in a module's file may change as long as what is kept is the same
    for code in ("digest", "draws"):
        model.get("described", {}).pop(code, None)
    return {"model": model, **own, "training": training, "strategy": choice.model_dump(mode="json")}


def folder_name(plan: Plan) -> str:
    """Of a run's checkpoints."""
    own = hash_of(carried(plan.experiment, plan.strategy))[:6]
    name = slug(plan.experiment.name, "experiment")
    return f"{name}-{plan.strategy.kind}-{own}-checkpoints"


def manifest_of(
    plan: Plan,
    iteration: int,
    tensors: dict[str, SavedTensor],
    files: dict[str, int],
    *,
    ended: bool,
) -> Manifest:
    """Of what all processes have written."""
    spec = plan.experiment
    return Manifest(
        iteration=iteration,
        examples=iteration * plan.streams * plan.examples,
        ended=ended,
        trainers=spec.roles.trainers,
        carried=hash_of(carried(spec, plan.strategy)),
        experiment=spec.name,
        strategy={"kind": plan.strategy.kind, "options": plan.options},
        tables=table_names(spec.model, spec.data),
        parameters=graph_of(spec.model).tensors(),
        columns=_columns(spec.model, spec.data),
        configuration=resolved(spec),
        versions=versions(),
        tensors=tensors,
        files=files,
    )


def _columns(model: Model, data: Data) -> dict[str, Any]:
    if data.path is None:
        return {}
    from recsim_train.data.input import layout_for  # with it comes pyarrow

    layout = layout_for(model, data)
    return {
        "label": layout.label,
        "features": [column._asdict() for column in layout.numeric],
        "ids": [column._asdict() for column in layout.categorical],
    }


def place(folder: Path, iteration: int) -> Path:
    """Where the checkpoint of an iteration goes."""
    return folder / f"{_STEP}{iteration:09d}"


def complete(path: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all. Raises OSError."""
    aside = path / f".{MANIFEST}"
    with aside.open("wb") as file:
        file.write(json_bytes(asdict(manifest), indent=1))
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path / MANIFEST)
    synced(path)


def synced(folder: Path) -> None:
    """Have a folder's entries on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_manifest(path: Path) -> Manifest:
    """A checkpoint's. Raises UserError where it is none, or another version's."""
    try:
        said = read_json(path / MANIFEST)
    except FileNotFoundError:
        raise UserError(f"{path} is no complete checkpoint: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is a damaged checkpoint: {error}") from None
    version = said.get("format") if isinstance(said, dict) else None
    if version != FORMAT:
        raise UserError(
            f"{path} was written in format {version!r}, this version of recsim-train reads {FORMAT}"
        )
    try:
        return _MANIFEST.validate_python(said)
    except ValueError:
        raise UserError(f"{path} is a damaged checkpoint: {MANIFEST} is none") from None


def steps_of(folder: Path) -> list[Path]:
    """What lies in a folder of checkpoints, the newest first, complete or not."""
    found = folder.glob(f"{_STEP}*") if folder.is_dir() else ()
    return sorted((p for p in found if p.name.removeprefix(_STEP).isdigit()), reverse=True)


def check(path: Path, manifest: Manifest) -> None:
    """Read every byte. Raises UserError where a file is missing, cut off or changed."""
    by_file: dict[str, dict[str, SavedBlock]] = {}
    for name, whole in manifest.tensors.items():
        for block in whole.blocks:
            by_file.setdefault(block.file, {})[name] = block
    for file, size in manifest.files.items():
        damaged = f"{path} is a damaged checkpoint: {file}"
        try:
            if (found := (path / file).stat().st_size) != size:
                raise UserError(f"{damaged} has {found:,} bytes, not {size:,}")
            with safe_open(path / file, framework="numpy") as stored:
                for name, block in by_file.get(file, {}).items():
                    if zlib.crc32(stored.get_tensor(name)) != block.crc32:
                        raise UserError(f"{damaged}: {name} has other bytes than were written")
        except OSError as error:
            raise UserError(f"{damaged} cannot be read: {error.strerror}") from None
        except SafetensorError:
            raise UserError(f"{damaged} is no file of it") from None


@dataclass(frozen=True, slots=True)
class WholeCheckpoint:
    """A checkpoint to go on from, or to export."""

    path: Path
    manifest: Manifest


def usable(folders: Sequence[Path]) -> Iterator[WholeCheckpoint | UserError]:
    """The checkpoints of these folders that are whole, the newest first; and in between why others
    are not taken."""
    for folder in folders:
        for path in steps_of(folder):
            try:
                manifest = read_manifest(path)
                check(path, manifest)
            except UserError as error:
                yield error
            else:
                yield WholeCheckpoint(path, manifest)


def remove(path: Path) -> None:
    """Remove a checkpoint, or what there is of one: first what would make the rest one."""
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest complete ones, and what is older than them and not complete."""
    whole = [path for path in steps_of(folder) if (path / MANIFEST).is_file()]
    if len(whole) < keep:
        return
    for path in steps_of(folder):
        if path < whole[keep - 1]:
            remove(path)


def check_space(folder: Path, needed: int) -> None:
    """Raise UserError where a folder's disk has less room than ``needed`` bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{folder}: a checkpoint takes {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are "
            "free there"
        )
