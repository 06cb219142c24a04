"""Racks: where hosts stand, what crosses uplinks, and what traffic of others leaves of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Table
from recsim_train.config.topology import RackTopology, Traffic
from recsim_train.placement.hosts import hosts_left, hosts_of
from recsim_train.placement.plan import Plan
from recsim_train.report.naming import bottleneck
from recsim_train.sim.messages.gloo_group import Exchanged
from recsim_train.sim.runtime import Runtime
from recsim_train.trace.record import Outcome
from tests.sim import gloo_ring
from tests.sim.conftest import speed
from tests.sim.machine_world import World, move

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]
Eps = Callable[[Plan, Cluster], float]

NIC, UPLINK = 10e9 / 8, 1e9 / 8
MANY = {"trainers": 4, "embedding_servers": 2, "dense_servers": 1, "readers": 1}
MANY_IDS = {"tables": tuple(Table(rows=1000, ids=40) for _ in range(6))}
"""Most bytes go from trainers to servers."""
FREE = {"wire_byte": "0 ps"}


def topology(**changes: Any) -> RackTopology:
    settings: dict[str, Any] = {"racks": 2, "uplink": "1 Gbit/s"}
    return RackTopology.model_validate(settings | changes)


@pytest.fixture
def worlds(plans: Plans, clusters: Clusters) -> Callable[..., World]:
    def make(roles: dict[str, int] | None = None, **changes: Any) -> World:
        settings = {"prices": FREE, "topology": topology()} | changes
        return World(plans(roles=roles or {"trainers": 4}), clusters(**settings))

    return make


# ------------------------------------------------------------------ where hosts stand


def racks_by_process(plan: Plan, cluster: Cluster) -> dict[str, int | None]:
    hosts = hosts_of(plan.instances, cluster)
    return {i.name: host.rack for host in hosts for i in host.instances}


def test_round_robin_by_role(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=MANY)
    assert racks_by_process(plan, clusters(topology=topology(racks=3))) == {
        "trainer[0]": 0, "trainer[1]": 1, "trainer[2]": 2, "trainer[3]": 0,
        "embedding_server[0]": 0, "embedding_server[1]": 1, "dense_server[0]": 0, "reader[0]": 0,
    }  # fmt: skip
    # with room for three hosts in each, those that find their rack full go to the next
    found = racks_by_process(plan, clusters(topology=topology(racks=3, hosts_per_rack=3)))
    assert list(found.values()) == [0, 1, 2, 0, 0, 1, 1, 2]


def test_one_rack_after_the_other(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=MANY)
    even = racks_by_process(plan, clusters(topology=topology(racks=3, arrange="fill")))
    assert list(even.values()) == [0, 0, 0, 1, 1, 1, 2, 2]
    fitting = topology(racks=3, arrange="fill", hosts_per_rack=5)
    assert list(racks_by_process(plan, clusters(topology=fitting)).values()) == [0] * 5 + [1] * 3
    small = clusters(topology=topology(racks=2, hosts_per_rack=3))
    with pytest.raises(UserError, match=r"6 hosts \(topology\.hosts_per_rack\) are too few .* 8"):
        racks_by_process(plan, small)


@pytest.mark.parametrize(
    ("arrange", "racks"),
    [("spread", [0, 1, 2, 0, 0, 2, 0, 0]), ("fill", [0, 0, 0, 0, 0, 1, 2, 2])],
)
def test_racks_that_differ(
    plans: Plans, clusters: Clusters, arrange: str, racks: list[int]
) -> None:
    """Five hosts, one, two: who finds a rack full goes to the next."""
    plan = plans(roles=MANY)
    given = topology(racks=3, arrange=arrange, hosts_per_rack=(5, 1, 2))
    assert list(racks_by_process(plan, clusters(topology=given)).values()) == racks
    small = topology(racks=3, arrange=arrange, hosts_per_rack=(4, 1, 2))
    with pytest.raises(
        UserError, match=r"7 hosts \(topology\.hosts_per_rack\) are too few .* 8 hosts"
    ):
        racks_by_process(plan, clusters(topology=small))


def test_no_job_has_more_hosts_than_there_are(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles=MANY)  # eight
    assert len(hosts_of(plan.instances, clusters(most_hosts=8))) == 8
    with pytest.raises(UserError, match=r"7 hosts \(most_hosts\) are too few .* 8 hosts"):
        hosts_of(plan.instances, clusters(most_hosts=7))
    roomy = clusters(most_hosts=7, topology=topology(hosts_per_rack=10))
    with pytest.raises(UserError, match="most_hosts"):
        hosts_of(plan.instances, roomy)


def test_hosts_that_are_left(plans: Plans, clusters: Clusters) -> None:
    instances = plans(roles=MANY).instances  # eight

    def left(**changes: Any) -> int | None:
        return hosts_left(instances, clusters(**changes))

    assert left(topology=topology(hosts_per_rack=4)) == 0
    assert left(topology=topology(hosts_per_rack=10)) == 12
    assert left(topology=topology()) is None
    assert left() is None
    assert left(most_hosts=11) == 3
    assert left(topology=topology(hosts_per_rack=(5, 4))) == 1
    assert left(most_hosts=8, topology=topology(hosts_per_rack=10)) == 0


# ------------------------------------------------------------------ by hand


@pytest.mark.usefixtures("equal_shares")
def test_a_transfer_between_racks_is_limited_by_the_uplink(worlds: Callable[..., World]) -> None:
    world = worlds()
    zero, one, two, three = world.trainers  # racks 0, 1, 0, 1
    assert world.seconds(move(world, zero, two, NIC)) == [pytest.approx(1.0)]
    world = worlds()
    zero, one, two, three = world.trainers
    ends = world.seconds(
        *(move(world, a, b, UPLINK) for a, b in ((zero, one), (two, three), (one, zero)))
    )
    # two share the way out of rack 0, the third has the other direction for itself
    assert ends == pytest.approx([2.0, 2.0, 1.0])
    used = world.used()
    assert used["rack[0].up"] == used["rack[1].down"] == pytest.approx(2 * UPLINK)
    assert used["rack[1].up"] == used["rack[0].down"] == pytest.approx(UPLINK)


@pytest.mark.parametrize(("arrange", "crossings"), [("spread", 2), ("fill", 1)])
def test_a_ring_crosses_uplinks_as_its_order_says(
    worlds: Callable[..., World], arrange: str, crossings: int
) -> None:
    world = worlds(topology=topology(arrange=arrange))
    ends = world.seconds(world.meetings()._ring(UPLINK, 0.0).done)
    assert ends == [pytest.approx(crossings)]
    assert world.used()["rack[1].up"] == pytest.approx(crossings * UPLINK)


def test_an_all_to_all_crosses_uplinks_by_pair(worlds: Callable[..., World]) -> None:
    world = worlds(topology=topology(arrange="fill"))
    part = UPLINK / 10
    sent = {me: [(1 + me + other) * part for other in range(4)] for me in range(4)}
    moved = [
        Exchanged(
            sum(sent[me][o] for o in range(4) if o != me),
            sum(sent[o][me] for o in range(4) if o != me),
        )
        for me in range(4)
    ]
    ends = world.seconds(world.meetings()._exchange(moved, sent, 0.0).done)
    out = sum(sent[a][b] for a in (0, 1) for b in (2, 3))
    into = sum(sent[a][b] for a in (2, 3) for b in (0, 1))
    assert out == into == pytest.approx(16 * part)
    assert ends == [pytest.approx(out / UPLINK)]
    used = world.used()
    assert used["rack[0].up"] == pytest.approx(out)
    assert used["rack[0].down"] == pytest.approx(into)


@pytest.mark.parametrize(("near", "far"), [(0.0, 0.010), (0.002, 0.0), (0.002, 0.010)])
@pytest.mark.parametrize("arrange", ["spread", "fill"])
@pytest.mark.parametrize(("racks", "ranks"), [(2, 2), (2, 4), (2, 5), (3, 7), (2, 8), (2, 16)])
def test_a_ring_pays_the_latencies_that_gloos_does(
    worlds: Callable[..., World], racks: int, ranks: int, arrange: str, near: float, far: float
) -> None:
    """As gloo's own rules have it, one event after the other. Bytes take no time here, but for a
    frame that is whole before it goes on."""

    def seconds(what: str, size: int) -> float:
        world = worlds(
            roles={"trainers": ranks},
            topology=topology(
                racks=racks, arrange=arrange, latency=f"{far} s", uplink="100 Gbit/s"
            ),
            network={"latency": f"{near} s"},
            prices=FREE | dict.fromkeys(("collective_step", "reduced_byte"), "0 s"),
        )
        return max(world.seconds(*getattr(world.meetings(), what)(size)))

    racks_of_ranks = [
        rank % racks if arrange == "spread" else rank // -(-ranks // racks) for rank in range(ranks)
    ]

    def apart(one: int, other: int) -> float:
        return near + far * (racks_of_ranks[one] != racks_of_ranks[other])

    def later(one: int, other: int) -> float:
        return apart(one, other) + 1448 / NIC / 2  # of the segment, not of its notice

    whole = max(gloo_ring.Ring(ranks, 4 * 10 * ranks, later).ends())
    assert seconds("ring", 4 * 10 * ranks) == pytest.approx(whole, abs=1e-5)
    flag = max(gloo_ring.Ring(ranks, 8, apart, number=8).ends())
    # where it first has to cross, the notice may have come while it was on its way within a rack
    hidden = near * ranks / 2 if near and far else 0.0
    assert flag - 1e-5 <= seconds("flag", 8) <= flag + hidden + 1e-5


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("arrange", ["spread", "fill"])
def test_an_exchange_pays_four_latencies(
    worlds: Callable[..., World], arrange: str, empty: bool
) -> None:
    """A notice and the sizes, a notice and the content, though there may be none."""
    size = 0 if empty else 1000
    sent = {me: [size] * 4 for me in range(4)}

    def seconds(latency: str) -> float:
        world = worlds(topology=topology(arrange=arrange, latency=latency))
        moved = [Exchanged(3 * size, 3 * size)] * 4
        return max(world.seconds(*world.meetings().exchange(moved, sent)))

    assert seconds("10 ms") - seconds("0 s") == pytest.approx(0.04)


def test_a_message_within_a_rack_does_not_pay_for_racks(worlds: Callable[..., World]) -> None:
    def seconds(other: int) -> float:
        world = worlds(topology=topology(latency="10 ms"))
        return world.seconds(move(world, world.trainers[0], world.trainers[other], 1000.0))[0]

    assert seconds(1) - seconds(2) == pytest.approx(0.01, rel=1e-3)


def test_oversubscription(plans: Plans, clusters: Clusters) -> None:
    plan = plans(roles={"trainers": 3})

    def uplinks(**changes: Any) -> dict[str, float]:
        cluster = clusters(topology=RackTopology.model_validate({"racks": 2, **changes}))
        world = World(plan, cluster)
        return {r.name: r.capacity for r in world.engine.fluid.resources if "rack" in r.name}

    two, one = 2 * NIC / 4, NIC / 4
    expected = {"rack[0].up": two, "rack[0].down": two, "rack[1].up": one, "rack[1].down": one}
    assert uplinks(oversubscription=4) == pytest.approx(expected)
    whole = 16 * NIC / 4
    found = uplinks(oversubscription=4, hosts_per_rack=16)
    assert found == pytest.approx(dict.fromkeys(expected, whole))
    found = uplinks(oversubscription=4, hosts_per_rack=(16, 8))
    assert found == pytest.approx({k: whole / (1 + ("[1]" in k)) for k in expected})


# ------------------------------------------------------------------ whole runs


def test_one_rack_is_no_rack(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> None:
    for kind in ("flat_ps", "allreduce"):
        plan = plans(kind, roles=MANY)
        flat = outcome_of(plan, clusters())
        racked = outcome_of(plan, clusters(topology=topology(racks=1)))
        assert racked.iterations == flat.iterations
        assert racked.totals == flat.totals


@pytest.mark.usefixtures("equal_shares")
@pytest.mark.parametrize("kind", ["flat_ps", "allreduce"])
def test_where_the_uplink_binds_doubling_it_doubles_speed(
    plans: Plans, clusters: Clusters, eps: Eps, outcome_of: OutcomeOf, kind: str
) -> None:
    # trainers stand in one rack, what they ask in the other
    roles = {"trainers": 4, "embedding_servers": 4}
    plan = plans(kind, roles=roles, model=MANY_IDS, training={"threads": 4})

    def racked(uplink: str) -> Cluster:
        return clusters(topology=topology(uplink=uplink, arrange="fill"))

    slow, fast = racked("40 Mbit/s"), racked("80 Mbit/s")
    outcome = outcome_of(plan, slow)
    assert bottleneck(outcome.binding) in ("uplink out of rack[0]", "uplink into rack[1]")
    bounds = outcome.facts.bounds
    assert outcome.bound_eps == min(bounds["rack[0].up"], bounds["rack[1].down"])
    slowly = eps(plan, slow)
    assert slowly == pytest.approx(outcome.bound_eps, rel=0.1)
    assert eps(plan, fast) == pytest.approx(2 * slowly, rel=0.1)
    assert eps(plan, racked("100 Gbit/s")) == pytest.approx(eps(plan, clusters()), rel=1e-6)


@pytest.mark.parametrize("kind", ["flat_ps", "allreduce", "des"])
def test_what_leaves_racks_arrives_in_racks(
    plans: Plans, clusters: Clusters, fake_counts: Any, kind: str
) -> None:
    plan = plans(kind, roles=MANY)
    cluster = clusters(topology=topology(racks=3, uplink="100 Mbit/s"))
    runtime = Runtime(plan, cluster, fake_counts(plan), iterations=8)
    runtime.run()
    names = [r.name for r in runtime.engine.fluid.resources]
    used = dict(zip(names, runtime.engine.fluid.used(), strict=True))
    up, down, sent = (
        sum(u for name, u in used.items() if name.endswith(way)) for way in (".up", ".down", ".tx")
    )
    assert up > 0.0
    assert up == pytest.approx(down, rel=1e-9)
    assert up <= sent * (1 + 1e-9)


def test_the_uplinks_bound_by_hand(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> None:
    roles = {"trainers": 1, "embedding_servers": 1}
    plan = plans(roles=roles, model=MANY_IDS, training={"steps": 20, "threads": 8})
    outcome = outcome_of(plan, clusters(topology=topology(uplink="10 Mbit/s")))
    assert outcome.facts.racks == {"trainer[0]": 0, "embedding_server[0]": 0}
    apart = clusters(topology=topology(uplink="10 Mbit/s", arrange="fill"))
    outcome = outcome_of(plan, apart)
    assert outcome.facts.racks == {"trainer[0]": 0, "embedding_server[0]": 1}
    batch, ids, vectors = 64, 64 * 6 * 40, 64 * 6
    # a lookup's ids, an update's gradients
    head = 8 + 8 + 8 * (5 + 6)  # size, shard, header: five numbers and one for each table
    bytes_out = head * 2 + 8 * ids + vectors * 8 * 4
    bounds = outcome.facts.bounds
    # of bytes on their way when the window opens and closes the bound knows a part only
    assert bounds["rack[0].up"] == pytest.approx(batch / (bytes_out / (10e6 / 8)), rel=0.1)
    assert bottleneck(outcome.binding) in ("uplink out of rack[0]", "uplink into rack[1]")
    busy = outcome.utilisation
    assert busy["rack[1].down"] == pytest.approx(busy["rack[0].up"], rel=2e-3)
    assert busy["rack[0].up"] > 0.9


# ------------------------------------------------------------------ traffic of others


def traffic(link: str = "nic", share: str = "40 %", **changes: Any) -> tuple[Traffic, ...]:
    return (Traffic.model_validate({"link": link, "share": share, **changes}),)


@pytest.mark.usefixtures("equal_shares")
def test_traffic_that_is_always_there_leaves_the_rest(worlds: Callable[..., World]) -> None:
    world = worlds(background=traffic() + traffic(role="reader", share="30 %"))
    zero, one, two, _ = world.trainers
    assert world.seconds(move(world, zero, two, NIC)) == [pytest.approx(1 / 0.6)]
    world = worlds(background=traffic("uplink", "75 %"))
    zero, one, *_ = world.trainers
    assert world.seconds(move(world, zero, one, UPLINK)) == [pytest.approx(4.0)]


def test_bursts_take_their_share_of_the_time(worlds: Callable[..., World]) -> None:
    noise = traffic(share="50 %", burst="20 ms", pause="60 ms") + traffic(share="20 %")
    world = worlds(background=noise)
    zero, _, two, _ = world.trainers
    # 80 % for three quarters of the time, 30 % for the last; two ends that come and go apart
    one_end = 0.75 * 0.8 + 0.25 * 0.3
    both = 0.75 * 0.75 * 0.8 + (1 - 0.75 * 0.75) * 0.3
    seconds = world.seconds(move(world, zero, two, 80 * NIC))[0]
    assert 80 / seconds == pytest.approx(both, rel=0.05)
    assert zero.send.mean_capacity(0.0, seconds) / NIC == pytest.approx(one_end, rel=0.05)
    low = min(capacity for _, capacity in zero.send.history)
    assert low == pytest.approx(0.3 * NIC)
    # seeded: nothing but the seed and the link decide
    again = worlds(roles={"trainers": 6}, background=noise)
    again.seconds(move(again, again.trainers[0], again.trainers[5], NIC))
    met = len(again.trainers[0].send.history)
    assert met > 1
    assert again.trainers[0].send.history == zero.send.history[:met]


@pytest.mark.parametrize("link", ["nic", "uplink"])
def test_traffic_slows_what_it_shares_a_link_with(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, link: str
) -> None:
    roles = {"trainers": 2, "embedding_servers": 1}
    plan = plans(roles=roles, model=MANY_IDS, training={"threads": 4, "steps": 100})
    narrow: dict[str, Any] = {"nic": "40 Mbit/s"}
    if link == "uplink":
        narrow = {"topology": topology(uplink="40 Mbit/s", arrange="fill")}
    narrow["network"] = {"queue_length": "100 ms"}  # which loses nothing
    noises = (), traffic(link, "50 %"), traffic(link, "50 %", burst="10 ms", pause="10 ms")
    outcomes = [outcome_of(plan, clusters(**narrow, background=noise)) for noise in noises]
    quiet, busy, bursts = (speed(plan, outcome) for outcome in outcomes)
    assert busy == pytest.approx(0.5 * quiet, rel=0.05)
    assert busy < bursts < quiet
    assert all(o.bound_eps and speed(plan, o) <= o.bound_eps * (1 + 3e-3) for o in outcomes)
    # what binds is named by what is left of it
    assert bottleneck(outcomes[0].binding) == bottleneck(outcomes[1].binding)
