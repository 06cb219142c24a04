"""What checkpoints and restarts take by the profile's prices, by hand."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, sqrt
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Price
from recsim_train.config.topology import MixedHosts
from recsim_train.placement.plan import Plan
from recsim_train.sim.host.memory import checkpoint_bytes
from recsim_train.trace.record import Outcome
from tests.sim.test_faults import (
    BATCH,
    HEAVY,
    STEPS,
    WARMUP,
    facts,
    failures,
    priced,
    recovery,
    restart_all,
)

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]

ONE_CORE = {"prices": HEAVY, "cores": 1, "contention": 1.0}


def largest(plan: Plan) -> float:
    return max(checkpoint_bytes(plan).values())


def steps(every: int, policy: str = "restart") -> dict[str, Any]:
    """Checkpoints by iterations."""
    return recovery(policy) | {"checkpoint": {"every": f"{every} steps"}}


@pytest.fixture
def even(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> tuple[float, float]:
    """(start of the first counted iteration, its length), of one process on one core."""
    outcome = outcome_of(plans(), clusters(**ONE_CORE))
    first = outcome.iterations[WARMUP]
    return first.start, (outcome.iterations[-1].start - first.start) / (STEPS - 1)


def test_what_a_process_holds_is_what_it_copies(plans: Plans) -> None:
    plan = plans("allreduce", roles={"trainers": 2, "embedding_servers": 3}, **restart_all(1.0))
    found = {instance.name: size for instance, size in checkpoint_bytes(plan).items()}
    # 4 -> 32 -> 8, then 7 vectors of 8 with their 21 products -> 32 -> 1, each with its bias
    dense = (4 * 32 + 32) + (32 * 8 + 8) + ((8 + 21) * 32 + 32) + (32 * 1 + 1)
    assert found["trainer[0]"] == found["trainer[1]"] == pytest.approx(4 * dense)
    rows = [size for name, size in found.items() if name.startswith("embedding_server")]
    assert sum(rows) == 6 * 1000 * 4 * (8 + 1)  # eight columns and a sum of squares
    assert len(rows) == 3


@pytest.mark.parametrize(("cores", "times"), [(8, 1.0), (1, 3.0), (2, 1.5)])
def test_copies_of_one_host_share_its_cores(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, cores: int, times: float
) -> None:
    plan = plans("allreduce", roles={"trainers": 3, "embedding_servers": 1}, **steps(12))
    sizes = {instance.name: size for instance, size in checkpoint_bytes(plan).items()}
    price = 2.0 / sizes["trainer[0]"]
    # of the hosts that of three equal trainers decides: its server's is far quicker
    cluster = clusters(
        prices=HEAVY, cores=cores, per_host={"trainer": 3}, checkpoints=priced(copied_byte=price),
        hosts={"embedding_server": clusters().hosts["default"].with_({"speed": 1000.0})},
    )  # fmt: skip
    found = facts(outcome_of(plan, cluster))
    assert found.checkpoints == 1
    assert found.standstill_seconds == pytest.approx(2.0 * times)
    assert found.checkpoint_seconds == pytest.approx(2.0 * times)


def test_a_slow_hosts_copy_is_waited_for(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles={"trainers": 2}, **steps(12))
    mixed = {"trainer": (MixedHosts(count=1), MixedHosts(speed=0.5))}
    sizes = {instance.name: size for instance, size in checkpoint_bytes(plan).items()}
    copied = priced(copied_byte=1.0 / sizes["trainer[1]"])
    found = facts(outcome_of(plan, clusters(prices=HEAVY, mixed=mixed, checkpoints=copied)))
    assert found.standstill_seconds == pytest.approx(2.0)


@pytest.mark.parametrize("cores", [1, 8])
def test_writing_takes_a_core_while_loops_go_on(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, cores: int
) -> None:
    start, length = even
    plan = plans(**steps(8))
    still, busy = 0.3, 2.5 * length
    prices = priced(copied_byte=still / largest(plan), written_byte=busy / largest(plan))
    cluster = clusters(prices=HEAVY, contention=1.0, cores=cores, checkpoints=prices)
    outcome = outcome_of(plan, cluster)
    found = facts(outcome)
    # before iterations 8 and 16 of 23; on the only core loop and writer have half of it each
    assert found.checkpoints == 2
    taken = still + (busy if cores == 1 else 0.0)
    end = start + STEPS * length + 2 * taken
    assert outcome.iterations[-1].end == pytest.approx(end, rel=2e-3)
    assert found.standstill_seconds == pytest.approx(2 * still)
    # what is said of it takes no core for idle
    assert found.checkpoint_seconds == pytest.approx(still + busy / cores)


@pytest.mark.parametrize("disk", [False, True])
def test_only_a_checkpoint_that_all_have_written_counts(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, disk: bool
) -> None:
    start, length = even
    every, takes = 6 * length, 3 * length
    plan = plans(**restart_all(every))
    price = priced(**{"disk_byte" if disk else "written_byte": takes / largest(plan)})

    def lost(at: float) -> float:
        """Iterations that a failure then loses."""
        down = failures((at * length, "trainer[0]"), restart=1e-3)
        cluster = clusters(prices=HEAVY, failures=down, checkpoints=price)
        return facts(outcome_of(plan, cluster)).lost_examples / BATCH

    # the first is begun at 6 and complete at 9, the next one is begun 6 after that
    assert lost(8.5) == pytest.approx(8.5 - start / length, rel=0.01)
    assert lost(9.5) == pytest.approx(3.5, rel=0.01)
    assert lost(17.5) == pytest.approx(11.5, rel=0.01)
    assert lost(18.5) == pytest.approx(3.5, rel=0.01)


def test_one_that_is_due_while_another_is_written_waits_for_it(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    _, length = even
    plan = plans(**steps(5))
    prices = priced(disk_byte=7 * length / largest(plan))
    found = facts(outcome_of(plan, clusters(prices=HEAVY, checkpoints=prices)))
    # begun before 5, complete at 12: the one before 10 is begun then, that before 15 at 19, which
    # is complete when training is over; for the one before 20 it is too late then
    assert found.checkpoints == 3


def test_a_restart_starts_verifies_and_loads(
    even: tuple[float, float], plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    start, length = even
    plan = plans(roles={"trainers": 1, "embedding_servers": 1}, **restart_all(1000.0))
    sizes = checkpoint_bytes(plan)
    whole, most = sum(sizes.values()), max(sizes.values())
    assert most < whole
    prices = priced(verified_byte=0.5 / whole, loaded_byte=0.25 / most, start=3.0)
    down = failures((start + 4 * length, "trainer[0]"), restart=1.5)
    found = facts(outcome_of(plan, clusters(prices=HEAVY, failures=down, checkpoints=prices)))
    assert found.standstill_seconds == pytest.approx(1.5 + 3.0 + 0.5 + 0.25)
    (failure,) = found.first_failures
    assert failure.back - failure.at == pytest.approx(1.5)
    # where a host has several processes and there is no launcher, each looks at all of it
    crowded = clusters(
        prices=HEAVY, failures=down, checkpoints=prices, per_host={"trainer": 3}, cores=2
    )
    three = plans(roles={"trainers": 3, "embedding_servers": 1}, **restart_all(1000.0))
    sizes = checkpoint_bytes(three)
    whole = sum(sizes.values()) * 0.5 / whole
    still = facts(outcome_of(three, crowded)).standstill_seconds
    assert still == pytest.approx(1.5 + 3.0 + 1.5 * whole + 0.25 * max(sizes.values()) / most)


def test_without_prices_nothing_of_it_takes_time_and_that_is_said(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    outcome = outcome_of(plans(**steps(8)), clusters(prices=HEAVY))
    assert (facts(outcome).checkpoints, facts(outcome).standstill_seconds) == (2, 0.0)
    (warning,) = outcome.facts.warnings
    assert "has no prices of checkpoints" in warning
    plain = outcome_of(plans(), clusters(prices=HEAVY, checkpoints=priced(copied_byte=1.0)))
    assert not plain.facts.warnings
    assert plain.facts.reliability is None


def test_the_interval_that_costs_least(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles={"trainers": 4, "embedding_servers": 2}, **restart_all(50.0))
    sizes = {instance.name: size for instance, size in checkpoint_bytes(plan).items()}
    prices = priced(copied_byte=0.02 / largest(plan), written_byte=0.16 / largest(plan))
    every = clusters(
        prices=HEAVY, contention=1.0, checkpoints=prices, failures=failures(mtbf="100 h")
    )
    found = facts(outcome_of(plan, every))
    assert len(sizes) == 6
    taken, between = 0.02 + 0.16 / 8, 100 * 3600 / 6
    assert found.checkpoint_seconds == pytest.approx(taken)
    assert found.between_failures == pytest.approx(between)
    assert found.best_interval == pytest.approx(sqrt(2 * taken * between))
    some = every.with_({"failures": failures(mtbf="100 h", role="trainer")})
    assert facts(outcome_of(plan, some)).between_failures == pytest.approx(100 * 3600 / 4)
    # where no failure loses work, or none comes by chance, or nothing is known of its cost
    on = plans(roles={"trainers": 4}, **recovery("continue_without", 50.0))
    planned = every.with_({"failures": failures((0.5, "trainer[0]"), restart=0.1)})
    unpriced = every.with_({"checkpoints": None})
    for case, there in ((on, every), (plan, planned), (plan, unpriced)):
        assert facts(outcome_of(case, there)).best_interval is None


@pytest.mark.parametrize("taken", [0.1, 2.0, 30.0])
def test_first_order_is_near_the_least_of_exponential_failures(taken: float) -> None:
    """Time for a second of work where failures come at any time: M (e^((T + C) / M) - 1) / T."""
    between = 7200.0

    def cost(every: float) -> float:
        return between * (exp((every + taken) / between) - 1.0) / every

    first = sqrt(2.0 * taken * between)
    least = min(cost(first * 1.01**k) for k in range(-150, 151))
    assert cost(first) <= least * 1.003
    assert cost(first) < min(cost(first / 2), cost(first * 2))


def test_a_price_of_which_only_the_magnitude_is_known_says_so(clusters: Clusters) -> None:
    known = priced(copied_byte=1e-9)
    rough = known.with_({"start": Price(value="2 s", uncertainty="10 %", basis="once")})
    assert clusters(checkpoints=rough).checkpoints == rough


@pytest.mark.parametrize(("trainers", "servers", "cards"), [(2, 2, 1), (2, 1, 2), (4, 1, 4)])
def test_a_cache_is_written_back_before_copies_are_made(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, trainers: int, servers: int, cards: int
) -> None:
    """At the slowest network card: a trainer's, or that of a server that gets what several send."""
    plan = plans(
        "scalefreectr", {"cache_rows": 1200},
        roles={"trainers": trainers, "embedding_servers": servers}, **steps(12),
    )  # fmt: skip
    cluster = clusters(prices=HEAVY, checkpoints=priced(copied_byte=0.0))
    found = facts(outcome_of(plan, cluster))
    row = 4 * (8 + 1) + 8  # eight columns, a sum of squares, and its id
    rate = cluster.hosts["default"].nic * cluster.network.efficiency
    assert found.checkpoints == 1
    assert found.standstill_seconds == pytest.approx(cards * 1200 * row / rate)
