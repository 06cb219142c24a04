"""Answers of requests under way."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Answer:
    """What a request is answered with: a tensor, once the request has been waited for.

    Where it need not be anywhere, it is used where it has come to lie, which may be memory that is
    shared with whoever sent it.
    """

    __slots__ = ("_content", "_kind", "_shape", "size")

    def __init__(self, shape: Sequence[int], kind: torch.dtype) -> None:
        self._shape, self._kind = shape, kind
        self.size = prod(shape) * kind.itemsize
        """In bytes."""
        self._content: NDArray[np.uint8] | bytearray | None = None

    def part(self, begin: int, end: int) -> Answer:
        """What answers the numbers of a vector from ``begin`` to ``end``: in their place, unless
        these are all of them."""
        part = Answer((end - begin,), self._kind)
        if part.size == self.size:
            return self
        first = begin * self._kind.itemsize
        part._content = np.frombuffer(self._memory(), np.uint8)[first : first + part.size]
        return part

    def room(self) -> memoryview:
        """Memory for it."""
        return memoryview(self._memory())  # type: ignore[arg-type]

    def _memory(self) -> NDArray[np.uint8] | bytearray:
        if self._content is None:
            self._content = np.empty(self.size, np.uint8)
        return self._content

    def arrive(self, content: NDArray[np.uint8] | bytearray) -> None:
        """Here it is, bytes [size]; used where it lies unless there is room for it already."""
        if self._content is None:
            self._content = content
        else:
            here = np.frombuffer(self._content, np.uint8)
            np.copyto(here, np.frombuffer(content, np.uint8))

    @property
    def tensor(self) -> Tensor:
        """Of its shape and type, in that memory."""
        if not self.size:  # no memory to be seen as another type
            return torch.empty(self._shape, dtype=self._kind)
        whole = torch.frombuffer(self._memory(), dtype=self._kind)
        return whole.view(self._shape) if len(self._shape) > 1 else whole
