"""Tensors as bytes and back."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

_NOTHING = memoryview(bytearray())


def as_bytes(*tensors: Tensor) -> Tensor:
    """Several tensors' content, one after the other: uint8. Of one tensor no copy is made."""
    # Of one element or none, a contiguous tensor may have any stride; a view as bytes wants one.
    flat = [t.contiguous().as_strided((t.numel(),), (1,)).view(torch.uint8) for t in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def split_bytes(payload: Tensor, *parts: tuple[int, torch.dtype]) -> list[Tensor]:
    """The inverse of `as_bytes` for so many numbers of each type.

    Raises ValueError where the payload has another size.
    """
    sizes = [count * kind.itemsize for count, kind in parts]
    due, here = sum(sizes), payload.numel()
    if here != due or min(sizes, default=0) < 0:
        raise ValueError(f"a payload of {here} bytes where {due} are due")
    numbers, start = [], 0
    for (_, kind), size in zip(parts, sizes, strict=True):
        if not size:
            numbers.append(_none_of(kind))
            continue
        part = payload if size == due else payload[start : start + size]
        # A view must start at a multiple of the numbers' size.
        aligned = part.storage_offset() % kind.itemsize == 0
        numbers.append((part if aligned else part.clone()).view(kind))
        start += size
    return numbers


@cache
def _none_of(kind: torch.dtype) -> Tensor:
    return torch.empty(0, dtype=kind)


def memory_of(tensor: Tensor) -> memoryview:
    """A contiguous tensor's own memory as bytes."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:  # numpy has none
        tensor = tensor.view(torch.int16)
    content = tensor.numpy()
    return memoryview(content).cast("B") if content.size else _NOTHING  # type: ignore[arg-type]
