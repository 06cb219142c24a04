"""What DCT costs and saves in the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Model, Table, Training
from recsim_train.config.profiles import load_cluster
from recsim_train.placement.plan import Plan
from recsim_train.sim.host.memory import memory_of_all
from recsim_train.trace.facts import Resting
from recsim_train.trace.record import Outcome
from recsim_train.workload.compression import layout
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import dense_parameters
from tests.simulated import simulate

PROFILE = Path(__file__).parents[2] / "tests" / "frozen-2core.yaml"
WIDE = {"bottom_mlp": (256, 8), "top_mlp": (256, 1)}
Run = Callable[[Plan, Cluster], Outcome]
Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]


def test_reusing_a_threshold_is_several_times_cheaper_than_finding_it() -> None:
    model = Model(embedding_dim=8, bottom_mlp=(1024, 8), top_mlp=(1024, 1), tables=(Table(rows=9),))
    prices = load_cluster(str(PROFILE), None).costs
    plain = {name: getattr(prices, name).value for name in type(prices).model_fields}
    scope = Scope(model=model, training=Training(), elements=1_000_000, kept=10_000, tables=4)
    find, reuse = (seconds(cost(name, scope), plain)[0] for name in ("threshold", "sparsify"))
    assert find > 3 * reuse


def sent(outcome: Outcome, effect: str) -> float:
    totals = [t for key, t in outcome.totals.items() if key.effect == effect]
    return sum(t.bytes for t in totals) / sum(t.count for t in totals)


def test_bytes_follow_the_formulas(
    plans: Callable[..., Plan], clusters: Callable[..., Cluster], outcome_of: Run
) -> None:
    roles = {"trainers": 4, "embedding_servers": 2, "dense_servers": 2}
    part = {"kind": "dct", "mode": "both", "density": "2 %", "mp_density": "25 %"}
    plan = plans("flat_ps", {"compression": part}, roles=roles, model=WIDE)
    outcome = outcome_of(plan, clusters())
    found, batch = layout(plan.experiment.model), 64
    push = 4 * found.small_elements + 8 * found.kept(0.02)
    assert sent(outcome, "push") == push
    # 2 of 8 values of each of 3 tables; a place among 8 takes one byte
    assert sent(outcome, "serve_lookup") == batch * 6 * (4 + 1)
    assert sent(outcome, "update") == 2 * batch * 6 * 4
    gathered = outcome_of(
        plans("allreduce", {"compression": part}, roles=roles, model=WIDE), clusters()
    )
    assert sent(gathered, "all_gather") == 3 * push


def test_gathering_loses_to_the_ring_with_many_trainers(
    plans: Callable[..., Plan], clusters: Callable[..., Cluster], outcome_of: Run
) -> None:
    """At 10 % density entries are a fifth of the bytes: the ring's share is passed at n = 10."""
    ratios = []
    for trainers in (2, 16):
        roles = {"trainers": trainers, "embedding_servers": 1}
        part = {"kind": "dct", "density": "10 %"}
        with_dct = plans("allreduce", {"compression": part}, roles=roles, model=WIDE)
        plain = plans("allreduce", roles=roles, model=WIDE)
        gather = sent(outcome_of(with_dct, clusters()), "all_gather")
        ring = sent(outcome_of(plain, clusters()), "all_reduce") * 2 * (trainers - 1) / trainers
        ratios.append(gather / ring)
    assert ratios[0] < 1 < ratios[1]


@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
def test_a_slow_network_gains(
    kind: str, plans: Callable[..., Plan], clusters: Callable[..., Cluster], eps: Any
) -> None:
    # of several trainers at one server one direction of its link hides the other
    trainers = 1 if kind == "flat_ps" else 2
    roles = {"trainers": trainers, "embedding_servers": 1, "dense_servers": 1}
    slow = clusters(nic="20 Mbit/s")
    speeds = [
        eps(plans(kind, options, roles=roles, model=WIDE), slow)
        for options in (
            {},
            {"compression": {"kind": "dct"}},
            {"compression": {"kind": "dct", "mode": "both"}},
        )
    ]
    assert speeds[0] < speeds[1] < speeds[2]


def test_loops_hold_a_residual(plans: Callable[..., Plan]) -> None:
    training = {"threads": 3}
    plain = plans("flat_ps", model=WIDE, training=training)
    dct = plans("flat_ps", {"compression": {"kind": "dct"}}, model=WIDE, training=training)
    mp = plans("flat_ps", {"compression": {"kind": "dct", "mode": "mp"}}, model=WIDE)
    assert mp.topology.thresholded is None
    found = [memory_of_all(p, [(p.instances[0], 0.0)])[0].parts["dense"] for p in (plain, dct)]
    weights = (
        4 * sum(b - a for a, b in [*layout(plain.experiment.model).large])
        + 4 * layout(plain.experiment.model).small_elements
    )
    assert found[1] - found[0] == 3 * 2 * weights


@pytest.mark.parametrize(
    ("kind", "options"),
    [("flat_ps", {"mode": "easgd"}), ("shadowsync", {"sync": "foreground"})],
)
def test_differences_need_no_residual(
    kind: str, options: dict[str, Any], plans: Callable[..., Plan]
) -> None:
    training, part = {"threads": 3}, {"compression": {"kind": "dct"}}
    plain = plans(kind, options, model=WIDE, training=training)
    dct = plans(kind, options | part, model=WIDE, training=training)
    found = [memory_of_all(p, [(p.instances[0], 0.0)])[0].parts["dense"] for p in (plain, dct)]
    assert found[1] - found[0] == 3 * 4 * dense_parameters(plain.experiment.model)


def test_without_a_residual_less_is_streamed() -> None:
    model = Model(embedding_dim=8, bottom_mlp=(64, 8), top_mlp=(64, 1), tables=(Table(rows=9),))
    scope = Scope(model=model, training=Training(), elements=10_000, kept=100, tables=4)
    for name, vectors in (("threshold", 3), ("sparsify", 3)):
        with_one, without = cost(name, scope), cost(f"{name}_difference", scope)
        saved = with_one["stream_byte"] - without["stream_byte"]
        assert saved >= vectors * 4 * 10_000
        assert without["call"] < with_one["call"]


def test_a_plan_by_unit_prices_says_nothing(plans: Plans, clusters: Clusters) -> None:
    outcome = simulate(plans(simulation={"what_if_steps": 0}), clusters())
    assert outcome.facts.resting == Resting(measured=0.0, scaled=0.0, unit=1.0)
    assert not outcome.facts.warnings
