"""What processes do on their hosts: computations, and transfers between and within hosts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import fsum, inf

from recsim_train.config.cluster import Cluster
from recsim_train.config.frames import SEGMENT, acknowledged, in_frames
from recsim_train.placement.plan import Instance, Plan
from recsim_train.placement.transport import shareable
from recsim_train.sim.cluster.links import Links
from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.fluid.resources import Kind, Resource, Unshared
from recsim_train.sim.folding import Folding, Lateness
from recsim_train.sim.host.process import HostResources, Process, Route, Started, Thread
from recsim_train.sim.jitter import Jitter
from recsim_train.sim.pricing import Part, Priced
from recsim_train.sim.queues import Countdown
from recsim_train.sim.records import CpuBooks
from recsim_train.trace.ledger import COLLECTIVES, TRANSPORT

_REMEMBERED = 256
"""Kinds of computations that each process knows again."""
_MEMORY = 1e12
"""Bytes per second within a host of which nothing is measured: so many that only cores limit."""


class Machines:
    """Every process of a plan on the cluster's hosts.

    Trainers that others stand for (`recsim_train.sim.folding`) are left out.

    Computations run on one core of the process's host, or on as many as the threads of their
    operations keep busy on average, and hold the process's interpreter lock for a share of their
    time. Transfers between hosts use both ends' NIC and some of both ends' cores, and between racks
    both racks' uplinks, frame by frame (`recsim_train.sim.network`). None uses more than one core
    at an end. Within a host they use loopback, or memory that both ends share. On a host of speed s
    everything that its cores do takes 1 / s times as long.
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
        trainers = plan.experiment.roles.trainers
        self._folding = folding = folding or Folding(trainers, trainers)
        self.cluster = cluster
        self.latency = cluster.network.latency
        """Between two hosts of a rack, one way."""
        self._between_racks = cluster.topology.latency if cluster.topology is not None else 0.0
        self.jitter = jitter
        costs = cluster.costs
        self._wires = {TRANSPORT: costs.wire_byte.value, COLLECTIVES: costs.reduced_byte.value}
        """By what messages are for: seconds that a thread at each end takes for a byte."""
        self._share = _rate(self._wires[TRANSPORT], 1.0)
        """To which shares of a link are in proportion, whatever messages are for."""
        self._shared = costs.shared_byte.value
        self._copies: dict[tuple[str, str, int], Kind] = {}
        self._routes: dict[tuple[object, ...], Route] = {}
        self.header_bytes = 0
        self.calls: dict[tuple[str, str], list[float]] | None = None
        """By process and what for: how often, and seconds on its host in all; None: nobody wants
        to know."""
        self.books = CpuBooks()
        self.there = HostResources(plan, cluster, engine, folding, self._write)
        self.processes = self.there.processes
        execution = plan.experiment.execution
        together = any(site.host.shared for site in self.there.sites.values())
        self._shares = together and execution.shared_memory
        self.price_names = {"wire_byte", *(["shared_byte"] if self._shares else [])}
        """Those that messages take."""
        apart = engine.shared and not cluster.colocate
        self._links = Links(engine, cluster.network) if apart else None
        """By which messages between hosts go frame by frame; None: as one activity each."""
        network, loopback = cluster.network, cluster.network.loopback
        self.at_once = network.passes_at_once or 0.0
        """Bytes that a link lets pass after a pause."""
        self._cap = self._near_cap = network.connection_cap
        self.near_latency = network.latency
        """Within a host, one way."""
        if not cluster.colocate:
            self._near_cap = _MEMORY if loopback is None else loopback.connection_cap
            self.near_latency = network.latency if loopback is None else loopback.latency

    def process_of(self, instance: Instance) -> Process:
        """A process, or that of the trainer that stands for it."""
        if instance.role == "trainer":
            instance = Instance("trainer", self._folding.stand_in(instance.index))
        return self.processes[instance]

    def latency_of(self, source: Process, target: Process) -> float:
        """Seconds until a message's first byte is there, racks apart."""
        return self.near_latency if source.host is target.host else self.latency

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
        each = process.host.each
        if each is not None and cores == copies == 1.0:
            kind_on = partial(self._kind, process, share, copies, thread.only, cores)
            waker = f"{client.name}/loop" if client is not None else ""
            return Started(each.run(thread.key, kind_on, taken, waker=waker), alone)
        kind = self._kind(process, share, copies, thread.only, cores, None)
        return Started(self.engine.activity(kind, taken), alone)

    def _write(self, process: Process, seconds: float) -> Event:
        """What a checkpoint takes of a thread of its own."""
        return self.compute(
            Thread(process, "keeper", ""), Priced(seconds, 0.0, ()), "checkpoint"
        ).done

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
        return self.move(self.route(source, target), payload, head, delay)

    def route(
        self,
        source: Process,
        target: Process,
        what: str = TRANSPORT,
        whose: object = None,
        price: float | None = None,
    ) -> Route:
        """Between two processes: what messages need to know whose bytes are for so ``what``, on a
        connection of somebody's own. ``price``: of a byte, where it is not that of messages or
        rings."""
        key = source, target, what, whose, price
        route = self._routes.get(key)
        if route is None:
            cap = self._near_cap if source.host is target.host else self._cap
            price = self._wires[what] if price is None else price
            route = self._routes[key] = Route(source, target, what, price, cap)
        return route

    def move(self, route: Route, payload: float, head: int = 0, delay: float = 0.0) -> Started:
        """`transfer` on a route."""
        farther, links = self.farther([route.source, route.target]), self._links
        size = carried = payload + head
        apart = route.source.host is not route.target.host
        if apart and (links is not None or not self.engine.shared):
            carried = in_frames(size)
            if self.at_once:  # where the links have paused, for those that it stands for in turn
                carried -= min(carried, self.at_once + in_frames(size % SEGMENT or SEGMENT))
        alone = delay + farther + carried / route.rate
        if links is not None and apart:
            if not route.connection:
                route.connection = links.connection(route, self.latency + farther)
            return Started(self._frames(route, payload, head), alone)
        if isinstance(self.engine.fluid, Unshared) and route.passes:
            self._look_at(self.engine.fluid, route, payload, head)
            return Started(self.engine.timeout(alone), alone)
        return Started(self.stream(route, payload, head, delay=delay + farther), alone)

    def has_used_links(self, members: Sequence[Process]) -> None:
        """A collective in one activity has used these members' links until now."""
        if self._links is not None:
            for member in members:
                self._links.busy(member)

    def by_frames(self, route: Route) -> bool:
        """Whether its messages go to another host frame by frame, in order."""
        return self._links is not None and route.source.host is not route.target.host

    def _frames(self, route: Route, payload: float, head: int) -> Event:
        """A message to another host: its frames move, and a thread at each end handles its
        bytes meanwhile."""
        work = self._book_message(route, payload, head)
        handled = self._handled(route)
        moved = Countdown(self.engine, 1 + len(handled))
        for process in (route.source, route.target):
            process.talks += 1
        moved.done.callbacks.append(partial(_said, route))
        self.engine.message(route.connection, work).callbacks.append(moved.arrive)
        for kind in handled:
            self.engine.activity(kind, work).callbacks.append(moved.arrive)
        return moved.done

    def _handled(self, route: Route) -> Sequence[Kind]:
        """What threads at the ends do with its bytes."""
        if route.handled is None:
            each = route.handling if route.price else ()
            route.handled = [self._wired([use], route.price, None, 1.0) for use in each]
        return route.handled

    def _look_at(self, used: Unshared, route: Route, payload: float, head: int) -> None:
        """Count what a message uses that shares its links with none."""
        work = self._book_message(route, payload, head)
        for kind in self._handled(route):
            used.count(kind, work)
        if not route.links:
            back = [(route.target.send, route.into), (route.source.receive, route.out)]
            route.links = used.kind(route.passes), used.kind(back)
        there, back_again = route.links
        if route.source.host is route.target.host:  # in no frames
            used.count(there, work)
        else:
            ends = (route.source, route.target)
            whom = next((end.name for end in ends if end.role == "trainer"), "")
            used.count(there, in_frames(work), whom)
            used.count(back_again, acknowledged(work), whom)

    def stream(self, route: Route, payload: float, head: int, *, delay: float = 0.0) -> Event:
        """Bytes of a message, or further ones, after a ``delay``, as one activity."""
        if route.kind is None:
            uses = [*route.handling, *route.passes]
            route.kind = self._wired(uses, route.price, route.cap, self._share)
        work = self._book_message(route, payload, head)
        return self.engine.activity(route.kind, work, delay)

    def _book_message(self, route: Route, payload: float, head: int) -> float:
        """Returns its bytes."""
        self.header_bytes += head
        work = payload + head
        for end in (route.source, route.target):
            self.book_wire(end, route.what, work * route.flows, route.price)
        return work

    def shares(self, source: Process, target: Process, payload: int) -> bool:
        """Whether it goes through memory that both ends share."""
        return self._shares and source.host is target.host and shareable(payload)

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

    def together(
        self, uses: list[tuple[Resource, float]], price: float, *, near: bool
    ) -> tuple[Kind, float]:
        """Bytes of several members: (their kind, bytes per second where nothing else runs).
        ``uses``: of a resource for each byte, which a thread handles in ``price`` seconds;
        ``near``: all within one host."""
        cap = self._near_cap if near else self._cap
        kind = self._wired(uses, price, cap, _rate(price, 1.0))
        return kind, min(kind.cap, _rate(price, inf))

    def _wired(
        self, uses: list[tuple[Resource, float]], price: float, cap: float | None, weight: float
    ) -> Kind:
        """Bytes that a thread at each end handles, each in ``price`` seconds."""
        return self.engine.fluid.kind(uses, cap, weight, _rate(price, inf))

    def farther(self, processes: Sequence[Process]) -> float:
        """Seconds that one message takes longer because some of these are in different racks."""
        apart = self._between_racks and len({id(p.rack) for p in processes}) > 1
        return self._between_racks if apart else 0.0


def _said(route: Route, _: Event) -> None:
    route.source.talks -= 1
    route.target.talks -= 1


def _rate(price: float, free: float) -> float:
    """Units per second at so many seconds a unit; ``free``: where they cost nothing."""
    return 1.0 / price if price > 0.0 else free
