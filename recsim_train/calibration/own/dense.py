"""Micro-workloads of operations on dense parameters: each for every shape that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from recsim_train.calibration.own import caches, nets
from recsim_train.calibration.own.bench import Bench, Micro, Timed
from recsim_train.executor.link.tensors import HALF, narrow, widen
from recsim_train.executor.net import kernels, net_kernels, sparse
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.values import RealDense, RealParts
from recsim_train.executor.worker import DenseState, Replica, Worker
from recsim_train.placement.plan import Plan
from recsim_train.placement.program import TaggedNet
from recsim_train.strategy import values
from recsim_train.strategy.operations import OPERATIONS as DECLARED
from recsim_train.strategy.values import Batch
from recsim_train.workload.compression import layout
from recsim_train.workload.scope import Scope

Call = Callable[[Timed], None]
_ALPHA = 1e-6
"""How far a step goes: the same work as a whole step."""


_ARRIVED = frozenset({"load", "subtract", "interpolate"})
"""What steps with a vector that this thread has just received."""
_ANSWERED = frozenset({"load", "subtract"})
"""Of these, with one that a server has answered with: read where it has left it, if it may."""
_MET = frozenset({"apply", "block_step"})
"""What steps with a vector that gloo's thread has received, on a core of its own."""


def _timing(
    name: str, call: Callable[[], Any], arrived: Tensor | None = None, **sizes: Any
) -> Call:
    """Time ``call``; as it comes after ``arrived`` has been received: that is in the caches."""

    def timing(timed: Timed) -> None:
        if arrived is not None:
            arrived.add_(0)
        timed(name, call, **sizes)

    return timing


def _left(plan: Plan) -> bool:
    """Whether a loop reads what dense shards answer in memory that it shares with their servers."""
    shared, dense = plan.experiment.execution.shared_memory, plan.dense
    return shared and dense is not None and dense.shards[0].host.role == "dense_server"


class Vectors(Micro):
    """One call for each shape."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._elsewhere = _MET | (_ANSWERED if _left(bench.plan) else frozenset())
        """What steps with a vector that another core has written."""
        # also beside a cut net, at whose end the whole of it is loaded
        self._replica = Worker(Replica(bench.model, bench.training, bench.seed), bench.pooling)
        self.calls: list[tuple[str, Call]] = [
            (name, MAKE[name](self, name, scope)) for name, scope in bench.cells if name in MAKE
        ]

    def round(self, _: Batch, timed: Timed) -> None:
        for name, call in self.calls:
            if name in self._elsewhere:
                self.bench.elsewhere()
            call(timed)

    # ------------------------------------------------------------------ on a replica

    def _declared(self, name: str, scope: Scope) -> Call:
        """With a vector and small numbers for what the declaration takes."""
        worker = self._replica
        value = self.bench.dense(worker.replica.parameters.numel())
        if name == "drain":
            kernels.accumulate(worker, value)
        given = [value if kind is values.Dense else _ALPHA for kind in DECLARED[name].takes]
        call = partial(KERNELS[name], worker, *given)
        here = name in _ARRIVED and name not in self._elsewhere
        return _timing(name, call, value.tensor if here else None, elements=scope.elements)

    def _block_step(self, name: str, scope: Scope) -> Call:
        worker = Worker(self._replica.replica, self.bench.pooling)
        mean = self.bench.dense(scope.elements)
        worker.block = torch.zeros_like(mean.tensor), torch.zeros_like(mean.tensor)
        call = partial(kernels.block_step, worker, mean, _ALPHA, 0.5)
        return _timing(name, call, elements=scope.elements)

    def _outer(self, name: str, scope: Scope) -> Call:
        """On what one host of a group answers for to other groups."""
        net = self.bench.plan.net
        assert isinstance(net, TaggedNet)
        hosts = range(net.hosts)
        host = min(hosts, key=lambda h: abs(net.answered_elements(h) - scope.elements))
        worker, elements = self.bench.worker(host), net.answered_elements(host)
        value = self.bench.dense(elements)
        calls: dict[str, Callable[[], Any]] = {
            "net_answered": partial(net_kernels.net_answered, worker),
            "net_towards": partial(net_kernels.net_towards, worker, value, 0.5),
            "net_move": partial(net_kernels.net_move, worker, value),
        }
        arrived = value.tensor if name == "net_move" else None
        return _timing(name, calls[name], arrived, elements=elements)

    # ------------------------------------------------------------------ compression

    def _share(self) -> float:
        """Of the entries of large tensors, what the plan's compression keeps."""
        cut = layout(self.bench.model)
        large = sum(stop - start for start, stop in cut.large)
        kept = max(
            (s.kept for name, s in self.bench.cells if name.startswith("sparsify")), default=0.0
        )
        return min(1.0, max(1.0, kept - cut.small_elements + 0.5) / max(1, large))

    def _thresholds(self, name: str, scope: Scope) -> Call:
        worker = Worker(self._replica.replica, self.bench.pooling)
        value = self.bench.dense(worker.replica.parameters.numel())
        kernel = getattr(sparse, name)
        call = partial(kernel, worker, value, self._share())
        return _timing(name, call, elements=scope.elements, tables=scope.tables)

    def _sparsified(self, name: str) -> tuple[Worker, RealDense]:
        worker = Worker(self._replica.replica, self.bench.pooling)
        value = self.bench.dense(worker.replica.parameters.numel())
        find = sparse.threshold_difference if name.endswith("difference") else sparse.threshold
        find(worker, value, self._share())
        return worker, value

    def _sparsify(self, name: str, scope: Scope) -> Call:
        worker, value = self._sparsified(name)
        # what was left is taken back, so that as many pass each time
        given = cycle((value, RealDense(-value.tensor)) if name == "sparsify" else (value,))
        kernel = getattr(sparse, name)
        sent = kernel(worker, next(given))
        sizes = {"elements": scope.elements, "kept": sent.values.numel() + sent.whole.numel()}
        return lambda timed: timed(name, partial(kernel, worker, next(given)), **sizes)

    def _densify(self, name: str, scope: Scope) -> Call:
        worker, value = self._sparsified("sparsify_difference")
        sent = sparse.sparsify_difference(worker, value)
        parts = RealParts((sent.tensor,) * scope.shards)
        entries = sent.values.numel() + sent.whole.numel()
        sizes = {"elements": scope.elements, "kept": entries * scope.shards, "shards": scope.shards}
        call = partial(sparse.densify, worker, parts if scope.shards > 1 else sent)
        return _timing(name, call, sent.tensor, **sizes)

    # ------------------------------------------------------------------ a shard's

    def _central(self, name: str, scope: Scope) -> Call:
        bench, elements = self.bench, scope.elements
        state = DenseState(bench.model, bench.training, bench.seed, 0, elements)
        value = self.bench.dense(state.values.numel()).tensor
        into = torch.empty_like(value)
        calls: dict[str, Callable[[], Any]] = {
            "dense_read": partial(kernels.dense_read, state, into),
            "dense_apply": partial(kernels.dense_apply, state, value),
            "dense_elastic": partial(kernels.dense_elastic, state, value, _ALPHA),
            "dense_elastic_new": partial(kernels.dense_elastic_new, state, value, _ALPHA),
        }
        arrived = None if name == "dense_read" else value
        return _timing(name, calls[name], arrived, elements=elements)

    def _sparse_apply(self, name: str, scope: Scope) -> Call:
        plan, model = self.bench.plan, self.bench.model
        assert plan.dense is not None
        shard = min(plan.dense.shards, key=lambda s: abs(s.elements - scope.elements))
        worker, value = self._sparsified("sparsify_difference")
        sent = sparse.sparsify_difference(worker, value)
        part = sparse.cut_sparse(model, sent, shard.start, shard.stop)
        bench = self.bench
        state = DenseState(model, bench.training, bench.seed, shard.start, shard.stop)

        def call() -> None:
            """As `recsim_train.executor.shards.services.DenseServer.push_sparse`."""
            entries = sparse.all_entries(model, part, shard.start, shard.stop)
            sparse.sparse_apply(state, *entries)

        kept = part.whole.numel() + part.values.numel()
        return _timing(name, call, part.values, elements=shard.elements, kept=kept)

    # ------------------------------------------------------------------ rounding

    def _rounded(self, name: str, scope: Scope) -> Call:
        kind = HALF.get(self.bench.plan.experiment.execution.wire, torch.bfloat16)
        wide = self.bench.dense(scope.elements).tensor
        narrowed = narrow(wide, kind)
        calls: dict[str, Callable[[], Any]] = {
            "narrow": partial(narrow, wide, kind),
            "widen": partial(widen, narrowed, self.bench.dtype),
        }
        arrived = narrowed if name == "widen" else None
        return _timing(name, calls[name], arrived, elements=scope.elements)


_PLAIN = [
    name
    for name, declared in DECLARED.items()
    if all(kind in (values.Dense, (int, float)) for kind in declared.takes)
    and name not in caches.OPERATIONS | nets.OPERATIONS
]
"""Operations that take vectors and numbers: what they need follows from their declarations."""
MAKE: dict[str, Callable[[Vectors, str, Scope], Call]] = {
    **dict.fromkeys(_PLAIN, Vectors._declared),
    "block_step": Vectors._block_step,
    **dict.fromkeys(("net_answered", "net_towards", "net_move"), Vectors._outer),
    **dict.fromkeys(("threshold", "threshold_difference"), Vectors._thresholds),
    **dict.fromkeys(("sparsify", "sparsify_difference"), Vectors._sparsify),
    "densify": Vectors._densify,
    **dict.fromkeys(
        ("dense_read", "dense_apply", "dense_elastic", "dense_elastic_new"), Vectors._central
    ),
    "sparse_apply": Vectors._sparse_apply,
    **dict.fromkeys(("narrow", "widen"), Vectors._rounded),
}  # fmt: skip
"""By operation: what makes its call."""
OPERATIONS = frozenset(MAKE)
