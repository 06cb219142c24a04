"""A trainer's replica, and what one loop's thread keeps beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from recsim_train.config.experiment import Model, Training
from recsim_train.executor.net.model import DenseNet, initial_dense
from recsim_train.executor.net.state import DenseOptimizer
from recsim_train.executor.shards.mixcache import MixCache
from recsim_train.placement.plan import Plan
from recsim_train.placement.program import NetProgram, TaggedNet
from recsim_train.workload.compression import Tallies
from recsim_train.workload.graph import graph_of


@dataclass(slots=True)
class Residual:
    """What one loop has not sent of its gradients yet, and the thresholds that it goes by."""

    model: Model
    error: Tensor | None = None
    """[dense parameters]; zero where nothing is left; None where differences are sent."""
    taus: list[float] = field(default_factory=list)
    """One for each thresholded tensor."""
    tallies: Tallies = field(default_factory=dict)

    def left(self, like: Tensor) -> Tensor:
        """The residual, made at first use."""
        if self.error is None:
            self.error = torch.zeros_like(like)
        return self.error


@dataclass(slots=True)
class Replica:
    """One trainer's dense parameters [parameters], shared by its threads without locks.

    ``names``: of these operators only, in this order; None: of all. ``shared``: how many of the
    first parameters all hosts of a group hold.
    """

    model: Model
    training: Training
    seed: int
    names: tuple[str, ...] | None = None
    shared: int = 0
    parameters: Tensor = field(init=False)
    optimizer: DenseOptimizer = field(init=False)
    pending: Tensor = field(init=False)
    """Of a tagged net: moves of parameters that all hosts of a group hold, kept back until the
    group's next step [shared]."""
    moving: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Held while ``pending`` changes, so that every move is made once."""

    @classmethod
    def of(cls, plan: Plan, host: int) -> Replica:
        """Of the part of the net that a host of a group holds; of all, unless tags cut it."""
        spec, net = plan.experiment, plan.net
        if isinstance(net, TaggedNet):
            held = net.held(host), net.shared_numbers
            return cls(spec.model, spec.training, spec.seed, *held)
        return cls(spec.model, spec.training, spec.seed)

    def __post_init__(self) -> None:
        self.parameters = initial_dense(self.model, self.seed)
        if self.names is not None:
            graph, offsets = graph_of(self.model), graph_of(self.model).offsets()
            parts = [
                self.parameters[offsets[name] : offsets[name] + graph.operator(name).elements]
                for name in self.names
            ]
            self.parameters = torch.cat([*parts, self.parameters[:0]])
        self.optimizer = DenseOptimizer.of(self.training, self.parameters)
        self.pending = torch.zeros(self.shared, dtype=self.parameters.dtype)


class Worker:
    """One loop's thread: its own modules and accumulator over the trainer's replica."""

    def __init__(
        self,
        replica: Replica,
        pooling: str,
        program: NetProgram | None = None,
        host: int = 0,
        rows: MixCache | None = None,
    ) -> None:
        """``rows``: the trainer's cache of them, if the strategy asks for one."""
        self.replica, self.pooling, self.program, self.host = replica, pooling, program, host
        self.net = DenseNet(replica.model, replica.parameters, replica.names)
        self.cache = rows
        self.room: Callable[[], Tensor | None] = lambda: None
        """Memory for the next gradient, where there is any from which it is sent uncopied."""
        self.accumulated: Tensor | None = None
        self.taken: Tensor | None = None
        """Of `Replica.pending`: what the present step carries to the group's other hosts."""
        self.block: tuple[Tensor, Tensor] | None = None
        """Global model and momentum [parameters] of blockwise model updates."""
        self.residual = Residual(replica.model)
        self.loss: float | None = None
        """Mean log loss of the last batch; None: this loop has computed none."""
