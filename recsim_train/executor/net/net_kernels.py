"""Kernels of the operations on a net that is cut over hosts (`strategy.net`).

Each host answers for a part of the net where groups of hosts meet. What all hosts of a group hold
must change at all of them in the same step. So a host keeps its move of such parameters back; it
travels with the gradients of the group's next step. Towards other groups the move has happened: a
second round before that step must not start where the first did.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recsim_train.executor.net.model import Pass
from recsim_train.executor.net.substituted import SubstitutedPass, answers_for, shared_views
from recsim_train.executor.net.tagged import TaggedPass
from recsim_train.executor.values import RealDense, RealRows
from recsim_train.executor.worker import Worker
from recsim_train.placement.program import SubstitutedNet, TaggedNet
from recsim_train.strategy.values import Batch, NetGradients


def net_open(worker: Worker, batch: Batch, rows: RealRows) -> Pass:
    """A pass of one batch through this host's part of the net."""
    program = worker.program
    if isinstance(program, TaggedNet):
        return TaggedPass(worker.operators, program, worker.host, batch, rows)
    assert isinstance(program, SubstitutedNet)
    return SubstitutedPass(worker.operators, program, worker.host, batch, rows)


def net_gradients(worker: Worker, tape: Pass) -> NetGradients:
    """Backward of the first segment; the loss is left in ``worker.loss``."""
    found = tape.gradients()
    worker.loss = tape.loss
    if isinstance(worker.program, TaggedNet) and worker.program.outer:
        assert isinstance(found.shared, RealDense)
        with worker.replica.moving:  # what is kept back is on its way to the group's other hosts
            worker.taken = worker.replica.pending.clone()
        moved = torch.cat([found.shared.tensor, worker.taken])
        return NetGradients(found.own, RealDense(moved), found.rows)
    return found


def net_apply(worker: Worker, gradients: NetGradients, shared: RealDense) -> None:
    """One optimizer step on the replica; ``shared`` replaces its part of the gradient."""
    assert isinstance(gradients.own, RealDense)
    own, program = gradients.own.tensor, worker.program
    parameters, everywhere = worker.replica.parameters, 0
    if isinstance(program, TaggedNet):
        everywhere = program.shared_numbers
        own[:everywhere] = shared.tensor[:everywhere]
    elif isinstance(program, SubstitutedNet) and shared.tensor.numel():
        views = shared_views(worker.operators, program)
        parts = torch.split(shared.tensor, [view.numel() for view in views])
        for view, part in zip(views, parts, strict=True):
            view.copy_(part.view(view.shape))
    worker.replica.optimizer.step(parameters, own)
    if everywhere and shared.tensor.numel() > everywhere:
        # what all hosts of the group have taken; what came since is kept
        moves = shared.tensor[everywhere:]
        assert worker.taken is not None
        with worker.replica.moving:
            parameters[: moves.numel()] -= moves
            worker.replica.pending -= worker.taken


def net_whole(worker: Worker) -> RealDense:
    """The parameters that this host answers for, zero elsewhere [parameters]."""
    program, held = worker.program, worker.replica.parameters
    if isinstance(program, SubstitutedNet):
        return RealDense(held * answers_for(worker.operators, program, worker.host))
    assert isinstance(program, TaggedNet)
    whole = torch.zeros(program.graph.elements, dtype=held.dtype)
    answered = net_towards(worker, RealDense(torch.zeros(1, dtype=held.dtype)), 1.0).tensor
    ranges = program.answered(worker.host)
    parts = torch.split(answered, [stop - start for start, stop in ranges])
    for (start, stop), part in zip(ranges, parts, strict=True):
        whole[start:stop] = part
    return RealDense(whole)


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
