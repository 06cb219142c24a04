"""What processes hold while they train: parameters and rows of servers with optimizer's state, the
replica of a trainer and its cache of rows, and what one loop's thread keeps beside both.

Which row is in which slot is decided by `recsim_train.data.mixcache`; here are the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from recsim_train.config.experiment import Model, Training
from recsim_train.data.mixcache import SlotMap, first_rows, ownership, slot_map, table_rows
from recsim_train.executor.net.model import (
    DenseNet,
    TrainableNet,
    dtype_of,
    initial_dense,
    initial_rows,
)
from recsim_train.executor.net.own import OwnNet
from recsim_train.executor.net.rows import EPSILON, Numbers, adagrad, places_of, sgd
from recsim_train.executor.values import RealIds
from recsim_train.placement.plan import Plan, TableSlice
from recsim_train.placement.program import NetProgram, TaggedNet
from recsim_train.strategy.values import Slots
from recsim_train.trace.facts import Cached
from recsim_train.workload.compression import Tallies
from recsim_train.workload.graph import graph_of
from recsim_train.workload.shape import moving

EACH_ITS_OWN = np.empty(0, np.int64)
"""The bags of ids that are alone in theirs: the n-th in the n-th."""


@dataclass(slots=True)
class DenseOptimizer:
    """SGD or Adagrad (Duchi, Hazan and Singer 2011) on a flat vector, in place.

    ``state``: Adagrad's sums of squared gradients [parameters]; of SGD, nothing. It is there before
    the first step: threads that share the optimizer could each make one, and lose the other's.
    ``moving``: how many of the last ones are buffers of a module, to which any rule adds what they
    have moved by, in the place of a gradient: parameters -= share * gradient, with a ``share`` of
    one for each loop that sends such moves, so that all together go as far as one.
    """

    training: Training
    state: Tensor
    moving: int = 0
    share: float = 1.0

    @staticmethod
    def of(
        training: Training, parameters: Tensor, moving: int = 0, share: float = 1.0
    ) -> DenseOptimizer:
        """Before the first step on ``parameters``."""
        adagrad = training.dense_optimizer == "adagrad"
        state = torch.zeros_like(parameters if adagrad else parameters[:0])
        return DenseOptimizer(training, state, moving, share)

    def step(self, parameters: Tensor, gradient: Tensor) -> None:
        """parameters -= lr * gradient (SGD).

        Adagrad: state += gradient^2; parameters -= lr * gradient / (sqrt(state) + 1e-8).
        """
        if self.moving:
            stepped = parameters.numel() - self.moving
            parameters[stepped:].sub_(gradient[stepped:], alpha=self.share)
            parameters, gradient = parameters[:stepped], gradient[:stepped]
        if self.training.dense_optimizer == "sgd":
            parameters.add_(gradient, alpha=-self.training.dense_lr)
            return
        state = self.state[: parameters.numel()]
        state.addcmul_(gradient, gradient)
        scale = state.sqrt().add_(EPSILON)
        parameters.addcdiv_(gradient, scale, value=-self.training.dense_lr)


class EmbeddingState:
    """The rows of one shard's slices in one tensor [rows, dim], optimizer state beside them."""

    def __init__(
        self,
        model: Model,
        training: Training,
        seed: int,
        slices: Sequence[TableSlice],
        *,
        draws: bool = True,
    ) -> None:
        self.model, self.training, self.slices = model, training, tuple(slices)
        width = slices[0].width(model.row_width) if slices else model.row_width
        self.rows = torch.empty((sum(s.rows for s in slices), width), dtype=dtype_of(model))
        bases, position = [], 0
        for part in slices:
            if draws:  # else they are filled next, which takes less than half of the time
                drawn = initial_rows(model, seed, part.table, part.start, part.stop)[:: part.step]
                self.rows[position : position + part.rows] = drawn[
                    :, part.first : part.last or None
                ]
            bases.append(position - part.start // part.step)
            position += part.rows
        self.bases = np.array(bases, np.int64)
        self.step = slices[0].step if slices else 1
        self.state = torch.zeros(position, dtype=self.rows.dtype)

    def local(self, ids: Numbers, counts: Numbers) -> Numbers:
        """Places in the shard's tensor of ids that come slice by slice."""
        return places_of(ids, counts, self.bases, self.step)

    def take_step(self, places: Numbers, gradient: Tensor, bags: Numbers) -> None:
        """SGD or exact row-wise Adagrad on the rows at these places, which may come repeatedly.

        ``gradient``: [lines, dim]; ``bags`` [ids]: the line of each id in it.
        """
        step = places, bags, gradient.contiguous().numpy(), self.training.sparse_lr
        if self.training.sparse_optimizer == "sgd":
            sgd(self.rows.numpy(), *step)
        else:
            adagrad(self.rows.numpy(), self.state.numpy(), *step)


class DenseState:
    """Elements of the central dense parameters that one shard holds."""

    def __init__(
        self,
        model: Model,
        training: Training,
        seed: int,
        start: int,
        stop: int,
        order: Tensor | None = None,
        loops: int = 1,
    ) -> None:
        """``loops``: that push to it."""
        whole = initial_dense(model, seed)
        self.values = (whole if order is None else whole[order])[start:stop].clone()
        # an order is one of operators: of a module there is one
        self.optimizer = DenseOptimizer.of(
            training, self.values, moving(model, start, stop), 1 / loops
        )


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

    def __init__(self, plan: Plan, trainer: int, first: int = 0) -> None:
        """``first``: the iteration that the run begins with."""
        spec, self.trainer = plan.experiment, trainer
        self.map: SlotMap = slot_map(plan, trainer)
        self.owner = ownership(plan, trainer)
        self.bases = first_rows(table_rows(spec.model))
        self.held = EmbeddingState(spec.model, spec.training, spec.seed, ())
        warmup, steps = spec.training.warmup_steps, spec.training.steps
        self._counted = range(warmup - first, warmup + steps - first)
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
        buffers = moving(self.model, 0, self.parameters.numel())
        self.optimizer = DenseOptimizer.of(self.training, self.parameters, buffers)
        self.pending = torch.zeros(self.shared, dtype=self.parameters.dtype)


def _net_of(replica: Replica, stream: int) -> TrainableNet:
    if replica.model.module is not None:
        return OwnNet(replica.model, replica.parameters, replica.seed, stream)
    return DenseNet(replica.model, replica.parameters, replica.names)


class Worker:
    """One loop's thread: its own modules and accumulator over the trainer's replica."""

    def __init__(
        self,
        replica: Replica,
        pooling: str,
        program: NetProgram | None = None,
        host: int = 0,
        rows: MixCache | None = None,
        stream: int = 0,
    ) -> None:
        """``rows``: the trainer's cache of them, if the strategy asks for one; ``stream``: the
        loop's number in the run."""
        self.replica, self.pooling, self.program, self.host = replica, pooling, program, host
        self.net = _net_of(replica, stream)
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

    @property
    def operators(self) -> DenseNet:
        """The net, of which each operator is known."""
        assert isinstance(self.net, DenseNet)
        return self.net
