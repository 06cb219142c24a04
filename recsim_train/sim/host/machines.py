"""Machines, processes and wires as fluid resources; computations and transfers on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import fsum, inf

from recsim_train.config.cluster import Cluster
from recsim_train.config.frames import ANSWERED
from recsim_train.config.topology import Traffic
from recsim_train.placement.plan import Instance, Plan
from recsim_train.placement.racks import uplink_rate
from recsim_train.placement.transport import shareable
from recsim_train.sim.cluster.conditions import (
    HostCondition,
    LinkCondition,
    constant_share,
    start_bursts,
    start_episodes,
)
from recsim_train.sim.cluster.faults import Faults
from recsim_train.sim.cluster.hosts import Site, sites_of
from recsim_train.sim.cluster.shares import Shares
from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.fluid.records import Kind, Resource
from recsim_train.sim.folding import Folding, Lateness
from recsim_train.sim.host.cores import Cores
from recsim_train.sim.host.process import Process, Rack, Started, Thread, between
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.pricing import Part, Priced
from recsim_train.sim.records import CpuBooks
from recsim_train.trace.ledger import TRANSPORT

_REMEMBERED = 256
"""Kinds of computations that each process knows again."""


class Machines:
    """Every process of a plan on the cluster's hosts.

    Trainers that others stand for (`recsim_train.sim.folding`) are left out.

    Computations run on one core of the process's machine, or on as many as the threads of their
    operations keep busy on average, and hold its interpreter lock for a share of their time.
    Transfers use both ends' NIC and some of both ends' cores, and between racks both racks'
    uplinks; each has about the fair share of one thread (`recsim_train.sim.cluster.shares`), and
    cannot use more than one core at an end. On a host of speed s everything that its cores do takes
    1 / s times as long.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        engine: Engine,
        jitter: Jitter,
        folding: Folding | None = None,
    ) -> None:
        self.engine = engine
        seed = plan.experiment.seed
        trainers = plan.experiment.roles.trainers
        self._folding = folding = folding or Folding(trainers, trainers)
        self.cluster = cluster
        self.latency = cluster.network.latency
        self._between_racks = cluster.topology.latency if cluster.topology is not None else 0.0
        self.jitter = jitter
        self._wire = cluster.costs.wire_byte.value
        self._shared = cluster.costs.shared_byte.value
        execution = plan.experiment.execution
        self._shares = cluster.colocate and execution.transport == "tcp" and execution.shared_memory
        self.price_names = {"wire_byte", *(["shared_byte"] if self._shares else [])}
        """Those that messages take."""
        unequal = engine.shared and not cluster.colocate
        self._unequal = Shares(seed, cluster.network, engine) if unequal else None
        self.answered = 0.0 if cluster.colocate else ANSWERED
        """What acknowledgements of bytes take of the other direction of a link."""
        self._flows: dict[tuple[str, str, float], Kind] = {}
        self._copies: dict[tuple[str, str, int], Kind] = {}
        self.processes: dict[Instance, Process] = {}
        self.header_bytes = 0
        self.calls: dict[tuple[str, str], list[float]] | None = None
        """By process and what for: how often, and seconds on its host in all; None: nobody wants
        to know."""
        self.books = CpuBooks()
        self.sites = sites_of(plan, cluster)
        """Of all instances, those that others stand for included."""
        sites = {
            instance: site
            for instance, site in self.sites.items()
            if instance.role != "trainer" or instance.index < folding.simulated
        }
        self.racks = self._racks(sites)
        shared = None
        self._each = None
        """None: the threads of a host share its cores equally."""
        if cluster.colocate:
            site = sites[plan.instances[0]]
            shared = self._cores("machine", site)
            if site.host.cores > 1 and folding.simulated == folding.trainers:
                self._each = Cores(engine, site.host.cores, shared, cluster.turn, seed)
        readers = len(plan.of_role("reader"))
        working = min(readers, folding.simulated)
        for instance, site in sites.items():
            process = self._process(instance, site, shared)
            self.processes[instance] = process
            if instance.role == "trainer":
                process.standing = folding.standing(instance.index)
            elif instance.role == "reader" and working:
                process.standing = readers / working
        self._cap = cluster.network.connection_cap
        paced = _rate(self._wire, inf)
        self._alone_rate = paced if self._cap is None else min(self._cap, paced)
        self.faults = self._surround(plan)
        """Failures and checkpoints."""

    def _cores(self, name: str, site: Site) -> Resource:
        cores, speed = site.host.cores, site.speed
        busy = self.cluster.contention if cores > 1 else 1.0
        return self.engine.fluid.resource(f"{name}.cores", cores * busy * speed, pace=speed)

    def _racks(self, sites: Mapping[Instance, Site]) -> dict[int, Rack]:
        topology = self.cluster.topology
        if topology is None:
            return {}
        make = self.engine.fluid.resource
        left = 1.0 - constant_share(self._traffic("uplink"))
        found = {}
        for rack in sorted({p.rack for p in sites.values() if p.rack is not None}):
            hosts = [p.host for p in sites.values() if p.rack == rack]
            rate = uplink_rate(topology, self.cluster, hosts) * self.cluster.network.efficiency
            up, down = (make(f"rack[{rack}].{way}", rate * left) for way in ("up", "down"))
            found[rack] = Rack(up, down)
        return found

    def _process(self, instance: Instance, site: Site, shared: Resource | None) -> Process:
        make = self.engine.fluid.resource
        name = instance.name
        rate = site.host.nic * self.cluster.network.efficiency
        rate *= 1.0 - constant_share(self._traffic("nic", instance))
        process = Process(
            name,
            instance.role,
            cores=self._cores(name, site) if shared is None else shared,
            interpreter=make(f"{name}.interpreter", site.speed),
            send=make(f"{name}.nic.tx", rate),
            receive=make(f"{name}.nic.rx", rate),
            rack=None if site.rack is None else self.racks[site.rack],
        )
        if instance.role == "reader":
            process.thread = make(f"{name}.thread", site.speed)
        return process

    def process_of(self, instance: Instance) -> Process:
        """A process, or that of the trainer that stands for it."""
        if instance.role == "trainer":
            instance = Instance("trainer", self._folding.stand_in(instance.index))
        return self.processes[instance]

    def _traffic(self, link: str, instance: Instance | None = None) -> list[Traffic]:
        """Traffic of others on links of this kind, or on this instance's NIC."""
        roles = (None,) if instance is None else (None, instance.role)
        return [t for t in self.cluster.background or () if t.link == link and t.role in roles]

    def _surround(self, plan: Plan) -> Faults:
        """Start what happens to hosts and links while the run goes on."""
        engine, fluid, seed = self.engine, self.engine.fluid, plan.experiment.seed
        stragglers = self.cluster.stragglers if plan.experiment.simulation.stragglers else None
        hosts = {}
        for instance, p in self.processes.items():
            nic = LinkCondition(fluid, (p.send, p.receive))
            others = [p.interpreter] if p.thread is None else [p.interpreter, p.thread]
            if self._each is not None:
                others += self._each.each
            hosts[instance] = HostCondition(fluid, p.cores, others, nic)
            traffic = self._traffic("nic", instance)
            start_bursts(engine, seed, p.name, nic, traffic)
            if stragglers is not None:
                start_episodes(engine, seed, p.name, hosts[instance], stragglers.episodes)
        for number, rack in self.racks.items():
            link = LinkCondition(fluid, (rack.up, rack.down))
            start_bursts(engine, seed, f"rack[{number}]", link, self._traffic("uplink"))
        return Faults(engine, plan, self.cluster, hosts)

    @property
    def changing(self) -> bool:
        """Whether anything about hosts and links changes while the run goes on."""
        traffic = any(t.burst is not None for t in self.cluster.background or ())
        stragglers = self.cluster.stragglers
        slow = stragglers is not None and bool(stragglers.episodes)
        return traffic or slow or self.faults.any

    @property
    def one_by_one(self) -> bool:
        """Whether threads have one core at a time."""
        return self._each is not None

    # ------------------------------------------------------------------ activities

    def compute(
        self,
        thread: Thread,
        work: Priced,
        purpose: str,
        *,
        client: Process | None = None,
        lateness: Lateness | None = None,
        threaded: bool = False,
    ) -> Started:
        """A thread's work, which takes as long as chance makes it.

        ``purpose``: whose chance that is. ``client``: whom the work is done for; as many such
        threads as that one stands for do the same side by side. ``lateness``: of those that a loop
        stands for, to be told. ``threaded``: operations run on several threads.
        """
        process = thread.process
        total, held, parts = work
        cores = 1.0
        if threaded:
            spent = total + fsum(added for *_, added, _ in parts)
            total -= fsum(saved for _, _, saved, _, _ in parts)
            held, cores = min(held, total), spent / total if total > 0.0 else 1.0
        if total <= 0.0:
            return Started(self.engine.event().succeed(), 0.0)
        if self.calls is not None:
            self._count(process, parts, threaded)
        copies = 1.0 if client is None else max(1.0, client.standing / process.standing)
        share = held / total
        taken = total * self.jitter.factor(process.name, purpose)
        times = taken / total * copies * process.standing / process.cores.pace
        self.books.add(process.role, thread.kind, parts, times, threaded=threaded)
        if lateness is not None:
            lateness.add(total, taken)
        alone = taken / process.cores.pace
        if cores > 1.0:  # of which there may be fewer than threads
            alone = max(alone, taken * cores / process.cores.capacity)
        if self._each is not None and cores == copies == 1.0:
            kind_on = partial(self._kind, process, share, copies, thread.only, cores)
            waker = f"{client.name}/loop" if client is not None else ""
            return Started(self._each.run(thread.key, kind_on, taken, waker=waker), alone)
        kind = self._kind(process, share, copies, thread.only, cores, None)
        return Started(self.engine.activity(kind, taken), alone)

    def _count(self, process: Process, parts: Sequence[Part], threaded: bool) -> None:
        assert self.calls is not None
        for what, seconds, saved, *_ in parts:
            known = self.calls.setdefault((process.name, what), [0, 0.0])
            known[0] += 1
            known[1] += (seconds - saved * threaded) / process.cores.pace

    def _kind(
        self,
        process: Process,
        share: float,
        copies: float,
        only: bool,
        cores: float,
        core: Resource | None,
    ) -> Kind:
        """Computations that hold the lock for a ``share`` of their time; on a ``core`` of theirs
        where they have one."""
        key = share, copies, only, cores, core
        kind = process.kinds.get(key)
        if kind is None:
            uses = [(process.cores, copies * cores), (process.interpreter, copies * share)]
            if core is not None:
                uses.append((core, 1.0))
            if only and process.thread is not None:
                uses.append((process.thread, copies))
            if len(process.kinds) >= _REMEMBERED:
                process.kinds.clear()
            kind = process.kinds[key] = self.engine.fluid.kind(uses, paced=1.0)
        return kind

    def cpu_seconds(self, used: Sequence[float]) -> float:
        """Of all processes, those included that others stand for. ``used``: by resource."""
        standing = {p.cores: p.standing / p.cores.pace for p in self.processes.values()}
        units = zip(self.engine.fluid.resources, used, strict=True)
        return fsum(unit * standing[cores] for cores, unit in units if cores in standing)

    def transfer(
        self, source: Process, target: Process, payload: float, head: int = 0, delay: float = 0.0
    ) -> Started:
        """A message: its bytes move after a ``delay`` and what racks add to it. ``head``: those
        that are not payload."""
        delay += self.farther([source, target])
        behind, weight = self.begin(source, target, payload + head)
        done = self.stream(source, target, payload, head, delay=delay + behind, weight=weight)
        return Started(done, delay + self.alone(source, payload + head))

    def begin(self, source: Process, target: Process, size: float) -> tuple[float, float]:
        """Of a message that begins now: (seconds by which it is behind others, weight to which its
        rate is proportional)."""
        if self._unequal is None:
            return 0.0, 1.0
        return self._unequal.begin(source, target, size, max(source.standing, target.standing))

    def alone(self, source: Process, size: float) -> float:
        """Seconds in which so many bytes move where nothing else runs."""
        return size / min(self._alone_rate, source.send.capacity)

    def stream(
        self,
        source: Process,
        target: Process,
        payload: float,
        head: int,
        *,
        delay: float = 0.0,
        weight: float,
    ) -> Event:
        """Bytes of a message, or further ones, after a ``delay``."""
        self.header_bytes += head
        key = source.name, target.name, weight
        kind = self._flows.get(key)
        flows = max(source.standing, target.standing)
        if kind is None:
            out, into = flows / source.standing, flows / target.standing
            uses = [
                (source.send, out),
                (target.receive, into),
                (source.cores, self._wire * out),
                (target.cores, self._wire * into),
                *between(source, target, 1.0),
            ]
            kind = self._flows[key] = self._wired(uses, self._wire, weight)
        work = payload + head
        self.book_wire(source, TRANSPORT, work * flows, self._wire)
        self.book_wire(target, TRANSPORT, work * flows, self._wire)
        return self.engine.activity(kind, work, delay)

    def shares(self, payload: int) -> bool:
        """Whether it goes through memory that both ends share."""
        return self._shares and shareable(payload)

    def copy(
        self,
        source: Process,
        target: Process,
        payload: int,
        head: int,
        *,
        delay: float,
        copies: int,
    ) -> Started:
        """A message through shared memory after a ``delay``: copied by none of its ends, by the
        first or by both."""
        self.header_bytes += head
        ends = [source, target][:copies]
        seconds, flows = self._shared * len(ends), max(source.standing, target.standing)
        alone = delay + payload * seconds
        if seconds <= 0.0:
            return Started(self.engine.timeout(delay), alone)
        key = source.name, target.name, copies
        kind = self._copies.get(key)
        if kind is None:  # one thread at a time
            uses = [(end.cores, self._shared * flows / end.standing) for end in ends]
            kind = self.engine.fluid.kind(uses, None, 1.0 / seconds, 1.0 / seconds)
            self._copies[key] = kind
        for end in ends:
            self.book_wire(end, TRANSPORT, payload * flows, self._shared)
        return Started(self.engine.activity(kind, payload, delay), alone)

    def book_wire(self, process: Process, what: str, moved: float, price: float) -> None:
        """What the bytes cost at one end, where others stand for it at all of theirs."""
        self.books.add_one((process.role, what, "wire"), price * moved / process.cores.pace)

    def together(self, uses: list[tuple[Resource, float]], work: float, price: float) -> Started:
        """So many bytes of all: ``uses`` of a resource for each byte, which a thread handles in
        ``price`` seconds."""
        kind = self._wired(uses, price)
        return Started(self.engine.activity(kind, work), work / min(kind.cap, _rate(price, inf)))

    def _wired(self, uses: list[tuple[Resource, float]], price: float, weight: float = 1.0) -> Kind:
        """Bytes that a thread at each end handles, each in ``price`` seconds."""
        alone = _rate(price, inf)
        return self.engine.fluid.kind(uses, self._cap, _rate(price, 1.0) * weight, alone)

    def farther(self, processes: Sequence[Process]) -> float:
        """Seconds that one message takes longer because some of these are in different racks."""
        apart = self._between_racks and len({id(p.rack) for p in processes}) > 1
        return self._between_racks if apart else 0.0


def _rate(price: float, free: float) -> float:
    """Units per second at so many seconds a unit; ``free``: where they cost nothing."""
    return 1.0 / price if price > 0.0 else free
