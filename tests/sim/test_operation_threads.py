"""Operations on several threads: the law, and by hand what the simulator makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.cluster import (
    ASSUMED_THREADS,
    THREAD_CLASSES,
    Cluster,
    Costs,
    Scaling,
    Threads,
    Waking,
)
from recsim_train.placement.plan import Plan
from recsim_train.sim.runtime import Runtime
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import OPS, cost
from recsim_train.workload.scope import Divided, Scope
from recsim_train.workload.shape import dense_parameters
from recsim_train.workload.threads import CLASSES, GRAIN, NONE, by_class, gains, shared
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]

NOTHING = dict.fromkeys(Costs.model_fields, "0 s")
"""A cluster on which only what a test prices takes time."""


FREE = Waking.model_construct(wall=0.0, caller=0.0, pool=0.0, uncertainty=0.1, basis="fit")
"""Threads that are always awake."""


def law(serial: float, overhead: float = 0.0, measured: int = 64, wake: Waking = FREE) -> Threads:
    scaling = Scaling.model_construct(
        serial=serial, overhead=overhead, uncertainty=0.1, basis="fit"
    )
    classes = dict.fromkeys(THREAD_CLASSES, scaling)
    return Threads.model_construct(measured=measured, wake=wake, **classes)


def waking(wall: float, caller: float = 0.0, pool: float = 0.0) -> Waking:
    return Waking.model_construct(wall=wall, caller=caller, pool=pool, uncertainty=0.2, basis="fit")


# ------------------------------------------------------------------ the law

shares = st.floats(0.0, 1.0)
works = st.dictionaries(
    st.sampled_from([*CLASSES, "call", "interpreter", "scatter_row"]), st.floats(1e-6, 100.0)
)


@given(work=works, serial=shares, overhead=shares, threads=st.integers(1, 200))
def test_the_law_is_monotone_and_never_faster_than_linear(
    work: dict[str, float], serial: float, overhead: float, threads: int
) -> None:
    prices = dict.fromkeys(Costs.model_fields, 1.0)
    total = sum(work.values())
    found = law(serial, overhead * serial)
    assert shared(work, prices, found, 1) == (0.0, 0.0)
    saved, added = shared(work, prices, found, threads)
    more, added_more = shared(work, prices, found, threads + 1)
    rounding = 1e-9 * total
    assert 0.0 <= saved <= more + rounding
    assert 0.0 <= added <= added_more
    wall, spent = total - saved, total + added
    assert total / threads - rounding <= wall <= total
    assert wall <= spent + rounding <= threads * wall + 2 * threads * rounding
    kept = sum(units for name, units in work.items() if name not in CLASSES)
    assert kept <= wall + rounding


@given(
    work=works,
    serial=shares,
    wakes=st.integers(1, 50),
    wake=st.tuples(st.floats(0.0, 1.0), shares, shares),
    threads=st.integers(2, 200),
)
def test_waking_is_added_and_more_threads_never_shorten_what_is_serial(
    work: dict[str, float],
    serial: float,
    wakes: int,
    wake: tuple[float, float, float],
    threads: int,
) -> None:
    prices = dict.fromkeys(Costs.model_fields, 1.0)
    wall, caller, pool = wake[0], wake[0] * wake[1], wake[0] * wake[2]
    found = law(serial, wake=waking(wall, caller, pool))
    split = Divided(work, wakes)
    assert gains(split, prices, found, 1) == NONE
    total = sum(work.values())
    once, more = (gains(split, prices, found, n) for n in (threads, threads + 1))
    free = gains(split, prices, law(serial), threads)
    assert free.saved - once.saved == pytest.approx(wakes * wall)
    assert once.added - free.added == pytest.approx(wakes * (caller + (threads - 1) * pool))
    rounding = 1e-9 * (total + wakes)
    assert once.saved <= more.saved + rounding  # and what waking takes does not grow
    kept = total - (1.0 - serial) * sum(by_class(work, prices).values())
    assert kept + wakes * wall <= total - once.saved + rounding
    own = total + once.added - once.pool
    assert 0.0 <= own <= total - once.saved + rounding
    assert 0.0 <= once.pool <= (threads - 1) * (total - once.saved) + threads * rounding


@pytest.mark.parametrize("name", sorted(OPS))
def test_small_operators_are_not_divided(name: str, plans: Plans) -> None:
    """What is divided is a part of all the work, and of what is small, nothing."""
    spec = plans().experiment
    for batch, elements in ((8, 900), (4096, 900_000)):
        sizes = {"batch": batch, "ids": 6 * batch, "unique": 5 * batch, "tables": 6}
        scope = Scope(spec.model, spec.training, elements=elements, numbers=elements, **sizes)  # type: ignore[arg-type]
        work, found = cost(name, scope), OPS[name].divided(scope)
        assert found.work.keys() <= work.keys()
        for price, units in found.work.items():
            assert 0.0 <= units <= work[price] * (1 + 1e-9)
        assert not by_class(found.work, dict.fromkeys(work, 1.0)) or found.wakes
        if batch == 8 and name != "forward_backward":  # its products are divided nevertheless
            assert found.wakes <= 1  # and the loss
            assert found.work == {}


def test_operators_of_a_step_by_hand(plans: Plans) -> None:
    """Interactions from 128 examples on; vectors of 32,769 numbers are divided, of 32,768 not."""
    spec = plans().experiment

    def wakes(name: str, **sizes: Any) -> float:
        return OPS[name].divided(Scope(spec.model, spec.training, **sizes)).wakes

    assert wakes("load", elements=GRAIN) == 0
    assert wakes("load", elements=GRAIN + 1) == 1
    assert wakes("drain", elements=GRAIN + 1) == 2
    assert wakes("lookup_pooled", batch=4096, ids=6 * 4096, tables=6) == 0  # single rows: our own
    assert wakes("deduplicate", batch=4096, ids=6 * 4096, tables=6) == 0
    assert (
        "dot_flop"
        not in OPS["forward_backward"].divided(Scope(spec.model, spec.training, batch=127)).work
    )
    assert (
        "dot_flop"
        in OPS["forward_backward"].divided(Scope(spec.model, spec.training, batch=128)).work
    )


def test_only_what_operators_share_gets_shorter() -> None:
    work = {
        "call": 5.0,
        "interpreter": 3.0,
        "gemm_flop": 4.0,
        "gather_row": 1.0,
        "gather_byte": 2.0,
    }
    prices = dict.fromkeys(Costs.model_fields, 1.0) | {"gemm_flop": 2.0}
    assert by_class(work, prices) == {"products": 8.0, "rows": 3.0}
    saved, added = shared(work, prices, law(0.25, 0.125), 3)
    assert saved == pytest.approx(11.0 * 0.75 * (1 - 1 / 3))
    assert added == pytest.approx(11.0 * 0.125 * 2)


def test_every_class_has_work() -> None:
    assert set(CLASSES.values()) == set(THREAD_CLASSES)
    assert set(CLASSES) <= set(Costs.model_fields)


def test_more_threads_than_were_measured_are_less_certain() -> None:
    found = law(0.1, measured=4)
    assert found.uncertainty("products", 2) == found.uncertainty("products", 4) == 0.1
    assert found.uncertainty("products", 20) == pytest.approx(0.5)
    assert found.uncertainty("products", 4000) == 1.0
    assert ASSUMED_THREADS.uncertainty("products", 2) == 1.0
    assert found.model_copy(update={"wake": waking(1e-5)}).uncertainty("wake", 16) == 0.8
    assert ASSUMED_THREADS.uncertainty("wake", 2) == 1.0


# ------------------------------------------------------------------ the simulator, by hand


LARGE: dict[str, Any] = {"batch_size": 4096}
"""A step whose products are divided."""


def products(plan: Plan, price: float) -> float:
    """Seconds of the matrix products of one iteration of one trainer on one thread."""
    spec = plan.experiment
    batch = spec.training.batch_size
    scope = Scope(spec.model, spec.training, batch=batch, ids=6 * batch, tables=6)
    return cost("forward_backward", scope)["gemm_flop"] * price


def on_threads(plan: Plan, price: float, serial: float, threads: int) -> float:
    """The same on several: but for the products with a vector, those of the logit's layer, 32 wide
    and as dear as 16 outputs, which are not divided."""
    alone = plan.experiment.training.batch_size * 6 * 32 * 16 * price
    return alone + (products(plan, price) - alone) * (serial + (1 - serial) / threads)


def seconds(outcome: Outcome, plan: Plan) -> float:
    """Of a counted iteration."""
    counted = [
        i.end - i.start
        for i in outcome.iterations
        if i.iteration >= plan.experiment.training.warmup_steps
    ]
    return sum(counted) / len(counted)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_a_step_takes_what_the_law_says(
    threads: int, plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans("allreduce", training={"threads": threads, **LARGE})
    cluster = clusters(prices={**NOTHING, "gemm_flop": "1 ns"}, threads=law(0.1, 0.02))
    one = products(plan, 1e-9)
    outcome = outcome_of(plan, cluster)
    assert seconds(outcome, plan) == pytest.approx(on_threads(plan, 1e-9, 0.1, threads))
    ledger = outcome.facts.ledger
    assert ledger is not None
    steps = plan.experiment.training.steps
    alone = on_threads(plan, 1e-9, 0.0, 10**9)
    overhead = (one - alone) * 0.02 * (threads - 1)
    assert ledger.total == pytest.approx(steps * (one + overhead))
    assert abs(ledger.remainder) < 1e-9 * ledger.total
    own = sum(line.seconds for line in ledger.lines if line.thread == "loop")
    assert own == pytest.approx(ledger.seconds)
    pool = {line.what for line in ledger.lines if line.thread == "pool"}
    assert pool == ({"forward_backward"} if threads > 1 else set())


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_each_divided_operator_wakes_the_pool(
    threads: int, plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """By hand: the products as the law says, and for each operator 50 us of which the loop is busy
    for 10, and each further thread for 20."""
    plan = plans("allreduce", training={"threads": threads, **LARGE})
    known = law(0.1, wake=waking(50e-6, 10e-6, 20e-6))
    cluster = clusters(prices={**NOTHING, "gemm_flop": "1 ns"}, threads=known)
    one = products(plan, 1e-9)
    wakes = 0.0
    if threads > 1:
        spec = plan.experiment
        elements = dense_parameters(spec.model)
        assert elements <= GRAIN  # the replica's operations are not divided
        scope = Scope(spec.model, spec.training, batch=4096, ids=6 * 4096, tables=6)
        wakes = sum(OPS[n].divided(scope).wakes for n in ("forward_backward", "route_gradient"))
        assert wakes >= 10
    outcome = outcome_of(plan, cluster)
    took = on_threads(plan, 1e-9, 0.1, threads)
    assert seconds(outcome, plan) == pytest.approx(took + wakes * 50e-6)
    ledger = outcome.facts.ledger
    assert ledger is not None
    steps = plan.experiment.training.steps
    cpu = wakes * (10e-6 + 20e-6 * (threads - 1))
    assert ledger.total == pytest.approx(steps * (one + cpu))
    pool = sum(line.seconds for line in ledger.lines if line.thread == "pool")
    shared_work = one - took
    assert pool == pytest.approx(steps * (shared_work + wakes * 20e-6 * (threads - 1)))
    assert abs(ledger.remainder) < 1e-9 * ledger.total


def test_two_threads_can_be_slower_than_one(plans: Plans, clusters: Clusters) -> None:
    rates = []
    for threads in (1, 2):
        plan = plans(
            "allreduce", training={"threads": threads, "batch_size": 256},
            simulation={"what_if_steps": 0},
        )  # fmt: skip
        outcome = simulate(plan, clusters(threads=law(0.1, wake=waking(5e-3))))
        assert outcome.speed is not None
        rates.append(outcome.speed.examples_per_second)
    assert rates[1] < rates[0]


def test_two_processes_with_threads_share_the_cores_of_a_host(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """Four threads each, on four cores: together they need twice what there is, less what is
    serial."""
    prices = {**NOTHING, "gemm_flop": "1 ns"}
    shared_host = {"colocate": True, "cores": 4, "network": {"latency": "0 s"}, "nic": "100 Gbit/s"}
    plan = plans("allreduce", roles={"trainers": 2}, training={"threads": 4, **LARGE})
    one = products(plan, 1e-9)
    wall = on_threads(plan, 1e-9, 0.1, 4)
    for cores, expected in ((8, wall), (4, 2 * one / 4), (1, 2 * one)):
        cluster = clusters(prices=prices, threads=law(0.1), **{**shared_host, "cores": cores})
        outcome = outcome_of(plan, cluster)
        assert seconds(outcome, plan) == pytest.approx(expected, rel=0.01), cores
        assert outcome.bound_eps is not None
        assert outcome.speed is not None
        assert outcome.speed.examples_per_second <= outcome.bound_eps * (1 + 1e-9)


def test_a_host_with_fewer_cores_than_threads_gives_what_it_has(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans("allreduce", training={"threads": 16, **LARGE})
    prices = {**NOTHING, "gemm_flop": "1 ns"}
    cluster = clusters(prices=prices, threads=law(0.0), cores=2, contention=0.75)
    outcome = outcome_of(plan, cluster)
    assert seconds(outcome, plan) == pytest.approx(products(plan, 1e-9) / 1.5)
    loops = outcome.facts.bounds["loops"]
    assert loops == pytest.approx(4096 / seconds(outcome, plan))


def test_the_lock_is_held_as_long_as_on_one_thread(
    plans: Plans, clusters: Clusters, fake_counts: Callable[[Plan], Any]
) -> None:
    """Calls stay on the calling thread: with threads the same lock-held seconds, in less time."""
    prices = {**NOTHING, "gemm_flop": "1 ns", "interpreter": "2 us"}
    held, ends = [], []
    for threads in (1, 4):
        plan = plans("allreduce", training={"threads": threads, **LARGE})
        cluster = clusters(prices=prices, threads=law(0.1))
        runtime = Runtime(plan, cluster, fake_counts(plan), iterations=10)
        runtime.run()
        fluid = runtime.engine.fluid
        used = zip(fluid.resources, runtime.engine.fluid.used(), strict=True)
        held.append({r.name: seconds for r, seconds in used}["trainer[0].interpreter"])
        ends.append(runtime.engine.now)
    assert held[0] == pytest.approx(held[1])
    assert held[0] > 0.0
    assert ends[1] < ends[0]


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "allreduce": ("allreduce", {}),
    "rows": ("allreduce", {"pooling": "worker"}),
    "localsgd": ("localsgd", {"every": 2}),
    "des": ("des", {}),
    "hierarchical": ("hierarchical", {"hosts": 2, "tags": "top.0=1"}),
    "scalefreectr": ("scalefreectr", {"cache_share": 1.0}),
}


@pytest.mark.parametrize("name", KINDS)
def test_more_threads_are_never_slower_and_the_ledger_closes(
    name: str, plans: Plans, clusters: Clusters
) -> None:
    kind, options = KINDS[name]
    roles = {"trainers": 2} if kind == "des" else {"trainers": 2, "embedding_servers": 2}
    rates = []
    for threads in (1, 2, 6):
        plan = plans(
            kind, options, roles=roles, training={"threads": threads, "batch_size": 256},
            simulation={"what_if_steps": 0},
        )  # fmt: skip
        outcome = simulate(plan, clusters(threads=law(0.1, 0.05)))
        assert outcome.speed is not None
        ledger = outcome.facts.ledger
        assert ledger is not None
        assert abs(ledger.remainder) < 0.03 * ledger.total
        assert any(line.thread == "pool" for line in ledger.lines) == (threads > 1)
        rates.append(outcome.speed.examples_per_second)
    assert rates[0] < rates[1] < rates[2] < 6 * rates[0]


@pytest.mark.usefixtures("equal_shares")
@pytest.mark.parametrize("name", ["allreduce", "localsgd", "hierarchical"])
def test_folding_is_exact_with_threads(name: str, plans: Plans, clusters: Clusters) -> None:
    kind, options = KINDS[name]
    found = []
    for above in (0, 4):
        plan = plans(
            kind, options,
            roles={"trainers": 8, "embedding_servers": 2, "dense_servers": 1},
            training={"threads": 3, "sparse_optimizer": "sgd"},
            data={"eval_rows": 0},
            simulation={"fold_above": above, "what_if_steps": 0},
        )  # fmt: skip
        outcome = simulate(plan, clusters(threads=law(0.1, 0.05)))
        assert outcome.speed is not None
        found.append(outcome.speed.examples_per_second)
    assert found[1] == pytest.approx(found[0], rel=0.03)


def test_loops_in_the_background_and_free_workers_have_one_thread(plans: Plans) -> None:
    lock_step = plans("hierarchical", {"hosts": 1, "outer": "easgd"}, training={"threads": 4},
                      roles={"trainers": 2, "dense_servers": 1})  # fmt: skip
    loops = {loop.name: lock_step.threads_of(loop) for loop in lock_step.topology.loops}
    assert loops == {"worker": 4, "shadow": 1}
    free = plans(training={"threads": 4})
    assert (free.worker_threads, free.operation_threads) == (4, 1)
    assert len(list(free.loops(0))) == 4


def test_an_extrapolation_is_said(plans: Plans, clusters: Clusters) -> None:
    def said(number: int, **profile: Any) -> str:
        plan = plans("allreduce", training={"threads": number}, simulation={"what_if_steps": 0})
        return " ".join(simulate(plan, clusters(**profile)).facts.warnings)

    assert "calibration has seen 1" in said(2)
    assert "threads" not in said(1)
    assert "calibration has seen 4" in said(8, threads=law(0.1, measured=4))
    assert "threads" not in said(4, threads=law(0.1, measured=4))


def test_more_cores_than_were_measured_are_said_and_in_no_interval(
    plans: Plans, clusters: Clusters
) -> None:
    def predicted(measured: int | None, cores: int = 4, trainers: int = 4) -> Any:
        plan = plans(roles={"trainers": trainers}, simulation={"what_if_steps": 3})
        made = clusters(colocate=True, cores=cores, measured_cores=measured)
        return simulate(plan, made)

    def width(outcome: Any) -> float:
        low, high = outcome.facts.calibration_ci95 or (1.0, 1.0)
        return float(high / low)

    def said(outcome: Any) -> str:
        return " ".join(w for w in outcome.facts.warnings if "cores" in w)

    plain, known, two = (predicted(measured) for measured in (None, 4, 2))
    assert said(plain) == said(known) == ""
    assert width(plain) == width(known) == 1.0
    assert "Up to 4 cores of a host are busy side by side" in said(two)
    assert "measured with 2" in said(two)
    assert "no interval contains it" in said(two)
    assert width(two) == 1.0
    assert said(predicted(2, trainers=2)) == ""  # of four cores two are ever busy
    assert "Up to 4 cores" in said(predicted(3))


def test_serial_shares_are_among_what_would_change_it(plans: Plans, clusters: Clusters) -> None:
    prices = {**NOTHING, "gemm_flop": "1 ns"}
    plan = plans("allreduce", training={"threads": 8, **LARGE}, simulation={"what_if_steps": 3})
    facts = simulate(plan, clusters(prices=prices, threads=law(0.25))).facts
    more, less = (on_threads(plan, 1e-9, 0.25 * factor, 8) for factor in (1.1, 1 / 1.1))
    slope = facts.elasticities["threads.products"]
    assert slope == pytest.approx((less / more) ** 0.5 - 1, rel=0.02)
    assert {"threads.rows", "threads.streams"} <= set(facts.elasticities)
    assert facts.calibration_ci95 is not None
    alone = simulate(plans("allreduce", simulation={"what_if_steps": 3}), clusters(prices=prices))
    assert not any(name.startswith("threads") for name in alone.facts.elasticities)
