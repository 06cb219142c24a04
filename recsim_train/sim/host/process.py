"""Hosts, processes and threads of the job: what they can run short of, as fluid resources, what
they have started, and what happens to them meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final, NamedTuple

from recsim_train.config.cluster import Cluster
from recsim_train.config.topology import Traffic
from recsim_train.placement.hosts import JobHost, uplink_rate
from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.cluster.faults import (
    Faults,
    HostCondition,
    LinkCondition,
    constant_share,
    start_bursts,
    start_episodes,
)
from recsim_train.sim.cluster.hosts import Site, sites_of
from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.fluid.resources import Kind, Resource
from recsim_train.sim.folding import Folding
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


class HostResources:
    """What there is of a plan on a cluster's hosts.

    Trainers that others stand for (`recsim_train.sim.folding`) are left out, as are their hosts.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        engine: Engine,
        folding: Folding,
        write: Callable[[Process, float], Event],
    ) -> None:
        """``write``: keeps one core of a process's host busy with a checkpoint, for so long."""
        self._cluster, self._engine, self._seed = cluster, engine, plan.experiment.seed
        self._whole: Final = folding.exact
        self.sites = sites_of(plan, cluster)
        """Of all instances, those that others stand for included."""
        sites = {
            instance: site
            for instance, site in self.sites.items()
            if instance.role != "trainer" or instance.index < folding.simulated
        }
        self.racks = self._racks(list(dict.fromkeys(site.host for site in self.sites.values())))
        self.hosts: dict[JobHost, SimulatedHost] = {}
        self.processes: dict[Instance, Process] = {}
        readers = len(plan.of_role("reader"))
        working = min(readers, folding.simulated)
        for instance, site in sites.items():
            if site.host not in self.hosts:
                self.hosts[site.host] = self._host(site)
            process = self.processes[instance] = self._process(instance, site)
            if instance.role == "trainer":
                process.standing = folding.standing(instance.index)
            elif instance.role == "reader" and working:
                process.standing = readers / working
        self.faults = self._surround(plan, write)
        """Failures and checkpoints."""

    def _racks(self, hosts: Sequence[JobHost]) -> dict[int, Rack]:
        topology = self._cluster.topology
        if topology is None:
            return {}
        make = self._engine.fluid.resource
        left = 1.0 - constant_share(self._traffic("uplink"))
        found = {}
        for number in sorted({host.rack for host in hosts if host.rack is not None}):
            inside = [host for host in hosts if host.rack == number]
            rate = uplink_rate(topology, self._cluster, inside) * self._cluster.network.efficiency
            up, down = (make(f"rack[{number}].{way}", rate * left) for way in ("up", "down"))
            found[number] = Rack(up, down)
        return found

    def _host(self, site: Site) -> SimulatedHost:
        name, cores, speed = site.host.name, site.host.kind.cores, site.speed
        busy = self._cluster.contention if cores > 1 else 1.0
        together = self._engine.fluid.resource(f"{name}.cores", cores * busy * speed, pace=speed)
        each = None
        contended = self._engine.shared and (self._cluster.colocate or site.host.shared)
        if contended and cores > 1 and self._whole:
            whose = () if self._cluster.colocate else (f"{name} core",)
            each = Cores(self._engine, cores, together, self._cluster.turn, self._seed, *whose)
        rack = None if site.host.rack is None else self.racks[site.host.rack]
        return SimulatedHost(name, together, each, rack)

    def _process(self, instance: Instance, site: Site) -> Process:
        make, host = self._engine.fluid.resource, self.hosts[site.host]
        interpreter = make(f"{instance.name}.interpreter", site.speed)
        near: tuple[Resource, ...] = ()
        if self._cluster.colocate:  # each has what loopback gives one process
            host.link = None
            near = link = self._ends(instance.name, "nic", self._rate(site))
        else:
            if host.link is None:
                host.link = self._ends(host.name, "nic", self._rate(site))
            link, measured = host.link, self._cluster.network.loopback
            if site.host.shared and measured is not None:
                near = self._ends(instance.name, "loopback", measured.nic)
        process = Process(
            instance.name, instance.role, host, host.cores, interpreter, *link, near, host.rack
        )
        if instance.role == "reader":
            process.thread = make(f"{instance.name}.thread", site.speed)
        return process

    def _ends(self, owner: str, what: str, rate: float) -> tuple[Resource, Resource]:
        make = self._engine.fluid.resource
        return make(f"{owner}.{what}.tx", rate), make(f"{owner}.{what}.rx", rate)

    def _rate(self, site: Site) -> float:
        """Bytes of payload per second of a host's NIC, each way, that others leave."""
        rate = site.host.kind.nic * self._cluster.network.efficiency
        return rate * (1.0 - constant_share(self._traffic("nic", site.host)))

    def _traffic(self, link: str, host: JobHost | None = None) -> list[Traffic]:
        """Traffic of others on links of this kind, or on this host's NIC."""
        roles = (None,) if host is None else (None, host.instances[0].role)
        return [t for t in self._cluster.background or () if t.link == link and t.role in roles]

    def _surround(self, plan: Plan, write: Callable[[Process, float], Event]) -> Faults:
        """Start what happens to hosts and links while the run goes on."""
        engine, fluid = self._engine, self._engine.fluid
        stragglers = self._cluster.stragglers if plan.experiment.simulation.stragglers else None
        conditions = {}
        for place, host in self.hosts.items():
            members = [p for p in self.processes.values() if p.host is host]
            others: list[Resource] = []
            for p in members:
                others += [p.interpreter] if p.thread is None else [p.interpreter, p.thread]
                others += [end for end in p.near if end not in (p.send, p.receive)]
            if host.each is not None:
                others += host.each.each
            ends = dict.fromkeys(end for p in members for end in (p.send, p.receive))
            nic = LinkCondition(fluid, list(ends))
            condition = conditions[place] = HostCondition(fluid, host.cores, others, nic)
            start_bursts(engine, self._seed, host.name, nic, self._traffic("nic", place))
            if stragglers is not None:
                start_episodes(engine, self._seed, host.name, condition, stragglers.episodes)
        for number, rack in self.racks.items():
            link = LinkCondition(fluid, (rack.up, rack.down))
            traffic = self._traffic("uplink")
            start_bursts(engine, self._seed, f"rack[{number}]", link, traffic)
        writes = {instance: partial(write, p) for instance, p in self.processes.items()}
        return Faults(engine, plan, self._cluster, conditions, self.sites, writes)

    @property
    def changing(self) -> bool:
        """Whether anything about hosts and links changes while the run goes on."""
        traffic = any(t.burst is not None for t in self._cluster.background or ())
        stragglers = self._cluster.stragglers
        slow = stragglers is not None and bool(stragglers.episodes)
        return traffic or slow or self.faults.any
