"""The hosts of a job: which processes share one, and in which rack each stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
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

    Raises NoHostError where the profile describes too few of them, or its racks have no room.
    """
    if cluster.colocate:
        return (JobHost(MACHINE, tuple(instances), None, cluster.hosts["default"]),)
    members = _grouped(instances, cluster)
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
    room = topology.hosts_per_rack or len(first)
    if room * topology.racks < len(first):
        raise NoHostError(
            f"cluster profile {cluster.name}: {topology.racks} racks of {room} hosts are too few "
            f"for the experiment's {len(first)} hosts; raise topology.racks or hosts_per_rack"
        )
    if topology.arrange == "fill":
        room = topology.hosts_per_rack or ceil(len(first) / topology.racks)
        return [place // room for place in range(len(first))]
    held = [0] * topology.racks
    found = []
    for instance in first:
        number = instance.index // cluster.together(instance.role)
        turns = ((number + turn) % topology.racks for turn in range(topology.racks))
        rack = next(rack for rack in turns if held[rack] < room)
        held[rack] += 1
        found.append(rack)
    return found


def hosts_left(instances: Sequence[Instance], cluster: Cluster) -> int | None:
    """How many hosts of racks nothing runs on; None: there may be as many as one wants."""
    topology = cluster.topology
    if cluster.colocate or topology is None or topology.hosts_per_rack is None:
        return None
    return topology.hosts_per_rack * topology.racks - len(_grouped(instances, cluster))


def uplink_rate(topology: RackTopology, cluster: Cluster, hosts: Sequence[JobHost]) -> float:
    """Bytes per second of the uplink of a rack with these hosts, each way."""
    if topology.uplink is not None:
        return topology.uplink
    assert topology.oversubscription is not None
    whole = sum(host.kind.nic for host in hosts)
    if topology.hosts_per_rack is not None:
        whole = topology.hosts_per_rack * cluster.hosts["default"].nic
    return whole / topology.oversubscription
