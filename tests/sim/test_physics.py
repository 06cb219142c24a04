"""The simulated world changes in the direction that physics says, and within its bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Costs
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import reading_of
from recsim_train.report.naming import bottleneck
from recsim_train.trace.record import Outcome
from recsim_train.workload import operations
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]
Eps = Callable[[Plan, Cluster], float]

FAST_DATA = {"path": ("file.tsv",), "generate": True}
"""Parsing makes fewer calls out of Python, which hold the interpreter lock, than synthesising."""
SERVERS = {"trainers": 2, "embedding_servers": 2, "dense_servers": 1}


@pytest.mark.parametrize("nic", ["20 Mbit/s", "10 Gbit/s"])
def test_bounds_are_capacity_over_use(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, eps: Eps, nic: str
) -> None:
    plan, cluster = plans(roles=SERVERS), clusters(nic=nic)
    outcome, speed = outcome_of(plan, cluster), eps(plan, cluster)
    bounds = outcome.facts.bounds
    used = {name: busy for name, busy in outcome.utilisation.items() if busy > 0}
    assert len(used) > 8
    for name, busy in used.items():
        # busy = speed / bound, but for iterations that the window cuts
        assert speed * (1 - 1e-9) <= busy * bounds[name] <= 1.1 * speed
    assert outcome.bound_eps == min(bounds.values())


NO_WHAT_IF = {"what_if_steps": 0}
EVERY_KIND = [
    ("flat_ps", {}, {**SERVERS, "readers": 1}, {"threads": 2}),
    ("flat_ps", {"pooling": "worker"}, SERVERS, {}),
    ("flat_ps", {}, {}, {}),
    ("allreduce", {}, {"trainers": 3, "embedding_servers": 1}, {}),
    ("allreduce", {}, {"trainers": 3}, {}),
    ("shadowsync", {}, SERVERS, {"threads": 2}),
    ("shadowsync", {"algorithm": "ma"}, {"trainers": 2}, {}),
    ("des", {}, {"trainers": 2}, {}),
    ("hierarchical", {"outer": "easgd"}, {"trainers": 4, "dense_servers": 1}, {}),
]


@pytest.mark.parametrize(("kind", "options", "roles", "training"), EVERY_KIND, ids=str)
def test_no_prediction_beats_what_its_loops_can_do(
    plans: Plans,
    clusters: Clusters,
    kind: str,
    options: dict[str, Any],
    roles: dict[str, Any],
    training: dict[str, Any],
) -> None:
    """With the luck and the ids that a run had: chance must not beat the bound either."""
    plan = plans(kind, options, roles=roles, training=training, simulation=NO_WHAT_IF)
    outcome = simulate(plan, clusters(jitter=0.7))
    bounds = outcome.facts.bounds
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    assert outcome.speed.examples_per_second <= bounds["loops"] * (1 + 1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_loops_bound_has_the_luck_that_the_run_had(
    plans: Plans, clusters: Clusters, seed: int
) -> None:
    """One loop that shares nothing does what its bound says, however its computations vary."""
    plan = plans(roles={"readers": 1}, data=FAST_DATA, simulation=NO_WHAT_IF, seed=seed)
    outcome = simulate(plan, clusters(jitter=0.7, prices={"read_row": "0 ns"}))
    bounds = outcome.facts.bounds
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second == pytest.approx(bounds["loops"], rel=0.02)


def test_the_loops_bound_is_their_own_work_and_no_more(plans: Plans, clusters: Clusters) -> None:
    """Three threads that queue for one core: alone, each would do what they do together."""
    cluster = clusters(cores=1, prices={"gemm_flop": "5 ns", "read_row": "0 ns"})

    def predict(threads: int) -> Outcome:
        training = {"threads": threads}
        roles = {"readers": 1}  # elsewhere, so that reading takes nothing of the core
        plan = plans(training=training, roles=roles, data=FAST_DATA, simulation=NO_WHAT_IF)
        return simulate(plan, cluster)

    one, three = predict(1), predict(3)
    own = sum(t.seconds for k, t in one.totals.items() if k.loop.startswith("worker")) / 20
    bounds = three.facts.bounds
    assert bounds["loops"] == pytest.approx(3 * 64 / own, rel=0.02)
    assert three.speed is not None
    assert three.speed.examples_per_second == pytest.approx(64 / own, rel=0.05)


# ------------------------------------------------------------------ directions


SLOW_NIC = {"nic": "50 Mbit/s"}


@pytest.mark.usefixtures("equal_shares")
def test_nic_binds_then_doubling_it_nearly_doubles_speed(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles={**SERVERS, "embedding_servers": 1}, training={"threads": 4}, data=FAST_DATA)
    slow, fast = clusters(nic="50 Mbit/s"), clusters(nic="100 Mbit/s")
    assert "NIC" in str(bottleneck(outcome_of(plan, slow).binding))
    assert eps(plan, fast) == pytest.approx(2 * eps(plan, slow), rel=0.1)


def test_nic_that_does_not_bind_still_matters_a_little(
    plans: Plans, clusters: Clusters, eps: Eps
) -> None:
    plan = plans(roles=SERVERS)
    assert eps(plan, clusters(nic="10 Gbit/s")) < eps(plan, clusters(nic="20 Gbit/s"))


def test_trainers_that_compute_scale(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    slow = clusters(prices={"gemm_flop": "10 ns"})
    speeds = [eps(plans(roles={**SERVERS, "trainers": n}), slow) for n in (1, 2, 4)]
    assert speeds[1] == pytest.approx(2 * speeds[0], rel=0.05)
    assert speeds[2] == pytest.approx(4 * speeds[0], rel=0.05)


def test_servers_that_bind_scale(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    server = clusters().hosts["default"].model_copy(update={"cores": 1})
    cluster = clusters(hosts={"embedding_server": server}, prices={"gather_row": "20 us"})
    many = {"trainers": 4, "dense_servers": 1}
    one = plans(roles={**many, "embedding_servers": 1})
    two = plans(roles={**many, "embedding_servers": 2})
    assert bottleneck(outcome_of(one, cluster).binding) == "cores of embedding_server[0]"
    assert eps(two, cluster) == pytest.approx(2 * eps(one, cluster), rel=0.1)


def test_larger_batches_amortise_overheads(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    slow = clusters(network={"latency": "2 ms"})
    speeds = [eps(plans(roles=SERVERS, training={"batch_size": b}), slow) for b in (32, 64)]
    assert speeds[1] == pytest.approx(2 * speeds[0], rel=0.1)


def test_processes_of_one_machine_share_its_cores(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    # so many trainers that no core is ever free: one that is has no contention
    plan = plans(roles={**SERVERS, "trainers": 12}, training={"steps": 100})
    shared = clusters(colocate=True, cores=2)
    wide = clusters(colocate=True, cores=4)
    assert bottleneck(outcome_of(plan, shared).binding) == "cores of the machine"
    assert eps(plan, wide) == pytest.approx(2 * eps(plan, shared), rel=0.15)
    crowded = clusters(colocate=True, cores=2, contention=0.8)
    assert eps(plan, crowded) == pytest.approx(0.8 * eps(plan, shared), rel=0.02)


def test_cores_slow_each_other_only_where_all_are_busy(
    plans: Plans, clusters: Clusters, eps: Eps
) -> None:
    plan = plans(roles={"trainers": 1, "embedding_servers": 0, "dense_servers": 0}, data=FAST_DATA)
    machine = {"colocate": True, "cores": 2, "prices": {"read_row": "1 ps"}}  # its reader rests
    alone = eps(plan, clusters(**machine, contention=0.8))
    assert alone == pytest.approx(eps(plan, clusters(**machine)), rel=0.02)


def test_interpreter_lock_binds_with_many_threads(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    cluster = clusters(cores=64, prices={"interpreter": "40 us", "call": "10 us"})
    few, many, most = (plans(training={"threads": n}, data=FAST_DATA) for n in (1, 8, 16))
    assert bottleneck(outcome_of(most, cluster).binding) == "interpreter lock of trainer[0]"
    assert eps(most, cluster) == pytest.approx(eps(many, cluster), rel=0.03)
    assert eps(many, cluster) < 4 * eps(few, cluster)


@pytest.mark.parametrize("readers", [0, 1])
def test_slow_readers_bind(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf, readers: int
) -> None:
    # whole bunches of what a reader makes at a time
    training = {"steps": 160, "warmup_steps": 16}
    # and a queue that takes them, so that the next can be begun at once
    data = {**FAST_DATA, "queue_batches": 16}
    plan = plans(roles={"readers": readers}, data=data, training=training)
    cluster = clusters(prices={"read_row": "200 us"})
    quick = clusters(prices={"read_row": "100 us"})

    def bound(profile: Cluster) -> float:
        price = {name: getattr(profile.costs, name).value for name in Costs.model_fields}
        scope = reading_of(plan, plan.reader_of(plan.feeding[0]))
        work = operations.cost("reading", scope)
        return 64 * scope.batches / operations.seconds(work, price)[0]

    outcome = outcome_of(plan, cluster)
    # a reader inside the trainer also waits for the interpreter lock now and then
    near = 0.02 if readers else 0.04
    assert eps(plan, cluster) == pytest.approx(bound(cluster), rel=near)
    if readers:
        assert bottleneck(outcome.binding) == "parsing thread of reader[0]"
    else:
        # one thread of each loop, which parses without the interpreter's lock
        assert str(bottleneck(outcome.binding)).startswith("waiting for readers")
    assert eps(plan, quick) == pytest.approx(bound(quick), rel=near)


def test_more_reader_processes_help_when_one_binds(
    plans: Plans, clusters: Clusters, eps: Eps
) -> None:
    cluster = clusters(prices={"read_row": "200 us"})
    one, two = (plans(roles={"trainers": 2, "readers": n}, data=FAST_DATA) for n in (1, 2))
    assert eps(two, cluster) == pytest.approx(2 * eps(one, cluster), rel=0.05)


def test_latency_binds_and_says_so(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf
) -> None:
    plan = plans("allreduce", roles={"trainers": 2, "embedding_servers": 1})
    slow = clusters(network={"latency": "5 ms"})
    outcome = outcome_of(plan, slow)
    assert str(bottleneck(outcome.binding)).startswith("latency (")
    # nothing is shared here, so one loop's own iteration gives the bound
    assert eps(plan, slow) == pytest.approx(outcome.bound_eps, rel=0.05)
    assert eps(plan, clusters(network={"latency": "10 ms"})) == pytest.approx(
        0.5 * eps(plan, slow), rel=0.1
    )


def test_what_an_unsaturated_iteration_is_made_of(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """The words follow what is made slow; nothing is near saturation in any of them."""
    alone = plans(roles={"trainers": 1, "embedding_servers": 1, "dense_servers": 1})
    slow_calls = clusters(prices={"gemm_flop": "50 ns"})
    computing = outcome_of(alone, slow_calls)
    assert str(bottleneck(computing.binding)).startswith("computation in each training")
    thin = outcome_of(alone, clusters(network={"connection_cap": "1 Mbit/s"}))
    assert str(bottleneck(thin.binding)).startswith("bytes on their way (")
    trainers = plans("allreduce", roles={"trainers": 4, "embedding_servers": 1})
    uneven = clusters(jitter=1.5, prices={"gemm_flop": "1 ns"})
    waiting = outcome_of(trainers, uneven)
    assert str(bottleneck(waiting.binding)).startswith("waiting for other loops (")


@pytest.mark.usefixtures("equal_shares")
def test_fewer_exchanges_are_faster(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    thin = clusters(nic="20 Mbit/s")
    speeds = [eps(plans("flat_ps", {"mode": "easgd", "every": k}, roles=SERVERS), thin)
              for k in (1, 4)]  # fmt: skip
    assert speeds[1] > 1.3 * speeds[0]


def test_connection_cap_binds(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    plan = plans(roles=SERVERS)
    capped = clusters(network={"connection_cap": "20 Mbit/s"})
    assert eps(plan, capped) < 0.8 * eps(plan, clusters())


@pytest.mark.usefixtures("equal_shares")
def test_lock_step_waits_for_the_slowest(plans: Plans, clusters: Clusters, eps: Eps) -> None:
    steady, shaky = (clusters(jitter=j, prices={"gemm_flop": "2 ns"}) for j in (0.0, 0.5))
    lock_step = plans("allreduce", roles={"trainers": 4, "embedding_servers": 1})
    loss = eps(lock_step, shaky) / eps(lock_step, steady)
    free = plans("flat_ps", roles={"trainers": 4, "embedding_servers": 1})
    assert loss < 0.9
    assert loss < eps(free, shaky) / eps(free, steady)
    calm = plans("allreduce", roles=lock_step.experiment.roles.model_dump(),
                 simulation={"stragglers": False})  # fmt: skip
    assert eps(calm, shaky) == eps(calm, steady)


@pytest.mark.parametrize(("threads", "queue"), [(1, False), (2, True)])
def test_calls_keep_the_lock_where_several_loops_of_a_process_want_it(
    plans: Plans, clusters: Clusters, eps: Eps, threads: int, queue: bool
) -> None:
    plan = plans("flat_ps", roles=SERVERS, training={"threads": threads})
    short, long = (eps(plan, clusters(prices={"handover": held})) for held in ("1 us", "1 ms"))
    assert (long < 0.9 * short) if queue else long == short


def test_work_per_iteration_stays_small(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """A proxy of speed that no busy machine disturbs."""
    plan = plans(roles=SERVERS, training={"threads": 2})
    facts = outcome_of(plan, clusters()).facts
    iterations = 4 * 23
    assert facts.activities == pytest.approx(29 * iterations, rel=0.2)
    assert facts.events is not None
    assert facts.events < 130 * iterations
