"""Which rack each host stands in, and the rate of a rack's uplink."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import NoHostError
from recsim_train.config.topology import RackTopology
from recsim_train.placement.plan import Instance


def racks_of(instances: Sequence[Instance], cluster: Cluster) -> dict[Instance, int]:
    """The rack of every host; empty where there are none.

    Raises NoHostError where the racks have no room for all.
    """
    topology = cluster.topology
    if topology is None:
        return {}
    room = topology.hosts_per_rack or len(instances)
    if room * topology.racks < len(instances):
        raise NoHostError(
            f"cluster profile {cluster.name}: {topology.racks} racks of {room} hosts are too few "
            f"for the experiment's {len(instances)} hosts; raise topology.racks or hosts_per_rack"
        )
    if topology.arrange == "fill":
        room = topology.hosts_per_rack or ceil(len(instances) / topology.racks)
        return {instance: place // room for place, instance in enumerate(instances)}
    held = [0] * topology.racks
    found = {}
    for instance in instances:
        turns = ((instance.index + turn) % topology.racks for turn in range(topology.racks))
        rack = next(rack for rack in turns if held[rack] < room)
        held[rack] += 1
        found[instance] = rack
    return found


def hosts_left(instances: Sequence[Instance], cluster: Cluster) -> int | None:
    """How many hosts of racks nothing runs on; None: there may be as many as one wants."""
    topology = cluster.topology
    if cluster.colocate or topology is None or topology.hosts_per_rack is None:
        return None
    return topology.hosts_per_rack * topology.racks - len(instances)


def uplink_rate(topology: RackTopology, cluster: Cluster, hosts: Sequence[Host]) -> float:
    """Bytes per second of the uplink of a rack with these hosts, each way."""
    if topology.uplink is not None:
        return topology.uplink
    assert topology.oversubscription is not None
    whole = sum(host.nic for host in hosts)
    if topology.hosts_per_rack is not None:
        whole = topology.hosts_per_rack * cluster.hosts["default"].nic
    return whole / topology.oversubscription
