"""What passes and batches take longer in runs than in a row."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot

import pytest

from recsim_train.config.cluster import Cluster, InRuns
from recsim_train.config.measured import MeasuredOperation
from recsim_train.placement.plan import Plan
from recsim_train.sim.pricing import Pricing
from recsim_train.workload.operations import cost
from recsim_train.workload.signature import signature
from tests.simulated import operations_of

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
LAW = InRuns.model_construct(times=1.2, uncertainty=0.04)
LONGER = {"forward_backward", "reading"}


@pytest.mark.parametrize("measured", [False, True])
def test_passes_take_longer(plans: Plans, clusters: Clusters, *, measured: bool) -> None:
    """A batch that is read by its own measured shape, too: its unit prices come from runs. All
    other operations take what they take."""
    plan, plain = plans(), clusters()
    asked = operations_of(plan, plain)
    assert {name for name, _ in asked} > LONGER
    if measured:
        entries = tuple(
            MeasuredOperation.model_construct(
                operation=name, shape=str(signature(name, scope)), seconds=2e-3, alone=2e-3,
                uncertainty=0.03, work=cost(name, scope),
            )
            for name, scope in asked
        )  # fmt: skip
        plain = plain.model_copy(update={"operations": entries})
    told = plain.model_copy(update={"in_runs": LAW})
    without, with_law = (
        Pricing(plan.experiment, cluster, plan.examples) for cluster in (plain, told)
    )
    for name, scope in asked:
        once, held, _ = without.shaped(name, scope)
        seconds, still, [(_, booked, *_)] = with_law.shaped(name, scope)
        slower = name == "forward_backward" or (measured and name == "reading")
        assert seconds == pytest.approx((1.2 if slower else 1.0) * once)
        assert still == pytest.approx((1.2 if slower else 1.0) * held)
        assert booked == seconds
        if measured:
            known = hypot(0.03, 0.04) if slower else 0.03
            assert with_law.error_of(name) == pytest.approx(known)
            assert without.error_of(name) == pytest.approx(0.03)
