"""The probe of kernels: those that unit prices are fitted to at every setting of the grid.

A prediction names the operations that it uses and that are not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsim_train.calibration.grid import Setting, training
from recsim_train.calibration.timing import time_in_turn
from recsim_train.config.experiment import Model, Training
from recsim_train.executor.link.tensors import as_bytes, narrow, widen
from recsim_train.executor.net import kernels, sparse
from recsim_train.executor.net.state import DenseState, EmbeddingState
from recsim_train.executor.shards.routing import (
    Routed,
    ShardSlices,
    assemble_rows,
    route_gradient,
    route_ids,
)
from recsim_train.executor.values import RealDense, RealFeatures, RealIds, RealParts, RealRows
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.plan import TableSlice
from recsim_train.strategy.values import Batch
from recsim_train.workload import shape
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.compression import layout
from recsim_train.workload.operations import OPS, cost
from recsim_train.workload.scope import Divided, Scope

_SEED = 5
_SHARDS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel at one setting."""

    operation: str
    label: str
    work: Work
    call: Callable[[], object]
    divided: Divided
    """Of it, what threads share."""


def _case(operation: str, label: str, what: Scope, call: Callable[[], object]) -> Case:
    return Case(operation, label, cost(operation, what), call, OPS[operation].divided(what))


def random_ids(setting: Setting, batch: int, generator: np.random.Generator) -> RealIds:
    """A batch of random ids, half of them from a popular hundredth of the rows."""
    rows, values, lengths, offsets = setting.rows, [], [], [0]
    for _ in range(setting.tables):
        count = batch * setting.ids
        length = None
        if setting.variable:
            bags = generator.integers(1, setting.ids + 1, batch, dtype=np.int32)
            length, count = torch.from_numpy(bags), int(bags.sum())
        drawn = generator.integers(0, rows, count)
        popular = generator.integers(0, max(1, rows // 100), count)
        drawn = np.where(generator.random(count) < 0.5, popular, drawn)
        values.append(torch.from_numpy(drawn))
        lengths.append(length)
        offsets.append(offsets[-1] + count)
    return RealIds(torch.cat(values), tuple(offsets), tuple(lengths), batch)


class KernelBench:
    """One setting's state; cases are made for each batch size."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.model: Model = setting.model()
        self.adagrad, self.sgd = training("adagrad"), training("sgd")
        self.slices = [TableSlice(t, 0, setting.rows) for t in range(setting.tables)]
        self.shards = [self.slices[i::_SHARDS] for i in range(_SHARDS)]
        self.parts = ShardSlices(self.model, self.shards, frozenset())
        self.whole = ShardSlices(self.model, [self.slices], frozenset())
        self.state = EmbeddingState(self.model, self.adagrad, _SEED, self.slices)
        # the same rows with the other optimizer: its state is not touched
        self.plain = EmbeddingState(self.model, self.sgd, _SEED, [])
        self.plain.slices, self.plain.rows = self.state.slices, self.state.rows
        self.plain.bases = self.state.bases
        self.worker = Worker(Replica(self.model, self.sgd, _SEED), "server")
        self.generator = np.random.default_rng(_SEED)

    def batch(self, size: int) -> Batch:
        """A random batch."""
        ids = random_ids(self.setting, size, self.generator)
        dense = torch.randn(size, self.model.dense_features)
        labels = (torch.rand(size) < 0.3).to(torch.float32)
        return Batch(size, ids, RealFeatures(dense, labels))

    def cases(self, size: int) -> Iterator[Case]:
        """Every operation whose cost depends on the batch."""
        model, batch = self.model, self.batch(size)
        ids, worker, state = batch.ids, self.worker, self.state
        assert isinstance(ids, RealIds)
        unique = kernels.deduplicate(worker, ids)
        count, distinct = ids.values.numel(), unique.values.numel()
        label = f"{model.name}, batch {size}"
        tables = self.setting.tables

        def case(
            operation: str,
            call: Callable[[], object],
            pooling: str = "server",
            rules: Training | None = None,
            **scope: int,
        ) -> Case:
            sizes: dict[str, Any] = {"ids": count, "unique": distinct, "tables": tables, **scope}
            what = Scope(
                model=model,
                training=rules or self.adagrad,
                pooling="worker" if pooling == "worker" else "server",
                batch=size,
                **sizes,
            )
            return _case(operation, f"{label}, {pooling}", what, call)

        pooled = RealRows(torch.randn(tables, size, self.setting.dim), ids)
        yield case("forward_backward", lambda: kernels.forward_backward(worker, batch, pooled))
        inside = Worker(worker.replica, "worker")
        rows = RealRows(torch.randn(distinct, self.setting.dim), unique)
        yield case(
            "forward_backward", lambda: kernels.forward_backward(inside, batch, rows), "worker"
        )
        yield case("deduplicate", lambda: kernels.deduplicate(worker, ids))

        [routed] = route_ids(ids, self.whole)
        yield case("lookup_pooled", lambda: kernels.lookup_pooled(state, routed))
        _, local, bags = kernels.lookup_pooled(state, routed)
        gradient = torch.randn(tables, size, self.setting.dim) * 1e-6
        yield case("update_pooled", lambda: kernels.update_pooled(state, local, bags, gradient))
        # other rows than those that the operations above have just fetched
        drawn = random_ids(self.setting, size, self.generator)
        [far] = route_ids(drawn, self.whole)
        _, there, where = kernels.lookup_pooled(state, far)
        yield case(
            "update_pooled",
            lambda: kernels.update_pooled(self.plain, there, where, gradient),
            rules=self.sgd,
            ids=there.size,
        )
        other = kernels.deduplicate(worker, random_ids(self.setting, size, self.generator))
        [alone] = route_ids(other, self.whole)
        asked = other.values.numel()
        yield case(
            "lookup_rows",
            lambda: kernels.lookup_rows(state, alone),
            "worker",
            ids=asked,
            unique=asked,
        )
        _, places = kernels.lookup_rows(state, alone)
        pushed = torch.randn(asked, self.setting.dim) * 1e-6
        yield case(
            "update_rows",
            lambda: kernels.update_rows(state, places, pushed),
            "worker",
            ids=asked,
            unique=asked,
        )
        yield from self._client(case, ids, unique)

    def _client(self, case: Callable[..., Case], ids: RealIds, unique: RealIds) -> Iterator[Case]:
        """The client's side with two shards."""
        for pooling, asked in (("server", ids), ("worker", unique)):
            total = asked.values.numel()
            routed = route_ids(asked, self.parts)
            answers = [
                self._answer(part, r, pooling) for part, r in zip(self.shards, routed, strict=True)
            ]
            whole = assemble_rows(asked, self.parts, routed, answers)

            def route(asked: RealIds = asked) -> object:
                return [as_bytes(*_sent(r)) for r in route_ids(asked, self.parts)]

            def assemble(
                asked: RealIds = asked,
                routed: list[Routed] = routed,
                answers: list[Tensor] = answers,
            ) -> object:
                return assemble_rows(asked, self.parts, routed, answers)

            def back(
                whole: RealRows = whole,
                routed: list[Routed] = routed,
                pooling: str = pooling,
            ) -> object:
                pieces = route_gradient(whole, self.parts, routed)
                if pooling == "server":
                    return [as_bytes(piece) for piece in pieces]
                return [
                    as_bytes(_sent(r)[0], piece) for r, piece in zip(routed, pieces, strict=True)
                ]

            yield case("route_ids", route, pooling, ids=total, shards=_SHARDS)
            yield case("assemble_rows", assemble, pooling, ids=total, shards=_SHARDS)
            yield case("route_gradient", back, pooling, ids=total, shards=_SHARDS)

    def _answer(self, part: Sequence[TableSlice], routed: Routed, pooling: str) -> Tensor:
        if pooling == "server":
            return torch.randn(len(part), routed.batch, self.setting.dim)
        return torch.randn(routed.values.size, self.setting.dim)

    def dense_cases(self) -> Iterator[Case]:
        """Every operation whose cost depends on the dense parameters only."""
        model = self.model
        elements = shape.dense_parameters(model)
        worker = self.worker
        other = Worker(Replica(model, self.adagrad, _SEED), "server")
        gradient = RealDense(torch.randn(elements) * 1e-6)
        central = DenseState(model, self.sgd, _SEED, 0, elements)
        # With weights as small as that gradient the passes' numbers would be denormal, each of
        # which takes some processors a hundred cycles.
        same = RealDense(worker.replica.parameters.clone())
        narrowed = narrow(gradient.tensor, torch.bfloat16)
        copied = torch.empty_like(gradient.tensor)
        pairs: list[tuple[str, Callable[[], object], Training]] = [
            ("apply", lambda: kernels.apply(worker, gradient), self.sgd),
            ("apply", lambda: kernels.apply(other, gradient), self.adagrad),
            ("load", lambda: kernels.load(worker, same), self.sgd),
            ("snapshot", lambda: kernels.snapshot(worker), self.sgd),
            ("subtract", lambda: kernels.subtract(worker, gradient), self.sgd),
            ("interpolate", lambda: kernels.interpolate(worker, gradient, 1e-6), self.sgd),
            ("block_step", lambda: kernels.block_step(worker, gradient, 1e-6, 0.5), self.sgd),
            ("accumulate", lambda: kernels.accumulate(worker, gradient), self.sgd),
            ("drain", lambda: kernels.drain(worker), self.sgd),
            ("dense_read", lambda: kernels.dense_read(central, copied), self.sgd),
            ("dense_apply", lambda: kernels.dense_apply(central, gradient.tensor), self.sgd),
            (
                "dense_elastic",
                lambda: kernels.dense_elastic(central, gradient.tensor, 0.5),
                self.sgd,
            ),
            ("narrow", lambda: narrow(gradient.tensor, torch.bfloat16), self.sgd),
            ("widen", lambda: widen(narrowed, torch.float32), self.sgd),
        ]
        label = f"{elements} dense parameters"
        for operation, call, rules in pairs:
            what = Scope(model=model, training=rules, elements=elements)
            yield _case(operation, f"{label}, {rules.dense_optimizer}", what, call)
        yield from self._compressed(label, gradient)

    def _compressed(self, label: str, gradient: RealDense) -> Iterator[Case]:
        """A compression of the dense parameters' gradient."""
        cut, share = layout(self.model), 0.01
        large = gradient.tensor.numel() - cut.small_elements

        def case(operation: str, call: Callable[[], object], **scope: float) -> Case:
            sizes: dict[str, Any] = {"elements": large, "tables": len(cut.large), **scope}
            return _case(operation, label, Scope(self.model, self.sgd, **sizes), call)

        # nothing is sent, so that the same values wait each time
        yield case("threshold", lambda: sparse.threshold(self.worker, gradient, share))
        # what was left is taken back, so that as many pass each time
        sender = Worker(self.worker.replica, "server")
        sparse.threshold(sender, gradient, share)
        given = cycle((gradient, RealDense(-gradient.tensor)))
        sent = sparse.sparsify(sender, next(given))
        entries = sent.values.numel()
        yield case("sparsify", lambda: sparse.sparsify(sender, next(given)), kept=entries)
        both = RealParts((sent.tensor,) * 2)
        members = {"kept": 2 * entries, "shards": 2}
        yield case("densify", lambda: sparse.densify(sender, both), **members)


def _sent(routed: Routed) -> list[Tensor]:
    """What travels of routed ids."""
    sent = [routed.values, routed.lengths] if routed.lengths.size else [routed.values]
    return [torch.from_numpy(part) for part in sent]


def measure(
    settings: Sequence[Setting], budget: float, tick: Callable[[], None]
) -> list[dict[str, object]]:
    """Observations as plain data: operation, label, work, cpu, wall, spread.

    ``budget``: seconds for each (setting, batch) pair; ``tick``: called after each.
    """
    observations: list[dict[str, object]] = []
    for setting in settings:
        bench = KernelBench(setting)
        dense = list(bench.dense_cases())
        for size in setting.batches:
            cases = [*bench.cases(size), *dense]
            times = time_in_turn([case.call for case in cases], budget)
            observations += [
                {
                    "operation": case.operation,
                    "label": case.label,
                    "work": dict(case.work),
                    "cpu": timed.cpu,
                    "wall": timed.wall,
                    "spread": timed.spread,
                }
                for case, timed in zip(cases, times, strict=True)
            ]
            tick()
    return observations


def measure_in_thread(
    settings: Sequence[Setting], budget: float, tick: Callable[[], None]
) -> list[dict[str, object]]:
    """`measure` in a thread: loops are threads, whose memory is managed differently."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(measure, settings, budget, tick).result()
