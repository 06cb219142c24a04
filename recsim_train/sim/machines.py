"""Machines, processes and wires as fluid resources; computations and transfers on them."""

from __future__ import annotations

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Instance, Plan
from recsim_train.sim.fluid import Kind, Resource
from recsim_train.sim.folding import Folding, Lateness
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.kernel import Event, Kernel
from recsim_train.sim.pricing import Seconds

_REMEMBERED = 256
"""Kinds of computations that each process knows again."""
HEADER_BYTES = 64
"""Bytes of a message's fixed header; on the wire, but not payload."""


class Process:
    """One process of the job and what it can run short of."""

    __slots__ = ("cores", "interpreter", "kinds", "name", "receive", "send", "standing", "thread")

    def __init__(
        self, name: str, cores: Resource, interpreter: Resource, send: Resource, receive: Resource
    ) -> None:
        self.name = name
        self.cores = cores
        self.interpreter = interpreter
        self.send = send
        self.receive = receive
        self.kinds: dict[tuple[float, float, bool], Kind] = {}
        """Computations by lock-held share, copies, and whether in the thread of its own."""
        self.standing = 1.0
        """How many equal processes this one stands for."""
        self.thread: Resource | None = None
        """The thread that parses, in a reader."""


class Machines:
    """Every process of a plan on the cluster's hosts.

    Trainers that others stand for (`recsim_train.sim.folding`) are left out.

    Computations run on one core of the process's machine and hold its interpreter lock for a share
    of their time. Transfers use both ends' NIC and some of both ends' cores; each has the fair
    share of one thread, and can not use more than one core at an end.
    """

    def __init__(
        self, plan: Plan, cluster: Cluster, kernel: Kernel, jitter: Jitter, folding: Folding
    ) -> None:
        self.kernel = kernel
        self._folding = folding
        self.cluster = cluster
        self.latency = cluster.network.latency
        self.jitter = jitter
        self._wire = cluster.costs.wire_byte.value
        self._flows: dict[tuple[str, str], Kind] = {}
        self.processes: dict[Instance, Process] = {}
        self.header_bytes = 0
        shared = self._cores("machine", plan.instances[0]) if cluster.colocate else None
        readers = len(plan.of_role("reader"))
        working = min(readers, folding.simulated)
        for instance in plan.instances:
            if instance.role == "trainer" and instance.index >= folding.simulated:
                continue
            process = self.processes[instance] = self._process(instance, shared)
            if instance.role == "trainer":
                process.standing = folding.standing(instance.index)
            elif instance.role == "reader" and working:
                process.standing = readers / working
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

    def process_of(self, instance: Instance) -> Process:
        """A process, or that of the trainer that stands for it."""
        if instance.role == "trainer":
            instance = Instance("trainer", self._folding.stand_in(instance.index))
        return self.processes[instance]

    # ------------------------------------------------------------------ activities

    def compute(
        self,
        process: Process,
        seconds: Seconds,
        purpose: str,
        *,
        thread: bool = False,
        client: Process | None = None,
        lateness: Lateness | None = None,
    ) -> Event:
        """One thread's work of (total, lock-held) ``seconds``, as long as chance makes it.

        ``thread``: it runs in the thread that the process has for this. ``client``: whom it is
        done for; as many such threads as that one stands for do the same side by side.
        ``lateness``: of those that a loop stands for, to be told.
        """
        total, held = seconds
        if total <= 0.0:
            return self.kernel.event().succeed()
        copies = 1.0 if client is None else max(1.0, client.standing / process.standing)
        key = (held / total, copies, thread)
        kind = process.kinds.get(key)
        if kind is None:
            uses = [(process.cores, copies), (process.interpreter, copies * key[0])]
            if thread and process.thread is not None:
                uses.append((process.thread, copies))
            if len(process.kinds) >= _REMEMBERED:
                process.kinds.clear()
            kind = process.kinds[key] = self.kernel.fluid.kind(uses, cap=1.0)
        taken = total * self.jitter.factor(process.name, purpose)
        if lateness is not None:
            lateness.add(total, taken)
        return self.kernel.activity(kind, taken)

    def transfer(
        self, source: Process, target: Process, payload: float, *, header: bool = True
    ) -> Event:
        """The bytes of a message, its header included where it has one, after its latency."""
        if header:
            self.header_bytes += HEADER_BYTES
        key = (source.name, target.name)
        kind = self._flows.get(key)
        if kind is None:
            flows = max(source.standing, target.standing)
            out, into = flows / source.standing, flows / target.standing
            kind = self._flows[key] = self.kernel.fluid.kind(
                [
                    (source.send, out),
                    (target.receive, into),
                    (source.cores, self._wire * out),
                    (target.cores, self._wire * into),
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
