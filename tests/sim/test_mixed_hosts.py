"""Hosts that differ: cores, speed, NIC and memory of each one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Costs
from recsim_train.config.errors import UserError
from recsim_train.config.topology import MixedHosts
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import reading_of
from recsim_train.report.naming import bottleneck
from recsim_train.sim.host.memory_check import check_memory
from recsim_train.trace.record import Outcome
from recsim_train.workload import operations

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]
Eps = Callable[[Plan, Cluster], float]

FAST_DATA = {"path": ("file.tsv",), "generate": True}


def mixed(**roles: list[dict[str, Any]]) -> dict[str, tuple[MixedHosts, ...]]:
    return {
        role: tuple(MixedHosts.model_validate(entry) for entry in entries)
        for role, entries in roles.items()
    }


def loop_seconds(outcome: Outcome) -> dict[str, float]:
    """Mean seconds of an iteration, by loop."""
    spent: dict[str, list[float]] = {}
    for i in outcome.iterations:
        spent.setdefault(i.loop, []).append(i.end - i.start)
    return {loop: sum(times[1:]) / len(times[1:]) for loop, times in spent.items()}


def test_speed_scales_every_computation(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    # one process: an iteration is nothing but computations
    plan = plans()
    whole = outcome_of(plan, clusters())
    half = outcome_of(plan, clusters(mixed=mixed(trainer=[{"speed": 0.5}])))
    # the reader's thread in the same process is slower, too: all stays in proportion
    for a, b in zip(whole.iterations, half.iterations, strict=True):
        assert b.start == pytest.approx(2 * a.start, rel=1e-9)
        assert b.end == pytest.approx(2 * a.end, rel=1e-9)
    assert half.bound_eps == pytest.approx(0.5 * float(str(whole.bound_eps)), rel=1e-9)
    assert bottleneck(half.binding) == bottleneck(whole.binding)
    busy = [o.utilisation for o in (whole, half)]
    assert busy[1] == pytest.approx(busy[0])


def test_speed_in_the_host_type_is_the_same(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans(roles={"trainers": 2, "embedding_servers": 1})
    slow = clusters().hosts["default"].model_copy(update={"speed": 0.5})
    by_type = outcome_of(plan, clusters(hosts={"trainer": slow}))
    by_entry = outcome_of(plan, clusters(mixed=mixed(trainer=[{"speed": 0.5}])))
    assert by_type.iterations == by_entry.iterations
    assert by_type.iterations != outcome_of(plan, clusters()).iterations


def test_a_slow_core_also_moves_bytes_slowly(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    plan = plans("allreduce", roles={"embedding_servers": 1})
    prices = {"wire_byte": "10 ns"}  # 100 MB/s for one thread, far below the NIC

    def spent(effect: str, **changes: Any) -> float:
        outcome = outcome_of(plan, clusters(prices=prices, **changes))
        total = next(t for k, t in outcome.totals.items() if k.effect == effect)
        return total.seconds / total.count

    server = mixed(embedding_server=[{"speed": 0.25}])
    # size, shard, and a header of five numbers and one for each table; an answer's size
    heads = 8 + 8 + 8 * (5 + 6) + 8
    moved = 8 * 64 * 6 + heads + 64 * 6 * 8 * 4  # ids and vectors
    # three more quarters of the transfer, and of what the server does at its own price
    added = spent("lookup", mixed=server) - spent("lookup")
    assert added == pytest.approx(3 * (moved * 10e-9 + spent("serve_lookup")), rel=1e-6)


def test_free_trainers_go_at_their_own_speed_and_lock_step_at_the_slowest(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, eps: Eps, equal_shares: None
) -> None:
    prices = {"gemm_flop": "50 ns"}  # computations are all that counts
    two_slow = clusters(prices=prices, mixed=mixed(trainer=[{"count": 2}, {"speed": 0.5}]))
    all_slow = clusters(prices=prices, mixed=mixed(trainer=[{"speed": 0.5}]))
    even = clusters(prices=prices)
    roles = {"trainers": 4, "embedding_servers": 2}
    free, lock_step = plans("flat_ps", roles=roles), plans("allreduce", roles=roles)
    assert eps(lock_step, two_slow) == pytest.approx(eps(lock_step, all_slow), rel=0.02)
    assert eps(lock_step, two_slow) == pytest.approx(0.5 * eps(lock_step, even), rel=0.02)
    outcome = outcome_of(free, two_slow)
    seconds = loop_seconds(outcome)
    fast = seconds["trainer[0].worker[0]"]
    assert seconds["trainer[3].worker[0]"] == pytest.approx(2 * fast, rel=0.02)
    assert eps(free, two_slow) == pytest.approx(3 * 64 / fast, rel=0.02)
    # from the fast ones' first counted start until the slow ones' last end
    assert outcome.speed is not None
    assert outcome.speed.seconds == pytest.approx((3 + 20) * 2 * fast - 3 * fast, rel=0.02)
    (warning,) = outcome.facts.warnings
    assert warning.startswith("trainers end at different times: until the slowest has done")
    assert not outcome_of(lock_step, two_slow).facts.warnings


def test_cores_and_nic_of_a_host_bind(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, eps: Eps
) -> None:
    plan = plans(roles={"trainers": 4, "embedding_servers": 2})
    slow_rows = {"gather_row": "20 us"}
    one_core = mixed(embedding_server=[{"count": 1}, {"cores": 1}])
    outcome = outcome_of(plan, clusters(prices=slow_rows, mixed=one_core))
    assert bottleneck(outcome.binding) == "cores of embedding_server[1]"
    assert outcome.facts.cores["embedding_server[0]"] == 8
    assert outcome.facts.cores["embedding_server[1]"] == 1
    narrow = mixed(embedding_server=[{"count": 1, "nic": "20 Mbit/s"}, {}])
    outcome = outcome_of(plan, clusters(mixed=narrow))
    assert "embedding_server[0]" in str(outcome.binding)
    bounds = outcome.facts.bounds
    assert min(bounds, key=bounds.__getitem__).startswith("embedding_server[0].nic")
    # all wait for the one server that is worse than the others
    quick = eps(plan, clusters())
    assert eps(plan, clusters(mixed=narrow)) < 0.5 * quick
    wider = mixed(embedding_server=[{"count": 1, "nic": "40 Mbit/s"}, {}])
    ratio = eps(plan, clusters(mixed=wider)) / eps(plan, clusters(mixed=narrow))
    assert ratio == pytest.approx(2.0, rel=0.1)
    two_cores = mixed(embedding_server=[{"count": 1}, {"cores": 2}])
    slow_speed, two_speed = (
        eps(plan, clusters(prices=slow_rows, mixed=m)) for m in (one_core, two_cores)
    )
    assert two_speed == pytest.approx(2 * slow_speed, rel=0.1)


def test_a_slow_reader_binds(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, eps: Eps
) -> None:
    roles = {"trainers": 2, "readers": 2}
    plan = plans(roles=roles, data=FAST_DATA, training={"steps": 40})
    prices = {"read_row": "200 us"}
    slow = clusters(prices=prices, mixed=mixed(reader=[{"count": 1}, {"speed": 0.5}]))
    price = {name: getattr(slow.costs, name).value for name in Costs.model_fields}
    scope = reading_of(plan, plan.reader_of(plan.feeding[0]))
    work = operations.seconds(operations.cost("reading", scope), price)[0]
    outcome = outcome_of(plan, slow)
    assert bottleneck(outcome.binding) == "parsing thread of reader[1]"
    seconds = loop_seconds(outcome)
    assert seconds["trainer[0].worker[0]"] == pytest.approx(work, rel=0.02)
    assert seconds["trainer[1].worker[0]"] == pytest.approx(work / 0.5, rel=0.02)
    # one reader with one core that must also send: the cores bind it, not the thread
    messages = {"read_row": "200 us", "gloo_message": "8 ms"}
    one = clusters(prices=messages, mixed=mixed(reader=[{"cores": 1}]))
    sending = outcome_of(plans(roles={"readers": 1}, data=FAST_DATA), one)
    bounds = sending.facts.bounds
    assert bounds["reader[0].cores"] < bounds["reader[0].thread"]
    whole = 64 / (work + (2 + 1.6) * 8e-3)  # two messages, and packing a batch for them
    assert bounds["reader[0].cores"] == pytest.approx(whole, rel=0.1)
    assert eps(plans(roles={"readers": 1}, data=FAST_DATA), one) <= whole * 1.1


def test_memory_is_checked_host_by_host(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles={"trainers": 2, "embedding_servers": 2})
    small = mixed(embedding_server=[{"count": 1}, {"memory": "100 MiB"}])
    with pytest.raises(UserError, match=r"embedding_server\[1\] needs .* its host has 0\.098 GiB"):
        check_memory(plan, clusters(mixed=small))
    uses = {u.name: u.available for u in check_memory(plan, clusters(mixed=mixed(trainer=[{}])))}
    assert set(uses.values()) == {64 * 2**30}
    few = mixed(trainer=[{"count": 1}])
    with pytest.raises(
        UserError, match=r"mixed\.trainer has 1 hosts for trainers, too few for trainer\[1\]"
    ):
        check_memory(plan, clusters(mixed=few))


def test_hosts_of_a_group_wait_for_each_other_and_not_for_other_groups(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """One step of the embedding rows is one group's: what it costs is an acknowledged Update."""
    options = {"hosts": 2, "outer": "easgd", "tags": "top.0=dp,top.1=dp"}
    roles = {"trainers": 4, "embedding_servers": 1, "dense_servers": 1}
    plan = plans("hierarchical", options, roles=roles)
    slow = [{"count": 3}, {"speed": 0.25}]
    outcome = outcome_of(plan, clusters(prices={"gemm_flop": "10 ns"}, mixed=mixed(trainer=slow)))
    seconds = loop_seconds(outcome)
    times = [seconds[f"trainer[{t}].worker[0]"] for t in range(4)]
    assert times[0] == pytest.approx(times[1], rel=0.01)
    assert times[2] == pytest.approx(times[3], rel=0.01)
    assert times[2] > 3 * times[0]
    # both hosts of a group learn of the step at the same moment, however many requests there were
    served = {k.loop: t for k, t in outcome.totals.items() if k.effect == "serve_update"}
    assert {t.count for t in served.values()} == {20}
