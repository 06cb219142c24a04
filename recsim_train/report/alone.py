"""Predictions that no measurement stands beside: how fast, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.report.compare import Findings
from recsim_train.report.naming import labels
from recsim_train.report.winner import choose, entry_of_run, listed, rated, sentence
from recsim_train.results.rundir import RunRecord

UNPAIRED = "No prediction is paired with a measurement"


def predictions(findings: Findings) -> list[RunRecord]:
    """Those of a report without a comparison that have a throughput; none in other reports."""
    if findings.comparisons:
        return []
    records = [u.record for u in findings.unpaired]
    return [r for r in records if r.world == "simulated" and r.summary.examples_per_second]


def headlines(findings: Findings) -> list[str]:
    """The findings of a report, without full stops: of each comparison, or of predictions alone."""
    if findings.comparisons:
        return [c.headline for c in findings.comparisons]
    records = predictions(findings)
    names = dict(zip((r.path for r in records), labels(records), strict=True))

    def named(chosen: Sequence[RunRecord]) -> str:
        return listed([names[r.path] for r in chosen])

    each = []
    for record in records:
        binds = record.summary.bottleneck
        limit = f"; it is limited by {binds}" if binds else ""
        each.append(f"{names[record.path]}: predicted {rated(entry_of_run(record))}{limit}")
    if len(records) < 2:
        return each
    found = choose([entry_of_run(record) for record in records])
    return [sentence(found, f"{len(records)} predictions", named), *each]
