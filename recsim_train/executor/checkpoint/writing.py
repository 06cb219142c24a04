"""The files that one process writes of a checkpoint."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from recsim_train.checkpoints.manifest import SavedBlock, SavedTensor, merged
from recsim_train.executor.checkpoint.memory import MemoryBlock, bytes_of

_MOST = 256 << 20
"""Bytes of a file, so that several are written and read at a time."""


def write(
    folder: Path, who: str, held: Iterable[MemoryBlock]
) -> tuple[dict[str, SavedTensor], dict[str, int]]:
    """Write blocks as files of the process ``who``; the tensors that they are of, and the bytes of
    each file. Raises OSError."""
    tensors: list[dict[str, SavedTensor]] = []
    files: dict[str, int] = {}
    for number, some in enumerate(packed(_pieces(held), _MOST)):
        file = f"{who}.{number}.safetensors"
        _save(folder / file, some)
        files[file] = (folder / file).stat().st_size
        for one in some:
            own = SavedBlock(file, one.offsets, tuple(one.tensor.shape), _sum(one), one.step)
            kind = str(one.tensor.dtype).removeprefix("torch.")
            tensors.append({one.name: SavedTensor(kind, one.shape, (own,))})
    return merged(tensors), files


def packed(blocks: Iterable[MemoryBlock], most: int) -> Iterator[list[MemoryBlock]]:
    """What goes into one file: no more than ``most`` bytes unless one block has them, and of each
    name one block."""
    some: list[MemoryBlock] = []
    size = 0
    for one in blocks:
        more = bytes_of([one])
        if some and (size + more > most or any(one.name == other.name for other in some)):
            yield some
            some, size = [], 0
        some.append(one)
        size += more
    if some:
        yield some


def _pieces(held: Iterable[MemoryBlock]) -> Iterator[MemoryBlock]:
    """Large blocks in several, by rows."""
    for one in held:
        rows, each = one.tensor.shape[0], one.tensor[:1].numel() * one.tensor.element_size()
        most = max(1, _MOST // max(1, each))
        for first in range(0, rows, most):
            begin = one.offsets[0] + first * one.step, *one.offsets[1:]
            yield one._replace(offsets=begin, tensor=one.tensor[first : first + most])


def _save(path: Path, some: list[MemoryBlock]) -> None:
    offsets, tensors = {}, {}
    for one in some:
        begin, tensor = one.offsets, one.tensor
        if one.step > 1:  # torch knows blocks only: row r is at [r // step, r % step]
            begin = (begin[0] // one.step, begin[0] % one.step, *begin[1:])
            tensor = tensor.unsqueeze(1)
        offsets[one.name], tensors[one.name] = {"saved_offsets": list(begin)}, tensor
    save(path, tensors, DCP_VERSION="1.0", DCP_SHARDING_INFO=json.dumps(offsets))


def save(path: Path, tensors: dict[str, torch.Tensor], **known: str) -> None:
    """A file of tensors, whole or not at all; ``known``: beside them. Raises OSError."""
    aside = path.with_name(f".{path.name}")
    try:
        save_file(tensors, aside, {"format": "pt", **known})
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.rename(path)
    except SafetensorError as error:  # of a full disk, too
        number = re.search(r"os error (\d+)", str(error))
        known_as = int(number[1]) if number else 0
        raise OSError(known_as, os.strerror(known_as) if known_as else str(error)) from None
    finally:
        aside.unlink(missing_ok=True)


def _sum(one: MemoryBlock) -> int:
    return zlib.crc32(one.tensor.view(torch.uint8).numpy().data)
