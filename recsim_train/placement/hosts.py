"""The hosts of a job: which processes share one, and in which rack each stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import ceil

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import NoHostError
from recsim_train.config.topology import RackTopology
from recsim_train.placement.plan import Instance

MACHINE = "machine"
"""The name of the one host of a profile with ``colocate: true``."""


@dataclass(frozen=True, slots=True, eq=False)
class JobHost:
    """A host and the processes on it."""

    name: str
    """By what runs there: "trainer[2]", "trainer[4-7]", or `MACHINE`."""
    instances: tuple[Instance, ...]
    """In rank order; of one role, but on a machine of all roles."""
    rack: int | None
    """None: there are no racks."""
    kind: Host

    @property
    def shared(self) -> bool:
        """Whether several processes run there."""
        return len(self.instances) > 1


def hosts_of(instances: Sequence[Instance], cluster: Cluster) -> tuple[JobHost, ...]:
    """All hosts of a job, in rank order.

    Raises NoHostError where the profile has, or describes, too few of them.
    """
    if cluster.colocate:
        return (JobHost(MACHINE, tuple(instances), None, cluster.hosts["default"]),)
    members = _grouped(instances, cluster)
    for there, said in _limits(cluster):
        if there < len(members):
            raise NoHostError(
                f"cluster profile {cluster.name}: {said} are too few for the experiment's "
                f"{len(members)} hosts"
            )
    racks = _racks([group[0] for group in members], cluster)
    return tuple(
        JobHost(_name(group), group, rack, cluster.host_of(group[0].role, group[0].index))
        for group, rack in zip(members, racks, strict=True)
    )


def host_names(instances: Sequence[Instance], cluster: Cluster) -> dict[str, str]:
    """By process the name of its host, wherever it stands."""
    if cluster.colocate:
        return {instance.name: MACHINE for instance in instances}
    return {i.name: _name(group) for group in _grouped(instances, cluster) for i in group}


def _grouped(instances: Sequence[Instance], cluster: Cluster) -> list[tuple[Instance, ...]]:
    def place(instance: Instance) -> tuple[str, int]:
        return instance.role, instance.index // cluster.together(instance.role)

    return [tuple(group) for _, group in groupby(instances, place)]


def _name(group: Sequence[Instance]) -> str:
    first, last = group[0], group[-1]
    return first.name if first is last else f"{first.role}[{first.index}-{last.index}]"


def _racks(first: Sequence[Instance], cluster: Cluster) -> Sequence[int | None]:
    """The rack of each host. ``first``: the first process of each."""
    topology = cluster.topology
    if topology is None:
        return [None] * len(first)
    if topology.arrange == "fill":
        rooms = topology.rooms or (ceil(len(first) / topology.racks),) * topology.racks
        places = (rack for rack, room in enumerate(rooms) for _ in range(room))
        return list(islice(places, len(first)))
    rooms = topology.rooms or (len(first),) * topology.racks
    held = [0] * topology.racks
    found = []
    for instance in first:
        number = instance.index // cluster.together(instance.role)
        turns = ((number + turn) % topology.racks for turn in range(topology.racks))
        rack = next(rack for rack in turns if held[rack] < rooms[rack])
        held[rack] += 1
        found.append(rack)
    return found


def hosts_left(instances: Sequence[Instance], cluster: Cluster) -> int | None:
    """How many hosts nothing runs on; None: there may be as many as one wants."""
    there = None if cluster.colocate else hosts_there(cluster)
    return None if there is None else there - len(_grouped(instances, cluster))


def hosts_there(cluster: Cluster) -> int | None:
    """How many hosts there are; None: as many as one wants."""
    return min((there for there, _ in _limits(cluster)), default=None)


def _limits(cluster: Cluster) -> list[tuple[int, str]]:
    """What limits the number of hosts, with its words."""
    rooms = (cluster.topology and cluster.topology.rooms) or (0,)
    each = " to ".join(map(str, sorted({min(rooms), max(rooms)})))
    limits = [
        (cluster.most_hosts, f"{cluster.most_hosts} hosts (most_hosts)"),
        (sum(rooms), f"{len(rooms)} racks of {each} hosts"),
    ]
    return [(most, said) for most, said in limits if most]


def uplink_rate(topology: RackTopology, cluster: Cluster, hosts: Sequence[JobHost]) -> float:
    """Bytes per second of the uplink of a rack with these hosts of the job, each way."""
    if topology.uplink is not None:
        return topology.uplink
    assert topology.oversubscription is not None
    whole = sum(host.kind.nic for host in hosts)
    if (rooms := topology.rooms) is not None and (rack := hosts[0].rack) is not None:
        whole = rooms[rack] * cluster.hosts["default"].nic
    return whole / topology.oversubscription
