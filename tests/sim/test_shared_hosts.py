"""Hosts of several processes: what these share, what stays within, and what is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Host, Network
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Table
from recsim_train.config.frames import ANSWERED
from recsim_train.config.topology import Failures, MixedHosts, RackTopology, Rent, Stragglers
from recsim_train.placement.hosts import host_names, hosts_left, hosts_of
from recsim_train.placement.plan import Plan
from recsim_train.report.naming import bottleneck
from recsim_train.results.row import cores_of
from recsim_train.sim.cluster.hosts import busy_cores, rented, sites_of
from recsim_train.sim.folding import Folding
from recsim_train.sim.host.memory_check import check_memory, memory_check, smallest
from recsim_train.sim.messages.gloo_group import Exchanged
from recsim_train.trace.record import Outcome
from tests.sim.machine_world import World, move
from tests.sim.priced import priced
from tests.simulated import folding_of, simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
Eps = Callable[[Plan, Cluster], float]

NIC = 10e9 / 8
FREE = {"wire_byte": "0 ps"}
LOOPBACK = {"latency": "5 us", "connection_cap": "4 GB/s", "nic": "2 GB/s"}
PAIRS = {"trainer": 2}
ACK = ANSWERED


@pytest.fixture
def worlds(plans: Plans, clusters: Clusters) -> Callable[..., World]:
    def make(
        roles: dict[str, int] | None = None, folding: Folding | None = None, **changes: Any
    ) -> World:
        settings = {"prices": FREE, "per_host": PAIRS} | changes
        return World(plans(roles=roles or {"trainers": 4}), clusters(**settings), folding)

    return make


def rate(outcome: Outcome) -> float:
    assert outcome.speed is not None
    assert outcome.speed.examples_per_second is not None
    return outcome.speed.examples_per_second


# ------------------------------------------------------------------ who shares a host


def test_processes_of_a_role_fill_hosts_in_turn(plans: Plans, clusters: Clusters) -> None:
    roles = {"trainers": 5, "embedding_servers": 4, "dense_servers": 1, "readers": 2}
    cluster = clusters(per_host={"trainer": 2, "embedding_server": 3, "reader": 2})
    hosts = hosts_of(plans(roles=roles).instances, cluster)
    assert [host.name for host in hosts] == [
        "trainer[0-1]", "trainer[2-3]", "trainer[4]", "embedding_server[0-2]",
        "embedding_server[3]", "dense_server[0]", "reader[0-1]",
    ]  # fmt: skip
    assert [host.shared for host in hosts] == [True, True, False, True, False, False, True]
    (machine,) = hosts_of(plans(roles=roles).instances, clusters(colocate=True))
    assert (machine.name, len(machine.instances)) == ("machine", 12)


def test_hosts_have_racks_and_kinds_of_their_own(plans: Plans, clusters: Clusters) -> None:
    """Racks, their room, host types, prices and slow hosts are of hosts, not of processes."""
    instances = plans("allreduce", roles={"trainers": 8, "embedding_servers": 1}).instances
    racks = RackTopology.model_validate({"racks": 2, "hosts_per_rack": 3, "oversubscription": 2})
    cluster = clusters(
        per_host=PAIRS,
        topology=racks,
        mixed={"trainer": (MixedHosts.model_validate({"count": 1, "cores": 4}), MixedHosts())},
    )
    found = hosts_of(instances, cluster)
    assert [host.rack for host in found] == [0, 1, 0, 1, 0]
    assert [host.kind.cores for host in found] == [4, 8, 8, 8, 8]
    assert hosts_left(instances, cluster) == 1
    plan = plans("allreduce", roles={"trainers": 8, "embedding_servers": 1})
    slow = Stragglers.model_validate(
        {"slow": [{"hosts": ["trainer[2]", "trainer[3]"], "factor": 3}]}
    )
    sites = sites_of(plan, clusters(per_host=PAIRS, stragglers=slow))
    assert {i.name: site.slow for i, site in sites.items() if site.slow > 1.0} == {
        "trainer[2]": 3.0, "trainer[3]": 3.0,
    }  # fmt: skip


def test_a_host_is_paid_for_once(plans: Plans, clusters: Clusters) -> None:
    rent = Rent(per_hour=2.0, currency="EUR", source="a contract", date="2026-11-27")
    host = Host(cores=8, memory="64 GiB", nic="10 Gbit/s", rent=rent)  # type: ignore[arg-type]
    plan = plans("allreduce", roles={"trainers": 8, "embedding_servers": 1})
    cluster = clusters(per_host={"trainer": 4}, hosts={"default": host})
    paid = rented(plan, cluster)
    assert paid is not None
    assert (paid.hosts, paid.per_hour) == (3, 6.0)
    outcome = simulate(plan, cluster)
    assert cores_of(outcome.facts, colocate=False) == 3 * 8
    assert outcome.facts.hosts == host_names(plan.instances, cluster)


def test_threads_of_all_processes_of_a_host_keep_its_cores_busy(
    plans: Plans, clusters: Clusters
) -> None:
    plan = plans("allreduce", roles={"trainers": 8}, training={"threads": 2})
    assert [busy_cores(plan, clusters(per_host={"trainer": n})) for n in (1, 2, 4, 8)] == [
        2,
        4,
        8,
        8,
    ]


# ------------------------------------------------------------------ memory


def test_memory_is_that_of_all_processes_of_a_host(plans: Plans, clusters: Clusters) -> None:
    model = {"tables": tuple(Table(rows=20_000_000) for _ in range(6)), "embedding_dim": 8}
    roles = {"trainers": 1, "embedding_servers": 6, "dense_servers": 1}
    plan = plans(roles=roles, model=model)
    alone = {host.name: host.needed for host in check_memory(plan, clusters())}
    shared = clusters(per_host={"embedding_server": 3})
    together = {host.name: host.needed for host in check_memory(plan, shared)}
    names = [f"embedding_server[{n}]" for n in range(3)]
    assert together["embedding_server[0-2]"] == pytest.approx(sum(alone[name] for name in names))
    assert memory_check(plan, shared).fullest.name.startswith("embedding_server[")
    few = clusters(per_host={"embedding_server": 3}, memory="2 GiB")
    with pytest.raises(
        UserError, match=r"the 3 processes of the host of embedding_server\[0-2\] need"
    ):
        check_memory(plan, few)
    # more of them on a host that is full are no way out: as many more hosts are
    least = smallest(plan, few, "embedding_server")
    alone_least = smallest(plan, clusters(memory="2 GiB"), "embedding_server")
    assert alone_least is not None
    assert least is None or least > alone_least


# ------------------------------------------------------------------ by hand


@pytest.mark.usefixtures("equal_shares")
def test_processes_of_a_host_share_its_link(worlds: Callable[..., World]) -> None:
    world = worlds()
    zero, one, two, three = world.trainers
    assert zero.send is one.send
    assert zero.send is not two.send
    ends = world.seconds(move(world, zero, two, NIC), move(world, one, three, NIC))
    assert ends == pytest.approx([2.0, 2.0])
    world = worlds(per_host=None)
    zero, one, two, three = world.trainers
    ends = world.seconds(move(world, zero, two, NIC), move(world, one, three, NIC))
    assert ends == pytest.approx([1.0, 1.0])


@pytest.mark.usefixtures("equal_shares")
def test_what_stays_on_a_host_does_not_use_its_link(worlds: Callable[..., World]) -> None:
    world = worlds(network={"loopback": LOOPBACK})
    zero, one, two, _ = world.trainers
    inside, outside = move(world, zero, one, 2e9), move(world, one, two, NIC)
    assert world.seconds(inside, outside) == pytest.approx([1.0, 1.0])
    used = world.used()
    assert used["trainer[0-1].nic.tx"] == pytest.approx(NIC)
    assert used["trainer[0].loopback.tx"] == used["trainer[1].loopback.rx"] == pytest.approx(2e9)
    machines = world.machines
    assert machines.latency_of(zero, one) == pytest.approx(5e-6)
    assert machines.latency_of(zero, two) == pytest.approx(20e-6)
    # where nothing is measured within a host, only cores limit: 100 ps a byte at each end
    world = worlds(prices={})
    zero, one, *_ = world.trainers
    assert world.seconds(move(world, zero, one, 1e9)) == pytest.approx([0.1])


def test_a_ring_leaves_each_host_once(worlds: Callable[..., World]) -> None:
    """Of four members on two hosts two send to the other host, whatever the number of each."""
    world = worlds()
    assert world.seconds(world.meetings()._ring(NIC, 0.0).done) == [pytest.approx(1.0 + ACK)]
    assert world.used()["trainer[2-3].nic.tx"] == pytest.approx(NIC * (1.0 + ACK))
    world = worlds(roles={"trainers": 8}, per_host={"trainer": 4})
    assert world.seconds(world.meetings()._ring(NIC, 0.0).done) == [pytest.approx(1.0 + ACK)]


def test_an_exchange_leaves_a_host_for_the_others(worlds: Callable[..., World]) -> None:
    world = worlds()
    part = NIC / 8
    sent = {me: [0.0 if me == other else part for other in range(4)] for me in range(4)}
    moved = [Exchanged(3 * part, 3 * part, part, part)] * 4
    ends = world.seconds(world.meetings()._exchange(moved, sent, 0.0).done)
    assert ends == [pytest.approx(4 * part / NIC * (1.0 + ACK))]  # two members to two others


def test_a_folded_ring_leaves_its_host_as_the_whole_one_does(worlds: Callable[..., World]) -> None:
    """The last simulated member of a host sends to another host, not to the first one."""
    whole = worlds(roles={"trainers": 8})
    folded = worlds(roles={"trainers": 8}, folding=Folding(8, 2))
    assert len(folded.trainers) == 2
    ends = [w.seconds(w.meetings()._ring(NIC, 0.0).done) for w in (whole, folded)]
    assert ends[0] == pytest.approx(ends[1])


# ------------------------------------------------------------------ whole predictions

KINDS: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    ("allreduce", {}, {}),
    ("allreduce", {}, {"embedding_servers": 2}),
    ("flat_ps", {}, {"embedding_servers": 1, "dense_servers": 1}),
    ("shadowsync", {"algorithm": "easgd"}, {"embedding_servers": 1, "dense_servers": 1}),
    ("des", {}, {}),
    ("scalefreectr", {}, {"embedding_servers": 1}),
]


@pytest.mark.parametrize(("kind", "options", "roles"), [k for k in KINDS if not k[2]])
def test_a_host_of_all_trainers_is_a_machine_of_all(
    plans: Plans, clusters: Clusters, kind: str, options: dict[str, Any], roles: dict[str, int],
) -> None:  # fmt: skip
    """One model: ``colocate`` is the case in which nothing is elsewhere."""
    plan = plans(kind, options, roles={"trainers": 3, **roles})
    cluster = clusters(jitter=0.3, cores=64)  # so that no core is drawn by lot
    machine = cluster.model_copy(
        update={
            "colocate": True,
            "network": cluster.network.model_copy(update={"latency": 5e-6, "connection_cap": 4e9}),
            "hosts": {"default": cluster.hosts["default"].model_copy(update={"nic": 2e9})},
        }
    )
    shared = cluster.model_copy(
        update={
            "per_host": {"trainer": 3},
            "network": Network.model_validate({"latency": "20 us", "loopback": LOOPBACK}),
        }
    )
    assert rate(simulate(plan, shared)) == pytest.approx(rate(simulate(plan, machine)), rel=1e-9)


@pytest.mark.parametrize(("kind", "options", "roles"), KINDS)
def test_one_process_a_host_is_what_a_profile_without_per_host_says(
    plans: Plans, clusters: Clusters, kind: str, options: dict[str, Any], roles: dict[str, int]
) -> None:
    plan = plans(kind, options, roles={"trainers": 3, **roles})
    one = dict.fromkeys(["trainer", "embedding_server", "dense_server"], 1)
    plain, said = (simulate(plan, clusters(jitter=0.3, **k)) for k in ({}, {"per_host": one}))
    assert plain.iterations == said.iterations
    assert plain.facts.bounds == said.facts.bounds


@pytest.mark.parametrize(("kind", "options", "roles"), KINDS)
def test_bounds_hold_and_bytes_leave_hosts_only(
    plans: Plans, clusters: Clusters, eps: Eps, kind: str, options: dict[str, Any],
    roles: dict[str, int],
) -> None:  # fmt: skip
    """With slow links more trainers on a host send less between hosts, never more; what a
    background exchanges as often as it can is not the same in each."""
    if kind == "shadowsync":
        options = {**options, "sync": "foreground", "every": 4}
    plan = plans(kind, options, roles={"trainers": 4, **roles}, model={"embedding_dim": 64})
    outside = []
    for together in (1, 2, 4):
        cluster = clusters(nic="100 Mbit/s", per_host={"trainer": together})
        eps(plan, cluster)
        bytes_out = simulate(plan, cluster).facts.nic_bytes
        assert bytes_out is not None
        outside.append(bytes_out)
    assert outside[0] * (1 + 1e-9) >= outside[1] * (1 - 1e-9) >= outside[2] * (1 - 1e-9) ** 2
    if not roles:
        assert outside[2] == 0.0


@pytest.mark.usefixtures("equal_shares")
def test_a_saturated_link_of_a_host_is_what_its_trainers_share(
    plans: Plans, clusters: Clusters
) -> None:
    """Free-running trainers that only their hosts' links limit: half the hosts, half the rate."""
    roles = {"trainers": 8, "embedding_servers": 8}
    plan = plans(
        "shadowsync", {"algorithm": "ma"}, roles=roles, model={"embedding_dim": 256},
        training={"steps": 40},
    )  # fmt: skip
    rates = []
    for together in (1, 2, 4):
        cluster = clusters(
            per_host={"trainer": together},
            hosts={
                "default": Host(cores=64, memory="64 GiB", nic="400 Gbit/s"),  # type: ignore[arg-type]
                "trainer": Host(cores=64, memory="64 GiB", nic="200 Mbit/s"),  # type: ignore[arg-type]
            },
        )
        rates.append(rate(simulate(plan, priced(cluster))))
    assert rates[1] == pytest.approx(rates[0] / 2, rel=0.03)
    assert rates[2] == pytest.approx(rates[0] / 4, rel=0.03)


@pytest.mark.usefixtures("equal_shares")
@pytest.mark.usefixtures("equal_shares")
@pytest.mark.parametrize("kind", ["allreduce", "flat_ps"])
def test_trainers_that_are_alike_are_folded_host_by_host(
    plans: Plans, clusters: Clusters, kind: str
) -> None:
    def plan(trainers: int, **changes: Any) -> Plan:
        tables = tuple(Table(rows=rows) for rows in (600, 550, 70, 20))  # none is split
        return plans(
            kind,
            roles={"trainers": trainers, "embedding_servers": 2, "dense_servers": 1},
            model={"tables": tables},
            data={"eval_rows": 0},
            **changes,
        )

    cluster = clusters(per_host={"trainer": 4}, jitter=0.0, nic="200 Mbit/s", cores=64)
    few = plan(32, simulation={"fold_above": 7})
    assert folding_of(few, cluster) == Folding(32, 4)
    every = plan(32, simulation={"fold_above": 0})
    assert rate(simulate(few, cluster)) == pytest.approx(rate(simulate(every, cluster)), rel=1e-6)
    # of hosts that are not all full none stands for another
    assert folding_of(plan(34), cluster, most=7) == Folding(34, 34)


def test_a_host_that_fails_takes_all_of_its_processes_along(
    plans: Plans, clusters: Clusters
) -> None:
    failures = Failures.model_validate(
        {"schedule": [{"host": "trainer[1]", "at": "1 ms"}], "restart": "50 ms"}
    )
    plan = plans(
        "shadowsync", {"algorithm": "ma"}, roles={"trainers": 4, "embedding_servers": 1},
        recovery={"policy": "continue_without"},
    )  # fmt: skip
    outcome = simulate(plan, clusters(per_host=PAIRS, failures=failures))
    reliability = outcome.facts.reliability
    assert reliability is not None
    assert [f.host for f in reliability.first_failures] == ["trainer[0-1]"]
    slowest = {
        name: max(i.end - i.start for i in outcome.iterations if i.loop.startswith(name))
        for name in ("trainer[0]", "trainer[1]", "trainer[2]", "trainer[3]")
    }
    assert min(slowest["trainer[0]"], slowest["trainer[1]"]) > 0.05
    assert max(slowest["trainer[2]"], slowest["trainer[3]"]) < 0.05


def test_names_of_what_binds(plans: Plans, clusters: Clusters) -> None:
    plan = plans("allreduce", roles={"trainers": 4, "embedding_servers": 2})
    cluster = clusters(nic="50 Mbit/s", per_host={"trainer": 2, "embedding_server": 2})
    outcome = simulate(plan, cluster)
    said = str(bottleneck(outcome.binding))
    assert "[0-1]" in said or "[2-3]" in said
    assert {"trainer[0-1].nic.tx", "trainer[0].interpreter"} <= outcome.facts.bounds.keys()
    assert outcome.facts.servers_needed is not None
    assert outcome.facts.servers_needed["embedding_server"].present == 2
    assert outcome.facts.hosts["trainer[3]"] == "trainer[2-3]"
