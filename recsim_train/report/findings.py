"""What runs show beside each other: comparisons, runs without a partner, headlines and doubts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from recsim_train.report import naming, text
from recsim_train.report.compare import Comparison, comparison_of
from recsim_train.report.elsewhere import Elsewhere
from recsim_train.report.machine import beside
from recsim_train.report.runs import labels, why_alone
from recsim_train.report.winner import (
    choose,
    entry_of_run,
    listed,
    not_compared,
    rated,
    sentence,
)
from recsim_train.results.rundir import RunRecord
from recsim_train.results.statistics import kendall_tau

NO_PAIR = "No prediction is paired with a measurement"


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A run that has no partner, and why."""

    record: RunRecord
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a report says."""

    comparisons: tuple[Comparison, ...]
    unpaired: tuple[Unpaired, ...] = ()
    left_out: tuple[str, ...] = ()
    """A sentence for each folder that was named and is no run."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """Predictions beside measurements that were made elsewhere."""
    unmatched: tuple[str, ...] = ()
    """A sentence for each of those that has no prediction."""

    @property
    def sound(self) -> list[Comparison]:
        """Those whose measured model did not diverge: only their errors are counted."""
        return [c for c in self.comparisons if c.diverged is None]

    @property
    def absolute_errors(self) -> list[float]:
        """Of the `sound` comparisons, as shares."""
        return [abs(c.signed_error) for c in self.sound]

    @property
    def median_abs_error(self) -> float | None:
        """Median of the comparisons' absolute errors; None without a comparison."""
        return median(self.absolute_errors) if self.absolute_errors else None

    @property
    def judged_error(self) -> float | None:
        """Median absolute error of the comparisons and of what was measured elsewhere."""
        errors = [*self.absolute_errors, *(abs(e.signed_error) for e in self.elsewhere)]
        return median(errors) if errors else None

    @property
    def rounds_errors(self) -> list[float]:
        """Absolute errors of the rounds of background loops."""
        return [abs(c.rounds.signed_error) for c in self.sound if c.rounds is not None]

    @property
    def unexplained(self) -> int:
        """How many errors are larger than the intervals of both worlds explain."""
        return sum(c.unexplained for c in self.sound)

    @property
    def rank_agreement(self) -> float | None:
        """Kendall's tau between predicted and measured order; None below two comparisons."""
        return kendall_tau(
            [c.predicted_eps for c in self.sound], [c.measured_eps for c in self.sound]
        )

    def within(self, limit: float) -> bool:
        """Whether the median absolute error is at most ``limit`` (a share); False without one."""
        error = self.judged_error
        return error is not None and error <= limit

    def gate_sentence(self, limit: float) -> str:
        """Why `within` says what it says."""
        error = self.judged_error
        if error is None:
            unpaired = "no prediction is paired with a measurement"
            why = "every measured model diverged" if self.comparisons else unpaired
            return f"{why}, so there is no error to judge"
        said = f"the median absolute error {text.percent(error)} is"
        return f"{said} {'at most' if error <= limit else 'above'} {text.percent(limit)}"

    def document(self) -> dict[str, Any]:
        """The document of ``report --json`` and of summary.json."""
        known, rounds = bool(self.comparisons), self.rounds_errors
        others = {
            "measured_elsewhere": [pair.document() for pair in self.elsewhere],
            "unmatched": list(self.unmatched),
        }
        return {
            "comparisons": [c.document() for c in self.comparisons],
            "summary": {
                "median_abs_error": self.median_abs_error,
                "max_abs_error": max(self.absolute_errors, default=None),
                "rank_agreement": self.rank_agreement,
                "median_abs_rounds_error": median(rounds) if rounds else None,
                "max_abs_rounds_error": max(rounds, default=None),
                "unexplained": self.unexplained if known else None,
                "bytes_agree": not any(c.faults for c in self.comparisons) if known else None,
            },
            "unpaired": [
                {
                    "run_id": u.record.run_id,
                    "key": u.record.manifest["comparison_key"],
                    "world": u.record.world,
                    "strategy": u.record.strategy,
                    "examples_per_second": u.record.summary.examples_per_second,
                    "reason": u.reason,
                }
                for u in self.unpaired
            ],
            "left_out": list(self.left_out),
            **(others if any(others.values()) else {}),
        }


def compare(records: Sequence[RunRecord]) -> Findings:
    """Pair runs by experiment, strategy and settings.

    Real runs of the same settings are repeats of one measurement. Simulated runs of the same
    settings on one profile are repeats too; each profile gives a comparison of its own. What was
    measured on emulated hosts is no repeat of what was not, and belongs to its own profile.
    """
    counted = [r for r in records if r.summary.examples_per_second]
    # an unfinished run is left out where a finished one of the same settings and world exists
    finished = {(pair_key(r), r.world, emulated_on(r)) for r in counted if r.status == "complete"}
    nothing = "it counted no iteration, so it has no throughput"
    unpaired = [Unpaired(r, nothing) for r in records if not r.summary.examples_per_second]
    usable = []
    for r in counted:
        if r.status != "complete" and (pair_key(r), r.world, emulated_on(r)) in finished:
            why = f"it is {r.status}, and a complete run of the same settings is used"
            unpaired.append(Unpaired(r, why))
        else:
            usable.append(r)
    real: dict[str, dict[tuple[str, bool] | None, list[RunRecord]]] = {}
    simulated: dict[str, dict[str, list[RunRecord]]] = {}
    for record in usable:
        key = pair_key(record)
        if record.world == "real":
            real.setdefault(key, {}).setdefault(emulated_on(record), []).append(record)
        else:
            simulated.setdefault(key, {}).setdefault(_profile(record), []).append(record)
    pairs = [
        (predictions, repeats)
        for key, profiles in simulated.items()
        for profile, predictions in profiles.items()
        for hosts, repeats in real.get(key, {}).items()
        if hosts is None or hosts[0] == profile
    ]
    names = labels([predictions[0] for predictions, _ in pairs])
    comparisons = [
        comparison_of(f"{label}{_hosts_said(m[0])}", p, m)
        for label, (p, m) in zip(names, pairs, strict=True)
    ]
    paired = {id(r) for p, m in pairs for r in (*p, *m)}
    unpaired += [Unpaired(r, _alone(r, usable)) for r in usable if id(r) not in paired]
    return Findings(tuple(comparisons), tuple(unpaired))


def _alone(record: RunRecord, usable: Sequence[RunRecord]) -> str:
    """Why it has no partner; first of all that its model diverged."""
    why = why_alone(record, usable)
    return why if record.facts.diverged is None else f"{record.facts.diverged.phrase}; {why}"


def emulated_on(record: RunRecord) -> tuple[str, bool] | None:
    """What tells measurements of the same settings apart: the profile whose hosts were emulated,
    and whether operations took a modelled time; None: no hosts were emulated."""
    if record.facts.emulated is None:
        return None
    return _profile(record), bool(record.facts.slept)


def _hosts_said(record: RunRecord) -> str:
    hosts = emulated_on(record)
    if hosts is None:
        return ""
    return f", emulated hosts{', compute modelled' if hosts[1] else ''}"


def _profile(record: RunRecord) -> str:
    return json.dumps(record.manifest.get("cluster"), sort_keys=True)


def pair_key(record: RunRecord) -> str:
    """What a prediction and its measurement share."""
    parts = [record.manifest["comparison_key"], record.manifest["strategy"]]
    return json.dumps(parts, sort_keys=True)


def alone(findings: Findings) -> list[RunRecord]:
    """Those of a report without a comparison that have a throughput, predictions first; none in
    other reports."""
    if findings.comparisons:
        return []
    records = [u.record for u in findings.unpaired if u.record.summary.examples_per_second]
    return sorted(records, key=lambda r: r.world == "real")


def headlines(findings: Findings) -> list[str]:
    """The findings of a report, without full stops: of each comparison, or of runs alone."""
    if findings.comparisons or findings.elsewhere:
        own = [c.headline for c in findings.comparisons]
        return [*own, *(e.headline for e in findings.elsewhere)]
    records = alone(findings)
    names = dict(zip((r.path for r in records), labels(records), strict=True))

    def named(chosen: Sequence[RunRecord]) -> str:
        return listed([names[r.path] for r in chosen])

    each = []
    predictions = [record for record in records if record.world == "simulated"]
    for record in records:
        if record.world == "real":
            summary = record.summary
            speed = text.rated(summary.examples_per_second, summary.ci95, " examples/s")
            each.append(f"{names[record.path]}: measured {speed}{_ended(record)}")
            continue
        binds = record.summary.binding
        limit = f"; it is limited by {naming.binds(binds)}" if binds else ""
        each.append(f"{names[record.path]}: predicted {rated(entry_of_run(record))}{limit}")
    if len(predictions) < 2:
        return each if predictions or not each else [NO_PAIR, *each]
    entries = [entry_of_run(record) for record in predictions]
    counts = {e.examples_per_step for e in entries if e.examples_per_step is not None}
    among = f"{len(predictions)} predictions"
    if len(counts) > 1:
        return [f"There is no fastest of {among}: {not_compared(sorted(counts))}", *each]
    return [sentence(choose(entries), among, named), *each]


def _ended(record: RunRecord) -> str:
    """How a run that is not complete ended; nothing of others."""
    if record.status == "complete":
        return ""
    wanted = record.manifest["configuration"]["training"]["steps"]
    return f"; it is {record.status}, {record.summary.steps:,} of {wanted:,} steps are counted"


def doubts(findings: Findings) -> list[tuple[str, list[str]]]:
    """(sentence, labels of the comparisons it belongs to), in order of the comparisons.

    What the machine did beside several comparisons, such as being busy, is one sentence of each
    kind.
    """
    comparisons, many = findings.comparisons, len(findings.comparisons)
    everything = [c.label for c in comparisons]
    said = dict.fromkeys(findings.left_out, everything)
    own = {c.label: beside(c.pairs) for c in comparisons}
    joint = beside([pair for c in comparisons for pair in c.pairs])
    together = set()
    for kind, whole in joint.items():
        if len(slowed := [label for label, found in own.items() if kind in found]) > 1:
            said[whole] = slowed
            together |= {found[kind] for found in own.values() if kind in found}
    for c in comparisons:
        for warning in c.warnings:
            if warning not in together:
                said.setdefault(warning, []).append(c.label)
    if unsound := [c.label for c in comparisons if c.diverged is not None]:
        said[
            f"{len(unsound)} of {many} measured models diverged: their errors are shown, and count "
            "in no figure over several comparisons."
        ] = unsound
    if beyond := [c for c in findings.sound if c.unexplained]:
        subject = "The error is" if many == 1 else f"{len(beyond)} of {many} errors are"
        steady = all(drift.steady for c in beyond for drift in c.drift)
        changed = "" if steady else ", or the machine has changed since its calibration"
        said[
            f"{subject} larger than the intervals of prediction and measurement explain: the "
            f"simulator leaves something out{changed}."
        ] = [c.label for c in beyond]
    return list(said.items())
