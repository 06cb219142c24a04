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
        held, buffers = list(self.module.parameters()), list(buffers_of(self.module).values())
        _check(self.described, self.module)
        # `.data`: as of `DenseNet`
        shapes = [tuple(one.shape) for one in (*held, *buffers)]
        pieces = torch.split(parameters.data, [prod(shape) for shape in shapes])
        views = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        for parameter, view in zip(held, views, strict=False):
            parameter.data = view
        self._held = held
        self._buffers = list(zip(buffers, views[len(held) :], strict=True))
        self._before: list[Tensor] = []
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
        self._before = [buffer.copy_(kept).clone() for buffer, kept in self._buffers]
        logits: Tensor = self.module(features, pooled.transpose(0, 1).contiguous())
        return logits

    def moved(self) -> list[Tensor]:
        """In the place of a buffer's gradient, how far it has moved down."""
        pairs = zip(self._before, self._buffers, strict=True)
        return [before - buffer for before, (buffer, _) in pairs]


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
