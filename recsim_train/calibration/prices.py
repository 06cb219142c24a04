"""Prices from what the measuring processes report. No process is started here, no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import linear_regression, mean, median, stdev
from typing import Any

from recsim_train.calibration.fit import MOST_UNCERTAIN, NOISE, Estimate, Fit, Observation, fit
from recsim_train.calibration.grid import CROWD, MEETING_BYTES
from recsim_train.calibration.programs import Talked
from recsim_train.config.cluster import USUAL, Cooling, Loopback
from recsim_train.workload.arithmetic import Work
from recsim_train.workload.operations import COOLED, CUT_NETS, MESSAGES, ROUND_TRIPS, seconds


def _usual(*names: str) -> Mapping[str, float]:
    """Seconds per unit."""
    return {name: USUAL[name].seconds for name in names}


KERNEL_PRIORS = _usual(
    "call", "interpreter", "gemm_flop", "dot_product", "dot_flop", "index_element",
    "stream_byte", "gather_row", "gather_byte", "scatter_row", "scatter_byte", "unique_id",
    "hashed_id",
)  # fmt: skip
"""Prices of what kernels do, from their micro-workloads; the next ones from messages, from readers
and from collectives. What they usually are decides only what measurements leave open."""
WIRE_PRIORS = _usual(
    "message", "gloo_message", "wire_byte", "shared_byte",
)  # fmt: skip
READ_PRIORS = _usual(
    "read_row", "read_number", "read_id", "read_text", "synthesize_row", "synthesize_id",
    "feed_batch",
)  # fmt: skip
MEETING_PRIORS = _usual(
    "collective_message", "reduced_byte", "exchanged_byte",
)  # fmt: skip

_WEIGHTS = {"forward_backward": 4.0, "lookup": 2.0, "update": 2.0, CUT_NETS: 0.1}
"""What weighs more in a training step is fitted more closely; what few strategies have, and whose
counts are rough, decides little."""

_SERIAL = 0.95
"""Threads that reach less than this share of what free cores would give wait for the lock."""
_LONGEST_HANDOVER = 5e-4
"""Seconds: when a thread that waits asks for the lock (`sys.setswitchinterval`, as the executor
sets it)."""
_LEAST = 1e-9
"""Seconds that a call takes at least."""


@dataclass(slots=True)
class Prices:
    """Prices by name of `config.cluster.Costs`, with residuals to be shown."""

    estimates: dict[str, Estimate] = field(default_factory=dict)
    residuals: dict[str, str] = field(default_factory=dict)
    fit_errors: dict[str, float] = field(default_factory=dict)
    """By group, as `Calibration.fit_errors`."""

    def take(self, fitted: Fit) -> None:
        """Take fitted prices over, and note how well they were; what was said before stays."""
        self.add(fitted.prices)
        for group, text in describe(fitted).items():
            self.residuals.setdefault(group, text)
        self.fit_errors |= {group: round(error, 4) for group, error in fitted.errors.items()}

    def add(self, estimates: Mapping[str, Estimate]) -> None:
        """Take prices over, with uncertainties inside what a profile may hold."""
        for name, estimate in estimates.items():
            uncertainty = min(MOST_UNCERTAIN, max(NOISE, estimate.uncertainty))
            self.estimates[name] = Estimate(estimate.value, uncertainty, estimate.basis)

    def value(self, name: str) -> float:
        """Seconds per unit."""
        return self.estimates[name].value


CALLS = ("effect", "asking", "request", "row_request")
"""Prices of what every run does between its operations."""


def from_repeats(values: Sequence[float]) -> Estimate:
    """A price measured directly: the median, and the spread of the repeats around it."""
    middle = median(values)
    if middle <= 0.0:
        return Estimate(0.0, MOST_UNCERTAIN, "limit")
    if len(values) < 2:
        return Estimate(middle, MOST_UNCERTAIN, "once")
    return Estimate(middle, stdev(values) / middle, "repeats")


def cooling(talked: Sequence[Talked]) -> tuple[dict[str, Estimate], Cooling]:
    """What effects and requests cost, and how that grows with what steps move between them.

    By least squares of logarithms: over the runs whose requests travel as users' do, with one
    exponent, by the calls that all of them make. The prices hold at the runs' geometric mean of
    moved bytes.
    """
    runs = [run for run in talked if run.usual]
    moved = [math.log(run.moved) for run in runs]
    seen = {
        name: [
            (x, math.log(max(_LEAST, run.calls[name])))
            for x, run in zip(moved, runs, strict=True)
            if name in run.calls
        ]
        for name in CALLS
    }
    everywhere = [logs for logs in seen.values() if len(logs) == len(runs)]
    usual = [mean(y for _, y in logs) for logs in zip(*everywhere, strict=True)]
    slope = linear_regression(moved, usual).slope if len(set(moved)) > 1 else 0.0
    exponent, middle = min(1.0, max(0.0, slope)), mean(moved)
    prices = {}
    for name, logs in seen.items():
        level = mean(y - exponent * (x - middle) for x, y in logs)
        left = [y - level - exponent * (x - middle) for x, y in logs]
        sure = len(left) > 2
        error = math.sqrt(math.fsum(e * e for e in left) / (len(left) - 2)) if sure else 1.0
        prices[name] = Estimate(math.exp(level), error, "fit" if sure else "once")
    return prices, Cooling.model_construct(exponent=exponent, bytes=math.exp(middle))


@dataclass(frozen=True, slots=True)
class Crowd:
    """Steps of one setting against a shard of their own, by one thread and by `CROWD` in turn."""

    alone: float
    """Steps per second of one thread."""
    together: float
    """Steps per second of all threads together."""
    work: Sequence[Work]
    """Counted work of a step, by operation."""


def handover(crowds: Sequence[Crowd], cores: int, contention: float, prices: Prices) -> Estimate:
    """How long it takes until a thread that waits for the lock has woken, from threads that queue
    for it.

    With more threads than the lock lets run, steps follow each other every "lock-held seconds of a
    step" (`recsim_train.workload.operations.seconds`). What counts is their share of all seconds of
    a step, so that errors of other prices cancel out. Settings whose threads work as freely as the
    cores allow give no value, nor do those of which two threads do less than one: no waiting
    explains that, but what they lose by switching.
    """
    per_unit = {name: estimate.value for name, estimate in prices.estimates.items()}
    queue = [
        seen
        for seen in crowds
        if cores > 1 and seen.together < _SERIAL * contention * min(CROWD, cores) * seen.alone
    ]
    values = [_handover_of(seen, per_unit) for seen in queue if seen.together > seen.alone]
    found = from_repeats(values or [_LONGEST_HANDOVER if queue else 0.0])
    if found.value > 0.99 * _LONGEST_HANDOVER:  # only "at least so long" was measured
        return Estimate(_LONGEST_HANDOVER, MOST_UNCERTAIN, "limit")
    return found


def _handover_of(seen: Crowd, per_unit: Mapping[str, float]) -> float:
    """The value with which the lock is held for such a share of a step."""

    def held(value: float) -> float:
        prices = {**per_unit, "handover": value}
        parts = [seconds(work, prices, queued=True) for work in seen.work]
        total, held = map(sum, zip(*parts, strict=True))
        return held / total

    low, high = 0.0, _LONGEST_HANDOVER
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < seen.alone / seen.together else (low, middle)
    return low


def fit_reading(observations: Sequence[Observation], prices: Prices) -> Fit:
    """Prices of rows and ids that are read, besides the calls of their batches."""
    rest = []
    for seen in observations:
        work = {name: units for name, units in seen.work.items() if name in READ_PRIORS}
        calls = sum(units * prices.value(p) for p, units in seen.work.items() if p not in work)
        left = max(0.1 * seen.seconds, seen.seconds - calls)
        rest.append(replace(seen, work=work, seconds=left))
    return fit(rest, READ_PRIORS)


def fit_kernels(observations: Sequence[Observation]) -> Fit:
    """Prices of everything that kernels do."""
    return fit(observations, KERNEL_PRIORS, weights=_WEIGHTS)


def describe(fitted: Fit) -> dict[str, str]:
    """Residuals by group, and the cross-validation, as text for the profile."""
    lines = {
        group: f"median error {residual:.0%}, of that {fitted.bias[group]:+.0%} in one direction"
        for group, residual in fitted.residuals.items()
    }
    if not math.isnan(fitted.held_out):
        lines["held out"] = f"median error {fitted.held_out:.0%} on settings kept out of the fit"
    return lines


def wire_observations(ends: Sequence[Mapping[str, Any]]) -> list[Observation]:
    """CPU of bare round trips' messages and bytes; the mean of both ends."""
    talks = zip(*(end["talks"] for end in ends), strict=True)
    return [
        Observation(
            ROUND_TRIPS,
            {"message": talk[0]["messages"], "wire_byte": talk[0]["bytes"]},
            max(1e-9, mean(end["cpu"] for end in talk)),
        )
        for talk in talks
    ]


def run_observations(runs: Sequence[Talked], law: Cooling) -> list[Observation]:
    """CPU of the messages and bytes of runs."""
    return [
        warmed(Observation(MESSAGES, run.work, max(1e-9, run.transport)), run.moved, law)
        for run in runs
    ]


def warmed(seen: Observation, moved: float, law: Cooling) -> Observation:
    """With as many units as would cost the same where ``law`` says that prices hold; ``moved``:
    bytes that a step moved through the caches."""
    dearer = (moved / law.bytes) ** law.exponent
    work = {name: dearer * n if name in COOLED else n for name, n in seen.work.items()}
    return replace(seen, work=work)


def fit_wire(observations: Sequence[Observation]) -> Fit:
    """Prices of messages and their bytes: as in runs, where those differ from bare round trips."""
    return fit(observations, WIRE_PRIORS, weights={MESSAGES: 40.0})


_LARGE = 256 << 10


def latency_of(smallest: float, message: float) -> float:
    """Seconds one way, beyond the messages' own CPU time: a round trip of the ``smallest`` request
    takes four times a message (sent and received, both ways) and twice the latency."""
    return max(0.0, smallest / 2 - 2 * message)


def loopback_of(ends: Sequence[Mapping[str, Any]], message: float) -> Loopback:
    """Latency and rates from the round trips and streams of both ends. ``message``: its fitted
    price."""
    talks = ends[0]["talks"]
    latency = latency_of(talks[0]["wall"], message)
    large = [talk for talk in talks if talk["bytes"] >= _LARGE]
    if len(large) >= 2:
        first, last = large[0], large[-2] if len(large) > 2 else large[-1]
        cap = (last["bytes"] - first["bytes"]) / max(1e-9, last["wall"] - first["wall"])
    else:
        cap = max(ends[0]["streams"])
    streams = [min(end["streams"][k] for end in ends) for k in range(len(ends[0]["streams"]))]
    return Loopback.model_construct(latency=latency, connection_cap=cap, nic=max(cap, *streams))


def waits_of(ends: Sequence[Mapping[str, Any]], latency: float) -> dict[str, Estimate]:
    """Prices of collectives: what members wait for each other's threads. What the two ends saw is
    one exchange, no repeat of it, and the windows of one pair follow each other at once."""
    least, reduce, exchange = (
        mean(median(end["meetings"][what]) for end in ends)
        for what in ("least", "reduce", "exchange")
    )
    step = max(0.0, least / 2 - latency)  # two members: 2 (n - 1) = 2 steps
    bytes_alone = {"reduced_wait": reduce, "exchanged_wait": exchange}
    return {"collective_step": from_repeats([step])} | {
        name: from_repeats([max(0.0, wait - 2 * (latency + step)) / MEETING_BYTES])
        for name, wait in bytes_alone.items()
    }


def contention(alone: Sequence[float], crowded: Sequence[float]) -> float:
    """Speed of one of several busy cores relative to one that is busy alone.

    ``alone``: rates of the first process in windows of its own; ``crowded``: rates of all while
    all were busy; means, because a run sees slow moments as often as they come.
    """
    return min(1.0, max(0.05, mean(crowded) / mean(alone)))
