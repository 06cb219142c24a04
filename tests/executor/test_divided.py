"""Operators that threads share: their number against the real kernels, their grains against torch.

`recsim_train.workload.divided` counts them from shapes; here every operator that torch runs is
looked at, and whether its pool really wakes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from recsim_train.calibration.grid import MEBI, Setting
from recsim_train.calibration.kernel_probe import Bench
from recsim_train.config.experiment import Model
from recsim_train.executor import pools
from recsim_train.workload.divided import CREW, GRAIN, PRODUCT

VIEWS = {
    "view", "t", "transpose", "expand", "slice", "detach", "alias", "_unsafe_view", "unsqueeze",
    "squeeze", "select", "as_strided", "split", "permute", "empty", "empty_like", "new_empty",
    "new_empty_strided", "empty_strided", "unbind", "split_with_sizes", "_reshape_alias",
    "lift_fresh", "set_", "resize_", "narrow",
}  # fmt: skip
"""Operators that move nothing."""


class Counter(TorchDispatchMode):
    """How many operators are large enough to be divided."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in VIEWS:
            return out
        if name in ("mm", "addmm"):
            left, right = args[-2:]
            if left.shape[0] * left.shape[1] * right.shape[1] > PRODUCT:
                self.found.append(name)
            if name == "addmm" and out.numel() > GRAIN:
                self.found.append("bias")
            return out
        if name == "cat":
            if out.numel() > GRAIN:
                self.found += ["cat" for part in args[0] if part.numel() > GRAIN]
            return out
        if name == "_embedding_bag" or name == "_embedding_bag_forward_only":
            self.found.append(name)
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


class Kind(Setting):
    """A setting whose model is of another kind."""

    kind: str

    def model(self) -> Model:
        plain = super().model()
        if self.kind == "dlrm":
            return plain
        fields = {"kind": self.kind, "bottom_mlp": (), "cross_layers": 2}
        return Model(**plain.model_dump(exclude=set(fields)) | fields)


def of_kind(setting: Setting, kind: str) -> Setting:
    made = Kind(
        setting.dim, setting.tables, setting.bottom, setting.top, setting.batches,
        setting.shard_bytes, setting.ids, setting.variable,
    )  # fmt: skip
    object.__setattr__(made, "kind", kind)
    return made


CREWED = {"dlrm": 2}
"""Interactions of a pass, which are our own."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["dlrm", "wide_deep", "deepfm", "dcn"])
def test_counts_are_those_of_the_real_kernels(kind: str, shape: str) -> None:
    setting = of_kind(SHAPES[shape], kind)
    bench = Bench(setting)
    cases = [(size, case) for size in setting.batches for case in bench.cases(size)]
    for size, case in [*cases, *((0, case) for case in bench.dense_cases())]:
        case.call()
        with Counter() as counter:
            case.call()
        found = len(counter.found)
        if case.operation == "forward_backward" and size >= 2 * CREW:
            found += CREWED.get(kind, 0)
        what = f"{case.operation} {case.label}: {counter.found}"
        if case.operation == "forward_backward":
            assert case.divided.wakes == pytest.approx(found, abs=max(1, 0.1 * found)), what
        else:
            assert case.divided.wakes == found, what


def test_the_crews_grain_is_the_pools() -> None:
    assert CREW == pools._LEAST
    assert pools._GRAIN == GRAIN


def woken(call: Callable[[], object], pool: tuple[int, ...]) -> bool:
    """Whether a thread of the pool runs because of a call."""

    def ran() -> list[str]:
        found = []
        for thread in pool:
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii")
            found.append(text.split()[2])
        return found

    call()
    time.sleep(0.05)  # until it sleeps again
    before = ran()
    call()
    time.sleep(0.05)
    return ran() != before


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")
def test_torch_divides_from_its_grain_on() -> None:
    bias, side = torch.randn(32), torch.randn(33, 32)

    def look() -> dict[str, tuple[bool, bool]]:
        pool = pools.make_pool(2)
        small, large = torch.randn(GRAIN - 32), torch.randn(GRAIN + 32)
        rows, few, many = torch.randn(8, 32), torch.randn(16, 33), torch.randn(256, 33)
        calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "element-wise": (lambda: small.add_(1.0), lambda: large.add_(1.0)),
            "copies": (small.clone, large.clone),
            "sums": (small.sum, large.sum),
            "products": (
                lambda: torch.addmm(bias, few, side), lambda: torch.addmm(bias, many, side)
            ),
            "rows": (lambda: rows.index_select(0, torch.arange(8)),
                     lambda: torch.randn(8, GRAIN).index_select(0, torch.arange(8))),
        }  # fmt: skip
        return {name: (woken(a, pool), woken(b, pool)) for name, (a, b) in calls.items()}

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(look).result()
    torch.set_num_threads(1)
    assert found == dict.fromkeys(found, (False, True))
