"""What the hosts of a prediction cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.topology import MixedHosts, Rent
from recsim_train.placement.plan import Plan
from recsim_train.sim.cluster.hosts import rented
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

ROLES = {"trainers": 3, "embedding_servers": 2, "dense_servers": 1}


def rent(per_hour: float, source: str = "a contract", currency: str = "EUR") -> dict[str, Any]:
    return {"per_hour": per_hour, "currency": currency, "source": source, "date": "2026-11-01"}


def host(**more: Any) -> dict[str, Any]:
    return {"cores": 8, "memory": "64 GiB", "nic": "10 Gbit/s", **more}


def test_every_host_counts(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=ROLES)
    hosts = {"default": host(rent=rent(2.0)), "embedding_server": host(rent=rent(5.0, "a list"))}
    mixed = {"trainer": (MixedHosts(count=1, rent=Rent.model_validate(rent(0.5))), MixedHosts())}
    found = rented(plan, clusters(hosts=hosts, mixed=mixed))
    assert found is not None
    assert (found.hosts, found.currency) == (6, "EUR")
    assert found.per_hour == pytest.approx(0.5 + 2 * 2.0 + 2 * 5.0 + 2.0)
    assert set(found.sources) == {"a contract, 2026-11-01", "a list, 2026-11-01"}


def test_one_machine_is_paid_once(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=ROLES)
    found = rented(plan, clusters(colocate=True, hosts={"default": host(rent=rent(2.0))}))
    assert found is not None
    assert (found.hosts, found.per_hour) == (1, 2.0)


def test_amounts_of_two_currencies_are_not_added(plans: Plans, clusters: Clusters) -> None:
    hosts = {
        "default": host(rent=rent(2.0)), "dense_server": host(rent=rent(1.0, currency="USD")),
        "reader": host(rent=rent(1.0, currency="CHF")),
    }  # fmt: skip
    assert rented(plans(roles=ROLES), clusters(hosts=hosts)) is None
    found = rented(plans(roles={**ROLES, "dense_servers": 0}), clusters(hosts=hosts))
    assert found is not None
    assert found.currency == "EUR"


def test_nothing_is_said_where_one_has_no_price(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=ROLES)
    hosts = {"default": host(rent=rent(2.0)), "dense_server": host()}
    assert rented(plan, clusters(hosts=hosts)) is None
    assert rented(plan, clusters()) is None
    priced = clusters(hosts={"default": host(rent=rent(2.0))})
    outcome = simulate(plans(roles=ROLES, simulation={"what_if_steps": 0}), priced)
    assert outcome.facts.rented == rented(plan, priced)
