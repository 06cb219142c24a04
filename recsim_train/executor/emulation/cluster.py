"""An emulated cluster: namespaces joined by switches, with links of the rates that the layout says.

Each host has one interface, eth0, joined to the switch of its rack; racks are joined to a core
switch by their uplinks. What leaves an interface waits in a queue of its own, so that each
direction of a link is shaped at its sender.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import NamedTuple

from recsim_train.config.cluster import Queue
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.frames import FRAME
from recsim_train.executor.emulation.layout import EmulatedHost, EmulatedLayout, Link
from recsim_train.executor.emulation.namespaces import Namespace
from recsim_train.executor.process.forkserver import NetworkPlace
from recsim_train.trace.facts import Emulated

INTERFACE = "eth0"
_OFF = 2e-3
"""How far a rate that is read back may be from the one that was asked for."""
_CONGESTION = "net/ipv4/tcp_congestion_control"
_TCP = {
    _CONGESTION: "reno",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}


@dataclass(frozen=True, slots=True)
class ShapedPort:
    """One end of a link: what leaves it is shaped."""

    place: Namespace
    device: str
    link: Link
    peers: tuple[tuple[str, str], ...]
    """With fair queues, one for each: the field of a packet ("dst" or "src") and the address."""


class Counted(NamedTuple):
    """What has left a port, in frames of at most one segment."""

    bytes: int
    drops: int


class EmulatedCluster(ExitStack):
    """The hosts of a layout, as a context manager. Closed it holds the namespaces no longer: they
    are gone once nobody runs in them."""

    def __init__(self, layout: EmulatedLayout) -> None:
        """Raises UserError where hosts cannot be emulated, RunFailed where that fails."""
        super().__init__()
        self.layout = layout
        self._hosts: dict[str, Namespace] = {}
        self._ports: dict[str, ShapedPort] = {}
        try:
            self._make()
            self._check()
        except BaseException:
            self.close()
            raise

    def namespace(self, name: str) -> Namespace:
        """The namespace of a host."""
        return self._hosts[name]

    def place(self, name: str) -> NetworkPlace:
        """Of the host of a role instance."""
        host = next(host for host in self.layout.hosts if name in host.processes)
        return NetworkPlace(INTERFACE, self._hosts[host.name].descriptor)

    def facts(self, before: Mapping[str, Counted]) -> Emulated:
        """What a run says of them. ``before``: what had been counted when it began."""
        now = self.counted()
        return Emulated(
            {name: port.link.rate for name, port in self._ports.items()},
            self.layout.hosts[0].link.queue,
            {name: port.link.limit for name, port in self._ports.items()},
            {name: now[name].bytes - before[name].bytes for name in self._ports},
            sum(now[name].drops - before[name].drops for name in self._ports),
        )

    def counted(self) -> dict[str, Counted]:
        """By port: "trainer[0]" is what a host has sent, "to trainer[0]" what it was sent,
        "uplink 0" what has left a rack, "to uplink 0" what came into it."""
        return {name: _counted(port) for name, port in self._ports.items()}

    # ------------------------------------------------------------------ making

    def _new(self) -> Namespace:
        place = Namespace()
        self.callback(place.close)
        place.set(_TCP, must=[_CONGESTION])
        return place

    def _make(self) -> None:
        switch = self._new()
        # some versions of iproute2 and of kernels do not know it; veth merges hardly anything
        merged = switch.knows("ip", f"link add a gro_max_size {FRAME} type veth peer name b")
        racks = range(max(host.rack for host in self.layout.hosts) + 1)
        lines = [f"link add rack{r} type bridge forward_delay 0 stp_state 0" for r in racks]
        lines += [f"link set rack{r} up" for r in racks]
        if self.layout.uplinks:
            lines += ["link add core type bridge forward_delay 0 stp_state 0", "link set core up"]
        for rack, link in enumerate(self.layout.uplinks):
            up, down = f"up{rack}", f"down{rack}"
            few = _few(link, merged=merged)
            lines += [f"link add {up} {few} type veth peer name {down} {few}"]
            lines += [f"link set {up} master rack{rack} up", f"link set {down} master core up"]
            inside = [str(h.address) for h in self.layout.hosts if h.rack == rack]
            outside = [str(h.address) for h in self.layout.hosts if h.rack != rack]
            pairs = (("dst", a) for a in outside), (("dst", a) for a in inside)
            self._ports[f"uplink {rack}"] = ShapedPort(switch, up, link, tuple(pairs[0]))
            self._ports[f"to uplink {rack}"] = ShapedPort(switch, down, link, tuple(pairs[1]))
        for number, host in enumerate(self.layout.hosts):
            place = self._hosts[host.name] = self._new()
            device, few = f"host{number}", _few(host.link, merged=merged)
            lines += [
                f"link add {device} {few} type veth peer name {INTERFACE} {few} netns {place.path}",
                f"link set {device} master rack{host.rack} up",
            ]
            others = [str(o.address) for o in self.layout.hosts if o is not host]
            to, of = (tuple((field, a) for a in others) for field in ("dst", "src"))
            self._ports[host.name] = ShapedPort(place, INTERFACE, host.link, to)
            self._ports[f"to {host.name}"] = ShapedPort(switch, device, host.link, of)
        switch.batch("ip", *lines)
        for host in self.layout.hosts:
            self._hosts[host.name].batch(
                "ip",
                "link set lo up",
                f"addr add {host.address}/16 dev {INTERFACE}",
                f"link set {INTERFACE} up",
            )
        by_place: dict[int, tuple[Namespace, list[str]]] = {}
        for port in self._ports.values():
            by_place.setdefault(id(port.place), (port.place, []))[1].extend(_shaping(port))
        for place, shaping in by_place.values():
            place.batch("tc", *shaping)

    def _check(self) -> None:
        """Nothing is trusted that was not read back. Raises RunFailed."""
        for name, port in self._ports.items():
            rate, asked = _read(port)["1:1"][0], port.link.rate * 8
            if abs(rate / asked - 1.0) > _OFF:
                raise RunFailed(
                    f"emulating hosts: {name} has a link of {rate / 1e6:.6g} Mbit/s where "
                    f"{asked / 1e6:.6g} were asked for"
                )


def _few(link: Link, *, merged: bool) -> str:
    """So that no packet of 64 KiB fills a queue. ``merged``: whether it can be said of those that
    come in, too."""
    size = f" gro_max_size {max(FRAME, link.segments * FRAME)}" if merged else ""
    return f"gso_max_segs {link.segments}{size}"


def check_here(queues: Iterable[Queue] = ("fifo",)) -> None:
    """Raises UserError where hosts cannot be emulated: two with such queues are made and read
    back."""
    try:
        for queue in queues:
            link, first = Link(20e6 / 8, queue, 64 * FRAME), IPv4Address("10.77.0.1")
            hosts = (EmulatedHost(f"{n}", first + n, 0, link) for n in range(2))
            EmulatedCluster(EmulatedLayout(tuple(hosts))).close()
    except RunFailed as error:
        raise UserError(
            f"hosts cannot be emulated here: {str(error).removeprefix('emulating hosts: ')}; it "
            "takes ip and tc of iproute2, and a kernel with veth, bridge, htb, bfifo and u32"
        ) from None


def _shaping(port: ShapedPort) -> Iterator[str]:
    """Commands of `tc`."""
    device, link = port.device, port.link
    rate = f"rate {link.rate * 8:.0f}bit ceil {link.rate * 8:.0f}bit"
    bursts = f"burst {link.burst} cburst {link.burst} quantum {FRAME}"
    yield f"qdisc add dev {device} root handle 1: htb default 2"
    yield f"class add dev {device} parent 1: classid 1:1 htb {rate} {bursts}"
    queues = [None, *port.peers] if link.queue == "fair" else [None]
    least = link.rate * 8 / (100 * len(queues))
    for number, peer in enumerate(queues, start=2):
        yield (
            f"class add dev {device} parent 1:1 classid 1:{number:x} htb rate {least:.0f}bit "
            f"ceil {link.rate * 8:.0f}bit {bursts}"
        )
        yield (
            f"qdisc add dev {device} parent 1:{number:x} handle {number + 16:x}: "
            f"bfifo limit {link.limit}"
        )
        if peer is not None:
            field, address = peer
            yield (
                f"filter add dev {device} parent 1: protocol ip prio 1 u32 "
                f"match ip {field} {address}/32 flowid 1:{number:x}"
            )


_CLASS = re.compile(
    r"^class htb (\S+) .*?\brate ([0-9.]+)([KMGT]?)bit .*\n"
    r" Sent (\d+) bytes \d+ pkt \(dropped (\d+),",
    re.MULTILINE,
)
"""Of what `tc` shows: it has no JSON of classes."""
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _read(port: ShapedPort) -> dict[str, tuple[float, Counted]]:
    """By handle, its rate in bits per second and what has left it."""
    text = port.place.shown("tc", "-s", "class", "show", "dev", port.device)
    return {
        handle: (float(number) * _UNITS[unit], Counted(*map(int, counts)))
        for handle, number, unit, *counts in _CLASS.findall(text)
    }


def _counted(port: ShapedPort) -> Counted:
    found = _read(port)
    _, root = found.pop("1:1")
    return Counted(root.bytes, sum(leaf.drops for _, leaf in found.values()))
