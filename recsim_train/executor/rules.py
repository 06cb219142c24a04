"""What both ends of a talk with a shard know of it, without holding what the shard holds."""

from __future__ import annotations

import numpy as np
import torch

from recsim_train.config.experiment import Experiment
from recsim_train.executor.masks import PooledMask
from recsim_train.executor.model import dtype_of
from recsim_train.executor.narrowing import HALF
from recsim_train.placement.plan import DenseShard, EmbeddingShard, Plan


class EmbeddingRules:
    """How ids, rows and gradients travel between loops and one embedding shard."""

    def __init__(self, plan: Plan, shard: EmbeddingShard) -> None:
        assert plan.embedding is not None
        service, self.split = plan.embedding.service, plan.embedding.split_tables
        self.shard, self.model = shard, plan.experiment.model
        self.kind = dtype_of(self.model)
        self.pooled = service.pooling == "server"
        """Whether vectors of bags travel, or rows."""
        self.width = shard.slices[0].width(self.model.row_width)
        """Numbers of each row that it holds."""
        self.stored = self.width + (plan.experiment.training.sparse_optimizer != "sgd")
        """The same with the optimizer's state."""
        tables = self.model.tables
        self.sends_lengths = np.array(
            [
                self.pooled and (tables[s.table].variable or s.table in self.split)
                for s in shard.slices
            ],
            bool,
        )
        """By slice."""
        self.fixed = np.array([tables[s.table].ids for s in shard.slices], np.int64)
        """By slice, the ids of an example where no lengths are sent."""
        self.bag_lengths = int(self.sends_lengths.sum())
        """Of so many slices."""
        self.mask: PooledMask | None = None
        if service.keep is not None:
            self.mask = PooledMask(self.model, len(shard.slices), service.keep, service.mask)
        self.wire = self.kind if self.mask is not None else _wire_of(plan.experiment)
        """As numbers travel that may be rounded; what a mask leaves is not."""
        self.acknowledged = bool(plan.together)
        """Whether updates are."""

    def gradient_shape(self, examples: int, ids: int) -> tuple[int, ...]:
        """Of a lookup's answer and of its gradient; under a mask, of the values that it keeps."""
        if self.mask is not None:
            return examples * self.mask.shape.lines, self.mask.shape.kept
        if self.pooled:
            return len(self.shard.slices), examples, self.width
        return ids, self.width


class DenseRules:
    """The same of one shard of the central dense parameters."""

    def __init__(self, experiment: Experiment, shard: DenseShard) -> None:
        self.model, self.shard = experiment.model, shard
        self.kind, self.wire = dtype_of(self.model), _wire_of(experiment)


def _wire_of(experiment: Experiment) -> torch.dtype:
    return HALF.get(experiment.execution.wire, dtype_of(experiment.model))
