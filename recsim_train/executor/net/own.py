"""A net that is a user's `torch.nn.Module`, over the same flat parameters as every other net.

Its buffers of floating-point numbers (running means) stand behind its parameters in the flat
vector. What a batch has changed in them travels in the place of a gradient, and a step takes it as
it is, whatever the optimizer (`recsim_train.executor.worker.DenseOptimizer`): so they are averaged,
pushed and kept wherever parameters are, without a word in any strategy.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Model, ModuleShape
from recsim_train.executor.net.model import TrainableNet
from recsim_train.executor.net.modules import buffers_of, built


class OwnNet(TrainableNet):
    """A module whose parameters are views of the trainer's."""

    def __init__(self, model: Model, parameters: Tensor, seed: int, stream: int) -> None:
        """``stream``: which of the run's loops it is, whose passes draw numbers of their own."""
        assert model.described is not None
        self.described, self._seed, self._stream = model.described, seed, stream
        self.module = built(model, model.described.tables, seed)
        _check(self.described, self.module)
        self._held = list(self.module.parameters())
        names = [one.name for one in self.described.buffers]
        shapes = [one.shape for one in (*self.described.parameters, *self.described.buffers)]
        # `.data`: as of `DenseNet`
        pieces = torch.split(parameters.data, [prod(shape) for shape in shapes])
        views = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        for parameter, view in zip(self._held, views, strict=False):
            parameter.data = view
        self._kept = dict(zip(names, views[len(self._held) :], strict=True))
        self._before: dict[str, Tensor] = {}
        """The buffers at the beginning of the pass: other threads may have moved them since."""

    def begin(self, number: int) -> None:
        """What the next pass draws is that of this batch, whatever was drawn before."""
        if self.described.draws:
            drawn = np.random.SeedSequence((self._seed, 3, self._stream, number))
            torch.manual_seed(int(drawn.generate_state(1)[0]))

    def forward(self, features: Tensor, pooled: Tensor) -> Tensor:
        """As of `DenseNet`; without gradients it is an evaluation."""
        if self.module.training != torch.is_grad_enabled():
            self.module.train(torch.is_grad_enabled())
        self._before = {name: kept.clone() for name, kept in self._kept.items()}
        with torch.no_grad():
            for name, buffer in self._buffers():
                buffer.copy_(self._before[name])
        logits: Tensor = self.module(features, pooled.transpose(0, 1).contiguous())
        return logits

    def moved(self) -> list[Tensor]:
        """In the place of a buffer's gradient, how far it has moved down."""
        found = []
        for name, buffer in self._buffers():
            before, now = self._before[name], buffer.detach()
            # where nothing moved it may be infinite, as in masks
            found.append(torch.where(before == now, torch.zeros_like(before), before - now))
        return found

    def _buffers(self) -> list[tuple[str, Tensor]]:
        """As they are by now: a pass may have put others in their places."""
        there = dict(self.module.named_buffers())
        return [(name, there[name]) for name in self._kept]


def _check(described: ModuleShape, module: nn.Module) -> None:
    """Raise UserError where it is not what was described."""
    there = [(name, tuple(one.shape)) for name, one in module.named_parameters()]
    there += [(name, tuple(one.shape)) for name, one in buffers_of(module).items()]
    known = [(one.name, one.shape) for one in (*described.parameters, *described.buffers)]
    if there != known:
        raise UserError(
            "model.module: its parameters are not those that were described; was its code changed "
            "since this run began?"
        )
