"""What this machine's emulation carries: the rate of one link, and of all hosts together.

Streams of bytes between emulated hosts, at one rate after the other, while it is seen how much of
the cores is left. Many slow links take more of them than a fast one of the same rate, so it is
asked for several numbers of hosts. A run whose links could carry more than that would measure this
machine instead of them.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from pathlib import Path

import psutil

from recsim_train.config.errors import UserError
from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.executor.emulation.cluster import EmulatedCluster, check_here
from recsim_train.executor.emulation.layout import EmulatedHost, EmulatedLayout, Link
from recsim_train.executor.emulation.namespaces import Namespace
from recsim_train.results.environment import cores, machine_name

RATES = tuple(mbit * 1e6 / 8 for mbit in (100, 200, 400, 700, 1000, 1400, 2000, 2800, 4000, 6000))
"""Bytes of frames per second that are tried, of one link and of all hosts together."""
PAIRS = (1, 2, 4, 8)
"""Hosts that send side by side, each to another one."""
_SECONDS = 0.6
_LEAST_RATE, _LEAST_IDLE = 0.97, 0.25
"""Share of a rate that streams reach where it is carried; share of all cores that is idle then."""
_TRIES = 3
"""Of each rate: a moment's work of somebody else is not what the emulation lacks."""
_LOOK, _LOOKS = 0.5, 6
"""Seconds for which the cores are looked at before, and how often: a process that is getting ready
has done so by then. So busy still, nothing can be measured."""
_QUEUE = 5e-3
_PORT = 5001
_LIMIT = 20.0
"""Seconds after which a stream that does not end has failed."""


KEPT = "emulation.json"


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes of frames per second."""

    together: tuple[float, ...]
    """Of all hosts together, where there are twice as many as `PAIRS`."""
    delays: bool
    """Whether the kernel can delay packets (netem)."""

    @property
    def link(self) -> float:
        """Of one link, in one direction, nothing else being sent."""
        return self.together[0]

    def of(self, hosts: int) -> float:
        """Of so many hosts together: of more than were tried, as of the most."""
        tried = zip(PAIRS, self.together, strict=True)
        return next((rate for pairs, rate in tried if 2 * pairs >= hosts), self.together[-1])


def measure() -> Capacity:
    """In half a minute. Raises UserError where hosts cannot be emulated."""
    check_here()
    return Capacity(tuple(map(_most, PAIRS)), _has_netem())


def measured_here(*, anew: bool = False) -> Capacity | None:
    """This machine's, measured the first time, or ``anew``, and kept in the user's cache folder.
    None where others use the cores, so that it cannot be measured."""
    key = {"machine": machine_name(), "kernel": os.uname().release, "cores": cores()}
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(folder) / "recsim-train" / KEPT
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["of"] == key and not anew:
            return Capacity(tuple(kept["together"]), kept["delays"])
    if all(psutil.cpu_percent(_LOOK) > 100.0 * _LEAST_IDLE for _ in range(_LOOKS)):
        return None
    found = measure()
    with suppress(OSError):  # where it cannot be kept it is measured again the next time
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"of": key, **asdict(found)}), encoding="utf-8")
    return found


def check_carried(layout: EmulatedLayout, capacity: Capacity) -> None:
    """Raises UserError where links could carry more than this machine."""
    fastest, hosts = max(host.link.rate for host in layout.hosts), len(layout.hosts)
    for rate, most, what in (
        (fastest, capacity.link, "a link"),
        (layout.rates, capacity.of(hosts), f"{hosts} links together"),
    ):
        if rate > most:
            raise UserError(
                f"{what} would have {_mbit(rate)}, and emulated hosts of this machine carry "
                f"{_mbit(most)} (`recsim-train show emulation`): scale all rates down alike"
            )


def said(capacity: Capacity) -> Iterator[str]:
    """In words."""
    for pairs, rate in zip(PAIRS, capacity.together, strict=True):
        yield f"{2 * pairs} hosts{' (one link)' * (pairs == 1)}: up to {_mbit(rate)}"
    how = "by the kernel (netem)" if capacity.delays else "not: the kernel here has no netem"
    yield f"latency: {how}"


def _mbit(rate: float) -> str:
    return f"{rate * 8 / 1e6:,.0f} Mbit/s"


def _most(pairs: int) -> float:
    """The highest of `RATES` that so many pairs of hosts reach together; 0: none."""
    carried = 0.0
    for rate in RATES:
        if not any(_carries(pairs, rate) for _ in range(_TRIES)):
            break
        carried = rate
    return carried


def _carries(pairs: int, rate: float) -> bool:
    reached, idle = _streamed(pairs, rate / pairs)
    return reached >= _LEAST_RATE * rate and idle >= _LEAST_IDLE


def _streamed(pairs: int, rate: float) -> tuple[float, float]:
    """(bytes of frames per second of all pairs, idle share of all cores), with links of a rate."""
    link = Link(rate, "fifo", max(4 * FRAME, round(rate * _QUEUE)))
    hosts = tuple(
        EmulatedHost(f"host {n}", IPv4Address("10.77.0.1") + n, 0, link) for n in range(2 * pairs)
    )
    with EmulatedCluster(EmulatedLayout(hosts)) as cluster:
        ends = [(cluster.namespace(h.name), str(h.address)) for h in hosts]
        taken = [0] * pairs
        psutil.cpu_percent()
        begin = time.monotonic()
        with ThreadPoolExecutor(2 * pairs) as pool:
            for n in range(pairs):
                for place, call in _pair(n, ends[2 * n][0], *ends[2 * n + 1], taken):
                    pool.submit(place.do, call)
        idle = 1.0 - psutil.cpu_percent() / 100.0
        took = time.monotonic() - begin
    return sum(taken) * FRAME / SEGMENT / min(took, _SECONDS), idle


def _pair(
    number: int, sender: Namespace, receiver: Namespace, address: str, taken: list[int]
) -> Sequence[tuple[Namespace, Callable[[], None]]]:
    ready, end = threading.Event(), time.monotonic() + _SECONDS

    def receive() -> None:
        with socket.create_server((address, _PORT)) as server:
            server.settimeout(_LIMIT)
            ready.set()
            connection, _ = server.accept()
            with connection:
                connection.settimeout(_LIMIT)
                while (size := len(connection.recv(1 << 18))) and time.monotonic() < end:
                    taken[number] += size

    def send() -> None:
        ready.wait(_LIMIT)
        with socket.create_connection((address, _PORT), timeout=_LIMIT) as connection:
            block = bytes(1 << 18)
            while time.monotonic() < end:
                try:
                    connection.send(block)
                except OSError:  # the receiver has ended
                    return

    return (receiver, receive), (sender, send)


def _has_netem() -> bool:
    with closing(Namespace()) as place:
        return place.knows("tc", "qdisc add dev lo root netem delay 1ms")
