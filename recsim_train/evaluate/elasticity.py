"""Elasticities: how the throughput answers to each resource and price, and how unsure it is.

Theory of operation
-------------------
Some short runs change all inputs at once, each up or down by `STEP` as a Plackett-Burman design
says (Biometrika 33 (1946) 305): a matrix of +1 and -1 with orthogonal columns. The mean difference
of the runs with an input up and those with it down is the effect of that input alone, and every run
tells something about every input. With n runs the error of an effect is sigma / sqrt(n), where one
run per input beside a common base would leave 1.4 sigma; sigma follows from the columns that no
input uses. All runs meet the same stragglers (`recsim_train.sim.jitter`), so that sigma is small
unless queues make the order of events chaotic.

The effect is a slope of log(throughput) over log(input) between -9 % and +10 %: of an input that
stops to bind in between it is a mean, which can be more than what 10 % more would bring. So of
cores, NICs and uplinks one run more, with that input alone up, says how far each bound rises, and
what an answer cannot be is cut off (`recsim_train.sim.why.bounds.possible`).

How unsure a prediction is, cause by cause, follows from what its calibration knows of its own
errors. Each cause is a relative standard error of the throughput; together they count in
quadrature. Throughput answers to an input by its slope; work that a slope stands for shares it by
CPU seconds. Nothing here was ever compared with a run that is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, fsum, hypot, log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_train.config.cluster import THREAD_CLASSES, Calibration, Cluster, Costs, Host
from recsim_train.config.errors import NoHostError, UserError
from recsim_train.config.topology import MixedHosts
from recsim_train.config.units import Times
from recsim_train.data.counts import IdCounts, counts_for
from recsim_train.data.replay import CacheSteps
from recsim_train.evaluate.case import Case
from recsim_train.evaluate.levels import SHORT, at
from recsim_train.evaluate.simulations import representatives, simulation
from recsim_train.placement.plan import SERVERS
from recsim_train.results.statistics import Z975
from recsim_train.sim.cluster.links import UNSURE, UPLINK_UNSURE
from recsim_train.sim.folding import Folding
from recsim_train.sim.runtime import Runtime
from recsim_train.sim.simulated_run import SimulatedRun, after
from recsim_train.sim.why.bounds import RATES, possible
from recsim_train.sim.why.caveats import rested
from recsim_train.trace.facts import Facts, WhatIf
from recsim_train.trace.garbage import earlier_objects_skipped
from recsim_train.trace.ledger import COLLECTIVES, TRANSPORT, Booked, share_around
from recsim_train.trace.progress import Meter
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import MEETINGS, MESSAGES, MODULES, OPS
from recsim_train.workload.threads import CLASSES

if TYPE_CHECKING:
    from recsim_train.sim.runtime import Runtime

Slope = float
"""Of log(throughput) over log(input)."""


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of a simulation."""

    by_prices: float
    """Of all that unit prices alone make."""
    by_operations: float
    """Of operations that were measured at a shape of theirs, scaled or not."""
    fitted: Mapping[str, tuple[float, float]]
    """By group of the fits: those of ``by_prices``, and those of ``by_operations`` that are scaled
    by the same prices."""
    erring: float
    """By how many seconds ``by_operations`` err, all together."""
    share_around: float
    """Of all, what is around operations (`recsim_train.trace.ledger.share_around`)."""

    @classmethod
    def of(cls, runtime: Runtime, booked: Booked) -> Spent:
        """In the counted window of a simulation that has ended: beyond it loops feed and ask ahead.
        ``booked``: its CPU seconds."""
        pricing = runtime.pricing
        sums = {"unit": 0.0, "measured": 0.0, "scaled": 0.0}
        fitted: dict[str, tuple[float, float]] = {}
        erring = 0.0
        own = runtime.plan.experiment.model.module is not None
        for what, rest, seconds in rested(booked, pricing.rests):
            sums[rest] += seconds
            if rest in ("measured", "scaled"):
                erring += seconds * pricing.error_of(what)
            group = _group(what, rest, known=what in pricing.rests)
            if own and group == "forward_backward":
                group = MODULES
            if group is not None:
                unit, scaled = fitted.get(group, (0.0, 0.0))
                more = (0.0, seconds) if rest == "scaled" else (seconds, 0.0)
                fitted[group] = unit + more[0], scaled + more[1]
        unit, measured = sums["unit"], sums["measured"] + sums["scaled"]
        around = share_around((what, seconds) for (_, what, _), seconds in booked.items())
        return cls(unit, measured, fitted, erring, around)


def _group(what: str, rest: str, *, known: bool) -> str | None:
    """Whose residuals count; None: those of no fit."""
    if rest == "measured":
        return None
    if known:
        return OPS[what].fit
    return {TRANSPORT: MESSAGES, COLLECTIVES: MEETINGS}.get(what)


def causes(
    cluster: Cluster,
    slopes: Mapping[str, Slope],
    error: float,
    spent: Spent,
    threads: int,
) -> dict[str, float]:
    """By cause, relative standard errors of the throughput.

    `recsim_train.report.what_if.CAUSES` has them in words; those of which the profile says nothing
    are left out. ``error``: standard error of a slope; what it adds on the mean is taken off.
    ``threads``: on which operations run.
    """
    known = cluster.calibration or Calibration(date="", machine="")
    prices = {name: slope for name, slope in slopes.items() if name.startswith("costs.")}
    by_prices, operations = fsum(prices.values()), slopes.get("operations", 0.0)

    def size(slope: float, many: int = 1) -> float:
        return sqrt(max(0.0, slope * slope - many * error * error))

    found: dict[str, float] = {}
    unsure = {name: _unsure(cluster, name, threads) for name in slopes}
    if any(unsure.values()):
        # what is dearer speeds nothing up: such a slope is scatter
        found["prices"] = hypot(*(size(min(0.0, slopes[n])) * u for n, u in unsure.items()))
    if spent.by_operations:
        found["operations"] = size(operations) * spent.erring / spent.by_operations
    if known.fit_errors:
        unit = size(by_prices, len(prices)) / spent.by_prices if spent.by_prices else 0.0
        scaled = size(operations) / spent.by_operations if spent.by_operations else 0.0
        most = max(known.fit_errors.values())  # of groups that the profile does not know
        found["fits"] = hypot(
            *(
                known.fit_errors.get(group, most) * (unit * seconds + scaled * more)
                for group, (seconds, more) in spent.fitted.items()
            )
        )
    # A job whose work, latency and bytes all take k times as long takes k times as long: its slopes
    # add up to -1, and what is not of wires is of work. The sum over all prices says the same with
    # the scatter of each of them.
    wires = slopes.get("nic", 0.0) + slopes.get("uplink", 0.0) - slopes.get("latency", 0.0)
    wires = min(1.0, max(0.0, wires))
    if (moved := known.speed_spread) is not None:  # all work is as fast or slow together
        found["speed"] = moved * (1.0 - wires)
    if known.own_error is not None:
        found["model"] = known.own_error * spent.share_around * (1.0 - wires)
    if found and wires > 0.0 and not cluster.colocate:
        uplinks = min(wires, max(0.0, slopes.get("uplink", 0.0)))
        queue = cluster.network.queue
        found["links"] = UNSURE[queue] * (wires - uplinks) + UPLINK_UNSURE[queue] * uplinks
    return found


def _unsure(cluster: Cluster, name: str, threads: int) -> float:
    """Relative standard error of a price or a serial share; 0 of what has none."""
    group, _, member = name.partition(".")
    if group == "costs":
        return float(getattr(cluster.costs, member).uncertainty)
    return cluster.threads.uncertainty(member, threads) if group == "threads" else 0.0


STEP = 0.1
"""Inputs are multiplied by 1 + STEP, or divided by it."""
_SPARE = 6
"""Columns that no input uses, at least: from them the error is estimated, and with fewer of them a
change must be so many errors large to count among some twenty others that hardly any would."""
_SIZES = (12, 20, 24, 32, 44, 48, 60)
"""Runs of a design: a prime of the form 4k + 3, plus one."""
WHAT_IF = "asking what would change it"
NO_HOST = "the cluster has no host left for it"


@dataclass(frozen=True, slots=True)
class Elasticities:
    """Answers of the throughput."""

    changes: dict[str, float]
    """Relative change of examples per second if this were `STEP` more: "cores", "nic", "uplink"
    (where there are racks), "latency", "operations" (the seconds of all measured ones),
    "costs.NAME" for the prices in use, "threads.CLASS" for serial shares of operations on several
    threads, "threads.wake" for what waking these takes; "embedding_servers", "dense_servers": one
    server more."""
    errors: dict[str, float]
    """Standard error of each."""
    degrees: int
    """Degrees of freedom of that error."""
    raised: dict[str, dict[str, float]]
    """By each input or servers that there were more of: how many times as high each bound is
    then."""
    causes: dict[str, float]
    """Relative standard errors of the throughput, by what calibration knows to be unsure
    (`recsim_train.evaluate.elasticity`); empty: the profile says nothing of that."""
    runs: int
    events: int
    """Of all short runs: what they cost."""
    skipped: dict[str, str] = field(default_factory=dict)
    """What could not be asked, and why: "embedding_servers", "dense_servers"."""

    def say(self, facts: Facts, eps: float, events: int) -> None:
        """Add to the facts of a run of ``events`` events that predicts ``eps``."""
        changes = possible(self.changes, STEP, eps, facts.bounds, self.raised)
        facts.elasticities = {name: round(change, 6) for name, change in changes.items()}
        facts.elasticity_errors = {name: round(error, 6) for name, error in self.errors.items()}
        factor = exp(Z975 * hypot(*self.causes.values()))
        facts.calibration_ci95 = (eps / factor, eps * factor) if self.causes else None
        facts.calibration_errors = {cause: round(e, 6) for cause, e in self.causes.items()}
        cost = round(self.events / events, 4)
        facts.what_if = WhatIf(STEP, self.runs, self.events, cost, self.skipped, self.degrees)


@dataclass(slots=True)
class _Short:
    """Short runs of one case and of changed ones, counted."""

    case: Case
    counts: IdCounts
    replay: CacheSteps | None
    folding: Folding
    steps: int
    runs: int = 0
    events: int = 0

    def run(self, changes: Mapping[str, Any]) -> tuple[float, SimulatedRun, Outcome]:
        """log(examples per second), and what has run: a prediction like any other, which ends
        after ``steps``."""
        case = self.case.with_(changes)
        own = case.plan.instances == self.case.plan.instances  # batches fall to other shards else
        counts = self.counts if own else counts_for(case.plan, self.folding.loops(case.plan))
        simulated = simulation(case, folding=self.folding, counts=counts, replay=self.replay)
        outcome = simulated.run(after(self.steps))
        self.runs += 1
        self.events += simulated.runtime.engine.events
        assert outcome.speed is not None
        assert outcome.speed.examples_per_second
        return log(outcome.speed.examples_per_second), simulated, outcome

    def bounds(self, changes: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        """The same, and examples per second that each resource allows."""
        speed, simulated, outcome = self.run(changes)
        simulated.add_bounds(outcome)
        return speed, outcome.facts.bounds


@earlier_objects_skipped()
def elasticities(
    case: Case, simulated: SimulatedRun, steps: int, *, progress: Meter | None = None
) -> Elasticities:
    """What `STEP` more of everything would change.

    ``simulated``: the prediction. ``steps``: counted iterations per loop of each short run. An
    effect that comes less often than that (a synchronisation every 100 iterations) is not seen.
    ``progress``: is told short runs done. Hosts do not fail in these runs. Raises RunFailed as
    `recsim_train.evaluate.prediction.predict`.
    """
    case = at(case, SHORT, simulated.folding)
    case = case.with_({"training.steps": max(steps, case.experiment.training.steps)})
    folding = representatives(case)
    short = _Short(case, simulated.counts, simulated.replay, folding, steps)
    base, first, outcome = short.run({})
    first.add_bounds(outcome)
    runtime, bounds = first.runtime, outcome.facts.bounds
    spent = Spent.of(runtime, first.booked)
    cluster, threads = case.cluster, case.plan.operation_threads
    names = _inputs(cluster, runtime, threads)
    design = plackett_burman(len(names) + _SPARE)
    answers = np.zeros(len(design))
    for number, signs in enumerate(design.tolist()):
        if progress is not None:
            progress(number, len(design), WHAT_IF)
        factors = {n: (1.0 + STEP) ** sign for n, sign in zip(names, signs, strict=False)}
        answers[number], *_ = short.run(scaling(cluster, factors))
    effects = design.T @ answers / len(answers)
    rest = answers - answers.mean() - design[:, : len(names)] @ effects[: len(names)]
    spare = len(answers) - 1 - len(names)
    sigma = sqrt(float(rest @ rest) / spare)
    error = sigma / sqrt(len(answers))
    found = dict(zip(names, effects.tolist(), strict=False))
    changes = {name: exp(slope) - 1 for name, slope in found.items()}
    errors = dict.fromkeys(names, error)
    raised = {
        name: _times(bounds, short.bounds(scaling(cluster, {name: 1.0 + STEP}))[1])
        for name in names
        if name in RATES
    }
    skipped = {}
    for role in SERVERS:
        if short.replay is not None or not (there := len(case.plan.of_role(role))):
            continue
        try:
            speed, allowed = short.bounds({f"roles.{role}s": there + 1})
        except UserError as why:  # it cannot be built: the prediction itself stands
            skipped[f"{role}s"] = NO_HOST if isinstance(why, NoHostError) else str(why)
            continue
        changes[f"{role}s"] = exp(speed - base) - 1
        errors[f"{role}s"] = sigma * sqrt(2.0)
        raised[f"{role}s"] = _times(bounds, allowed)
    slopes = {name: slope / log(1.0 + STEP) for name, slope in found.items()}
    unsure = causes(cluster, slopes, error / log(1.0 + STEP), spent, threads)
    return Elasticities(changes, errors, spare, raised, unsure, short.runs, short.events, skipped)


def _times(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """How many times as high each bound is."""
    return {name: after[name] / bound for name, bound in before.items() if name in after}


def iterations_asked(case: Case, runtime: Runtime, loops: int) -> int:
    """About how many iterations all short runs simulate, of so many loops; ``runtime``: of any
    simulation of the case."""
    if not (wanted := case.experiment.simulation.what_if_steps):
        return 0
    names = _inputs(case.cluster, runtime, case.plan.operation_threads)
    rates = sum(name in RATES for name in names)
    servers = sum(bool(case.plan.of_role(role)) for role in SERVERS)
    runs = 1 + _size(len(names) + _SPARE) + rates + servers
    warmup = min(SHORT.steps.warmup or 0, case.experiment.training.warmup_steps)
    return runs * (warmup + wanted) * loops


def _inputs(cluster: Cluster, runtime: Runtime, threads: int) -> list[str]:
    used = {*runtime.pricing.prices, *runtime.machines.price_names}
    prices = [
        f"costs.{name}"
        for name in Costs.model_fields
        if name in used and getattr(cluster.costs, name).value > 0.0
    ]
    latency = ["latency"] if cluster.network.latency > 0.0 else []
    uplink = ["uplink"] if cluster.topology is not None else []
    work = {CLASSES[name] for name in used if name in CLASSES}
    serial = [
        f"threads.{name}"
        for name in THREAD_CLASSES
        if threads > 1 and name in work and 0.0 < cluster.threads.of(name).serial < 1.0
    ]
    wake = ["threads.wake"] if threads > 1 and cluster.threads.wake.wall > 0.0 else []
    measured = ["operations"] if cluster.operations else []
    return ["cores", "nic", *uplink, *latency, *prices, *serial, *wake, *measured]


def _size(columns: int) -> int:
    """Runs of a design with so many columns."""
    return next(size for size in _SIZES if size > columns)


def plackett_burman(columns: int) -> NDArray[np.float64]:
    """[runs, runs - 1] of +1 and -1: orthogonal columns, each of mean 0 (Paley's construction)."""
    runs = _size(columns)
    prime = runs - 1
    squares = {i * i % prime for i in range(1, prime)}
    sign = np.array([0.0, *(1.0 if i in squares else -1.0 for i in range(1, prime))])
    matrix = np.ones((runs, runs))
    matrix[1:, 0] = -1.0
    for row in range(prime):
        matrix[row + 1, 1:] = np.roll(sign, row)
        matrix[row + 1, row + 1] = 1.0
    return np.asarray((matrix * matrix[:, :1])[:, 1:])


_KEYS = {
    "nic": ("hosts.*.nic", "mixed.*.*.nic", "network.connection_cap"),
    "uplink": ("topology.uplink",),
    "latency": ("network.latency",),
    "threads.wake": ("threads.wake.wall", "threads.wake.caller", "threads.wake.pool"),
}
"""By input what of the profile is multiplied; see `scaling`."""


def scaling(cluster: Cluster, factors: Mapping[str, float]) -> dict[str, Any]:
    """Inputs multiplied, as overrides; names as in `Elasticities.changes`."""
    changes: dict[str, Any] = {}
    for name, factor in factors.items():
        group, _, member = name.partition(".")
        if name in _KEYS:
            changes |= {key: Times(factor) for key in _KEYS[name]}
        elif name == "cores":
            changes |= dict(_more_cores(cluster, factor))
        elif name == "operations":
            changes[name] = cluster.operations and tuple(
                e.times(factor) for e in cluster.operations
            )
        elif group == "threads":
            law = cluster.threads.of(member)
            changes[f"{name}.serial"] = min(1.0, law.serial * factor)
        else:
            changes[f"{name}.value"] = Times(factor)
    if cluster.topology is not None:  # against NICs that change, too
        over = factors.get("nic", 1.0) / factors.get("uplink", 1.0)
        changes["topology.oversubscription"] = Times(over)
    return {f"cluster.{key}": value for key, value in changes.items()}


def _more_cores(cluster: Cluster, factor: float) -> Iterator[tuple[str, float]]:
    """Of one core alone, which has no contention, a part of a second one has none either."""
    hosts: dict[str, Host | MixedHosts] = {f"hosts.{r}": host for r, host in cluster.hosts.items()}
    for role, entries in (cluster.mixed or {}).items():
        hosts |= {f"mixed.{role}.{n}": host for n, host in enumerate(entries)}
    for key, host in hosts.items():
        if host.cores is not None:
            less = cluster.contention if host.cores == 1 and factor > 1.0 else 1.0
            yield f"{key}.cores", host.cores * factor / less
