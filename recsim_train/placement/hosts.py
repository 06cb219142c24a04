"""The hosts of a job: which processes share one, and in which rack each stands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import ceil, inf
from statistics import fmean

from recsim_train.config.cluster import Cluster, Host, TypeName
from recsim_train.config.errors import NoHostError
from recsim_train.config.topology import RackTopology, RoleName
from recsim_train.config.validate import plain
from recsim_train.placement.plan import Instance

MACHINE = "machine"
"""The name of the one host of a profile with ``colocate: true``."""
_SAID = {"cores": "{} cores", "memory": "{} of memory", "nic": "{}", "speed": "cores of speed {}"}
"""What tells types of hosts apart, in words."""


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
    for said, there in cluster.limits.items():
        if there < len(members):
            raise NoHostError(
                f"cluster profile {cluster.name}: {there} hosts ({said}) are too few for the "
                f"experiment's {len(members)} hosts"
            )
    racks, kinds = _racks([group[0] for group in members], cluster), kinds_of(instances, cluster)
    return tuple(
        JobHost(_name(group), group, rack, kinds[group[0]])
        for group, rack in zip(members, racks, strict=True)
    )


def kinds_of(instances: Sequence[Instance], cluster: Cluster) -> dict[Instance, Host]:
    """By process the type of its host, wherever that stands.

    Raises NoHostError where ``mixed`` describes too few hosts.
    """
    numbers = {i: i.index // cluster.together(i.role) for i in instances}
    types = host_types({i.role: number + 1 for i, number in numbers.items()}, cluster)
    return {i: types[i.role][number] for i, number in numbers.items()}


def host_types(counts: Mapping[RoleName, int], cluster: Cluster) -> dict[RoleName, list[Host]]:
    """The types of so many hosts of each role, in order, as ``mixed`` says.

    Raises NoHostError where there are too few.
    """
    found: dict[RoleName, list[Host]] = {}
    used: Counter[tuple[str, int]] = Counter()
    shared = {*counts} - {*cluster.hosts} if cluster.lots("default") else set()
    for role in sorted(counts, key=lambda role: role == "trainer"):
        key: TypeName = "default" if role in shared else role
        lots = cluster.lots(key) or [(cluster.host(role), inf)]
        taken = list[int]()
        for n in range(len(lots))[:: -1 if role in (cluster.mixed_from_last or ()) else 1]:
            number = int(min(lots[n][1] - used[key, n], counts[role] - len(taken)))
            used[key, n] += number
            taken += [n] * number
        if len(taken) < counts[role]:
            raise NoHostError(
                f"cluster profile {cluster.name}: mixed.{key} has {len(taken)} hosts for {role}s, "
                f"too few for {role}[{len(taken) * cluster.together(role)}]; leave out the last "
                "entry's count for all further ones"
            )
        found[role] = [lots[n][0] for n in sorted(taken)]
    return found


def by_type(instances: Sequence[Instance], cluster: Cluster) -> dict[str, list[Instance]]:
    """Processes by what tells the type of their host from the others in the job or the profile, in
    words such as "32 cores, 10 Gbit/s"; nothing where all are alike. Raises as `kinds_of`."""
    kinds = kinds_of(instances, cluster)
    known = {i: plain(kind, digits=3) for i, kind in kinds.items()}
    others = [plain(kind, digits=3) for kind, _ in cluster.lots("default")]
    keys = [key for key in _SAID if len({one[key] for one in (*known.values(), *others)}) > 1]
    found: dict[str, list[Instance]] = {}
    for instance, one in known.items():
        what = ", ".join(_SAID[key].format(one[key]) for key in keys)
        found.setdefault(what, []).append(instance)
    return found if keys else {}


def types_said(instances: Sequence[Instance], cluster: Cluster) -> list[str]:
    """The same in sentences without a full stop."""
    types = by_type(instances, cluster).items()
    return [f"hosts of {what}: {', '.join(together(i.name for i in own))}" for what, own in types]


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
    return min(cluster.limits.values(), default=None)


def uplink_rate(topology: RackTopology, cluster: Cluster, hosts: Sequence[JobHost]) -> float:
    """Bytes per second of the uplink of a rack with these hosts of the job, each way."""
    if topology.uplink is not None:
        return topology.uplink
    assert topology.oversubscription is not None
    whole = sum(host.kind.nic for host in hosts)
    if (rooms := topology.rooms) is not None and (rack := hosts[0].rack) is not None:
        lots = cluster.lots("default") or [(cluster.host("default"), inf)]
        nics = [kind.nic for kind, many in lots for _ in range(int(min(many, sum(rooms))))]
        whole = rooms[rack] * fmean(nics[: sum(rooms)])
    return whole / topology.oversubscription


_NUMBER = re.compile(r"(\d+)")


def together(names: Iterable[str]) -> list[str]:
    """The names in their order, with those in a row that count one number up as one name."""
    runs: list[tuple[list[str], list[str]]] = []
    """(the first name, the last one), in words and numbers."""
    for name in names:
        parts = _NUMBER.split(name)
        if runs and _goes_on(*runs[-1], parts):
            runs[-1] = runs[-1][0], parts
        else:
            runs.append((parts, parts))
    return [
        "".join(a if a == b else f"{a}..{b}" for a, b in zip(first, last, strict=True))
        for first, last in runs
    ]


def _goes_on(first: list[str], last: list[str], parts: list[str]) -> bool:
    """Whether a name is the next one of those from ``first`` to ``last``."""
    if len(last) != len(parts):
        return False
    counted = [k for k, (a, b) in enumerate(zip(first, last, strict=True)) if a != b]
    moved = [k for k, (a, b) in enumerate(zip(last, parts, strict=True)) if a != b]
    if len(moved) != 1 or counted not in ([], moved):
        return False
    before, after = last[moved[0]], parts[moved[0]]
    return moved[0] % 2 == 1 and after == str(int(before) + 1)
