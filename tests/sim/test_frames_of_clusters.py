"""Frames beside computations, and on the links of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.config.topology import RackTopology
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import BUFFER_BYTES
from recsim_train.sim.engine import Engine
from recsim_train.sim.folding import Folding
from recsim_train.sim.host.machines import Machines
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.messages.gloo_group import Exchanged
from recsim_train.sim.messages.serving import Direction
from tests.sim.machine_world import World, move
from tests.sim.priced import priced
from tests.sim.wires import HEAD, RATE, Wires, wire

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]

# ---------------------------------------------------------------- beside computations


def test_what_a_computation_sends_waits_like_anything_else() -> None:
    """The first frame of another is at the link after a quarter of a frame's time, which is full
    from then on."""
    frame = FRAME / RATE
    wires = Wires([4 * RATE, 4 * RATE, RATE], shared=True)
    core = wires.engine.fluid.resource("core", 1.0)
    kind = wires.engine.fluid.kind([(core, 1.0)])
    wires.send(wires.connection(0, 2), 10 * SEGMENT)
    other = wires.connection(1, 2)
    ends: list[float] = []
    done = wires.engine.activity(kind, 2.6 * frame)
    done.callbacks.append(lambda _: ends.append(wires.engine.now))
    done.callbacks.append(
        lambda _: wires.engine.message(other, SEGMENT).callbacks.append(
            lambda _: ends.append(wires.engine.now)
        )
    )
    wires.engine.run()
    assert ends[0] == pytest.approx(2.6 * frame, rel=1e-9)
    assert 4.0 * frame < ends[1] <= 11.3 * frame
    assert ends[1] / frame - 0.25 == pytest.approx(round(ends[1] / frame - 0.25), abs=1e-6)


def test_what_a_message_begins_shares_cores_from_then_on() -> None:
    """A computation of five frames' time; from the second on another one of one, which so takes
    two."""
    frame = FRAME / RATE
    wires = Wires([RATE, RATE], shared=True)
    core = wires.engine.fluid.resource("core", 1.0)
    kind = wires.engine.fluid.kind([(core, 1.0)])
    ends: list[float] = []

    def begin(seconds: float) -> None:
        done = wires.engine.activity(kind, seconds)
        done.callbacks.append(lambda _: ends.append(wires.engine.now / frame))

    begin(5.0 * frame)
    message = wires.engine.message(wires.connection(0, 1), SEGMENT)
    message.callbacks.append(lambda _: begin(frame))
    wires.engine.run()
    assert ends == pytest.approx([4.0, 6.0], rel=1e-9)


def test_what_comes_from_outside_ends_no_message() -> None:
    wires = Wires([RATE, RATE])
    outside: list[float] = []
    wires.engine.meanwhile(10.0, lambda: outside.append(wires.engine.now))
    ends = wires.send(wires.connection(0, 1), 100 * SEGMENT)
    wires.engine.run()
    assert len(ends) == 1
    assert not outside


# ---------------------------------------------------------------- of a cluster

MBIT20 = 20e6 / 8
"""Bytes of payload per second, of a link."""


@pytest.fixture
def worlds(plans: Plans, clusters: Clusters) -> Callable[..., World]:
    """Trainers and a server on links of 20 Mbit/s, where only what is named takes time."""

    def make(
        trainers: int = 1,
        latency: float = 0.0,
        folding: Folding | None = None,
        wire_byte: float = 0.0,
        **changes: Any,
    ) -> World:
        changes = {"nic": "20 Mbit/s", "jitter": 0.0} | changes
        cluster = priced(clusters(**changes), latency, wire_byte=wire_byte)
        plan = plans("allreduce", roles={"trainers": trainers, "embedding_servers": 1})
        return World(plan, cluster, folding)

    return make


TRAINER, SERVER = "trainer[0]", "embedding_server[0]"


def test_a_connection_may_be_slower_than_its_links(worlds: Callable[..., World]) -> None:
    """Its frames wait for themselves only."""
    world = worlds(network={"connection_cap": "5 Mbit/s"})
    ends = world.seconds(move(world, world.of[TRAINER], world.of[SERVER], 10 * SEGMENT))
    assert ends == pytest.approx([(4 * 10 + 2) * SEGMENT / MBIT20], rel=1e-9)


def test_between_racks_frames_pass_both_uplinks(worlds: Callable[..., World]) -> None:
    racks = {"racks": 2, "uplink": "10 Mbit/s", "arrange": "fill", "latency": "10 ms"}
    world = worlds(latency=1e-3, topology=RackTopology.model_validate(racks))
    ends = world.seconds(move(world, world.of[TRAINER], world.of[SERVER], 10 * SEGMENT))
    assert ends == pytest.approx([(2 * 11 + 2) * SEGMENT / MBIT20 + 11e-3], rel=1e-9)
    used = world.used()
    carried = 10 * SEGMENT
    assert [used["rack[0].up"], used["rack[1].down"]] == pytest.approx([carried] * 2, rel=1e-9)


@pytest.mark.parametrize("there", [True, False])
def test_one_who_stands_for_five_takes_five_times_the_servers_link(
    there: bool, worlds: Callable[..., World]
) -> None:
    """And of his own what one takes."""
    world = worlds(5, latency=0.05, folding=Folding(5, 1))
    ends = [world.of[TRAINER], world.of[SERVER]]
    source, target = ends if there else ends[::-1]
    arrived = world.seconds(move(world, source, target, 10 * SEGMENT))
    assert arrived == pytest.approx([0.05 + (5 * 10 + 1) * SEGMENT / MBIT20], rel=1e-9)
    used, ways = world.used(), ["tx", "rx"] if there else ["rx", "tx"]
    one, five = f"{TRAINER}.nic.{ways[0]}", f"{SERVER}.nic.{ways[1]}"
    assert [used[one], used[five]] == pytest.approx([10 * SEGMENT, 50 * SEGMENT], rel=1e-9)


@pytest.mark.parametrize("queue", ["fifo", "fair"])
def test_where_hosts_have_queues_of_their_own_a_short_message_waits_for_none(
    queue: str, worlds: Callable[..., World]
) -> None:
    of = {"cores": 8, "memory": "64 GiB", "nic": "80 Mbit/s"}
    fast = {"trainer": Host.model_validate(of)}
    world = worlds(2, network={"queue": queue}, hosts=fast)
    server, ends = world.of[SERVER], list[float]()
    move(world, world.of[TRAINER], server, 200 * SEGMENT)

    def ask() -> None:
        done = move(world, world.of["trainer[1]"], server, 100)
        done.callbacks.append(lambda _: ends.append(world.engine.now))

    world.engine.later(0.05, ask)
    world.engine.run()
    waited = (ends[0] - 0.05) * MBIT20 / SEGMENT
    assert waited < 3 if queue == "fair" else waited > 8


def test_a_link_that_others_take_half_of_takes_twice_as_long(worlds: Callable[..., World]) -> None:
    world = worlds()
    source = world.of[TRAINER]
    done = move(world, source, world.of[SERVER], 10 * SEGMENT)
    world.engine.fluid.set_capacity(source.send, source.send.capacity / 2)
    assert world.seconds(done) == pytest.approx([(2 * 10 + 1) * SEGMENT / MBIT20], rel=1e-9)


def test_a_message_is_there_when_a_thread_has_handled_it(worlds: Callable[..., World]) -> None:
    """In ten times the time that its links take."""
    size = 100 * SEGMENT
    world = worlds(wire_byte=10 / MBIT20)
    ends = world.seconds(move(world, world.of[TRAINER], world.of[SERVER], size))
    assert ends == pytest.approx([10 * size / MBIT20], rel=1e-9)
    used = world.used()
    cores = [used[f"{name}.cores"] for name in (TRAINER, SERVER)]
    assert cores == pytest.approx([10 * size / MBIT20] * 2, rel=1e-9)


def test_a_look_counts_heads_and_acknowledgements(plans: Plans, clusters: Clusters) -> None:
    """As frames would carry them: 25 heads of 66 B, and 13 acknowledgements."""
    engine = Engine(shared=False)
    plan = plans("allreduce", roles={"trainers": 1, "embedding_servers": 1})
    machines = Machines(plan, priced(clusters(nic="20 Mbit/s", jitter=0.0)), engine, Jitter(1))
    source, target = (
        next(p for p in machines.processes.values() if p.name == name) for name in (TRAINER, SERVER)
    )
    size = 24 * SEGMENT + 1
    machines.transfer(source, target, size)
    engine.run()
    names = [r.name for r in engine.fluid.resources]
    used = dict(zip(names, engine.fluid.used(), strict=True))
    for name, frames in (
        (f"{TRAINER}.nic.tx", size + 25 * HEAD), (f"{SERVER}.nic.rx", size + 25 * HEAD),
        (f"{SERVER}.nic.tx", 13 * HEAD), (f"{TRAINER}.nic.rx", 13 * HEAD),
    ):  # fmt: skip
        assert used[name] == pytest.approx(frames * SEGMENT / FRAME, rel=1e-9), name


def test_who_sends_a_large_message_goes_on_when_buffers_hold_the_rest(
    worlds: Callable[..., World],
) -> None:
    world = worlds(nic="1 Gbit/s")
    rate, beyond = 1e9 / 8, 3_000_000
    moving = Direction(world.machines, world.of[TRAINER], world.of[SERVER]).move(
        beyond + BUFFER_BYTES, 1000, 1
    )
    assert moving.taken is not None
    taken, arrived = world.seconds(moving.taken, moving.arrived)
    whole = beyond + BUFFER_BYTES + 1000
    assert taken == pytest.approx((beyond + 1000) / rate, rel=0.01)
    assert arrived == pytest.approx(whole / rate, rel=0.01)
    assert [moving.until_taken, moving.alone] == pytest.approx([taken, arrived], rel=0.01)
    sent = wire(beyond + 1000) + wire(BUFFER_BYTES)
    assert world.used()[f"{TRAINER}.nic.tx"] == pytest.approx(sent * SEGMENT / FRAME, rel=1e-9)


def test_in_an_exchange_each_waits_for_what_it_sends_and_gets(
    worlds: Callable[..., World],
) -> None:
    """One sends 100 segments to another, the third next to nothing."""
    world = worlds(3, latency=1e-3)
    sent = {0: [0.0, 100.0 * SEGMENT, 1.0], 1: [1.0, 0.0, 1.0], 2: [1.0, 1.0, 0.0]}
    moved = [
        Exchanged(sum(sizes), sum(row[me] for row in sent.values())) for me, sizes in sent.items()
    ]
    ends = world.seconds(*world.meetings(beside=True).exchange(moved, sent))
    long = 4e-3 + 1e-3 + 101 * SEGMENT / MBIT20
    assert ends[:2] == pytest.approx([long] * 2, rel=0.02)
    assert ends[2] < 4e-3 + 1e-3 + 40 * SEGMENT / MBIT20
    used = world.used()
    assert used["trainer[0].nic.tx"] > 100 * SEGMENT
    assert used["trainer[1].nic.tx"] < 10 * SEGMENT
