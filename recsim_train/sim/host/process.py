"""Hosts, processes and threads of the job: what they can run short of, what they have started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from recsim_train.sim.engine import Event
from recsim_train.sim.fluid.resources import Kind, Resource
from recsim_train.sim.host.cores import Cores


class Rack(NamedTuple):
    """A rack's uplink, by direction: out of the rack, into it."""

    up: Resource
    down: Resource


@dataclass(slots=True, eq=False)
class SimulatedHost:
    """What the processes of one host share."""

    name: str
    cores: Resource
    each: Cores | None
    """Its cores one by one; None: its threads share them equally."""
    rack: Rack | None
    """None: there are no racks."""
    link: tuple[Resource, Resource] | None = None
    """Its NIC, out and in; None: all of the job is on it."""


@dataclass(slots=True, eq=False)
class Process:
    """One process of the job and what it can run short of."""

    name: str
    role: str
    host: SimulatedHost
    cores: Resource
    interpreter: Resource
    send: Resource
    receive: Resource
    """To and from other hosts; on a machine of all roles what it has of loopback."""
    near: Sequence[Resource] = ()
    """Out and in, what one process has of loopback; empty: only cores limit what stays within its
    host, or nothing does."""
    rack: Rack | None = None
    """None: there are no racks."""
    standing: float = 1.0
    """How many equal processes this one stands for."""
    talks: int = 0
    """Its messages to and from other hosts that are on their way."""
    thread: Resource | None = None
    """The thread that parses, in a reader."""
    kinds: dict[tuple[float, float, bool, float, Resource | None], Kind] = field(
        default_factory=dict
    )
    """Computations by lock-held share, copies, whether in the thread of its own, how many cores,
    and on which one."""


@dataclass(slots=True, eq=False)
class Thread:
    """A thread of a process, which does one thing at a time."""

    process: Process
    kind: str
    """Which kind of thread, for the books."""
    name: str
    """Which thread of this kind: by its name a thread keeps its core."""
    only: bool = False
    """Whether all work of this kind waits for one thread of the process: a reader's parser."""
    key: str = field(init=False)
    """What the machine's cores know it by."""

    def __post_init__(self) -> None:
        self.key = f"{self.process.name}/{self.kind}/{self.name}"


class Started(NamedTuple):
    """An activity that has been started."""

    done: Event
    alone: float
    """Seconds that it takes where nothing else runs."""


class Route:
    """From one process to another: what every message between them needs to know."""

    __slots__ = (
        "cap", "connection", "flows", "handled", "handling", "into", "kind", "links", "out",
        "passes", "price", "rate", "source", "target", "what",
    )  # fmt: skip

    def __init__(
        self, source: Process, target: Process, what: str, price: float, cap: float | None
    ) -> None:
        """``what``: its bytes are for, in the books; ``price``: seconds in which a thread at each
        end handles one of them; ``cap``: bytes per second of one connection."""
        self.source, self.target = source, target
        self.what, self.price, self.cap = what, price, cap
        self.flows = max(source.standing, target.standing)
        """As many move side by side."""
        self.out, self.into = self.flows / source.standing, self.flows / target.standing
        """How many of these flows one sender has, and how many one receiver."""
        self.passes = passes(source, target, self.flows)
        self.handling = [(source.cores, price * self.out), (target.cores, price * self.into)]
        """What of the ends' cores a byte takes."""
        limits = [1.0 / price if price > 0.0 else inf, inf if cap is None else cap]
        self.rate = min(limits + [link.capacity for link, _ in self.passes[:1]])
        """Bytes per second of one thread and connection, where nothing else runs."""
        self.kind: Kind | None = None
        """Of its bytes."""
        self.handled: Sequence[Kind] | None = None
        """What a thread at each end does with them, where frames carry them."""
        self.connection = 0
        """By which they go frame by frame."""
        self.links: Sequence[Kind] = ()
        """In a look, what frames use there, and acknowledgements back."""


def only_host(members: Sequence[Process]) -> SimulatedHost | None:
    """The host that all of these are on; None: they are on several."""
    hosts = {id(member.host): member.host for member in members}
    return next(iter(hosts.values())) if len(hosts) == 1 else None


def passes(source: Process, target: Process, flows: float) -> list[tuple[Resource, float]]:
    """What so many flows side by side use of links, from the first to the last; empty where only
    cores limit them."""
    out, into = flows / source.standing, flows / target.standing
    if source.host is not target.host:
        return [(source.send, out), *between(source, target, flows), (target.receive, into)]
    return [(source.near[0], out), (target.near[1], into)] if source.near else []


def between(source: Process, target: Process, share: float) -> list[tuple[Resource, float]]:
    """What a flow uses of the network between racks."""
    if source.rack is target.rack or source.rack is None or target.rack is None or share <= 0.0:
        return []
    return [(source.rack.up, share), (target.rack.down, share)]
