"""Bounds where trainers do not wait for each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from recsim_train.evaluate.asymptotic import asymptotic_bounds
from recsim_train.sim.why.bounds import _most
from tests.sim.test_asymptotic import job
from tests.simulated import simulate

HOSTS = [
    "cluster.colocate=false", "roles.trainers=4", "training.threads=4", "training.batch_size=64",
    "training.steps=60", "cluster.network.latency=30 us", "cluster.network.queue_length=20 ms",
    "cluster.network.connection_cap=null", "cluster.hosts.default.cores=8",
    "cluster.hosts.default.nic=10 Gbit/s",
]  # fmt: skip
RACKS = "cluster.topology={racks: 2, oversubscription: 8, arrange: spread}"
SLOW = "cluster.mixed={trainer: [{count: 2}, {speed: 0.5}]}"
SMALL = "cluster.mixed={trainer: [{count: 1}, {cores: 1}]}"


@pytest.mark.parametrize(
    "sets",
    [[RACKS], [SLOW], [SMALL, "cluster.per_host={trainer: 2}"]],
    ids=["racks", "slow", "two on each host"],
)
@pytest.mark.parametrize("strategy", ["flat_ps", "{kind: hierarchical, hosts: 1, outer: easgd}"])
def test_free_trainers_do_more_than_those_that_something_holds_back(
    strategy: str, sets: list[str]
) -> None:
    """Where all would do as much the prediction was up to 2.2 times its bound."""
    asked = job(f"strategy={strategy}", *HOSTS, *sets)
    assert asked.plan.apart > 1
    found = asymptotic_bounds(asked.case).bound
    speed = simulate(asked.plan, asked.profile).speed
    assert found is not None
    assert speed is not None
    assert speed.examples_per_second is not None
    assert 0.5 * found < speed.examples_per_second < 1.03 * found


def test_what_waits_for_the_slowest_is_bounded_by_it() -> None:
    fast, slow = (job("strategy=allreduce", *HOSTS, *sets) for sets in ([], [SLOW]))
    assert fast.plan.apart == 1
    bounds = [asymptotic_bounds(asked.case).bounds["trainer: cores"] for asked in (fast, slow)]
    assert bounds[1] == pytest.approx(0.5 * bounds[0], rel=0.02)


@given(st.lists(st.tuples(st.floats(0.001, 10.0), st.floats(0.01, 100.0)), min_size=1, max_size=6))
def test_a_link_is_shared_out_as_well_as_can_be(sets: list[tuple[float, float]]) -> None:
    """As a linear programme finds it, where the link holds them back."""
    needs = {n: need for n, (need, _) in enumerate(sets)}
    paces = {n: pace for n, (_, pace) in enumerate(sets)}
    found = linprog(
        -np.ones(len(sets)),
        A_ub=[list(needs.values())],
        b_ub=[1.0],
        bounds=[(0.0, pace) for pace in paces.values()],
    )
    everything = sum(paces.values())
    wanted = sum(needs[n] * paces[n] for n in needs)
    most = _most(needs, paces)
    if wanted >= 1.0:
        assert most == pytest.approx(-found.fun, rel=1e-6)
    else:
        assert most == pytest.approx(everything / wanted, rel=1e-6)
