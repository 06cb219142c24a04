"""Machines, processes and wires as fluid resources; computations and transfers on them."""

from __future__ import annotations

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.fluid import Kind, Resource
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.kernel import Event, Kernel
from recsim_train.sim.pricing import Seconds

HEADER_BYTES = 64
"""Bytes of a message's fixed header; on the wire, but not payload."""


class Process:
    """One process of the job and what it can run short of."""

    __slots__ = ("cores", "interpreter", "name", "receive", "send", "thread")

    def __init__(
        self, name: str, cores: Resource, interpreter: Resource, send: Resource, receive: Resource
    ) -> None:
        self.name = name
        self.cores = cores
        self.interpreter = interpreter
        self.send = send
        self.receive = receive
        self.thread: Resource | None = None
        """The thread that parses, in a reader."""


class Machines:
    """Every process of a plan on the cluster's hosts.

    Computations run on one core of the process's machine and hold its interpreter lock for a share
    of their time. Transfers use both ends' NIC and some of both ends' cores; each has the fair
    share of one thread, and can not use more than one core at an end.
    """

    def __init__(self, plan: Plan, cluster: Cluster, kernel: Kernel, jitter: Jitter) -> None:
        self.kernel = kernel
        self.cluster = cluster
        self.latency = cluster.network.latency
        self._jitter = jitter
        self._wire = cluster.costs.wire_byte.value
        self._flows: dict[tuple[str, str], Kind] = {}
        self.processes: dict[Instance, Process] = {}
        self.header_bytes = 0
        shared = self._cores("machine", plan.instances[0]) if cluster.colocate else None
        for instance in plan.instances:
            self.processes[instance] = self._process(instance, shared)
        cap = cluster.network.connection_cap
        if self._wire > 0.0:
            cap = 1.0 / self._wire if cap is None else min(cap, 1.0 / self._wire)
        self._cap = cap
        self._weight = 1.0 / self._wire if self._wire > 0.0 else 1.0

    def _cores(self, name: str, instance: Instance) -> Resource:
        cores = self.cluster.host(instance.role).cores
        speed = self.cluster.contention if cores > 1 else 1.0
        return self.kernel.fluid.resource(f"{name}.cores", cores * speed)

    def _process(self, instance: Instance, shared: Resource | None) -> Process:
        make = self.kernel.fluid.resource
        name = instance.name
        rate = self.cluster.host(instance.role).nic * self.cluster.network.efficiency
        process = Process(
            name,
            cores=self._cores(name, instance) if shared is None else shared,
            interpreter=make(f"{name}.interpreter", 1.0),
            send=make(f"{name}.nic.tx", rate),
            receive=make(f"{name}.nic.rx", rate),
        )
        if instance.role == "reader":
            process.thread = make(f"{name}.thread", 1.0)
        return process

    # ------------------------------------------------------------------ activities

    def compute(
        self, process: Process, seconds: Seconds, purpose: str, *, thread: bool = False
    ) -> Event:
        """One thread's work of (total, lock-held) ``seconds``, as long as chance makes it.

        ``thread``: it runs in the thread that the process has for this.
        """
        total, held = seconds
        if total <= 0.0:
            return self.kernel.event().succeed()
        uses = [(process.cores, 1.0), (process.interpreter, held / total)]
        if thread and process.thread is not None:
            uses.append((process.thread, 1.0))
        kind = self.kernel.fluid.kind(uses, cap=1.0)
        return self.kernel.activity(kind, total * self._jitter.factor(process.name, purpose))

    def transfer(
        self, source: Process, target: Process, payload: float, *, header: bool = True
    ) -> Event:
        """The bytes of a message, its header included where it has one, after its latency."""
        if header:
            self.header_bytes += HEADER_BYTES
        key = (source.name, target.name)
        kind = self._flows.get(key)
        if kind is None:
            kind = self._flows[key] = self.kernel.fluid.kind(
                [
                    (source.send, 1.0),
                    (target.receive, 1.0),
                    (source.cores, self._wire),
                    (target.cores, self._wire),
                ],
                cap=self._cap,
                weight=self._weight,
            )
        return self.kernel.activity(kind, payload + (HEADER_BYTES if header else 0))

    def exchange(self, members: list[Process], moved: list[tuple[int, int]]) -> Event:
        """Every member sends and receives its own (sent, received) bytes; all end together."""
        most = max(max(pair) for pair in moved)
        if most <= 0:
            return self.kernel.event().succeed()
        uses = []
        for member, (sent, received) in zip(members, moved, strict=True):
            out, into = sent / most, received / most
            parts = [
                (member.send, out),
                (member.receive, into),
                (member.cores, (out + into) * self._wire),
            ]
            uses += [(resource, share) for resource, share in parts if share > 0.0]
        kind = self.kernel.fluid.kind(uses, cap=self._cap, weight=self._weight)
        return self.kernel.activity(kind, most)

    def ring(self, members: list[Process], bytes_each: float) -> Event:
        """``bytes_each`` sent and received by every member of a ring, all at one rate."""
        uses = []
        for member in members:
            uses += [(member.send, 1.0), (member.receive, 1.0), (member.cores, 2 * self._wire)]
        kind = self.kernel.fluid.kind(uses, cap=self._cap, weight=self._weight)
        return self.kernel.activity(kind, bytes_each)
