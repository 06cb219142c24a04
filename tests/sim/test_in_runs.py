"""What passes and batches take longer in runs than in a row."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot

import pytest

from recsim_train.config.cluster import Cluster, InRuns
from recsim_train.config.measured import MeasuredOperation
from recsim_train.placement.plan import Plan
from recsim_train.sim.asked import operations_of
from recsim_train.sim.pricing import Load, Pricing
from recsim_train.workload.operations import cost
from recsim_train.workload.signature import signature

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
PricingOf = Callable[[Plan, Cluster], Pricing]

LAW = InRuns.model_construct(alone=1.2, busy=1.1, crowded=1.5, uncertainty=0.04)
LOADS = (
    (Load(0.0, 0.0), 1.2),
    (Load(0.5, 0.0), 1.15),
    (Load(1.0, 0.0), 1.1),
    (Load(1.0, 0.25), 1.2),
    (Load(1.0, 1.0), 1.5),
)
"""And how many times as long passes take there."""
LONGER = {"forward_backward", "reading"}


@pytest.mark.parametrize(("load", "times"), LOADS)
@pytest.mark.parametrize("measured", [False, True])
def test_passes_take_longer_by_the_load(
    plans: Plans, clusters: Clusters, load: Load, times: float, *, measured: bool
) -> None:
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
        Pricing(plan.experiment, cluster, plan.examples, load=load) for cluster in (plain, told)
    )
    for name, scope in asked:
        once, held, _ = without.shaped(name, scope)
        seconds, still, [(_, booked, *_)] = with_law.shaped(name, scope)
        slower = name == "forward_backward" or (measured and name == "reading")
        assert seconds == pytest.approx((times if slower else 1.0) * once)
        assert still == pytest.approx((times if slower else 1.0) * held)
        assert booked == seconds
        if measured:
            known = hypot(0.03, 0.04) if slower else 0.03
            assert with_law.error_of(name) == pytest.approx(known)
            assert without.error_of(name) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("trainers", "threads", "cores", "colocate", "times"),
    [
        (1, 1, 2, True, 1.2),
        (2, 1, 2, True, 1.1),
        (3, 1, 2, True, 1.3),
        (4, 1, 2, True, 1.5),
        (3, 2, 2, True, 1.5),
        (4, 1, 2, False, 1.2),
        (4, 3, 2, False, 1.3),
    ],
)
def test_the_load_is_that_of_a_trainers_machine(
    plans: Plans,
    clusters: Clusters,
    pricing_of: PricingOf,
    trainers: int,
    threads: int,
    cores: int,
    colocate: bool,
    times: float,
) -> None:
    roles = {"trainers": trainers, "embedding_servers": 1, "dense_servers": 1}
    plan = plans(roles=roles, training={"threads": threads})
    plain = clusters(cores=cores, colocate=colocate)
    took = []
    for law in (None, LAW):
        cluster = plain.model_copy(update={"in_runs": law})
        scopes = dict(operations_of(plan, plain))
        pricing = pricing_of(plan, cluster)
        took.append(pricing.shaped("forward_backward", scopes["forward_backward"])[0])
    assert took[1] == pytest.approx(times * took[0])
