"""A ring that goes hop by hop: alone as its closed form, beside other messages not starved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Host, Network
from recsim_train.config.experiment import Table
from recsim_train.config.profiles import load_cluster
from recsim_train.placement.plan import Plan
from recsim_train.results.summary import synchronisation
from recsim_train.sim.engine import Steps
from tests.sim import gloo_ring
from tests.sim.machine_world import World, move
from tests.simulated import simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]


@pytest.fixture
def worlds(plans: Plans, clusters: Clusters) -> Callable[..., World]:
    def make(trainers: int, **changes: Any) -> World:
        prices = {"wire_byte": "0 ps", "reduced_byte": "0 ps", "collective_step": "0 s"}
        settings = {"prices": prices, "network": {"queue": "fair"}} | changes
        roles = {"trainers": trainers, "embedding_servers": 1}
        return World(plans("allreduce", roles=roles), clusters(**settings))

    return make


@pytest.mark.parametrize("members", [2, 3, 8, 16])
@pytest.mark.parametrize(("nic", "size"), [("40 Mbit/s", 400_000), ("1 Gbit/s", 4_000_000)])
def test_where_nothing_else_moves_both_forms_take_as_long(
    members: int, nic: str, size: int, worlds: Callable[..., World]
) -> None:
    """And as long as gloo's own events say, but for what acknowledgements take of links; a frame
    is whole at the first one before it goes on."""
    ends = []
    for beside in (False, True):
        world = worlds(members, nic=nic)
        ends.append(max(world.seconds(*world.meetings(beside=beside).ring(size))))
        rate = world.trainers[0].send.capacity
        latency = world.machines.latency
    assert ends[1] == pytest.approx(ends[0], rel=0.01)
    later = latency + 1448 / rate
    events = max(gloo_ring.Ring(members, size, lambda one, other: later, rate=rate).ends())
    assert events < ends[1] < 1.03 * events


def test_of_many_steps_none_is_lost(worlds: Callable[..., World]) -> None:
    """Several are one message then, and each waits for a notice that no bytes hide."""
    members, size = 24, 200_000
    world = worlds(members, nic="10 Gbit/s")
    found = max(world.seconds(*world.meetings(beside=True).ring(size)))
    rate, latency = world.trainers[0].send.capacity, world.machines.latency
    later = latency + 1448 / rate  # a frame is whole before it goes on
    events = max(gloo_ring.Ring(members, size, lambda one, other: later, rate=rate).ends())
    assert found == pytest.approx(events, rel=0.03)


@pytest.mark.parametrize(
    ("what", "members", "far", "arrange"),
    [
        ("flag", 5, 0.0, "fill"), ("flag", 20, 0.0, "fill"), ("flag", 5, 500e-6, "fill"),
        ("flag", 13, 500e-6, "fill"), ("flag", 20, 500e-6, "spread"),
        ("ring", 3, 500e-6, "fill"), ("ring", 5, 500e-6, "fill"), ("ring", 5, 500e-6, "spread"),
    ],
)  # fmt: skip
def test_between_racks_what_goes_around_waits_as_gloos_own_rules_say(
    what: str, members: int, far: float, arrange: str, worlds: Callable[..., World]
) -> None:
    """Over each link for the notice of who gets it. Bytes take next to no time here."""
    racks = {"racks": 2, "uplink": "100 Gbit/s", "arrange": arrange, "latency": f"{far} s"}
    world = worlds(members, topology=racks, nic="10 Gbit/s")
    near, trainers = world.machines.latency, world.trainers

    def apart(one: int, other: int) -> float:
        return near + far * (trainers[one].rack is not trainers[other].rack)

    size, number = (8, 8) if what == "flag" else (200, 4)
    found = max(world.seconds(*getattr(world.meetings(beside=True), what)(size)))
    events = max(gloo_ring.Ring(members, size, apart, number=number).ends())
    assert found == pytest.approx(events, rel=0.02)


@pytest.mark.parametrize("members", [3, 8])
def test_beside_short_messages_a_ring_has_its_share_of_every_link(
    members: int, worlds: Callable[..., World]
) -> None:
    """Each member's link is in use by others in turn, so that at any moment one of them is. As one
    activity the ring would have half of all links throughout; hop by hop it has those that are
    free, and the others get what it leaves."""
    size, moved = 2_000_000, 0
    world = worlds(members, nic="40 Mbit/s")
    ring = world.meetings(beside=True).ring(size)
    over = world.engine.event()

    def others() -> Steps:
        nonlocal moved
        server = world.of["embedding_server[0]"]
        while not over.triggered:
            for trainer in world.trainers:
                yield move(world, server, trainer, 60_000)
                moved += 60_000

    world.engine.process(others())
    ring[0].callbacks.append(lambda _: over.succeed())
    took = world.seconds(ring[0])[0]
    rate = 40e6 / 8
    alone = 2 * (members - 1) / members * size / rate
    # a member's link carries its part of the ring and of the others
    assert took > alone + 0.5 * moved / members / rate
    assert took < 1.6 * alone


def test_a_shadow_averages_about_as_often_as_it_was_measured_to(plans: Plans) -> None:
    """Three trainers and a server at 20 Mbit/s, a vector of 0.6 MB: iterations between two averages
    were 6.1 on emulated hosts. As one activity of all members the average starved (17.9)."""
    profile = load_cluster("tests/frozen-2core.yaml")
    update = {
        "colocate": False,
        "hosts": {"default": Host(cores=16, memory="8 GiB", nic="20 Mbit/s")},
        "network": Network.model_validate(
            {"latency": "30 us", "efficiency": 0.9564, "queue": "fifo", "passes_at_once": "2896 B"}
        ),
    }
    plan = plans(
        "shadowsync",
        {"algorithm": "ma"},
        model={
            "dense_features": 13,
            "embedding_dim": 16,
            "tables": (Table(rows=20_000),) * 4,
            "bottom_mlp": (256, 16),
            "top_mlp": (512, 256, 1),
        },
        roles={"trainers": 3, "embedding_servers": 1, "dense_servers": 0},
        training={"batch_size": 128, "threads": 1, "steps": 140, "warmup_steps": 20},
        data={"eval_rows": 0},
        simulation={"what_if_steps": 0, "precision": "0 %"},
    )
    outcome = simulate(plan, profile.model_copy(update=update))
    counted = [i for i in outcome.iterations if i.iteration >= 20]
    gap = synchronisation(plan, outcome, counted).sync_gap
    assert gap is not None
    assert 4.0 < gap.mean < 9.0
