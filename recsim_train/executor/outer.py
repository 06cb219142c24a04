"""Kernels with which a group of hosts meets other groups: each host answers for a part of the net.

What all hosts of a group hold must change at all of them in the same step. So a host keeps its move
of such parameters back; it travels with the gradients of the group's next step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.executor.kernels import Worker
from recsim_train.executor.values import RealDense
from recsim_train.placement.program import TaggedNet


def _answered(worker: Worker, held: Tensor) -> Tensor:
    """Of a vector over a host's parameters, the part that it answers for."""
    program = worker.program
    assert isinstance(program, TaggedNet)
    first, last = program.shared_slice(worker.host)
    return torch.cat([held[first:last], held[program.shared_numbers :]])


def net_answered(worker: Worker) -> RealDense:
    """A copy of the parameters that this host answers for."""
    assert isinstance(worker.program, TaggedNet)
    start = worker.program.answered_start(worker.host)
    return RealDense(_answered(worker, worker.replica.parameters), start)


def net_towards(worker: Worker, value: RealDense, share: float) -> RealDense:
    """share * (what this host answers for - value)."""
    program = worker.program
    assert isinstance(program, TaggedNet)
    own = _answered(worker, worker.replica.parameters)
    first, last = program.shared_slice(worker.host)
    own[: last - first] -= worker.replica.pending[first:last]  # moves that are still kept back
    return RealDense(own.sub_(value.tensor).mul_(share), value.start)


def net_move(worker: Worker, difference: RealDense) -> None:
    """What this host answers for -= difference, in place; shared parameters in the next step."""
    program, replica = worker.program, worker.replica
    assert isinstance(program, TaggedNet)
    first, last = program.shared_slice(worker.host)
    replica.pending[first:last] += difference.tensor[: last - first]
    replica.parameters[program.shared_numbers :] -= difference.tensor[last - first :]


def take_pending(worker: Worker) -> Tensor:
    """The moves that were kept back; what others add meanwhile stays for the next time."""
    taken = worker.replica.pending.clone()
    worker.replica.pending -= taken
    return taken
