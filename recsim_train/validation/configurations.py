"""One configuration in both worlds: what tells it from others, its prediction, its runs, errors.

Errors are raw: nothing that was measured is corrected.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from recsim_train.config.cluster import Cluster
from recsim_train.config.dump import comparison_key
from recsim_train.config.experiment import Experiment, Tier
from recsim_train.config.measured import MachineSpeeds
from recsim_train.config.validate import plain
from recsim_train.placement.hosts import hosts_of
from recsim_train.report import naming
from recsim_train.results.environment import machine, same_machine
from recsim_train.results.folder import hash_of
from recsim_train.results.row import Row
from recsim_train.results.summary import Summary
from recsim_train.results.undisturbed import broken, messages_share
from recsim_train.session.job import Job
from recsim_train.strategy import effects
from recsim_train.strategy.options import flat
from recsim_train.trace.binding import NAMES, Binding
from recsim_train.workload.shape import moved_bytes, net_work

REGIMES = ("compute", "server", "lock", "latency")
EMULATED_REGIMES = (
    "server NIC", "trainer NIC", "uplink", "collective", "mixed", "trainer cores", "server cores",
)  # fmt: skip
NEAR = 0.15
"""Where the next class of resources allows less than this much more, both bind: mixed."""
MOST_DROPPED = 0.2
"""Share of runs that break an invariant from which a validation fails."""
_REGIME_OF = {
    "cores": "compute",
    "own_compute": "compute",
    "compute": "compute",
    "interpreter": "lock",
    "queueing": "server",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One configuration and its prediction."""

    key: str
    """Tells it from all others, whatever predicts or measures it."""
    setting: str
    """The same of all that differ from it in the number of trainers alone."""
    label: str
    """In words."""
    strategy: str
    model: str
    trainers: int
    threads: int
    batch_size: int
    examples_per_second: float
    interval: tuple[float, float] | None
    """90 % of the same; None where the prediction gives none."""
    bound: float | None = None
    """Examples per second that the prediction could not exceed; None: an older folder."""
    roofline: float | None
    """Examples per second if only the net's arithmetic or its bytes counted."""
    bottleneck: str
    """What binds, in one phrase."""
    regime: str
    """One of `REGIMES`, or of an emulated cluster of `EMULATED_REGIMES`."""
    cpu: dict[str, float] = field(default_factory=dict)
    """CPU seconds of one example by "role.what"; empty: not known."""
    queue: str = ""
    """Of an emulated cluster: as ``network.queue``."""
    compute: str = ""
    """The same: as ``execution.compute``."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a configuration."""

    key: str
    examples_per_second: float
    interval: tuple[float, float] | None = None
    """95 % of the same, as far as the windows of this run show."""
    speeds: MachineSpeeds | None = None
    """Of the reference work before and after it; None: not known."""
    cpu: dict[str, float] = field(default_factory=dict)
    """As `Predicted.cpu`."""
    auc: float | None = None
    """On held-out rows, as the next; None: not measured, or an older folder."""
    normalized_entropy: float | None = None


def regime(binding: Binding | None) -> str:
    """Which kind of limit binds.

    lock: a trainer's interpreter lock; server: any resource of a server, or queueing where nothing
    is saturated; compute: cores, or computation in loops; latency: waiting for messages and others.
    """
    known = binding or Binding()
    server = known.what in NAMES and "server[" in known.resource
    return "server" if server else _REGIME_OF.get(known.what, "latency")


@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration in both worlds. Errors are signed: predicted / measured - 1."""

    predicted: Predicted
    runs: tuple[Measured, ...]
    """Its repeats; none: it was not measured."""
    dropped: tuple[Measured, ...] = ()
    """Others of its runs, which break an invariant and count in no figure but `with_dropped`."""

    @property
    def with_dropped(self) -> Configuration:
        """The same as if all of its runs counted."""
        return replace(self, runs=(*self.runs, *self.dropped), dropped=())

    @property
    def by_bound(self) -> Configuration:
        """The same as if the tightest bound were the prediction; without runs where it is not
        known."""
        taken = replace(self.predicted, examples_per_second=self.predicted.bound or 0.0)
        return replace(self, predicted=taken, runs=self.runs if self.predicted.bound else ())

    @property
    def measured(self) -> float | None:
        """Examples per second, median of the repeats."""
        return median([r.examples_per_second for r in self.runs]) if self.runs else None

    @property
    def spread(self) -> float | None:
        """Half the range of the repeats, relative to their median; of a single run half its own
        interval; None: not known."""
        values = [r.examples_per_second for r in self.runs]
        if len(values) > 1:
            return (max(values) - min(values)) / 2 / median(values)
        own = self.runs[0] if self.runs else None
        if own is None or own.interval is None:
            return None
        return (own.interval[1] - own.interval[0]) / 2 / own.examples_per_second

    @property
    def raw_error(self) -> float | None:
        """Signed, of `measured`."""
        measured = self.measured
        return self.predicted.examples_per_second / measured - 1 if measured else None

    @property
    def raw_errors(self) -> list[float]:
        """Signed, of each repeat."""
        eps = self.predicted.examples_per_second
        return [eps / run.examples_per_second - 1 for run in self.runs]

    @property
    def covered(self) -> bool | None:
        """Whether the prediction's interval holds `measured`; None without one of them."""
        interval, measured = self.predicted.interval, self.measured
        if interval is None or measured is None:
            return None
        return interval[0] <= measured <= interval[1]

    @property
    def cpu(self) -> dict[str, tuple[float, float]]:
        """By line: (predicted, measured) CPU seconds of one example, the median of the repeats, as
        shares of all that was measured. Empty where either is not known."""
        if not self.predicted.cpu or not self.runs or not all(run.cpu for run in self.runs):
            return {}
        lines = self.predicted.cpu.keys() | {name for run in self.runs for name in run.cpu}
        names = sorted(lines)  # so that sums are the same every time
        measured = {n: median([run.cpu.get(n, 0.0) for run in self.runs]) for n in names}
        whole = sum(measured.values())
        return {
            name: (self.predicted.cpu.get(name, 0.0) / whole, measured[name] / whole)
            for name in names
        }

    def quality(self, what: Literal["auc", "normalized_entropy"]) -> float | None:
        """On held-out rows, median of the repeats; None without any."""
        known = [value for run in self.runs if (value := getattr(run, what)) is not None]
        return median(known) if known else None

    @property
    def half_width(self) -> float | None:
        """Half of the prediction's interval, relative to the prediction."""
        interval = self.predicted.interval
        if interval is None:
            return None
        return (interval[1] - interval[0]) / 2 / self.predicted.examples_per_second


FIGURES = "measured", "spread", "raw_error", "covered", "half_width"
"""Of each `Configuration`, for its document."""


def row_document(row: Configuration) -> dict[str, Any]:
    """One configuration's figures, by name."""
    p = row.predicted
    interval = p.interval or (None, None)
    return {
        "key": p.key,
        "label": p.label,
        "strategy": p.strategy,
        "model": p.model,
        "trainers": p.trainers,
        "threads": p.threads,
        "batch_size": p.batch_size,
        "regime": p.regime,
        "bottleneck": p.bottleneck,
        "queue": p.queue or None,
        "compute": p.compute or None,
        "predicted": p.examples_per_second,
        "predicted_low": interval[0],
        "predicted_high": interval[1],
        "bound": p.bound,
        "roofline": p.roofline,
        "repeats": len(row.runs),
        "dropped": len(row.dropped),
        **{name: getattr(row, name) for name in FIGURES},
        "error_with_dropped": row.with_dropped.raw_error,
        "bound_error": row.by_bound.raw_error,
        "auc": row.quality("auc"),
        "normalized_entropy": row.quality("normalized_entropy"),
    }


def speeds_at_calibration(cluster: Cluster) -> MachineSpeeds | None:
    """Of the reference work; None: the profile does not say, or is of another machine."""
    calibration = cluster.calibration
    if calibration is None or not same_machine(calibration.machine, machine()):
        return None
    return calibration.machine_speed


def roofline(job: Job) -> float:
    """Examples per second if training threads did nothing but the net's arithmetic at the rate of
    matrix products, or moved nothing but its and its rows' bytes in order: the lower of both."""
    spec, costs, host = job.loaded.experiment, job.profile.costs, job.profile.host("trainer")
    model, batch = spec.model, spec.training.batch_size
    net = net_work(model, batch)
    flops = net.get("gemm_flop", 0.0) + net.get("dot_flop", 0.0)
    moved = moved_bytes(model, batch)
    seconds = max(flops * costs.gemm_flop.value, moved * costs.stream_byte.value)
    trainers, threads = spec.roles.trainers, spec.training.threads
    together = trainers if job.profile.colocate else job.profile.together("trainer")
    cores = trainers * min(threads, host.cores / together)
    return batch * cores / seconds


def key_of(job: Job, tier: Tier = "machine", experiment: Experiment | None = None) -> str:
    """What a configuration's prediction and measurements share. ``experiment``: another one than
    the job's."""
    key = comparison_key(experiment or job.loaded.experiment, job.plan.strategy)
    if tier == "machine":
        return key
    cluster = job.profile.model_dump(mode="json")
    return hash_of([key, cluster, job.plan.experiment.execution.compute])[:12]


def label_of(job: Job, tier: Tier = "machine") -> str:
    """A configuration in words."""
    spec, plan = job.loaded.experiment, job.plan
    options = ", ".join(f"{name} {value}" for name, value in flat(plan.strategy.options).items())
    servers = len(plan.of_role("embedding_server")), len(plan.of_role("dense_server"))
    said = (
        f"{plan.strategy.kind}{f' ({options})' if options else ''}, {spec.model.name}, "
        f"{spec.roles.trainers} x {spec.training.threads} + {servers[0]} + {servers[1]}, "
        f"batch {spec.training.batch_size}"
    )
    return said if tier == "machine" else f"{said}, {_cluster_label(job)}"


def predicted(job: Job, row: Row, tier: Tier = "machine") -> Predicted:
    """A configuration with the figures of its prediction."""
    spec, choice = job.loaded.experiment, job.plan.strategy
    # how long it is measured does not make it another setting
    alone = spec.with_({"roles.trainers": 1, "training.steps": 1, "training.warmup_steps": 0})
    assert row.examples_per_second is not None
    of_cluster = {"regime": regime(row.what_binds)}
    if tier == "emulated":
        of_cluster = {
            "regime": emulated_regime(row),
            "queue": job.profile.network.queue,
            "compute": spec.execution.compute,
        }
    return Predicted(
        key=key_of(job, tier),
        setting=key_of(job, tier, alone),
        label=label_of(job, tier),
        strategy=choice.kind,
        model=spec.model.name,
        trainers=spec.roles.trainers,
        threads=spec.training.threads,
        batch_size=spec.training.batch_size,
        examples_per_second=row.examples_per_second,
        interval=row.interval90(),
        bound=row.bound_eps,
        roofline=roofline(job),
        bottleneck=naming.bottleneck(row.what_binds) or "",
        cpu=row.cpu_per_example or {},
        **of_cluster,
    )


def changes(cluster: Cluster, base: Cluster) -> dict[str, Any]:
    """What a profile says otherwise than another one."""
    own, other = plain(cluster, digits=None), plain(base, digits=None)
    return {
        name: own.get(name)
        for name in {**other, **own}
        if own.get(name) != other.get(name) and name not in ("name", "description")
    }


def _cluster_label(job: Job) -> str:
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


def emulated_regime(row: Row) -> str:
    """One of `EMULATED_REGIMES`, by which resources a prediction's bounds say bind.

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
