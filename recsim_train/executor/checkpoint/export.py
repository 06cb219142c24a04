"""The model of a checkpoint, as files that any reader of safetensors opens: tensors by table and
parameter, and which column is which table or feature."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from torch import Tensor

from recsim_train.checkpoints.going_on import newest
from recsim_train.checkpoints.manifest import Manifest, check_space
from recsim_train.config.errors import UserError
from recsim_train.executor.checkpoint.files import MemoryBlock, Source, bytes_of, packed, save
from recsim_train.results.folder import json_bytes, writable, writing

WEIGHTS, COLUMNS = "model.safetensors", "columns.json"
_INDEX = f"{WEIGHTS}.index.json"
_MOST = 4 << 30
"""Bytes of a file, unless one table has more."""


def export(path: Path, folder: Path) -> Manifest:
    """Write the newest whole checkpoint's model to a new folder. ``path``: a run's directory, its
    folder of checkpoints, or one checkpoint.

    Raises UserError where there is none, RunFailed where the disk does not take it.
    """
    found = newest(path)
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else (folder,)):
        raise UserError(f"{folder} is there already, and not an empty folder")
    writable(folder)
    check_space(folder, sum(found.manifest.files.values()))
    weights: dict[str, int] = {}
    aside: list[Path] = []
    size = 0
    with writing(folder, "the model "), Source(found) as source:
        for number, some in enumerate(packed(_tensors(source), _MOST)):
            aside.append(folder / f".model-{number}")
            save(aside[-1], {one.name: one.tensor for one in some})
            weights |= dict.fromkeys((one.name for one in some), number)
            size += bytes_of(some)
        names = [
            WEIGHTS if len(aside) == 1 else f"model-{n:05d}-of-{len(aside):05d}.safetensors"
            for n in range(1, len(aside) + 1)
        ]
        (folder / COLUMNS).write_bytes(json_bytes(_columns(found.manifest)))
        index = {
            "metadata": {"total_size": size},
            "weight_map": {name: names[number] for name, number in weights.items()},
        }
        (folder / _INDEX).write_bytes(json_bytes(index))
        for name, file in zip(names, aside, strict=True):
            file.rename(folder / name)
    return found.manifest


def _tensors(source: Source) -> Iterator[MemoryBlock]:
    """Tables [rows, columns], then parameters."""
    for name in source.manifest.tables:
        rows = source.whole(f"tables.{name}.rows")
        if rows is None:
            raise UserError(f"{source.path} is a damaged checkpoint: it lacks table {name}")
        yield _whole(f"tables.{name}.weight", rows)
    dense = source.dense()
    for name, (offset, shape) in source.manifest.parameters.items():
        yield _whole(name, dense[offset : offset + prod(shape)].reshape(shape).clone())


def _whole(name: str, tensor: Tensor) -> MemoryBlock:
    return MemoryBlock(name, tuple(tensor.shape), (0,) * tensor.dim(), tensor)


def _columns(manifest: Manifest) -> dict[str, Any]:
    """What a reader has to know beside the tensors."""
    return {
        "experiment": manifest.experiment,
        "iteration": manifest.iteration,
        "examples": manifest.examples,
        "model": _of_any_machine(manifest.configuration["model"]),
        "tables": list(manifest.tables),
        **manifest.columns,
    }


def _of_any_machine(model: dict[str, Any]) -> dict[str, Any]:
    """Without the folder of a module's file."""
    place, _, function = str(model.get("module", "")).rpartition(":")
    return {**model, "module": f"{Path(place).name}:{function}"} if place else model
