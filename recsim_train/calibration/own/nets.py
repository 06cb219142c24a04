"""Micro-workloads of a net that is cut: all hosts of a group take turns in one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from recsim_train.calibration.own.bench import Bench, Micro, Timed, ids_of
from recsim_train.executor.net import net_kernels
from recsim_train.executor.net.model import Pass
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.values import RealBlock, RealDense, RealParts, RealRows
from recsim_train.placement.program import SubstitutedNet, segment_of
from recsim_train.strategy.net import Crossing
from recsim_train.strategy.values import Batch, NetGradients

OPERATIONS = frozenset(
    {
        "net_open", "net_forward", "net_receive", "net_backward", "net_return", "net_gradients",
        "net_apply", "net_whole",
    }
)  # fmt: skip

Value = RealParts | RealBlock


class Nets(Micro):
    """One group's hosts. What crosses a cut is what the others really have for each."""

    def __init__(self, bench: Bench) -> None:
        assert bench.plan.net is not None
        self.bench, self.program = bench, bench.plan.net
        self.hosts = range(self.program.hosts)
        self.workers = [bench.worker(host) for host in self.hosts]
        self._bytes = torch.empty(0, dtype=bench.dtype).element_size()

    def round(self, batch: Batch, timed: Timed) -> None:
        net, tapes = self.program.net, [self._open(host, batch, timed) for host in self.hosts]
        for cut in net.cuts:
            self._cross(tapes, cut.index, cut.forward, timed, "net_forward", "net_receive")
        for cut in reversed(net.cuts):
            self._cross(tapes, cut.index, cut.backward, timed, "net_backward", "net_return")
        found: list[NetGradients] = [
            self._timed(
                timed, "net_gradients", h, 0, net_kernels.net_gradients, self.workers[h], tapes[h]
            )
            for h in self.hosts
        ]
        shared = [gradients.shared for gradients in found]
        if net.shares:
            total = torch.stack([_dense(value) for value in shared]).sum(0)
            shared = [RealDense(total.clone()) for _ in self.hosts]
        for worker, gradients, everyones in zip(self.workers, found, shared, strict=True):
            elements = worker.replica.parameters.numel()
            assert isinstance(everyones, RealDense)
            step = partial(net_kernels.net_apply, worker, gradients, everyones)
            timed("net_apply", step, elements=elements)
            if self.bench.asks({"net_whole"}):
                timed("net_whole", partial(net_kernels.net_whole, worker), elements=elements)

    def _open(self, host: int, batch: Batch, timed: Timed) -> Pass:
        rows = RealRows(self._vectors(host, batch), ids_of(batch))
        opened: Pass = self._timed(
            timed, "net_open", host, 0, net_kernels.net_open, self.workers[host], batch, rows
        )
        return opened

    def _vectors(self, host: int, batch: Batch) -> Tensor:
        """What a host's lookup answers."""
        bench, tables = self.bench, len(self.bench.model.tables)
        width = bench.model.row_width
        if isinstance(self.program, SubstitutedNet):
            assert bench.plan.embedding is not None
            slices = bench.plan.embedding.shards[host].slices
            tables, width = len(slices), slices[0].width(width)
        return bench.numbers(tables, batch.size, width, size=0.1)

    def _cross(
        self,
        tapes: Sequence[Pass],
        cut: int,
        how: Crossing,
        timed: Timed,
        leave: str,
        arrive: str,
    ) -> None:
        leaves, arrives = KERNELS[leave], KERNELS[arrive]
        values = [
            self._timed(timed, leave, h, cut, leaves, self.workers[h], tapes[h], cut)
            for h in self.hosts
        ]
        for h, value in enumerate(_crossed(how, values)):
            self._timed(timed, arrive, h, cut, arrives, self.workers[h], tapes[h], cut, value)

    def _timed(
        self,
        timed: Timed,
        name: str,
        host: int,
        cut: int,
        kernel: Callable[..., Any],
        *arguments: object,
    ) -> Any:
        batch = self.bench.plan.experiment.training.batch_size
        segment = segment_of(self.program, host, name, cut, batch, self._bytes)
        sizes = {"pieces": segment.pieces, "numbers": segment.numbers}
        return timed(name, partial(kernel, *arguments), **sizes)


def _dense(value: object) -> Tensor:
    assert isinstance(value, RealDense)
    return value.tensor


def _crossed(how: Crossing, values: Sequence[Value]) -> list[Value]:
    """By host, what collectives make of what each host has at a cut."""
    if how == "sum":
        tensors = [value.tensor for value in values if isinstance(value, RealBlock)]
        total = torch.stack(tensors).sum(0)
        return [RealBlock(total.clone()) for _ in values]
    if how == "gather":
        parts = tuple(value.tensor for value in values if isinstance(value, RealBlock))
        return [RealParts(tuple(part.clone() for part in parts)) for _ in values]
    if how in ("move", "scatter"):
        sent = [value.tensors for value in values if isinstance(value, RealParts)]
        return [
            RealParts(tuple(parts[h].reshape(-1).clone() for parts in sent))
            for h in range(len(values))
        ]
    return list(values)
