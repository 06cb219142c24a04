"""Operators that threads share: their number against the real kernels, their grains against torch.

`recsim_train.workload.threads` counts them from shapes; here every operator that torch runs is
looked at, and whether its pool really wakes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from recsim_train.calibration.grid import MEBI, Setting, training
from recsim_train.calibration.own.rounds import PlanRounds
from recsim_train.calibration.own.unit import step_plan
from recsim_train.config.experiment import Model, Table, Training
from recsim_train.executor import pools
from recsim_train.executor.net import kernels
from recsim_train.executor.values import RealFeatures, RealIds, RealRows
from recsim_train.executor.worker import Replica, Worker
from recsim_train.placement.plan import Plan
from recsim_train.strategy.values import Batch
from recsim_train.workload.operations import OPS
from recsim_train.workload.scope import Scope
from recsim_train.workload.threads import CREW, GRAIN
from tests.clock import until

VIEWS = {
    "view", "t", "transpose", "expand", "slice", "detach", "alias", "_unsafe_view", "unsqueeze",
    "squeeze", "select", "as_strided", "split", "permute", "empty", "empty_like", "new_empty",
    "new_empty_strided", "empty_strided", "unbind", "split_with_sizes", "_reshape_alias",
    "lift_fresh", "set_", "resize_", "narrow",
}  # fmt: skip
"""Operators that move nothing."""
ALONE = {"mv", "topk"}
"""Of a vector: on the calling thread."""


class Counter(TorchDispatchMode):
    """How many operators are large enough to be divided."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in VIEWS | ALONE:
            return out
        if name in ("mm", "addmm"):
            left, right = args[-2:]
            if min(*left.shape, *right.shape) > 1:
                self.found += [name] * (2 if name == "mm" else 1)
            if name == "addmm" and out.numel() > GRAIN:
                self.found.append("bias")
            return out
        if name in ("_embedding_bag", "_embedding_bag_forward_only") or "entropy" in name:
            self.found.append(name)
            return out
        if name == "index_select" and args[1] == 0:
            slices, size = args[2].numel(), args[0][0].numel()
            if slices * size > GRAIN:
                self.found += [name] * (slices if size > GRAIN else 1)
            return out
        if name == "index_copy_" and args[2].numel() <= GRAIN:
            return out
        if name == "sum" and args[0].numel() >= GRAIN:
            self.found.append(name)
            return out
        if name == "slice_backward" and out.numel() > GRAIN:
            self.found.append("zeros")
        if name == "cat":
            if out.numel() > GRAIN:
                self.found += ["cat" for part in args[0] if part.numel() > GRAIN]
            return out
        tensors = [x for x in (*args, out) if isinstance(x, torch.Tensor)]
        if max((x.numel() for x in tensors), default=0) > GRAIN:
            self.found.append(name)
        return out


SHAPES = {
    "wide": Setting(48, 20, (256, 128), (512, 128), (64, 1024), 8 * MEBI),
    "small": Setting(16, 12, (64,), (64,), (96, 2048), 8 * MEBI),
    "bags": Setting(32, 10, (128, 64), (128, 64), (256,), 8 * MEBI, ids=4),
}
RULES = training(), training("sgd", "adagrad")


@pytest.mark.parametrize("pooling", ["server", "worker"])
@pytest.mark.parametrize("name", SHAPES)
def test_counts_are_those_of_the_real_kernels(name: str, pooling: str) -> None:
    setting, rules = SHAPES[name], RULES[pooling == "worker"]
    for size in setting.batches:
        plan, cells, _ = step_plan(setting, size, pooling, rules, shards=2)

        def counted(
            operation: str, call: Callable[[], Any], plan: Plan = plan, size: int = size, **of: Any
        ) -> Any:
            call()  # some make what they keep
            with Counter() as counter:
                answer = call()
            found = len(counter.found)
            if operation == "forward_backward" and size >= 2 * CREW:
                found += 2  # interactions, which are our own
            scope = Scope(plan.experiment.model, rules, batch=size, **of)
            assert OPS[operation].divided(scope).wakes == found, (operation, counter.found)
            return answer

        PlanRounds(plan, cells).once(counted)


@pytest.mark.parametrize("kind", ["wide_deep", "deepfm", "dcn"])
@pytest.mark.parametrize("batch", [64, 1024])
def test_counts_of_other_nets(kind: str, batch: int) -> None:
    model = Model(
        kind=kind,
        embedding_dim=16,
        top_mlp=(64, 40, 1),
        tables=(Table(rows=9),) * 12,  # type: ignore[arg-type]
    )
    worker = Worker(Replica(model, Training(), 1), "server")
    offsets = tuple(range(0, 12 * batch + 1, batch))
    ids = RealIds(torch.zeros(12 * batch, dtype=torch.int64), offsets, (None,) * 12, batch)
    features = RealFeatures(torch.randn(batch, model.dense_features), torch.zeros(batch))
    rows = RealRows(torch.randn(12, batch, model.row_width), ids)
    with Counter() as counter:
        kernels.forward_backward(worker, Batch(batch, ids, features, 0), rows)
    found = len(counter.found)
    scope = Scope(model, Training(), batch=batch, tables=12, ids=12 * batch)
    counted = OPS["forward_backward"].divided(scope).wakes
    assert counted == pytest.approx(found, abs=1), counter.found


def test_a_crew_begins_where_the_count_has_it() -> None:
    """Twice as many examples as one thread is woken for."""
    parts: list[tuple[int, int]] = []

    def with_crew() -> None:
        pools.make_pool(2)
        for examples in (2 * CREW - 1, 2 * CREW):
            pools.side_by_side(lambda *part: parts.append(part), examples)

    thread = threading.Thread(target=with_crew)
    thread.start()
    thread.join(60)
    torch.set_num_threads(1)
    assert sorted(parts) == [(0, CREW), (0, 2 * CREW - 1), (CREW, 2 * CREW)]
    # one place: pools has no numbers of its own
    assert (pools.CREW, pools.GRAIN) == (CREW, GRAIN)


def woken(call: Callable[[], object], pool: tuple[int, ...]) -> bool:
    """Whether a thread of the pool runs because of a call."""

    def of(thread: int, file: str) -> str:
        return Path(f"/proc/self/task/{thread}/{file}").read_text(encoding="ascii")

    def turns() -> list[str]:
        return [of(thread, "schedstat").split()[2] for thread in pool]

    def asleep() -> bool:
        """All of it, and none has had a turn of a core meanwhile."""
        before = turns()
        time.sleep(0.02)
        states = [of(thread, "stat").rpartition(") ")[2][0] for thread in pool]
        return set(states) == {"S"} and turns() == before

    call()
    until(asleep)
    before = turns()
    call()
    until(asleep)
    return turns() != before


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")
def test_torch_divides_from_its_grain_on() -> None:
    bias, side, one = torch.randn(32), torch.randn(33, 32), torch.randn(1)

    def look() -> dict[str, tuple[bool, bool]]:
        pool = pools.make_pool(2)
        small, large = torch.randn(GRAIN - 32), torch.randn(GRAIN + 32)
        rows, table, left = torch.randn(8, 32), torch.randn(8, GRAIN // 2), torch.randn(512, 33)
        eight = torch.arange(8)
        calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "element-wise": (lambda: small.add_(1.0), lambda: large.add_(1.0)),
            "copies": (small.clone, large.clone),
            "sums": (small.sum, large.sum),
            "products": (
                # with a vector, and of 540,000 multiplications: on some processors MKL divides
                # none of less than 200,000, on others all but those with a vector
                lambda: torch.addmm(one, left[:16], side[:, :1]),
                lambda: torch.addmm(bias, left, side),
            ),
            "rows": (
                lambda: rows.index_select(0, eight), lambda: table.index_select(0, eight)
            ),
        }  # fmt: skip
        return {name: (woken(a, pool), woken(b, pool)) for name, (a, b) in calls.items()}

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(look).result()
    torch.set_num_threads(1)
    assert found == dict.fromkeys(found, (False, True))
