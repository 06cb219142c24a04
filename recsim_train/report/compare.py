"""A prediction beside its measurement: how far apart they are, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_train.report import compression, cuts, text
from recsim_train.report.caveats import caveats, noisy
from recsim_train.report.gap import Gap, divided
from recsim_train.report.payload import DATA, EffectBytes, compare_bytes
from recsim_train.results.drift import Drift, drift_of, net_error_of
from recsim_train.results.figures import Summary
from recsim_train.results.folder import clean
from recsim_train.results.rundir import RunRecord
from recsim_train.results.statistics import median


@dataclass(frozen=True, slots=True)
class Comparison:
    """One configuration in both worlds."""

    label: str
    """The strategy, with what tells it from the report's others."""
    simulated: RunRecord
    """The prediction (of several seeds, the middle one)."""
    real: RunRecord
    """The measurement (of several repeats, the middle one)."""
    all_simulated: tuple[RunRecord, ...]
    all_real: tuple[RunRecord, ...]
    predicted_eps: float
    measured_eps: float
    measured_spread: float | None
    """Relative to the measurement: half the range of repeats, or a single run's interval."""
    payload: tuple[EffectBytes, ...]
    why: Gap | None
    warnings: tuple[str, ...]
    rounds: Rounds | None = None
    """Of background loops; None where there are none."""

    @property
    def signed_error(self) -> float:
        """Predicted / measured - 1: positive where the prediction is too fast."""
        return self.predicted_eps / self.measured_eps - 1

    @property
    def diverged(self) -> str | None:
        """The status of a measurement whose model diverged; None: of no repeat."""
        known = [r.facts.diverged for r in self.all_real if r.facts.diverged is not None]
        return known[0].phrase if known else None

    @property
    def pairs(self) -> list[tuple[RunRecord, RunRecord]]:
        """The prediction with each of the measurements."""
        return [(self.simulated, real) for real in self.all_real]

    @property
    def drift(self) -> tuple[Drift, ...]:
        """How the machine's speed moved since the prediction's calibration, for each repeat."""
        return tuple(drift_of(*pair) for pair in self.pairs)

    @property
    def net_error(self) -> float | None:
        """The signed error net of drift, see `recsim_train.results.drift`; None: not known."""
        repeats = zip(self.all_real, self.drift, strict=True)
        speeds = [(_eps(real), drift.at_run) for real, drift in repeats]
        return net_error_of(speeds, self.predicted_eps, self.speed_at_calibration)

    @property
    def speed_at_calibration(self) -> float | None:
        """Overall; None: not known, or a repeat is of another machine."""
        speeds = {drift.at_calibration for drift in self.drift}
        return None if None in speeds else speeds.pop()

    @property
    def within_noise(self) -> bool | None:
        """Whether the error is no larger than the measurement's spread; None: spread unknown.

        Of a single run that is the spread of windows within it: see `spread_of`.
        """
        if self.measured_spread is None:
            return None
        return abs(self.signed_error) <= self.measured_spread

    @property
    def spread_of(self) -> str | None:
        """What spreads: "repeats", or the "windows of one run", which says nothing of how whole
        runs differ; None: spread unknown."""
        if self.measured_spread is None:
            return None
        return "repeats" if len(self.all_real) > 1 else "windows of one run"

    @property
    def predicted_interval(self) -> tuple[float, float] | None:
        """Examples per second that the prediction allows for, 95 %: the simulation's own interval
        and what the calibration's errors make; None where neither is known."""
        return interval_of(self.simulated.summary, alone=len(self.all_simulated) == 1)

    @property
    def unexplained(self) -> bool:
        """Whether the error is larger than the intervals of prediction and measurement explain."""
        spread = self.measured_spread or 0.0
        least, most = (self.measured_eps * (1.0 + way * spread) for way in (-1, 1))
        low, high = self.predicted_interval or (self.predicted_eps, self.predicted_eps)
        return high < least or most < low

    @property
    def predicted_bytes(self) -> float:
        """Payload per counted step."""
        return sum(b.predicted for b in self.payload)

    @property
    def measured_bytes(self) -> float:
        """Payload per counted step."""
        return sum(b.measured for b in self.payload)

    @property
    def faults(self) -> list[EffectBytes]:
        """Effects whose payload disagrees and must not."""
        return [b for b in self.payload if b.fault]

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        error = self.signed_error
        spread = f" ± {text.percent(self.measured_spread)}" if self.measured_spread else ""
        unsound = "" if self.diverged is None else f"the measured model {self.diverged}; "
        start = (
            f"{self.label}: {unsound}predicted {text.rate(self.predicted_eps)} examples/s, "
            f"measured {text.rate(self.measured_eps)}{spread}: "
        )
        if abs(error) < 0.0005:
            once = ", a single run" if len(self.all_real) == 1 else ""
            return f"{start}the prediction meets the measurement{once}"
        way = "high" if error > 0 else "low"
        inside = ""
        if self.within_noise:
            inside = ", which is within the measurement's spread"
            if len(self.all_real) == 1:
                inside = (
                    ", which is within the spread of that one run's windows; it was not repeated, "
                    "so how runs differ is not known"
                )
        elif not self.unexplained:
            inside = ", which the intervals of both explain"
        net = self.net_error
        drift = "" if net is None else f" ({text.percent(net, signed=True)} net of drift)"
        return f"{start}the prediction is {text.percent(abs(error))} too {way}{drift}{inside}"

    @property
    def compression(self) -> list[str]:
        """What was left out in both worlds, one sentence for each kind of content."""
        return compression.sentences(self.simulated, self.real)

    @property
    def net(self) -> list[str]:
        """How the net is cut, and what the tagger compared."""
        return cuts.sentences(self.simulated)

    def document(self) -> dict[str, Any]:
        """The entry of ``comparisons`` in the report's JSON."""
        p, m = self.simulated.summary, self.real.summary
        found: dict[str, Any] = clean(
            {
                "strategy": self.simulated.strategy,
                "strategy_options": self.simulated.manifest["strategy"].get("options", {}),
                "label": self.label,
                "key": self.simulated.manifest["comparison_key"],
                "experiment": self.simulated.manifest.get("experiment"),
                "cluster": (self.simulated.manifest.get("cluster") or {}).get("name"),
                "worker_threads": p.threads,
                "operation_threads": p.operation_threads,
                "predicted_eps": self.predicted_eps,
                "measured_eps": self.measured_eps,
                "signed_error": self.signed_error,
                "net_error": self.net_error,
                "speed_at_calibration": self.speed_at_calibration,
                "speed_of_repeats": [drift.at_run for drift in self.drift],
                "measured_spread": self.measured_spread,
                "measured_spread_of": self.spread_of,
                "within_noise": self.within_noise,
                "unexplained": self.unexplained,
                "predicted_bytes": self.predicted_bytes,
                "measured_bytes": self.measured_bytes,
                "predicted_bytes_by_effect": {b.effect: b.predicted for b in self.payload},
                "measured_bytes_by_effect": {b.effect: b.measured for b in self.payload},
                "bytes_agree": {b.effect: b.agree for b in self.payload},
                "data_dependent_effects": [b.effect for b in self.payload if b.excuse == DATA],
                "predicted_compression": p.facts.compression,
                "measured_compression": m.facts.compression,
                "predicted_ci95": p.ci95,
                "predicted_calibration_ci95": p.facts.calibration_ci95,
                "elasticities": p.facts.elasticities or None,
                "measured_ci95": m.ci95,
                "repeats": len(self.all_real),
                "measured_eps_of_repeats": [r.summary.examples_per_second for r in self.all_real],
                "predicted_seconds_per_iteration": p.seconds_per_iteration,
                "measured_seconds_per_iteration": m.seconds_per_iteration,
                "predicted_time_by_effect": p.time_by_effect,
                "measured_time_by_effect": m.time_by_effect,
                "predicted_ledger": p.facts.ledger,
                "measured_ledger": m.facts.ledger,
                "why": list(self.why.sentences) if self.why else [],
                "predicted_synchronisation": p.synchronisation,
                "measured_synchronisation": m.synchronisation,
                "net": self.net,
                "predicted_rounds_per_second": self.rounds and self.rounds.predicted,
                "measured_rounds_per_second": self.rounds and self.rounds.measured,
                "rounds_error": self.rounds and self.rounds.signed_error,
                "bottleneck": p.bottleneck,
                "bound_eps": p.bound_eps,
                "status": self.real.status,
                "loss": m.loss,
                "auc": m.auc,
                "normalized_entropy": m.normalized_entropy,
                "warnings": list(self.warnings),
                "simulated_runs": [r.run_id for r in self.all_simulated],
                "real_runs": [r.run_id for r in self.all_real],
            }
        )
        return found


def interval_of(summary: Summary, *, alone: bool = True) -> tuple[float, float] | None:
    """Examples per second that a prediction allows for, see `Comparison.predicted_interval`.
    ``alone``: it is no one of several seeds."""
    known = [i for i in (summary.ci95 if alone else None, summary.facts.calibration_ci95) if i]
    if not known:
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def comparison_of(label: str, predictions: list[RunRecord], repeats: list[RunRecord]) -> Comparison:
    """One comparison, of runs that count as repeats on either side."""
    predicted = median([_eps(r) for r in predictions])
    values = [_eps(r) for r in repeats]
    measured = median(values)
    simulated = min(predictions, key=lambda r: abs(_eps(r) - predicted))
    real = min(repeats, key=lambda r: abs(_eps(r) - measured))
    spread = (max(values) - min(values)) / 2 / measured if len(values) > 1 else _interval(real)
    return Comparison(
        label=label,
        simulated=simulated,
        real=real,
        all_simulated=tuple(predictions),
        all_real=tuple(repeats),
        predicted_eps=predicted,
        measured_eps=measured,
        measured_spread=spread,
        payload=tuple(_payload(simulated, real, repeats)),
        why=divided(simulated.summary.time_by_operation, real.summary.time_by_operation),
        warnings=(*caveats(simulated, repeats), *noisy(spread, len(repeats))),
        rounds=rounds_of(predictions, repeats),
    )


def _payload(
    simulated: RunRecord, real: RunRecord, repeats: Iterable[RunRecord]
) -> list[EffectBytes]:
    """The middle run's payload; a disagreement in any repeat is shown instead."""
    shown = compare_bytes(simulated, real)
    for other in repeats:
        found = compare_bytes(simulated, other)
        if any(b.fault for b in found) and not any(b.fault for b in shown):
            shown = found
    return shown


def _eps(record: RunRecord) -> float:
    eps = record.summary.examples_per_second
    assert eps is not None  # `compare` leaves the others out
    return eps


def _interval(record: RunRecord) -> float | None:
    """Half width of a single run's 95 % interval, relative to its estimate."""
    ci95 = record.summary.ci95
    if not ci95:
        return None
    return max(ci95[1] - _eps(record), _eps(record) - ci95[0]) / _eps(record)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Synchronisation in the background: rounds per second of one loop, medians of repeats."""

    predicted: float
    measured: float

    @property
    def signed_error(self) -> float:
        """Predicted / measured - 1: positive where too many rounds are predicted."""
        return self.predicted / self.measured - 1

    @property
    def sentence(self) -> str:
        """Without a full stop."""
        return (
            f"a background loop does {text.number(self.predicted, 1)} rounds per second predicted, "
            f"{text.number(self.measured, 1)} measured: "
            f"{text.percent(self.signed_error, signed=True)}"
        )


def rounds_of(simulated: Sequence[RunRecord], real: Sequence[RunRecord]) -> Rounds | None:
    """None where there are no background loops, or a world ended none of their rounds."""
    predicted, measured = _rounds_per_second(simulated), _rounds_per_second(real)
    return Rounds(predicted, measured) if predicted and measured else None


def _rounds_per_second(records: Sequence[RunRecord]) -> float | None:
    found = [r.summary.synchronisation.rounds_per_second for r in records]
    known = [rounds for rounds in found if rounds is not None]
    return median(known) if len(known) == len(found) else None
