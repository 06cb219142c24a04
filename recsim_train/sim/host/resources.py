"""Hosts, processes and racks of a plan as fluid resources, and what happens to them meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
from recsim_train.sim.engine import Engine
from recsim_train.sim.fluid.resources import Resource
from recsim_train.sim.folding import Folding
from recsim_train.sim.host.cores import Cores
from recsim_train.sim.host.process import Process, Rack, SimulatedHost


class HostResources:
    """What there is of a plan on a cluster's hosts.

    Trainers that others stand for (`recsim_train.sim.folding`) are left out, as are their hosts.
    """

    def __init__(self, plan: Plan, cluster: Cluster, engine: Engine, folding: Folding) -> None:
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
        self.faults = self._surround(plan)
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

    def _surround(self, plan: Plan) -> Faults:
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
        return Faults(engine, plan, self._cluster, conditions)

    @property
    def changing(self) -> bool:
        """Whether anything about hosts and links changes while the run goes on."""
        traffic = any(t.burst is not None for t in self._cluster.background or ())
        stragglers = self._cluster.stragglers
        slow = stragglers is not None and bool(stragglers.episodes)
        return traffic or slow or self.faults.any
