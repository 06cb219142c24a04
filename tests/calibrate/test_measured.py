"""What predictions take for measured is what calibration times."""

from __future__ import annotations

from recsim_train.calibration.grid import Setting
from recsim_train.calibration.kernel_probe import Bench
from recsim_train.workload.measured import MEASURED
from recsim_train.workload.operations import COSTS


def test_the_list_of_measured_operations_is_what_is_timed() -> None:
    bench = Bench(Setting(8, 2, (8,), (8,), (4,), 1 << 16))
    timed = {case.operation for case in [*bench.cases(4), *bench.dense_cases()]}
    assert timed == set(MEASURED)
    assert timed < set(COSTS)
