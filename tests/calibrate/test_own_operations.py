"""Micro-workloads of a plan's own operations: which there are, and that each is what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recsim_train.calibration.own import caches, steps
from recsim_train.calibration.own.rounds import OPERATIONS, Clock, PlanRounds
from recsim_train.config.experiment import (
    Data,
    Synthetic,
)
from recsim_train.data.generated import write_generated
from recsim_train.data.stream import open_stream
from recsim_train.executor.net import kernels, masks
from recsim_train.executor.operations import KERNELS
from recsim_train.executor.shards import services
from recsim_train.placement.build import build_plan
from recsim_train.placement.transport import positions_of, reading_of
from recsim_train.workload import operations
from recsim_train.workload.operations import OPS
from recsim_train.workload.scope import Scope
from recsim_train.workload.signature import signature
from tests.calibrate.own_plans import CASES, plan_of


def test_every_operation_has_a_micro_workload() -> None:
    assert set(OPS) == OPERATIONS
    assert set(KERNELS) == set(OPS)


def test_an_operation_without_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operations.OPS, "unheard_of", operations.OPS["apply"])
    with pytest.raises(AssertionError):
        test_every_operation_has_a_micro_workload()


# ---------------------------------------------------------------- the real kernels, counted


def numel(values: Any) -> set[int]:
    """Numbers of elements of all tensors among some values."""
    if isinstance(values, Tensor):
        return {values.numel()}
    if isinstance(values, list | tuple):
        return set().union(*map(numel, values)) if values else set()
    if hasattr(values, "tensor"):
        return {values.tensor.numel()}
    return set()


def _unique(places: Any) -> int:
    return int(np.unique(np.asarray(places)).size)


def _replica(args: Any, answer: Any) -> dict[str, float]:
    [elements] = {*numel(args), *numel(answer)} or {args[0].replica.parameters.numel()}
    return {"elements": elements}


def _largest(args: Any, answer: Any) -> dict[str, float]:
    return {"elements": max({*numel(args), *numel(answer)})}


def _large(args: Any, _: Any) -> dict[str, float]:
    cuts = sparse_layout(args[0])
    return {"elements": sum(b - a for a, b in cuts), "tables": len(cuts)}


def sparse_layout(worker: Any) -> Any:
    from recsim_train.workload.compression import layout

    return layout(worker.replica.model).large


def _sent(args: Any, answer: Any) -> dict[str, float]:
    kept = answer.values.numel() + answer.whole.numel()
    return {"elements": args[1].tensor.numel(), "kept": kept}


def _members(args: Any, answer: Any) -> dict[str, float]:
    parts = args[1]
    return {"elements": answer.tensor.numel(), "shards": len(getattr(parts, "tensors", (parts,)))}


def _forward(args: Any, answer: Any) -> dict[str, float]:
    ids = args[2].ids
    source = ids if ids.batch_ids is None else ids.batch_ids
    found = {"batch": args[1].size, "ids": source.values.numel()}
    return found if ids.inverse is None else {**found, "unique": ids.values.numel()}


def _cut(args: Any, answer: Any) -> dict[str, float]:
    tensors = answer.tensors if hasattr(answer, "tensors") else (answer.tensor,)
    return {"numbers": sum(t.numel() for t in tensors)}


COUNTED: dict[str, Callable[[Any, Any], dict[str, float]]] = {
    **dict.fromkeys(
        ("apply", "load", "snapshot", "subtract", "accumulate", "drain", "interpolate", "towards",
         "net_answered", "net_towards", "net_move", "block_step"), _replica,
    ),
    **dict.fromkeys(("dense_read", "dense_apply", "dense_elastic", "dense_elastic_new"), _largest),
    "narrow": _largest,
    "widen": _largest,
    **dict.fromkeys(("threshold", "threshold_difference"), _large),
    **dict.fromkeys(("sparsify", "sparsify_difference"), _sent),
    "densify": _members,
    "sparse_apply": lambda args, _: {"kept": args[1].numel()},
    "mask": lambda args, answer: {"elements": args[0].numel(), "kept": answer.values.numel()},
    "unmask": lambda args, answer: {"elements": answer.numel(), "kept": args[0].numel()},
    "pick": lambda args, answer: {"elements": args[1].numel(), "kept": answer.numel()},
    "unpick": lambda args, answer: {"elements": answer.numel(), "kept": args[0].numel()},
    "deduplicate": lambda args, _: {"ids": args[1].values.numel()},
    "route_ids": lambda args, _: {
        "ids" if args[0].inverse is None else "unique": args[0].values.numel()
    },
    "assemble_rows": lambda args, _: {"shards": len(args[1].of), "tables": len(args[1].slices)},
    "route_gradient": lambda args, _: {"shards": len(args[1].of), "tables": len(args[1].slices)},
    "lookup_pooled": lambda args, _: {"ids": args[1].values.size, "tables": len(args[1].counts)},
    "lookup_rows": lambda args, _: {"ids": args[1].values.size, "unique": args[1].values.size},
    "update_pooled": lambda args, _: {"ids": args[1].size, "unique": _unique(args[1])},
    "update_rows": lambda args, _: {"ids": args[1].size, "unique": _unique(args[1])},
    "forward_backward": _forward,
    "row_numbers": lambda args, answer: {"ids": answer.tensor.numel()},
    "virtual_ids": lambda args, answer: {
        "ids": sum(part.numel() for part in args[2].tensors), "unique": answer.values.numel(),
    },
    "probe": lambda args, answer: {
        "ids": args[1].values.numel(), "unique": answer.slots.slots.numel(),
    },
    "fill": lambda args, answer: {
        "ids": answer.tensor.shape[0], "unique": args[1].filled.numel(),
    },
    "cached_rows": lambda args, answer: {
        "ids": answer.tensor.shape[0], "unique": args[1].slots.numel(),
    },
    "update_cached": lambda args, _: {"unique": args[1].slots.numel()},
    "flush": lambda args, answer: {"unique": answer.tensor.shape[0]},
    "fetch_rows": lambda args, answer: {"unique": answer.shape[0]},
    "store_rows": lambda args, _: {"unique": args[2].shape[0]},
    "net_open": lambda args, _: {"numbers": args[2].tensor.numel()},
    "reading": lambda args, _: {"batches": len(args[3])},
    "net_forward": _cut,
    "net_backward": _cut,
    "net_apply": lambda args, _: {"elements": args[1].own.tensor.numel()},
    "net_whole": lambda args, _: {"elements": args[0].replica.parameters.numel()},
    # what arrives is what was sent, and the last segment hands over no numbers to count
    "net_receive": lambda args, _: {},
    "net_return": lambda args, _: {},
    "net_gradients": lambda args, _: {},
}  # fmt: skip
"""By operation: sizes, counted on what its kernel was called with and what it answered."""

NUMBERS = {"tags", "groups", "groups ma"}
"""Cases whose cuts carry exactly the numbers that are priced: partial results of a substituted net
hold more than what crosses."""


class Spies:
    """Every kernel, wrapped where micro-workloads and services find it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Any, Any]] = []
        from recsim_train.calibration.own import dense, rounds
        from recsim_train.executor import feed
        from recsim_train.executor.link import tensors
        from recsim_train.executor.net import net_kernels, sparse
        from recsim_train.executor.shards import cache, routing

        modules = [
            kernels, cache, tensors, net_kernels, routing, sparse, services,
            steps, caches, dense, masks, feed, rounds,
        ]  # fmt: skip
        kernels_by_name = {
            n: k for n, k in KERNELS.items() if n not in {"mask", "unmask", "pick", "unpick"}
        }
        for name, kernel in kernels_by_name.items():
            monkeypatch.setitem(KERNELS, name, self._wrap(name, kernel))
            for module in modules:
                for attribute, value in vars(module).copy().items():
                    if value is kernel:
                        monkeypatch.setattr(module, attribute, self._wrap(name, kernel))
        for name in ("mask", "unmask", "pick", "unpick"):
            real = getattr(masks.VectorMask, name)
            monkeypatch.setattr(masks.VectorMask, name, self._method(name, real))

    def _wrap(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*args: Any, **kwargs: Any) -> Any:
            answer = kernel(*args, **kwargs)
            self.calls.append((name, args, answer))
            return answer

        return spy

    def _method(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def spy(of: Any, *args: Any) -> Any:
            answer = real(of, *args)
            first = args[0].values if name == "unmask" else args[0]
            self.calls.append((name, (first, args[0]), answer))
            return answer

        return spy


INSTEAD = {"update_rows": {"update_pooled"}}
"""What a row of several loops' gradients gets is what bags of one id get."""


@pytest.mark.parametrize("case", CASES)
def test_micro_workloads_do_what_is_asked_with_the_real_kernels(
    case: str, asked: Callable[[str], list[tuple[str, Scope]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    plan, cells = plan_of(case), asked(case)
    spies = Spies(monkeypatch)
    own = plan.embedding is not None and plan.embedding.service.access == "own"
    done: set[tuple[object, ...]] = set()

    def timed(operation: str, call: Callable[[], Any], **sizes: Any) -> Any:
        spies.calls.clear()
        answer = call()
        experiment = plan.experiment
        scope = Scope(experiment.model, experiment.training, batch=plan.examples, **sizes)
        done.add((operation, *signature(operation, scope).fixed()))
        if own and operation in ("route_ids", "assemble_rows", "route_gradient"):
            return answer  # a loop whose shard is its own has next to nothing to do
        name, args, result = spies.calls[-1]
        assert name in INSTEAD.get(operation, {operation})
        for size, counted in COUNTED[name](args, result).items():
            if size != "numbers" or case in NUMBERS:
                said = scope.batch if size == "batch" else sizes[size]
                assert counted == said, (operation, size)
        return answer

    work = PlanRounds(plan, cells)
    for _ in range(3):
        work.once(timed)
    wanted = {(name, *signature(name, scope).fixed()) for name, scope in cells}
    assert wanted <= done


def test_all_operations_are_in_some_case(asked: Callable[[str], list[tuple[str, Scope]]]) -> None:
    found = {name for case in CASES for name, _ in asked(case)}
    assert found == set(OPS)


@pytest.mark.parametrize("readers", [0, 1])
def test_a_reader_makes_a_files_batches_as_often_as_in_a_run(tmp_path: Path, readers: int) -> None:
    plan = plan_of("flat_ps")
    path = tmp_path / "rows.parquet"
    write_generated(path, plan.experiment.model, Synthetic(rows=900, seed=3), 900)
    data = Data(path=(str(path),), eval_rows=0)
    roles = plan.experiment.roles.model_copy(update={"readers": readers})
    spec = plan.experiment.model_copy(update={"data": data, "roles": roles})
    plan = build_plan(spec, plan.strategy)
    reader = plan.of_role("reader")[0] if readers else None
    scope = reading_of(plan, reader)
    # a thread for each of two loops, or one process for both
    assert scope.batches == (1 if readers else 32)
    work = PlanRounds(plan, [("reading", scope)])
    made: list[Any] = []

    def timed(operation: str, call: Any, **sizes: Any) -> Any:
        assert operation == "reading"
        assert sizes == {n: getattr(scope, n) for n in ("ids", "batches", "texts", "source")}
        call()
        made.extend(call.args[3])

    for _ in range(33):
        work.once(timed)
    places = positions_of(plan, reader)
    assert len(made) == (33 if readers else 64)
    stream = open_stream(
        spec.model,
        data,
        batch_size=32,
        positions=places,
        total=2,
        iterations=len(made),
        seed=spec.seed,
    )
    for batch, fed in zip(made, stream, strict=False):
        assert np.array_equal(batch.ids.values.numpy(), fed.batch.ids)
    [figures] = work.window(0.0)
    assert figures["operation"] == "reading"
    assert figures["count"] >= 1
    assert figures["work"]["read_row"] == 32 * scope.batches


# ---------------------------------------------------------------- time


def test_a_clock_counts_work_and_seconds() -> None:
    plan = plan_of("flat_ps")
    clock = Clock(plan)
    clock("load", lambda: None, elements=10)
    assert not clock.tallies
    clock.counting = True

    def busy() -> int:
        return sum(range(50_000))

    for elements in (10, 10, 30):
        clock("load", busy, elements=elements)
    clock("lookup_pooled", busy, ids=10, tables=2)
    clock("lookup_pooled", busy, ids=30, tables=2)
    figures = [tally.figures() for tally in clock.tallies.values()]
    assert [f["count"] for f in figures] == [2, 1, 2]
    together = figures[2]["work"]
    halfway = operations.cost(
        "lookup_pooled",
        Scope(plan.experiment.model, plan.experiment.training, batch=32, ids=20, tables=2),
    )
    assert together == pytest.approx(dict(halfway))
    assert all(1e-5 < f["cpu"] <= 2 * f["wall"] for f in figures)
