"""Which hosts an emulated cluster has: their addresses, racks and the rates of their links.

They are those of a prediction (`recsim_train.placement.hosts`). No file of the system is touched
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address

from recsim_train.config.cluster import Cluster, Queue
from recsim_train.config.errors import UserError
from recsim_train.config.frames import BURST, FRAME, SEGMENT, room, together
from recsim_train.placement.hosts import JobHost, hosts_of, uplink_rate
from recsim_train.placement.plan import Plan

MOST_LATENCY = 100e-6
"""Seconds one way that a profile may say: between emulated hosts it is what the kernel takes."""
_FIRST = ip_address("10.77.0.1")


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link: what leaves it in a second, and what may wait before it."""

    rate: float
    """Bytes of frames per second."""
    queue: Queue
    limit: int
    """Bytes of frames that may wait."""

    def __str__(self) -> str:
        return f"{self.rate * 8 / 1e6:.4g} Mbit/s each way, {self.queue}, {self.limit:,} bytes wait"

    @property
    def segments(self) -> int:
        """Frames that the kernel may handle as one: with more of them queues fill in steps, and
        they pass a link that has paused as if there were none; each one handled costs CPU."""
        return together(self.rate)

    @property
    def burst(self) -> int:
        """Bytes that may leave at once after a pause. With more of them short messages pass as if
        there were no link."""
        return max(self.segments + 1, BURST) * FRAME


@dataclass(frozen=True, slots=True)
class EmulatedHost:
    """One host."""

    name: str
    """By what runs there, as a prediction has it: trainer[2]."""
    address: IPv4Address
    rack: int
    link: Link
    """Its NIC, alike in both directions."""
    processes: tuple[str, ...] = ()
    """Names of the role instances there."""


@dataclass(frozen=True, slots=True)
class EmulatedLayout:
    """All hosts, and each rack's uplink, alike in both directions."""

    hosts: tuple[EmulatedHost, ...]
    uplinks: tuple[Link, ...] = ()

    @property
    def rates(self) -> float:
        """Bytes of frames per second that all hosts together can send."""
        return sum(host.link.rate for host in self.hosts)


def layout_of(plan: Plan, cluster: Cluster) -> EmulatedLayout:
    """The hosts of a plan on a cluster. Raises UserError where it has none that can be emulated."""
    network = cluster.network
    for name in ("stragglers", "background", "failures"):
        if getattr(cluster, name):
            raise UserError(
                f"cluster profile {cluster.name}: {name} are not emulated: leave them out, or "
                "only simulate"
            )
    if cluster.colocate:
        raise UserError(
            f"cluster profile {cluster.name}: with colocate: true all roles are processes of one "
            "machine, so there are no hosts to emulate"
        )
    known = hosts_of(plan.instances, cluster)
    slowest = min(host.kind.nic for host in known)
    cap = network.connection_cap
    if cap is not None and cap < slowest * network.efficiency:
        raise UserError(
            f"cluster profile {cluster.name}: network.connection_cap is below what a link carries, "
            "and emulated hosts limit links only: give null"
        )
    if network.latency > MOST_LATENCY:
        raise UserError(
            f"cluster profile {cluster.name}: network.latency is {1e6 * network.latency:.3g} us, "
            f"and packets between emulated hosts of this machine cannot be held back: give at most "
            f"{1e6 * MOST_LATENCY:.3g} us, which is about what they take by themselves"
        )
    # so that payload flows as the profile says, whatever it takes frames to add
    share = network.efficiency * FRAME / SEGMENT

    def link(rate: float) -> Link:
        frames = rate * share
        waiting = round(room(frames, network.queue_length))
        return Link(frames, network.queue, waiting)

    hosts = tuple(
        EmulatedHost(
            host.name,
            IPv4Address(int(_FIRST) + number),
            host.rack or 0,
            link(host.kind.nic),
            tuple(instance.name for instance in host.instances),
        )
        for number, host in enumerate(known)
    )
    return EmulatedLayout(hosts, tuple(link(rate) for rate in _uplinks(known, cluster)))


def as_emulated(plan: Plan, cluster: Cluster) -> Cluster:
    """The profile of emulated hosts: what their links let pass at once, of links that differ the
    least, where it does not say. Raises UserError as `layout_of`."""
    if cluster.network.passes_at_once is not None:
        return cluster
    frames = min(host.link.burst for host in layout_of(plan, cluster).hosts) // FRAME
    network = cluster.network.model_copy(update={"passes_at_once": float(frames * SEGMENT)})
    return cluster.model_copy(update={"network": network})


def _uplinks(hosts: Sequence[JobHost], cluster: Cluster) -> list[float]:
    topology = cluster.topology
    if topology is None:
        return []
    by_rack = [[host for host in hosts if host.rack == rack] for rack in range(topology.racks)]
    return [uplink_rate(topology, cluster, members) for members in by_rack if members]


def lines_of(layout: EmulatedLayout) -> Iterator[str]:
    """For a reader: hosts with links alike in one line."""
    alike: dict[tuple[int, Link], list[str]] = {}
    for host in layout.hosts:
        alike.setdefault((host.rack, host.link), []).append(f"{host.name} at {host.address}")
    for (rack, link), names in alike.items():
        where = f", rack {rack}" if layout.uplinks else ""
        yield f"{', '.join(names)}: {link}{where}"
    for rack, link in enumerate(layout.uplinks):
        yield f"uplink of rack {rack}: {link}"
