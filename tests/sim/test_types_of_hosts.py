"""Predictions of a cluster that has hosts of several types for all roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import UserError
from recsim_train.config.topology import MixedHosts, Rent
from recsim_train.placement.plan import Plan
from recsim_train.sim.cluster.hosts import busy_cores, rented
from recsim_train.sim.host.memory_check import check_memory
from recsim_train.trace.record import Outcome
from tests.sim.test_mixed_hosts import loop_seconds
from tests.simulated import folding_of, scaled, times_of

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]

ROLES = {"trainers": 4, "embedding_servers": 2}
SERVERS_LAST = ("embedding_server",)


def types(*counts: int | None, **small: Any) -> dict[str, tuple[MixedHosts, ...]]:
    """So many hosts of the usual type, and so many of another one."""
    first, last = counts
    return {
        "default": (MixedHosts(count=first), MixedHosts.model_validate({"count": last, **small}))
    }


def test_a_trainer_on_a_slow_host_is_slower(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, equal_shares: None
) -> None:
    plan, prices = plans(roles=ROLES), {"gemm_flop": "50 ns"}
    servers = {**ROLES, "trainers": 2}
    mixed = types(4, 2, speed=0.5)
    usual = outcome_of(plan, clusters(prices=prices, mixed=mixed))
    seconds = loop_seconds(usual)
    first, last = (seconds[f"trainer[{n}].worker[0]"] for n in (0, 3))
    assert last == pytest.approx(2 * first, rel=0.02)
    assert usual.facts.host_types == [
        "hosts of cores of speed 1.0: trainer[0..1], embedding_server[0..1]",
        "hosts of cores of speed 0.5: trainer[2..3]",
    ]
    turned = outcome_of(plan, clusters(prices=prices, mixed=mixed, mixed_from_last=SERVERS_LAST))
    seconds = loop_seconds(turned)
    assert len({round(seconds[f"trainer[{n}].worker[0]"] / first, 2) for n in range(4)}) == 1
    # as one says it by role
    by_role = {"trainer": (MixedHosts(count=2), MixedHosts(speed=0.5))}
    same = outcome_of(plan, clusters(prices=prices, mixed=by_role))
    assert same.iterations == usual.iterations
    # all on the usual type, as if there were no other
    assert (
        outcome_of(plans(roles=servers), clusters(prices=prices, mixed=mixed)).iterations
        == outcome_of(plans(roles=servers), clusters(prices=prices)).iterations
    )


def test_each_type_has_its_own_rent(plans: Plans, clusters: Clusters) -> None:
    rents = [
        Rent.model_validate(
            {"per_hour": amount, "currency": "USD", "source": "us", "date": "2026-11-29"}
        )
        for amount in (2.0, 0.5)
    ]
    host = {"default": Host.model_validate({"cores": 8, "memory": "64 GiB", "nic": "10 Gbit/s"})}
    dear = {"default": host["default"].model_copy(update={"rent": rents[0]})}
    for last, per_hour in ((None, 4 * 2.0 + 2 * 0.5), (("trainer", *SERVERS_LAST), 4 * 0.5 + 4.0)):
        cluster = clusters(
            hosts=dear, mixed=types(4, 4, cores=4, rent=rents[1]), mixed_from_last=last
        )
        found = rented(plans(roles=ROLES), cluster)
        assert found is not None
        assert found.per_hour == per_hour
    unpriced = clusters(hosts=host, mixed=types(4, 4, cores=4, rent=rents[1]))
    assert rented(plans(roles=ROLES), unpriced) is None


def test_memory_and_cores_are_of_the_type_that_a_process_is_on(
    plans: Plans, clusters: Clusters
) -> None:
    plan = plans(roles=ROLES)
    small = types(4, 2, memory="100 MiB", cores=2)
    with pytest.raises(UserError, match=r"trainer\[3\] needs .* its host has 0\.098 GiB"):
        check_memory(plan, clusters(mixed=small))
    with pytest.raises(UserError, match=r"embedding_server\[0\] needs .* its host has 0\.098 GiB"):
        check_memory(plan, clusters(mixed=small, mixed_from_last=SERVERS_LAST))
    check_memory(plans(roles={**ROLES, "trainers": 2}), clusters(mixed=small))
    slow = clusters(mixed=types(4, 2, cores=2), mixed_from_last=SERVERS_LAST)
    assert {name: found.cores for name, found in times_of(plan, slow).items()} == {
        **{f"trainer[{n}]": 8 for n in range(4)}, "embedding_server[0]": 2,
        "embedding_server[1]": 2,
    }  # fmt: skip
    threads = plans(roles={"trainers": 2}, training={"threads": 6})
    assert busy_cores(threads, clusters(mixed=types(2, 2, cores=2))) == 6
    all_small = clusters(mixed=types(2, 2, cores=2), mixed_from_last=("trainer",))
    assert busy_cores(threads, all_small) == 2


def test_trainers_of_one_type_stand_for_each_other(plans: Plans, clusters: Clusters) -> None:
    roles = {"trainers": 8, "embedding_servers": 2, "dense_servers": 1}
    plan = plans(roles=roles, simulation={"fold_above": 2})
    for kinds, last, simulated in (
        (types(11, 4, cores=2), None, 2),
        (types(4, 8, cores=2), None, 8),
        (types(9, 8, cores=2), SERVERS_LAST, 2),
    ):
        cluster = clusters(mixed=kinds, mixed_from_last=last)
        assert folding_of(plan, cluster).simulated == simulated


def test_faster_cards_are_those_of_all_types(plans: Plans, clusters: Clusters) -> None:
    known = clusters(mixed=types(4, 2, nic="1 Gbit/s", cores=1))
    twice = scaled(known, {"nic": 2.0, "cores": 2.0})
    for (before, many), (after, still) in zip(
        known.lots("default"), twice.lots("default"), strict=True
    ):
        assert (after.nic, still) == (2 * before.nic, many)
        assert after.cores == 2 * before.cores / (known.contention if before.cores == 1 else 1.0)
