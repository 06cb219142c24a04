"""Kernels with which a group of hosts meets other groups: each host answers for a part of the net.

What all hosts of a group hold must change at all of them in the same step. So a host keeps its move
of such parameters back; it travels with the gradients of the group's next step. Towards other
groups the move has happened: a second round before that step must not start where the first did.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.executor.values import RealDense
from recsim_train.executor.worker import Worker
from recsim_train.placement.program import TaggedNet


def _answered(worker: Worker) -> Tensor:
    """A copy of the parameters that a host answers for, moves that it keeps back included."""
    program, replica = worker.program, worker.replica
    assert isinstance(program, TaggedNet)
    first, last = program.shared_slice(worker.host)
    with replica.moving:
        held = replica.parameters
        own = torch.cat([held[first:last], held[program.shared_numbers :]])
        own[: last - first] -= replica.pending[first:last]
    return own


def net_answered(worker: Worker) -> RealDense:
    """A copy of the parameters that this host answers for."""
    assert isinstance(worker.program, TaggedNet)
    return RealDense(_answered(worker), worker.program.answered_start(worker.host))


def net_towards(worker: Worker, value: RealDense, share: float) -> RealDense:
    """share * (what this host answers for - value)."""
    return RealDense(_answered(worker).sub_(value.tensor).mul_(share), value.start)


def net_move(worker: Worker, difference: RealDense) -> None:
    """What this host answers for -= difference, in place; shared parameters in the next step."""
    program, replica = worker.program, worker.replica
    assert isinstance(program, TaggedNet)
    first, last = program.shared_slice(worker.host)
    with replica.moving:
        replica.pending[first:last] += difference.tensor[: last - first]
    replica.parameters[program.shared_numbers :] -= difference.tensor[last - first :]


def take_pending(worker: Worker) -> Tensor:
    """The moves that this host has kept back: they are on their way to its group's other hosts."""
    with worker.replica.moving:
        worker.taken = worker.replica.pending.clone()
    return worker.taken


def move_shared(worker: Worker, moves: Tensor) -> None:
    """Shared parameters -= what all hosts of the group have taken; what came since is kept."""
    replica = worker.replica
    assert worker.taken is not None
    with replica.moving:
        replica.parameters[: moves.numel()] -= moves
        replica.pending -= worker.taken
