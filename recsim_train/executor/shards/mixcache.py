"""A trainer's cache of embedding rows, with their optimizer's state beside them.

Which row is in which slot is decided by `recsim_train.data.mixcache`; here are the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recsim_train.data.mixcache import (
    Numbers,
    SlotMap,
    first_rows,
    ownership,
    slot_map,
    table_rows,
)
from recsim_train.executor.net.state import EmbeddingState
from recsim_train.executor.values import RealIds
from recsim_train.placement.plan import Plan
from recsim_train.strategy.values import Slots
from recsim_train.trace.facts import Cached


@dataclass(frozen=True, slots=True, eq=False)
class RealSlots(Slots):
    """One step in one trainer's cache."""

    ids: RealIds
    """The step's virtual ids."""
    places: Tensor
    """Which of them are this trainer's own: int64 [own]."""
    slots: Tensor
    """Where each own row is in the cache: int64 [own]."""
    filled: Tensor
    """Slots of the missing rows, in the order in which they are fetched."""
    evicted: RealIds
    evicted_slots: Tensor


class MixCache:
    """One trainer's cached rows [slots, dim] and their optimizer's state [slots]."""

    def __init__(self, plan: Plan, trainer: int) -> None:
        spec = plan.experiment
        self.map: SlotMap = slot_map(plan, trainer)
        self.owner = ownership(plan, trainer)
        self.bases = first_rows(table_rows(spec.model))
        self.held = EmbeddingState(spec.model, spec.training, spec.seed, ())
        self._counted = range(
            spec.training.warmup_steps, spec.training.warmup_steps + spec.training.steps
        )
        self.probed = self.missed = self.evicted = 0
        """Rows in counted iterations."""
        self.make_room()

    def make_room(self) -> None:
        """Tensors for every slot; what they hold need not survive where slots are added."""
        held, slots = self.held, self.map.capacity
        if held.state.numel() < slots:
            held.rows = held.rows.new_zeros((slots, held.rows.shape[1]))
            held.state = held.state.new_zeros(slots)

    def ids(self, rows: Numbers) -> RealIds:
        """Sorted row numbers as distinct ids, table by table."""
        cuts = np.searchsorted(rows, self.bases)
        values = rows - np.repeat(self.bases[:-1], np.diff(cuts))
        return RealIds(
            torch.from_numpy(values),
            tuple(cuts.tolist()),
            (None,) * (len(self.bases) - 1),
            0,
            torch.empty(0).long(),  # distinct ids that belong to no batch: no way back to it
        )

    def count(self, owned: int, missed: int, evicted: int) -> None:
        """Remember one step's figures."""
        if self.map.step in self._counted:
            self.probed += owned
            self.missed += missed
            self.evicted += evicted

    def figures(self) -> Cached:
        """As the simulator's `recsim_train.data.replay.Replay.figures`."""
        slots = 0 if self.map.grows else self.map.capacity
        return Cached.of([slots], self.probed, self.missed, self.evicted)
