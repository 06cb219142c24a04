"""Blocks of tensors in a process's memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

MODEL = "model.dense"
"""The dense parameters that were evaluated, in a checkpoint of the end."""
CENTRAL = "central.dense"


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
