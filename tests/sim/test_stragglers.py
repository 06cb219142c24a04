"""Stragglers: how long they take, that all strategies meet the same ones, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.topology import Hiccups, Stragglers, Tail
from recsim_train.placement.plan import Plan
from recsim_train.sim.cluster.hosts import sites_of
from recsim_train.sim.engine import Engine, Steps
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.host.process import Thread
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.pricing import Priced
from recsim_train.trace.record import Outcome

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]
Eps = Callable[[Plan, Cluster], float]

HEAVY = {"gemm_flop": "2 ns"}
"""Computations are all that counts."""
ROLES = {"trainers": 4, "embedding_servers": 2}
EVERYTHING = Stragglers(
    hiccups=Hiccups.model_validate({"probability": "20 %", "factor": 5}),
    tail=Tail(distribution="pareto", index=3.0),
)


def stragglers(**changes: Any) -> Stragglers:
    return Stragglers.model_validate(changes)


def draws(jitter: Jitter, purpose: str, count: int, instance: str = "trainer[0]") -> list[float]:
    return [jitter.factor(instance, purpose) for _ in range(count)]


# ------------------------------------------------------------------ factors


def test_jitter_and_tails_have_mean_one() -> None:
    count = 200_000
    lognormal = draws(Jitter(1, 0.0, stragglers(tail=LOGNORMAL)), "a", count)
    assert statistics.fmean(lognormal) == pytest.approx(1.0, abs=0.01)
    assert statistics.stdev(lognormal) == pytest.approx(0.8, rel=0.05)
    pareto = draws(Jitter(1, 0.0, stragglers(tail=PARETO)), "a", count)
    assert statistics.fmean(pareto) == pytest.approx(1.0, abs=0.01)
    smallest = 2 / 3
    assert min(pareto) == pytest.approx(smallest, rel=1e-3)
    for x in (1.0, 2.0, 4.0):
        beyond = sum(p > x for p in pareto) / count
        assert beyond == pytest.approx((smallest / x) ** 3, rel=0.1)
    both = draws(Jitter(1, 0.1, stragglers(tail=PARETO)), "a", count)
    assert statistics.fmean(both) == pytest.approx(1.0, abs=0.01)


LOGNORMAL = {"distribution": "lognormal", "deviation": 0.8}
PARETO = {"distribution": "pareto", "index": 3.0}


def test_hiccups_have_the_mean_that_is_stated() -> None:
    hiccups = {"probability": "10 %", "factor": 5}
    factors = draws(Jitter(1, 0.0, stragglers(hiccups=hiccups)), "a", 50_000)
    assert set(factors) == {1.0, 5.0}
    assert statistics.fmean(factors) == pytest.approx(1 + 0.1 * (5 - 1), rel=0.02)


def test_only_the_role_that_is_named() -> None:
    jitter = Jitter(1, 0.0, stragglers(tail=PARETO | {"role": "reader"}))
    assert draws(jitter, "a", 5) == [1.0] * 5
    assert draws(jitter, "a", 5, "reader[0]") != [1.0] * 5


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=60), st.integers(0, 3))
def test_the_kth_draw_of_a_purpose_knows_nothing_of_the_others(
    others: list[str], seed: int
) -> None:
    quiet, busy = (Jitter(seed, 0.2, EVERYTHING) for _ in range(2))
    expected = draws(quiet, "x", 20)
    found = []
    for n in range(20):
        for purpose in others[n::20]:
            busy.factor("trainer[0]", purpose)
            busy.factor("trainer[1]", "x")
        found.append(busy.factor("trainer[0]", "x"))
    assert found == expected
    assert draws(Jitter(seed + 1, 0.2, EVERYTHING), "x", 20) != expected


def test_each_kind_of_chance_has_its_own_stream() -> None:
    plain = draws(Jitter(1, 0.2), "x", 300)
    more = draws(Jitter(1, 0.2, stragglers(hiccups={"probability": "10 %", "factor": 7})), "x", 300)
    assert {round(b / a, 9) for a, b in zip(plain, more, strict=True)} == {1.0, 7.0}


# ------------------------------------------------------------------ slow hosts


def test_a_share_is_rounded_reasons_multiply_and_each_has_hosts_of_its_own(
    plans: Plans, clusters: Clusters
) -> None:
    def slow(entries: list[dict[str, Any]], trainers: int, seed: int = 1) -> dict[str, float]:
        plan = plans(roles={"trainers": trainers}, seed=seed)
        places = sites_of(plan, clusters(stragglers=stragglers(slow=entries)))
        return {i.name: p.slow for i, p in places.items() if p.slow > 1.0}

    half = {"share": "50 %", "factor": 3}
    assert [len(slow([half], trainers)) for trainers in (1, 2, 3, 5)] == [1, 1, 2, 3]
    twice = [{"hosts": ["trainer[0]"], "factor": factor} for factor in (2, 3)]
    assert slow(twice, 2) == {"trainer[0]": 6.0}
    one = [{"share": "10 %", "factor": factor} for factor in (2, 3)]
    found = [slow(one, 10, seed) for seed in range(1, 9)]
    assert any(sorted(hosts.values()) == [2.0, 3.0] for hosts in found)


def test_named_hosts_and_shares(plans: Plans, clusters: Clusters) -> None:
    slow = [
        {"hosts": ["trainer[1]", "dense_server[0]"], "factor": 2},
        {"share": "25 %", "factor": 3},
        {"share": "1 %", "role": "reader", "factor": 4},
    ]
    cluster = clusters(stragglers=stragglers(slow=slow))

    def found(kind: str = "flat_ps", **changes: Any) -> dict[str, float]:
        roles = {"trainers": 8, "dense_servers": 1, "readers": 2} | changes.pop("roles", {})
        places = sites_of(plans(kind, roles=roles, **changes), cluster)
        return {i.name: p.slow for i, p in places.items() if p.slow > 1.0}

    base = found()
    trainers = {n: f for n, f in base.items() if n.startswith("trainer")}
    assert base["dense_server[0]"] == 2.0
    assert sorted(f for n, f in base.items() if n.startswith("reader")) == [4.0]
    drawn = sorted(n for n, f in trainers.items() if f in (3.0, 6.0))
    assert len(drawn) == 2
    assert trainers["trainer[1]"] in (2.0, 6.0)
    # the same for another strategy, which needs no dense server; others for other seeds
    other = found("allreduce")
    assert other == {n: f for n, f in base.items() if n != "dense_server[0]"}
    assert len({str(found(seed=seed)) for seed in range(2, 12)}) > 3
    assert found(simulation={"stragglers": False}) == {}
    with pytest.raises(UserError, match=r"slow\[0\]\.hosts\[0\]: there is no trainer\[1\]"):
        found(roles={"trainers": 1})


def test_a_slow_host_is_a_host_of_less_speed(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles=ROLES)
    named = clusters(stragglers=stragglers(slow=[{"hosts": ["trainer[3]"], "factor": 2}]))
    mixed = clusters().model_validate(
        clusters().model_dump(exclude={"costs", "hosts", "network", "threads", "turn"})
        | {
            "costs": named.costs,
            "hosts": named.hosts,
            "network": named.network,
            "threads": named.threads,
        }
        | {"mixed": {"trainer": [{"count": 3}, {"speed": 0.5}]}}
    )
    slow = outcome_of(plan, named)
    assert slow.iterations == outcome_of(plan, mixed).iterations
    assert slow.facts.slow_hosts == {"trainer[3]": 2.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"slow": [{"hosts": ["trainer[3]"], "factor": 2}]},
        {"episodes": [{"every": "30 ms", "duration": "30 ms", "factor": 4}]},
        {"hiccups": {"probability": "20 %", "factor": 5}},
        {"tail": PARETO},
        {"tail": LOGNORMAL},
    ],
    ids=lambda c: next(iter(c)),
)
def test_every_straggler_costs_lock_step_more(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, eps: Eps, changes: dict[str, Any]
) -> None:
    calm, shaky = clusters(prices=HEAVY), clusters(prices=HEAVY, stragglers=stragglers(**changes))
    free, lock_step = (
        plans(kind, roles=ROLES, training={"steps": 60}) for kind in ("flat_ps", "allreduce")
    )
    loss = eps(lock_step, shaky) / eps(lock_step, calm)
    assert loss < 0.9
    assert loss < eps(free, shaky) / eps(free, calm)
    off = plans("allreduce", roles=ROLES, simulation={"stragglers": False})
    assert eps(off, shaky) == eps(off, calm)


def test_heavier_tails_cost_more(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    plan = plans("allreduce", roles=ROLES, training={"steps": 60})
    speeds = [
        eps(plan, clusters(prices=HEAVY, stragglers=stragglers(tail=tail)))
        for tail in (
            {"distribution": "pareto", "index": 10.0},
            {"distribution": "pareto", "index": 4.0},
            {"distribution": "pareto", "index": 2.0},
        )
    ]
    assert speeds[0] > speeds[1] > speeds[2]


# ------------------------------------------------------------------ episodes


def worked(plan: Plan, cluster: Cluster, seconds: float, lock: float = 0.0) -> tuple[float, Any]:
    """When one computation is done that alone takes so long, and its trainer's process."""
    engine = Engine()
    machines = Machines(plan, cluster, engine, Jitter(1))
    process = next(iter(machines.processes.values()))
    kernel_ends: list[float] = []

    def work() -> Steps:
        thread = Thread(process, "loop", "a")
        yield machines.compute(thread, Priced(seconds, lock, ()), "work").done
        kernel_ends.append(engine.now)

    engine.process(work())
    engine.run()
    return kernel_ends[0], process


def test_an_episode_slows_what_runs_while_it_lasts(plans: Plans, clusters: Clusters) -> None:
    one = {"every": "10 s", "duration": "2 s", "factor": 4}
    cluster = clusters(stragglers=stragglers(episodes=[one]))
    end, process = worked(plans(), cluster, 1000.0)
    changes = [(0.0, 8.0), *process.cores.history]
    assert {capacity for _, capacity in changes} == {8.0, 2.0}
    # one thread of eight cores: its speed is that of one core
    done = sum(
        (min(after, end) - time) * capacity / 8.0
        for (time, capacity), (after, _) in zip(changes, [*changes[1:], (end, 0.0)], strict=True)
    )
    assert done == pytest.approx(1000.0, rel=1e-9)
    starts = [time for time, capacity in process.cores.history if capacity == 2.0]
    assert starts[0] > 0.0  # a pause comes first
    stops = [time for time, capacity in process.cores.history if capacity == 8.0]
    assert [b - a for a, b in zip(starts, stops, strict=False)] == pytest.approx([2.0] * len(stops))
    # of twelve seconds two are slow
    assert end == pytest.approx(1000 / (10 / 12 + 2 / 12 / 4), rel=0.05)
    # a part that holds the lock is slow in the same way
    assert worked(plans(), cluster, 1000.0, lock=1000.0)[0] == pytest.approx(end, rel=1e-9)


def test_episodes_are_those_of_the_seed_and_the_host(plans: Plans, clusters: Clusters) -> None:
    one = {"every": "10 s", "duration": "2 s", "factor": 4}
    cluster = clusters(stragglers=stragglers(episodes=[one]))
    _, long = worked(plans(), cluster, 1000.0)
    _, short = worked(plans("allreduce", roles=ROLES), cluster, 300.0)
    met = len(short.cores.history)
    assert met > 10
    assert short.cores.history == long.cores.history[:met]
    _, other = worked(plans(seed=2), cluster, 1000.0)
    assert other.cores.history != long.cores.history
    _, reader = worked(
        plans(), clusters(stragglers=stragglers(episodes=[one | {"role": "reader"}])), 9.0
    )
    assert reader.cores.history == []


def test_factors_of_episodes_at_one_time_multiply(plans: Plans, clusters: Clusters) -> None:
    two = [
        {"every": "1 s", "duration": "9 s", "factor": 2},
        {"every": "1 s", "duration": "9 s", "factor": 3},
    ]
    _, process = worked(plans(), clusters(stragglers=stragglers(episodes=two)), 200.0)
    levels = {round(capacity, 9) for _, capacity in process.cores.history}
    assert levels == {8.0, 4.0, round(8 / 3, 9), round(8 / 6, 9)}
