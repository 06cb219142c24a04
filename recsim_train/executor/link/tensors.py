"""Tensors that travel: as bytes and back, in the type that they have meanwhile, as answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recsim_train.executor.books import booked


class Answer:
    """The answer of a request: a tensor, once the request has been waited for.

    Unless memory was made for it before, the answer stays where it arrived, which may be memory
    that is shared with the sender.
    """

    __slots__ = ("_kind", "_shape", "_tensor", "size")

    def __init__(self, shape: Sequence[int], kind: torch.dtype) -> None:
        self._shape, self._kind = shape, kind
        self.size = prod(shape) * kind.itemsize
        """In bytes."""
        self._tensor: Tensor | None = None

    def part(self, begin: int, end: int) -> Answer:
        """The answer for elements ``begin`` to ``end`` of a vector, in their place of its memory;
        of all elements the answer itself."""
        part = Answer((end - begin,), self._kind)
        if part.size == self.size:
            return self
        part._tensor = self.tensor[begin:end]
        return part

    def room(self) -> memoryview:
        """Memory of the answer's size, in which it may be received."""
        return memory_of(self.tensor)

    def arrive(self, content: NDArray[np.uint8] | bytearray) -> None:
        """Take the content, bytes [size]: where it lies, or copied if memory was made before."""
        if self._tensor is not None:
            np.copyto(np.frombuffer(self.room(), np.uint8), np.frombuffer(content, np.uint8))
        elif self.size:  # of no memory there is no view
            flat = torch.frombuffer(content, dtype=self._kind)
            self._tensor = flat.view(self._shape) if len(self._shape) > 1 else flat

    def take(self, tensor: Tensor) -> None:
        """The same of a tensor of this process."""
        if self._tensor is None:
            self._tensor = tensor
        else:
            self._tensor.copy_(tensor)

    @property
    def tensor(self) -> Tensor:
        """The content with the answer's shape and type, not copied."""
        if self._tensor is None:
            if not self.size:
                return torch.empty(self._shape, dtype=self._kind)
            self.arrive(np.empty(self.size, np.uint8))
            assert self._tensor is not None
        return self._tensor


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


HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""By name, as settings have it."""


def narrow(numbers: Tensor, kind: torch.dtype) -> Tensor:
    """Rounded to the nearest number of the type; the same tensor where it is its own type."""
    return numbers if numbers.dtype == kind else _narrow(numbers, kind)


def widen(numbers: Tensor, kind: torch.dtype) -> Tensor:
    """The inverse, without loss."""
    return numbers if numbers.dtype == kind else _widen(numbers, kind)


_narrow, _widen = booked("narrow")(Tensor.to), booked("widen")(Tensor.to)
