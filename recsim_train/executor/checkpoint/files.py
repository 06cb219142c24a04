"""Blocks of tensors, in a process's memory and in a checkpoint's files: written, and read back, any
block from whichever were written."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from math import lcm, prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from recsim_train.checkpoints.manifest import SavedBlock, SavedTensor, WholeCheckpoint, merged
from recsim_train.config.errors import RunFailed

MODEL = "model.dense"
"""The dense parameters that were evaluated, in a checkpoint of the end."""
CENTRAL = "central.dense"
_MOST = 256 << 20
"""Bytes of a file, so that several are written and read at a time."""
_TOGETHER = 1 << 20
"""Rows that are copied at a time."""


class MemoryBlock(NamedTuple):
    """A block in a process's memory, and what it is a part of."""

    name: str
    shape: tuple[int, ...]
    """Of the whole."""
    offsets: tuple[int, ...]
    tensor: Tensor
    """The memory itself."""
    step: int = 1
    """Of the first dimension, as `recsim_train.checkpoints.manifest.SavedBlock` has it."""


def snapshot(held: Iterable[MemoryBlock]) -> list[MemoryBlock]:
    """Copies, which nobody changes while they are written."""
    return [one._replace(tensor=one.tensor.clone().contiguous()) for one in held]


def bytes_of(held: Iterable[MemoryBlock]) -> int:
    """What blocks take."""
    return sum(one.tensor.numel() * one.tensor.element_size() for one in held)


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
            # else each checkpoint would push as much of the log, or of others' files, out of memory
            with suppress(OSError):  # no more than advice
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        aside.rename(path)
    except SafetensorError as error:  # of a full disk, too
        number = re.search(r"os error (\d+)", str(error))
        known_as = int(number[1]) if number else 0
        raise OSError(known_as, os.strerror(known_as) if known_as else str(error)) from None
    finally:
        aside.unlink(missing_ok=True)


def _sum(one: MemoryBlock) -> int:
    return zlib.crc32(one.tensor.view(torch.uint8).numpy().data)


class Source(ExitStack):
    """Inside, its files are open. What is read is not checked again against the sums: see
    `recsim_train.checkpoints.manifest.check`."""

    def __init__(self, found: WholeCheckpoint) -> None:
        super().__init__()
        self.path, self.manifest = found.path, found.manifest
        self._files: dict[str, Any] = {}

    def names(self, prefix: str) -> list[str]:
        """Of the tensors that begin so."""
        return [name for name in self.manifest.tensors if name.startswith(prefix)]

    def has(self, held: MemoryBlock) -> bool:
        """Whether all of a block is there."""
        whole = self.manifest.tensors.get(held.name)
        return whole is not None and self._copy(held, whole, held.tensor[:0]) == held.tensor.numel()

    def fill(self, held: MemoryBlock) -> None:
        """Copy a block into memory. Raises RunFailed where a part of it is not there."""
        whole = self.manifest.tensors.get(held.name)
        if whole is None:
            raise RunFailed(f"{self.path} has no {held.name}, which this run needs to go on")
        if whole.shape != held.shape:
            raise RunFailed(f"{self.path}: {held.name} is {whole.shape}, not {held.shape}")
        if (found := self._copy(held, whole, held.tensor)) != held.tensor.numel():
            raise RunFailed(
                f"{self.path}: of {held.name} from {held.offsets} on {found:,} numbers are there, "
                f"not {held.tensor.numel():,}"
            )

    def fill_mean(self, held: MemoryBlock, names: Sequence[str]) -> None:
        """Copy the mean of the same block of several tensors: of those that have it."""
        there = [one for name in names if self.has(one := held._replace(name=name))]
        if not there:
            raise RunFailed(f"{self.path} has none of {', '.join(names)} from {held.offsets} on")
        self.fill(held._replace(name=there[0].name))
        values = [held.tensor.clone() for _ in there]
        for one, value in zip(there, values, strict=True):
            self.fill(one._replace(tensor=value))
        # of differences: of equal ones they are zero, and the mean is exactly the one
        apart = torch.stack([value - values[0] for value in values]).mean(0)
        held.tensor.copy_(values[0] + apart)

    def dense(self) -> Tensor:
        """The dense parameters of the model: those that were evaluated, the central ones, or the
        mean of the trainers'. Raises RunFailed."""
        for name in (MODEL, CENTRAL):
            if (found := self.whole(name)) is not None:
                return found
        names = [f"trainers.{number}.dense" for number in range(self.manifest.trainers)]
        known = next(filter(None, map(self.manifest.tensors.get, names)), None)
        if known is None:
            return torch.empty(0)
        dense = torch.empty(known.shape, dtype=getattr(torch, known.dtype))
        for offset, shape in self.manifest.parameters.values():  # a trainer may have some of them
            own = dense[offset : offset + prod(shape)]
            self.fill_mean(MemoryBlock("", known.shape, (offset,), own), names)
        return dense

    def whole(self, name: str) -> Tensor | None:
        """A tensor; None where there is none."""
        if (known := self.manifest.tensors.get(name)) is None:
            return None
        tensor = torch.empty(known.shape, dtype=getattr(torch, known.dtype))
        self.fill(MemoryBlock(name, known.shape, (0,) * len(known.shape), tensor))
        return tensor

    def _copy(self, held: MemoryBlock, whole: SavedTensor, into: Tensor) -> int:
        """Copy what there is of a block, unless ``into`` is empty; how many numbers that is."""
        return sum(self._overlap(held, block, into) for block in whole.blocks)

    def _overlap(self, held: MemoryBlock, block: SavedBlock, into: Tensor) -> int:
        ours, theirs = (
            _lines(held.offsets, held.tensor.shape, held.step),
            _lines(block.offsets, block.shape, block.step),
        )
        both = [_common(own, other) for own, other in zip(ours, theirs, strict=True)]
        count = prod(map(len, both))
        if not count or not into.numel():
            return count
        for begin in range(0, len(both[0]), _TOGETHER):
            some = [both[0][begin : begin + _TOGETHER], *both[1:]]
            rows, *columns = map(_places, theirs, some)
            piece = self._slice(held.name, block, rows.start, rows.stop)
            piece = piece[(slice(None, None, rows.step), *columns)]
            into[tuple(map(_places, ours, some))] = piece
        return count

    def _slice(self, name: str, block: SavedBlock, low: int, high: int) -> Tensor:
        file = self._files.get(block.file)
        if file is None:
            opened = safe_open(str(self.path / block.file), framework="pt")
            file = self._files[block.file] = self.enter_context(opened)
        found: Tensor = file.get_slice(name)[low:high]
        return found.reshape(high - low, *block.shape[1:])


def _lines(offsets: Sequence[int], shape: Sequence[int], step: int) -> list[range]:
    """Which rows of the whole a block has, and which columns; ``step``: of its rows."""
    steps = step, *(1 for _ in shape[1:])
    parts = zip(offsets, shape, steps, strict=True)
    return [range(begin, begin + count * each, each) for begin, count, each in parts]


def _common(one: range, other: range) -> range:
    """The numbers of both."""
    begin, stop = max(one.start, other.start), min(one.stop, other.stop)
    step = lcm(one.step, other.step)
    tried = range(begin, min(stop, begin + step))
    first = next((number for number in tried if number in one and number in other), stop)
    return range(first, stop, step)


def _places(lines: range, some: range) -> slice:
    """Where ``some`` of the lines are among them."""
    return slice(lines.index(some[0]), lines.index(some[-1]) + 1, some.step // lines.step)
