"""Tensors as bytes and back."""

from __future__ import annotations

import torch
from torch import Tensor


def as_bytes(*tensors: Tensor) -> Tensor:
    """Several tensors' content, one after the other: uint8."""
    # Of one element or none, a contiguous tensor may have any stride; a view as bytes wants one.
    flat = [t.contiguous().as_strided((t.numel(),), (1,)) for t in tensors]
    return torch.cat([t.view(torch.uint8) for t in flat])


def as_numbers(part: Tensor, kind: torch.dtype) -> Tensor:
    """Bytes as numbers: a copy, because numbers must start at a multiple of their size."""
    return part.clone(memory_format=torch.contiguous_format).view(kind)
