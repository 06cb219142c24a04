"""What each operation takes: checked before the simulator prices it."""

from __future__ import annotations

from numbers import Real
from types import UnionType

from recsim_train.sim import compression
from recsim_train.sim.ghosts import GhostBlock, GhostDense, GhostIds, GhostParts, GhostRows
from recsim_train.sim.net import GhostPass
from recsim_train.strategy.values import Batch, NetGradients

ARGUMENTS: dict[str, tuple[type | UnionType, ...]] = {
    "deduplicate": (GhostIds,),
    "forward_backward": (Batch, GhostRows),
    "apply": (GhostDense,),
    "load": (GhostDense,),
    "snapshot": (),
    "subtract": (GhostDense,),
    "towards": (GhostDense, Real),
    "interpolate": (GhostDense, Real),
    "block_step": (GhostDense, Real, Real),
    "accumulate": (GhostDense,),
    "drain": (),
    "net_open": (Batch, GhostRows),
    "net_forward": (GhostPass, int),
    "net_receive": (GhostPass, int, GhostBlock | GhostParts),
    "net_backward": (GhostPass, int),
    "net_return": (GhostPass, int, GhostBlock | GhostParts),
    "net_gradients": (GhostPass,),
    "net_apply": (NetGradients, GhostDense),
    "net_whole": (),
    "net_answered": (),
    "net_towards": (GhostDense, Real),
    "net_move": (GhostDense,),
    **compression.ARGUMENTS,
}
"""By operation."""
