"""Hosts of several types for all roles: who stands on which."""

from __future__ import annotations

from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import NoHostError
from recsim_train.config.topology import MixedHosts, RackTopology, RoleName
from recsim_train.placement.hosts import host_types, hosts_of, hosts_there, types_said, uplink_rate
from recsim_train.placement.plan import Instance
from tests.sim.conftest import make_cluster

LARGE, SMALL = 8, 2
"""Cores."""
GBIT = 1e9 / 8


def cluster(*counts: int | None, **changes: Any) -> Cluster:
    """So many large hosts, and so many small ones with a slower card."""
    slow = {"cores": SMALL, "nic": "1 Gbit/s"}
    large, small = counts or (4, 4)
    entries = [{"count": large}, {"count": small, **slow}]
    types = tuple(MixedHosts.model_validate(entry) for entry in entries)
    return make_cluster(mixed={"default": types, **changes.pop("mixed", {})}, **changes)


def cores(
    trainers: int, embedding: int = 0, dense: int = 0, readers: int = 0, **given: Any
) -> dict[str, list[int]]:
    counts: dict[RoleName, int] = {
        "trainer": trainers, "embedding_server": embedding, "dense_server": dense,
        "reader": readers,
    }  # fmt: skip
    found = host_types(counts, cluster(*given.pop("counts", ()), **given))
    return {role: [int(host.cores) for host in hosts] for role, hosts in found.items() if hosts}


def test_servers_take_the_first_hosts_and_trainers_what_is_left() -> None:
    assert cores(4, 2, 1) == {
        "embedding_server": [LARGE] * 2, "dense_server": [LARGE],
        "trainer": [LARGE] + [SMALL] * 3,
    }  # fmt: skip
    assert cores(2, 3, 2, 1) == {
        "embedding_server": [LARGE] * 3, "dense_server": [LARGE, SMALL], "reader": [SMALL],
        "trainer": [SMALL] * 2,
    }  # fmt: skip
    assert cores(7, counts=(2, None))["trainer"] == [LARGE] * 2 + [SMALL] * 5


def test_who_takes_the_last_hosts_is_said() -> None:
    servers = ("embedding_server", "dense_server")
    assert cores(4, 2, 1, mixed_from_last=servers) == {
        "embedding_server": [SMALL] * 2, "dense_server": [SMALL], "trainer": [LARGE] * 4,
    }  # fmt: skip
    assert cores(5, 2, mixed_from_last=("trainer",)) == {
        "embedding_server": [LARGE] * 2, "trainer": [LARGE] + [SMALL] * 4,
    }  # fmt: skip
    assert cores(2, 2, mixed_from_last=("trainer", *servers)) == {
        "embedding_server": [SMALL] * 2, "trainer": [SMALL] * 2,
    }  # fmt: skip


def test_a_role_with_a_type_of_its_own_has_other_hosts() -> None:
    own = Host.model_validate({"cores": 16, "memory": "1 GiB", "nic": "10 Gbit/s"})
    differ = {"embedding_server": (MixedHosts(count=1), MixedHosts(cores=12))}
    found = cores(6, 3, hosts={"embedding_server": own}, mixed=differ)
    assert found == {"embedding_server": [16, 12, 12], "trainer": [LARGE] * 4 + [SMALL] * 2}
    assert hosts_there(cluster(hosts={"embedding_server": own})) is None


def processes(trainers: int, servers: int) -> list[Instance]:
    return [
        *(Instance("trainer", n) for n in range(trainers)),
        *(Instance("embedding_server", n) for n in range(servers)),
    ]


def test_no_job_has_more_of_them_than_there_are() -> None:
    assert hosts_there(cluster()) == 8
    assert len(hosts_of(processes(6, 2), cluster())) == 8
    with pytest.raises(NoHostError, match=r"8 hosts \(mixed\.default\) are too few .* 9 hosts"):
        hosts_of(processes(7, 2), cluster())
    with pytest.raises(NoHostError, match=r"mixed\.default has 6 hosts for trainers, too"):
        host_types({"trainer": 7, "embedding_server": 2}, cluster())


def test_processes_that_share_a_host_share_its_type() -> None:
    shared = cluster(per_host={"trainer": 2}, mixed_from_last=("embedding_server",))
    known = hosts_of(processes(10, 1), shared)
    assert [(host.name, host.kind.cores) for host in known] == [
        *((f"trainer[{n}-{n + 1}]", LARGE) for n in (0, 2, 4, 6)),
        ("trainer[8-9]", SMALL), ("embedding_server[0]", SMALL),
    ]  # fmt: skip
    assert types_said(processes(10, 1), shared) == [
        f"hosts of {LARGE} cores, 10 Gbit/s: trainer[0..7]",
        f"hosts of {SMALL} cores, 1 Gbit/s: trainer[8..9], embedding_server[0]",
    ]
    # those that the job does not use tell its hosts apart, too
    assert types_said(processes(2, 0), cluster()) == [
        f"hosts of {LARGE} cores, 10 Gbit/s: trainer[0..1]"
    ]
    assert types_said(processes(2, 1), make_cluster()) == []


def test_racks_hold_both_types() -> None:
    """An uplink is what there is in a rack over the oversubscription, whoever stands there."""
    racks = RackTopology.model_validate({"racks": 2, "hosts_per_rack": 4, "oversubscription": 4})
    for counts, rate in (((4, 4), 5.5), ((6, None), 7.75)):
        both = cluster(*counts, topology=racks)
        known = hosts_of(processes(6, 2), both)
        assert [host.rack for host in known] == [0, 1, 0, 1, 0, 1, 0, 1]
        assert sorted(host.kind.cores for host in known if host.rack == 0) != [LARGE] * 4
        mine = [host for host in known if host.rack == 0]
        assert uplink_rate(racks, both, mine) == pytest.approx(rate * GBIT)
