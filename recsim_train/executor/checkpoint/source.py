"""A checkpoint as it is read back: any block of a tensor, from whichever blocks were written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from recsim_train.checkpoints.manifest import SavedBlock, SavedTensor, WholeCheckpoint
from recsim_train.config.errors import RunFailed
from recsim_train.executor.checkpoint.memory import CENTRAL, MODEL, MemoryBlock

_TOGETHER = 1 << 20
"""Rows that are looked up at a time."""


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
        columns = slice(None)
        width, stored = 1, slice(None)
        if len(held.shape) > 1:
            first = max(held.offsets[1], block.offsets[1])
            last = min(held.offsets[1] + held.tensor.shape[1], block.offsets[1] + block.shape[1])
            if last <= first:
                return 0
            columns = slice(first - held.offsets[1], last - held.offsets[1])
            stored, width = slice(first - block.offsets[1], last - block.offsets[1]), last - first
        rows, count = held.tensor.shape[0], 0
        for begin in range(0, rows, _TOGETHER):
            places = torch.arange(begin, min(begin + _TOGETHER, rows))
            ahead = held.offsets[0] + places * held.step - block.offsets[0]
            own = (ahead >= 0) & (ahead < block.shape[0] * block.step) & (ahead % block.step == 0)
            places, theirs = places[own], ahead[own] // block.step
            count += places.numel() * width
            if not places.numel() or not into.numel():
                continue
            low, high = int(theirs[0]), int(theirs[-1]) + 1
            piece = self._slice(held.name, block, low, high)
            if high - low != places.numel():
                piece = piece[theirs - low]
            if len(held.shape) > 1:
                piece = piece[:, stored]
            if int(places[-1]) - int(places[0]) + 1 == places.numel():
                target = into[int(places[0]) : int(places[-1]) + 1]
                (target[:, columns] if len(held.shape) > 1 else target).copy_(piece)
            elif len(held.shape) > 1:
                into[places, columns] = piece
            else:
                into[places] = piece
        return count

    def _slice(self, name: str, block: SavedBlock, low: int, high: int) -> Tensor:
        file = self._files.get(block.file)
        if file is None:
            opened = safe_open(str(self.path / block.file), framework="pt")
            file = self._files[block.file] = self.enter_context(opened)
        found: Tensor = file.get_slice(name)[low:high]
        return found.reshape(high - low, *block.shape[1:])
