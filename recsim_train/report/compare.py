"""A prediction beside its measurement: how far apart they are, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from recsim_train.report import naming, text
from recsim_train.report.caveats import caveats, noisy
from recsim_train.report.gap import DATA, EffectBytes, Gap, compare_bytes, divided
from recsim_train.report.strategies import compression_said, cut_said
from recsim_train.results.folder import clean_document
from recsim_train.results.row import Interval, of_summary
from recsim_train.results.rundir import RunRecord
from recsim_train.results.undisturbed import Drift, Moved, drift_of, moved

Verdict = Literal[
    "within the noise", "beyond the noise", "within the intervals", "beyond the intervals"
]
"""The noise: the measurement's spread. The intervals: that spread and the prediction's interval."""


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
    def since_calibration(self) -> Moved | None:
        """The machine's speed idle before and after the repeats; None: not known, or of another
        machine."""
        first, *others = self.drift
        if any(drift.calibration is None for drift in (first, *others)):
            return None
        return moved(first.calibration, [drift.run for drift in self.drift])

    @property
    def verdict(self) -> Verdict:
        """What explains the error: the measurement's spread alone, or only together with the
        prediction's interval, or neither.

        Of a single run its spread is that of windows within it: see `spread_of`.
        """
        if self.measured_spread is not None and abs(self.signed_error) <= self.measured_spread:
            return "within the noise"
        spread = self.measured_spread or 0.0
        least, most = (self.measured_eps * (1.0 + way * spread) for way in (-1, 1))
        if self.predicted_interval is None:
            return "beyond the noise"
        low, high = self.predicted_interval
        return "beyond the intervals" if high < least or most < low else "within the intervals"

    @property
    def spread_of(self) -> str | None:
        """What spreads: "repeats", or the "windows of one run", which says nothing of how whole
        runs differ; None: spread unknown."""
        if self.measured_spread is None:
            return None
        return "repeats" if len(self.all_real) > 1 else "windows of one run"

    @property
    def predicted_interval(self) -> Interval | None:
        """Examples per second that the prediction allows for, 90 %; None: nothing is known of its
        errors. Of several seeds that of the middle run, around what counts as predicted."""
        own = of_summary(self.simulated.summary, [_eps(r) for r in self.all_simulated])
        middle = self.predicted_eps / _eps(self.simulated)
        return own and (middle * own[0], middle * own[1])

    @property
    def unexplained(self) -> bool:
        """Whether the error is larger than the intervals of prediction and measurement explain."""
        return self.verdict.startswith("beyond")

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
        if self.verdict == "within the noise":
            inside = ", which is within the measurement's spread"
            if len(self.all_real) == 1:
                inside = (
                    ", which is within the spread of that one run's windows; it was not repeated, "
                    "so how runs differ is not known"
                )
        elif self.verdict == "within the intervals":
            inside = ", which the intervals of both explain"
        return f"{start}the prediction is {text.percent(abs(error))} too {way}{inside}"

    @property
    def compression(self) -> list[str]:
        """What was left out in both worlds, one sentence for each kind of content."""
        return list(compression_said(self.simulated, self.real))

    @property
    def net(self) -> list[str]:
        """How the net is cut, and what the tagger compared."""
        return cut_said(self.simulated)

    def document(self) -> dict[str, Any]:
        """The entry of ``comparisons`` in the report's JSON."""
        p, m = self.simulated.summary, self.real.summary
        since, at = self.since_calibration, self.drift[0].calibration
        return clean_document(
            {
                "strategy": self.simulated.strategy,
                "strategy_options": self.simulated.manifest["strategy"].get("options") or {},
                "label": self.label,
                "key": self.simulated.manifest["comparison_key"],
                "experiment": self.simulated.manifest.get("experiment"),
                "cluster": (self.simulated.manifest.get("cluster") or {}).get("name"),
                "worker_threads": p.threads,
                "operation_threads": p.operation_threads,
                "predicted_eps": self.predicted_eps,
                "measured_eps": self.measured_eps,
                "signed_error": self.signed_error,
                "speed_at_calibration": at and at.idle,
                "speed_of_repeats": [drift.run and drift.run.idle for drift in self.drift],
                "speed_since_calibration": since and since.change,
                "speed_since_calibration_error": since and since.error,
                "measured_spread": self.measured_spread,
                "measured_spread_of": self.spread_of,
                "verdict": self.verdict,
                "unexplained": self.unexplained,
                "predicted_bytes": self.predicted_bytes,
                "measured_bytes": self.measured_bytes,
                "predicted_bytes_by_effect": {b.effect: b.predicted for b in self.payload},
                "measured_bytes_by_effect": {b.effect: b.measured for b in self.payload},
                "bytes_agree": {b.effect: b.agree for b in self.payload},
                "data_dependent_effects": [b.effect for b in self.payload if b.excuse == DATA],
                "predicted_compression": p.facts.compression,
                "measured_compression": m.facts.compression,
                "predicted_interval": self.predicted_interval,
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
                "bottleneck": naming.bottleneck(p.binding),
                "binding": p.binding,
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
    each = [compare_bytes(simulated, run) for run in (real, *repeats)]
    return next((found for found in each if any(b.fault for b in found)), each[0])


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
