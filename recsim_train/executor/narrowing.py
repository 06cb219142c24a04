"""The type in which real numbers travel: narrowed by who sends them, widened by who gets them."""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.executor.books import booked

HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""By name, as settings have it."""


def narrow(numbers: Tensor, kind: torch.dtype) -> Tensor:
    """Rounded to the nearest number of the type; the same tensor where it is its own type."""
    return numbers if numbers.dtype == kind else _narrow(numbers, kind)


def widen(numbers: Tensor, kind: torch.dtype) -> Tensor:
    """The inverse, without loss."""
    return numbers if numbers.dtype == kind else _widen(numbers, kind)


@booked("narrow")
def _narrow(numbers: Tensor, kind: torch.dtype) -> Tensor:
    return numbers.to(kind)


@booked("widen")
def _widen(numbers: Tensor, kind: torch.dtype) -> Tensor:
    return numbers.to(kind)
