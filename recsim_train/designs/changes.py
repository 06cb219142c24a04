"""What would lift every bound of a design above a target: the smallest of some changes."""

from __future__ import annotations

from collections.abc import Iterator

from recsim_train.config.cluster import Cluster, Host
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Experiment
from recsim_train.designs.answer import Change
from recsim_train.designs.searching import Design
from recsim_train.placement.build import build_plan
from recsim_train.sim.host.memory_check import check_memory
from recsim_train.sim.why.beforehand import beforehand

_TIMES = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
"""How many times as much of something is tried, the least first."""
Changed = tuple[str, Experiment, Cluster]


def changes(design: Design, target: float) -> tuple[Change, ...]:
    """Of each kind the smallest change that is enough by the bounds."""
    found = []
    for kind in (_wire, _faster, _hosts):
        for says, experiment, cluster in kind(design):
            bound = _bound(design, experiment, cluster)
            if bound >= target:
                found.append(Change(says, bound))
                break
    return tuple(found)


def _bound(design: Design, experiment: Experiment, cluster: Cluster) -> float:
    """0 where there can be no such job."""
    try:
        plan = build_plan(experiment, design.candidate.job.plan.strategy)
        check_memory(plan, cluster)
        return beforehand(plan, cluster).bound or 0.0
    except (UserError, RunFailed):
        return 0.0


def _wire(design: Design) -> Iterator[Changed]:
    job = design.candidate.job
    experiment = job.plan.experiment
    if experiment.execution.wire == "full":
        execution = experiment.execution.model_copy(update={"wire": "bfloat16"})
        changed = experiment.model_copy(update={"execution": execution})
        yield "numbers that travel as bfloat16 (execution.wire)", changed, job.profile


def _faster(design: Design) -> Iterator[Changed]:
    job = design.candidate.job
    for times in _TIMES:
        hosts: dict[str, Host] = {
            name: host.model_copy(update={"nic": host.nic * times})
            for name, host in job.profile.hosts.items()
        }
        cluster = _fast_uplinks(job.profile, times).model_copy(update={"hosts": hosts})
        yield f"{times:g} times as fast network cards and uplinks", job.plan.experiment, cluster


def _fast_uplinks(cluster: Cluster, times: float) -> Cluster:
    topology = cluster.topology
    if topology is None or topology.uplink is None:
        return cluster
    faster = topology.model_copy(update={"uplink": topology.uplink * times})
    return cluster.model_copy(update={"topology": faster})


def _hosts(design: Design) -> Iterator[Changed]:
    job = design.candidate.job
    experiment, cluster = job.plan.experiment, job.profile
    for times in _TIMES:
        counts = {}
        hosts = 0
        for role, count in experiment.roles.model_dump().items():
            each = cluster.together(role.removesuffix("s"))  # type: ignore[arg-type]
            many = round(count / each * times) if count else 0
            counts[role], hosts = many * each, hosts + many
        roles = experiment.roles.model_copy(update=counts)
        said = f"{hosts} hosts instead of {design.candidate.hosts}, divided alike"
        yield said, experiment.model_copy(update={"roles": roles}), _with_room(cluster, hosts)


def _with_room(cluster: Cluster, hosts: int) -> Cluster:
    """Racks of as many hosts, and as many of them as it takes."""
    topology = cluster.topology
    if topology is None or topology.hosts_per_rack is None:
        return cluster
    racks = max(topology.racks, -(-hosts // topology.hosts_per_rack))
    more = topology.model_copy(update={"racks": racks})
    return cluster.model_copy(update={"topology": more})
