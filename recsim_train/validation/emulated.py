"""The tier of emulated clusters: what tells its configurations apart."""

from __future__ import annotations

from typing import Any, Final

from recsim_train.config.cluster import Cluster
from recsim_train.config.dump import plain
from recsim_train.config.experiment import Experiment
from recsim_train.placement.hosts import hosts_of
from recsim_train.results.figures import Summary
from recsim_train.results.row import Row
from recsim_train.results.undisturbed import broken, messages_share
from recsim_train.session.job import Job
from recsim_train.strategy import effects

REGIMES: Final = (
    "server NIC", "trainer NIC", "uplink", "collective", "mixed", "trainer cores", "server cores",
)  # fmt: skip
NEAR = 0.15
"""Where the next class of resources allows less than this much more, both bind: mixed."""
MOST_DROPPED = 0.2
"""Share of runs that break an invariant from which a validation fails."""


def changes(cluster: Cluster, base: Cluster) -> dict[str, Any]:
    """What a profile says otherwise than another one."""
    own, other = plain(cluster, digits=None), plain(base, digits=None)
    return {
        name: own.get(name)
        for name in {**other, **own}
        if own.get(name) != other.get(name) and name not in ("name", "description")
    }


def label_of(job: Job) -> str:
    """A configuration's cluster in words."""
    cluster, instances = job.profile, job.plan.instances
    hosts = hosts_of(instances, cluster)
    rates = sorted({host.kind.nic * 8 / 1e6 for host in hosts})
    racks = len({host.rack for host in hosts})
    said = [
        f"{len(hosts)} hosts at {' and '.join(f'{rate:g}' for rate in rates)} Mbit/s",
        cluster.network.queue,
        *([f"{racks} racks"] if racks > 1 else []),
        f"compute {job.plan.experiment.execution.compute}",
    ]
    return ", ".join(said)


def regime(row: Row) -> str:
    """One of `REGIMES`, by which resources a prediction's bounds say bind.

    ``row``: of the prediction.
    """
    tightest: dict[str, float] = {}
    for resource, eps in (row.bounds or {}).items():
        if kind := _class(resource, row):
            tightest[kind] = min(eps, tightest.get(kind, eps))
    (first, bound), *others = sorted(tightest.items(), key=lambda known: known[1])
    return "mixed" if others and others[0][1] < bound * (1.0 + NEAR) else first


def _class(resource: str, row: Row) -> str | None:
    owner, _, part = resource.partition(".")
    if resource == "loops":
        times = row.time_by_effect or {}
        return "trainer cores" if times.get("compute", 0.0) > sum(times.values()) / 2 else None
    role = "trainer" if owner.startswith("trainer[") else "server"
    sent = {effect: size or 0.0 for effect, size in (row.bytes_by_effect or {}).items()}
    together = sum(sent.get(effect.kind, 0.0) for effect in effects.COLLECTIVE)
    collective = role == "trainer" and together > sum(sent.values()) / 2
    nic, cores = "collective" if collective else f"{role} NIC", f"{role} cores"
    kinds = {"nic.tx": nic, "nic.rx": nic, "cores": cores, "interpreter": cores}
    return "uplink" if owner.startswith("rack[") else kinds.get(part)


def emulated_figures(summary: Summary, experiment: Experiment) -> dict[str, Any]:
    """What a run on emulated hosts has beside others: bytes of a step, and how sound it is.

    Links count all of a run, so that a step's bytes are a mean over warm-up, too."""
    facts, training = summary.facts, experiment.training
    assert facts.emulated is not None
    assert facts.ledger is not None
    per_step = [size for size in summary.bytes_by_effect.values() if size is not None]
    sent = sum(facts.emulated.sent[name] for name in facts.cpu_seconds)
    use, window = facts.ledger.machine, facts.ledger.seconds
    beyond = (one.taken - one.asked for one in facts.slept.values())
    return {
        "broken": list(broken(summary, modelled=experiment.execution.compute == "modelled")),
        "payload": sum(per_step),
        "frame_bytes": sent / (training.warmup_steps + summary.steps),
        "dropped": facts.emulated.dropped,
        "idle": None if use is None else 1.0 - (use.own + use.others + use.steal) / use.cores,
        "longest_wait": max(facts.core_waits.values(), default=0.0) / window,
        "around": messages_share(summary),
        "beyond": max(beyond, default=0.0) / window,
    }
