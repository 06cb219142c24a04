"""Passes through a net that is cut over several hosts: what all kinds of cut have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from recsim_train.executor.values import RealBlock, RealParts
from recsim_train.strategy.values import NetGradients, Tape


def click_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean log loss of logits [examples]."""
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)


class Pass(Tape, ABC):
    """Forward and backward of one batch at one host, a segment at a time."""

    loss: float | None = None
    """Mean log loss of the examples that this host answers for; None: it answers for none."""

    @abstractmethod
    def forward(self, cut: int) -> RealParts | RealBlock:
        """Run the segment before a cut; what crosses it."""

    @abstractmethod
    def receive(self, cut: int, arrived: RealParts | RealBlock) -> None:
        """Take what has crossed."""

    @abstractmethod
    def backward(self, cut: int) -> RealParts | RealBlock:
        """Backward of the segment after a cut; gradients that cross back."""

    @abstractmethod
    def take_back(self, cut: int, arrived: RealParts | RealBlock) -> None:
        """Take gradients that have crossed."""

    @abstractmethod
    def gradients(self) -> NetGradients:
        """Backward of the first segment; everything that this host has learned."""
