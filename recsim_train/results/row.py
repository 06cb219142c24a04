"""The row of a result in a table of many, all of its figures; and the 90 % interval of a
prediction, the same in reports, winners, sweeps and validations.

A prediction has two errors that know nothing of each other: its simulation ended after so many
steps, and its prices have the calibration's errors. Each is known as a 95 % interval; together they
count in quadrature, on either side by itself. What validations found true of nine in ten
measurements (docs/explain/how-true.md) is this interval, so no other is shown of a whole
prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import hypot, log
from typing import Any

from pydantic import TypeAdapter

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.results.folder import clean_document
from recsim_train.results.statistics import Z95, Z975
from recsim_train.results.summary import Summary, document_of
from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import Facts

Interval = tuple[float, float]
Ends = Sequence[float | None] | None
"""Of an interval; None, or with None in it: not known."""
_NARROWER = Z95 / Z975
"""From a 95 % interval to a 90 % one, both of a normal distribution."""


def interval(
    eps: float,
    simulation: Ends,
    calibration: Ends,
    seeds: Sequence[float] = (),
) -> Interval | None:
    """90 % interval of predicted examples per second; None where calibration's part of it is not
    known: the other part alone would pass for a whole one.

    ``simulation``, ``calibration``: 95 % intervals around ``eps`` by either error alone;
    ``seeds``: what all seeds of the same came to, a range that widens the first.
    """
    simulated, priced = _known(simulation), _known(calibration)
    if priced is None:
        return None
    if len(seeds) > 1:
        each = [(min(seeds), max(seeds)), *((simulated,) if simulated else ())]
        simulated = min(low for low, _ in each), max(high for _, high in each)
    known = [priced, *((simulated,) if simulated else ())]
    below = _NARROWER * hypot(*(max(0.0, eps - low) for low, _ in known))
    above = _NARROWER * hypot(*(max(0.0, high - eps) for _, high in known))
    return max(0.0, eps - below), eps + above


def _known(ends: Ends) -> Interval | None:
    if not ends or ends[0] is None or ends[1] is None:
        return None
    return ends[0], ends[1]


def ended(eps: float | None, simulation: Ends) -> float | None:
    """Relative standard error that a prediction of ``eps`` examples per second has because it
    ended, by its 95 % interval; None: not known."""
    ends = _known(simulation)
    return (ends[1] - ends[0]) / (2.0 * Z975 * eps) if ends and eps else None


def of_summary(summary: Summary, seeds: Sequence[float] = ()) -> Interval | None:
    """`interval` of a prediction's run; of a measured one, which has no prices, 90 % of what its
    windows show."""
    eps = summary.examples_per_second
    if eps is None:
        return None
    if summary.world == "real":
        return interval(eps, None, summary.ci95)
    return interval(eps, summary.ci95, summary.facts.calibration_ci95, seeds)


_OWN = ("model", "links")
"""Causes of error that two strategies do not share."""
_EQUAL = 1e-9
"""Relative: throughputs without any error tie where they differ by rounding."""
_TOGETHER = "all together"
"""All causes together, where they are not known one by one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A throughput, and what tells how far it can be trusted."""

    eps: float
    """Examples per second."""
    noise: float | None
    """Relative standard error by chance; None: not known."""
    errors: Mapping[str, float] | None
    """The same by each cause that repetition leaves as it is; None: not known, empty: there is
    none."""
    prices: str | None
    """The profile whose prices it has."""
    strategy: str
    """With its options."""


def evidence(
    eps: float,
    simulation: Ends,
    calibration: Ends,
    errors: Mapping[str, float] | None,
    *,
    prices: str | None,
    strategy: str,
    seeds: Sequence[float] = (),
) -> Evidence:
    """Of a prediction. Arguments as of `interval`; ``errors``: by cause."""
    noise, whole = ended(eps, simulation), ended(eps, calibration)
    if len(seeds) > 1 and eps:
        noise = max(noise or 0.0, (max(seeds) - min(seeds)) / (2.0 * Z975 * eps))
    causes = errors or (None if whole is None else {_TOGETHER: max(0.0, whole)})
    return Evidence(eps, noise, causes, prices, strategy)


def tie(one: Evidence, other: Evidence) -> bool:
    """Whether two throughputs differ by no more than chance and calibration's errors make.

    What errs in both alike moves both alike: of causes that they share only by how much one answers
    more to it counts. Where nothing is known of one's errors nothing is told apart.
    """
    if one.errors is None or other.errors is None or not one.eps or not other.eps:
        return True
    alike, same = one.prices == other.prices, one.strategy == other.strategy
    apart = []
    for cause in {*one.errors, *other.errors}:
        mine, theirs = one.errors.get(cause, 0.0), other.errors.get(cause, 0.0)
        shared = alike and cause != _TOGETHER and (same or cause not in _OWN)
        apart.append(mine - theirs if shared else hypot(mine, theirs))
    noise = [one.noise or 0.0, other.noise or 0.0]
    return abs(log(one.eps / other.eps)) <= Z95 * hypot(*noise, *apart) + _EQUAL


BILLION = 1e9
"""Examples that a cost is said of."""
COMPLETE, DOES_NOT_FIT, FAILED = "complete", "does not fit", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result in either world, with all of its figures; None: there is none, or it is not known.

    ``number``: of a sweep's point, from 0; ``settings``: what tells it from the others of its
    table, by dotted name; ``too_long``: it failed because it took too long. These are no columns.

    ``strategy`` ... ``notes``: `COLUMNS`. Times are in seconds, ``bytes...`` payload. ``eps``:
    examples per second; ``eps_low``, ``eps_high``: 95 % of them as far as the run itself shows,
    ``calibration_low``, ``calibration_high`` as far as its prices do. ``bytes_per_step``: payload
    of one counted iteration of every training loop, background rounds in proportion;
    ``memory_bytes``: the largest process; ``memory_share``: the fullest host's; ``hosts``: that are
    paid for, and what they cost an hour and a billion examples, in ``currency``, where all have a
    price; ``cores``: of all hosts; ``examples_per_step``: that one step of the whole job processes,
    an iteration of every training loop; ``nic_bytes``: for each such step, bytes of frames that all
    NICs of hosts of their own sent, from start to end; ``loss``, ``auc``, ``normalized_entropy``:
    on held-out rows; ``notes``: what a reader must know of it, one sentence each;
    ``cpu_per_example``: seconds by "role.what"; ``bottleneck``: `what_binds` in words, which
    reports make of it.
    """

    number: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    too_long: bool = False
    strategy: str = ""
    options: dict[str, Any] | None = None
    profile: str | None = None
    status: str = ""
    message: str | None = None
    examples_per_second: float | None = None
    eps_low: float | None = None
    eps_high: float | None = None
    calibration_low: float | None = None
    calibration_high: float | None = None
    bound_eps: float | None = None
    bottleneck: str | None = None
    bytes_per_step: float | None = None
    seconds_per_iteration: float | None = None
    steps: int | None = None
    elp: int | None = None
    examples_per_step: int | None = None
    sync_gap: float | None = None
    sync_gap_per_thread: float | None = None
    staleness: float | None = None
    trainers: int | None = None
    embedding_servers: int | None = None
    dense_servers: int | None = None
    readers: int | None = None
    hosts: int | None = None
    cost_per_hour: float | None = None
    cost_per_billion: float | None = None
    currency: str | None = None
    cores: float | None = None
    threads: int | None = None
    operation_threads: int | None = None
    batch_size: int | None = None
    seed: int | None = None
    memory_bytes: float | None = None
    memory_share: float | None = None
    simulated_seconds: float | None = None
    wall_seconds: float | None = None
    stopped: str | None = None
    run_id: str | None = None
    binding: Binding | None = None
    utilisation: dict[str, float] | None = None
    bounds: dict[str, float] | None = None
    time_by_effect: dict[str, float] | None = None
    bytes_by_effect: dict[str, float | None] | None = None
    nic_bytes: float | None = None
    loss: float | None = None
    auc: float | None = None
    normalized_entropy: float | None = None
    memory: dict[str, Any] | None = None
    elasticities: dict[str, float] | None = None
    cpu_per_example: dict[str, float] | None = None
    calibration_errors: dict[str, float] | None = None
    notes: list[str] | None = None

    @property
    def what_binds(self) -> Binding | None:
        """Of an earlier version's row in its words alone. None: nothing is known of it."""
        return self.binding or (Binding(said=self.bottleneck) if self.bottleneck else None)

    @property
    def why(self) -> str:
        """The first line of what it says of itself, where it has no figure."""
        return (self.message or "").partition("\n")[0]

    def interval90(self, seeds: Sequence[float] = ()) -> Interval | None:
        """Of the prediction's examples per second, see `recsim_train.results.row`; None where
        nothing is known of its errors. ``seeds``: what all seeds of the same came to."""
        if self.examples_per_second is None:
            return None
        calibration = self.calibration_low, self.calibration_high
        return interval(self.examples_per_second, (self.eps_low, self.eps_high), calibration, seeds)

    def evidence(self, seeds: Sequence[float] = ()) -> Evidence:
        """What it is told apart from others by. ``seeds``: as of `interval90`."""
        return evidence(
            self.examples_per_second or 0.0,
            (self.eps_low, self.eps_high),
            (self.calibration_low, self.calibration_high),
            self.calibration_errors,
            prices=self.profile,
            strategy=f"{self.strategy} {self.options}",
            seeds=seeds,
        )

    @property
    def document(self) -> dict[str, Any]:
        """The columns as JSON can hold them; first, of a sweep's point, its number and settings."""
        columns = clean_document({name: getattr(self, name) for name in COLUMNS})
        return columns if self.number is None else {"point": self.number} | self.settings | columns


_KINDS = {"str": "string", "int": "int64", "float": "double"}
COLUMNS: Mapping[str, str] = {
    column.name: _KINDS.get(str(column.type).removesuffix(" | None"), "json")
    for column in fields(Row)
    if column.name not in ("number", "settings", "too_long")
}
"""Columns beside the swept settings, and their types."""
_ROW = TypeAdapter(Row)


def row_from(figures: Mapping[str, Any]) -> Row:
    """Back from columns; what it does not know is left out. Raises ValueError for what is none."""
    return _ROW.validate_python({k: v for k, v in figures.items() if v is not None})


def row_of(
    plan: Plan,
    cluster: Cluster | None,
    summary: Summary | None,
    status: str,
    message: str = "",
    notes: Sequence[str] = (),
) -> Row:
    """The figures of one run, of which those of a point without a run are None.

    ``cluster``: None of a measurement that has no profile.
    """
    spec = plan.experiment
    figures = {}
    if summary is not None:
        figures = _figures(summary, cluster is not None and cluster.colocate)
    figures |= {
        "strategy": plan.strategy.kind,
        "options": plan.strategy.options,
        "profile": None if cluster is None else cluster.name,
        "status": status,
        "message": message or None,
        "trainers": spec.roles.trainers,
        "embedding_servers": len(plan.of_role("embedding_server")),
        "dense_servers": len(plan.of_role("dense_server")),
        "readers": len(plan.of_role("reader")),
        "threads": plan.worker_threads,
        "operation_threads": plan.operation_threads,
        "batch_size": spec.training.batch_size,
        "examples_per_step": len(plan.training) * spec.training.batch_size,
        "notes": list(notes) or None,
        "seed": spec.seed,
        "wall_seconds": None,
    }
    return row_from(clean_document(figures))


def _figures(summary: Summary, colocate: bool) -> dict[str, Any]:
    facts, document = summary.facts, document_of(summary)
    synchronisation = summary.synchronisation
    gap, staleness = synchronisation.sync_gap, synchronisation.staleness
    per_step = [size for size in summary.bytes_by_effect.values() if size is not None]
    uses = facts.memory.values()
    shares = [filled / there for filled, there in memory_of_hosts(facts, colocate).values()]
    named = document["facts"] | document
    low, high = summary.ci95 or (None, None)
    least, most = facts.calibration_ci95 or (None, None)
    rented, eps = facts.rented, summary.examples_per_second
    return {key: named[key] for key in COLUMNS.keys() & named.keys()} | {
        "eps_low": low,
        "eps_high": high,
        "calibration_low": least,
        "calibration_high": most,
        "bytes_per_step": sum(per_step) if per_step else None,
        "elp": synchronisation.elp,
        "sync_gap": gap and gap.mean,
        "sync_gap_per_thread": synchronisation.sync_gap_per_thread,
        "staleness": staleness and staleness.mean,
        "cores": cores_of(facts, colocate),
        "hosts": None if rented is None else rented.hosts,
        "cost_per_hour": None if rented is None else rented.per_hour,
        "cost_per_billion": rented.cost(BILLION / eps) if rented and eps else None,
        "currency": None if rented is None else rented.currency,
        "cpu_per_example": cpu_by_line(summary),
        "memory_bytes": max((use.bytes for use in uses), default=None),
        "memory_share": max(shares, default=None),
    }


def cpu_by_line(summary: Summary) -> dict[str, float] | None:
    """CPU seconds of one example by "role.what"; None without a ledger."""
    lines = summary.cpu_per_example
    named = {".".join(filter(None, key)): seconds for key, seconds in (lines or {}).items()}
    return None if lines is None else named


def cores_of(facts: Facts, colocate: bool) -> float | None:
    """Cores of all hosts together; None: not known."""
    by_host = {_host(facts, name, colocate): count for name, count in facts.cores.items()}
    return float(sum(by_host.values())) if by_host else None


def memory_of_hosts(facts: Facts, colocate: bool) -> dict[str, tuple[float, float]]:
    """By host: bytes that its processes need, and that it has, where that is known."""
    found: dict[str, tuple[float, float]] = {}
    for name, use in facts.memory.items():
        if use.available:
            host = _host(facts, name, colocate)
            found[host] = found.get(host, (0.0, 0.0))[0] + use.bytes, use.available
    return found


def _host(facts: Facts, process: str, colocate: bool) -> str:
    return "" if colocate else facts.hosts.get(process, process)


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted name; lists stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
