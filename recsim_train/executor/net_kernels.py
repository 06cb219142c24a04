"""Kernels of the operations on a net that is cut over hosts (`strategy.net`)."""

from __future__ import annotations

import torch

from recsim_train.executor.outer import move_shared, net_towards, take_pending
from recsim_train.executor.passes import Pass
from recsim_train.executor.substituted import SubstitutedPass, answers_for, shared_views
from recsim_train.executor.tagged import TaggedPass
from recsim_train.executor.values import RealBlock, RealDense, RealParts, RealRows
from recsim_train.executor.worker import Worker
from recsim_train.placement.program import SubstitutedNet, TaggedNet
from recsim_train.strategy.values import Batch, NetGradients


def net_open(worker: Worker, batch: Batch, rows: RealRows) -> Pass:
    """A pass of one batch through this host's part of the net."""
    program = worker.program
    if isinstance(program, TaggedNet):
        return TaggedPass(worker.net, program, worker.host, batch, rows)
    assert isinstance(program, SubstitutedNet)
    return SubstitutedPass(worker.net, program, worker.host, batch, rows)


def net_forward(_: Worker, tape: Pass, cut: int) -> RealParts | RealBlock:
    """Run the segment before a cut; what crosses it."""
    return tape.forward(cut)


def net_receive(_: Worker, tape: Pass, cut: int, arrived: RealParts | RealBlock) -> None:
    """Take what has crossed."""
    tape.receive(cut, arrived)


def net_backward(_: Worker, tape: Pass, cut: int) -> RealParts | RealBlock:
    """Backward of the segment after a cut; gradients that cross back."""
    return tape.backward(cut)


def net_return(_: Worker, tape: Pass, cut: int, arrived: RealParts | RealBlock) -> None:
    """Take gradients that have crossed."""
    tape.take_back(cut, arrived)


def net_gradients(worker: Worker, tape: Pass) -> NetGradients:
    """Backward of the first segment; the loss is left in ``worker.loss``."""
    found = tape.gradients()
    worker.loss = tape.loss
    if isinstance(worker.program, TaggedNet) and worker.program.outer:
        assert isinstance(found.shared, RealDense)
        moved = torch.cat([found.shared.tensor, take_pending(worker)])
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
        position = 0
        for view in shared_views(worker.net, program):
            part = shared.tensor[position : position + view.numel()]
            view.copy_(part.view(view.shape))
            position += view.numel()
    worker.replica.optimizer.step(parameters, own)
    if everywhere and shared.tensor.numel() > everywhere:
        move_shared(worker, shared.tensor[everywhere:])


def net_whole(worker: Worker) -> RealDense:
    """The parameters that this host answers for, zero elsewhere [parameters]."""
    program, held = worker.program, worker.replica.parameters
    if isinstance(program, SubstitutedNet):
        return RealDense(held * answers_for(worker.net, program, worker.host))
    assert isinstance(program, TaggedNet)
    whole = torch.zeros(program.graph.elements, dtype=held.dtype)
    answered = net_towards(worker, RealDense(torch.zeros(1, dtype=held.dtype)), 1.0).tensor
    position = 0
    for start, stop in program.answered(worker.host):
        whole[start:stop] = answered[position : position + stop - start]
        position += stop - start
    return RealDense(whole)
