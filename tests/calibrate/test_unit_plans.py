"""What predictions take for measured is what calibration times."""

from __future__ import annotations

import torch

from recsim_train.calibration.grid import Setting
from recsim_train.calibration.kernel_probe import KernelBench
from recsim_train.executor.values import RealDense
from recsim_train.strategy.values import Gradients
from recsim_train.workload.operations import OPS


def test_the_list_of_measured_operations_is_what_is_timed() -> None:
    bench = KernelBench(Setting(8, 2, (8,), (8,), (4,), 1 << 16))
    timed = {case.operation for case in [*bench.cases(4), *bench.dense_cases()]}
    assert timed == {name for name, op in OPS.items() if op.fit} - {"reading"}


def test_kernels_work_on_numbers_as_large_as_a_runs_however_often_they_are_called() -> None:
    """Denormal numbers take some processors a hundred cycles each: passes took thirty times as
    long after weights had been overwritten with a gradient's."""
    bench = KernelBench(Setting(8, 3, (16, 16), (16, 16), (64,), 1 << 16))
    cases = [*bench.cases(64), *bench.dense_cases()]
    for _ in range(40):
        for case in cases:
            if case.operation != "forward_backward":
                case.call()
    for case in cases:
        if case.operation == "forward_backward" and case.label.endswith("server"):
            found = case.call()
            assert isinstance(found, Gradients)
            assert isinstance(found.dense, RealDense)
            numbers = found.dense.tensor.abs()
            tiny = torch.finfo(torch.float32).tiny
            assert ((numbers > 0.0) & (numbers < 1e6 * tiny)).sum() == 0
            assert numbers.median() > 1e-6
