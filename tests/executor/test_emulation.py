"""Emulated hosts, by what streams between them show: rates, frames, queues, racks; what is left.

Every bound is a closed form of the link: payload is 1448 of 1514 bytes of a frame.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.emulation.layout import (
    EmulatedHost,
    EmulatedLayout,
    Link,
)
from recsim_train.executor.emulation.namespaces import Namespace
from tests.clock import by_the_clock, first_in_line, tried_anew


def refused() -> str:
    """Why hosts cannot be emulated here; nothing where they can."""
    try:
        Namespace().close()
    except UserError as error:
        return str(error)
    return ""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why := refused()), reason=why),
]
MBIT = 1e6 / 8


def link(mbit: float, queue: str = "fifo", seconds: float = 5e-3) -> Link:
    waiting = max(64 * FRAME, round(mbit * MBIT * seconds))
    return Link(mbit * MBIT, queue, waiting)  # type: ignore[arg-type]


def hosts(count: int, each: Link, racks: int = 1) -> tuple[EmulatedHost, ...]:
    return tuple(
        EmulatedHost(f"host {n}", IPv4Address("10.77.0.1") + n, n % racks, each)
        for n in range(count)
    )


@contextmanager
def listening(cluster: EmulatedCluster, host: int, found: list[float]) -> Iterator[None]:
    """One that takes what comes, and notes bytes per second from the first byte to the last."""
    ready = threading.Event()

    def serve() -> None:
        first_in_line()
        address = str(cluster.layout.hosts[host].address)
        with socket.create_server((address, 5000 + len(found))) as server:
            server.settimeout(20)
            ready.set()
            connection, _ = server.accept()
            with connection:
                taken = len(connection.recv(1 << 16))
                begin = time.monotonic()
                while data := connection.recv(1 << 16):
                    taken += len(data)
                found.append(taken / (time.monotonic() - begin))

    place = cluster.namespace(cluster.layout.hosts[host].name)
    thread = threading.Thread(target=place.do, args=[serve])
    thread.start()
    ready.wait(10)
    yield
    thread.join(30)


def send(cluster: EmulatedCluster, sender: int, receiver: int, size: int, port: int = 5000) -> None:
    def call() -> None:
        first_in_line()
        address = str(cluster.layout.hosts[receiver].address)
        with socket.create_connection((address, port), timeout=30) as connection:
            connection.sendall(bytes(size))

    cluster.namespace(cluster.layout.hosts[sender].name).do(call)


def rate(cluster: EmulatedCluster, sender: int, receiver: int, size: int) -> float:
    """Payload bytes per second of one stream."""
    found: list[float] = []
    with listening(cluster, receiver, found):
        send(cluster, sender, receiver, size)
    return found[0]


@pytest.mark.parametrize("queue", ["fifo", "fair"])
@pytest.mark.parametrize("mbit", [20, 200])
@tried_anew()
def test_a_stream_has_the_rate_of_the_link(mbit: float, queue: str) -> None:
    size, full = round(mbit * MBIT), mbit * MBIT * SEGMENT / FRAME  # a second's
    with EmulatedCluster(EmulatedLayout(hosts(2, link(mbit, queue)))) as cluster:
        before = cluster.counted()
        found = rate(cluster, 0, 1, size)
        after = cluster.counted()
    sent = after["host 0"].bytes - before["host 0"].bytes
    # each frame has its own header: none is counted for several; what is lost is sent again
    assert sent == pytest.approx(size * FRAME / SEGMENT, rel=0.01)
    with by_the_clock():
        assert found == pytest.approx(full, rel=0.03)


@tried_anew()
def test_those_who_send_to_one_share_its_link() -> None:
    mbit, size = 40, round(20 * MBIT)
    with EmulatedCluster(EmulatedLayout(hosts(3, link(mbit, "fair")))) as cluster:
        begin = time.monotonic()
        found: list[float] = []
        with listening(cluster, 2, found):
            first = threading.Thread(target=send, args=[cluster, 0, 2, size])
            first.start()
            second: list[float] = [0.0]
            with listening(cluster, 2, second):
                send(cluster, 1, 2, size, port=5001)
            first.join()
        took = time.monotonic() - begin
    with by_the_clock():
        assert 2 * size / took == pytest.approx(mbit * MBIT * SEGMENT / FRAME, rel=0.08)


@tried_anew()
def test_hosts_of_different_racks_share_the_uplink() -> None:
    layout = EmulatedLayout(hosts(4, link(80), racks=2), (link(20), link(20)))
    with EmulatedCluster(layout) as cluster:
        near = rate(cluster, 0, 2, round(40 * MBIT))
        far = rate(cluster, 0, 1, round(20 * MBIT))
        counted = cluster.counted()
    assert counted["uplink 0"].bytes == pytest.approx(20 * MBIT * FRAME / SEGMENT, rel=0.02)
    assert counted["to uplink 1"].bytes == pytest.approx(counted["uplink 0"].bytes, rel=0.02)
    with by_the_clock():
        assert near == pytest.approx(80 * MBIT * SEGMENT / FRAME, rel=0.05)
        assert far == pytest.approx(20 * MBIT * SEGMENT / FRAME, rel=0.05)


def test_what_does_not_fit_the_queue_is_dropped() -> None:
    """A datagram a millisecond at ten times the rate: what passes is what the link carries."""
    narrow = link(8, seconds=20e-3)
    with EmulatedCluster(EmulatedLayout(hosts(2, narrow))) as cluster:

        def flood() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
                sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
                for _ in range(700):
                    sending.sendto(bytes(1400), ("10.77.0.2", 9))

        cluster.namespace("host 0").do(flood)
        time.sleep(1.2)
        counted = cluster.counted()["host 0"]
    assert counted.drops > 100
    held = narrow.limit / 1442
    assert held * 0.5 < 700 - counted.drops < 700


def test_several_clusters_at_once_do_not_meet() -> None:
    layout = EmulatedLayout(hosts(2, link(40)))
    with EmulatedCluster(layout) as one, EmulatedCluster(layout) as other:
        rate(one, 0, 1, 100_000)
        assert one.counted()["host 0"].bytes > 100_000
        assert other.counted()["host 0"].bytes < 10_000


def test_a_command_that_fails_is_named() -> None:
    place = Namespace()
    with pytest.raises(RunFailed, match=r"`ip link set nothing up` failed: .*nothing"):
        place.batch("ip", "link set lo up", "link set nothing up")
    place.close()


# ---------------------------------------------------------------------------- nothing is left

KEEPER = """
import os, sys, time
from tests.executor.test_emulation import hosts, link
from recsim_train.executor.emulation.cluster import EmulatedCluster
from recsim_train.executor.emulation.layout import EmulatedLayout
with EmulatedCluster(EmulatedLayout(hosts(4, link(40)))) as cluster:
    held = [cluster.namespace(host.name).descriptor for host in cluster.layout.hosts]
    print(*(os.readlink(f"/proc/self/fd/{number}") for number in held), flush=True)
    time.sleep(60)
"""


def namespaces() -> set[str]:
    """Network namespaces in which some process is, or that one holds."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        for path in (folder / "ns" / "net", *folder.glob("fd/*")):
            with suppress(OSError):
                found.add(os.readlink(path))
    return {name for name in found if name.startswith("net:[")}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_program_that_was_killed(number: signal.Signals) -> None:
    def devices() -> Sequence[str]:
        return sorted(path.name for path in Path("/sys/class/net").iterdir())

    before = devices()
    with subprocess.Popen(
        [sys.executable, "-c", KEEPER], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        made = set(process.stdout.readline().decode().split())
        assert len(made) == 4
        assert made <= namespaces()
        process.send_signal(number)
    assert not made & namespaces()
    assert devices() == before
    assert not list(Path("/run/netns").glob("*"))
