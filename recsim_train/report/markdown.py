"""The report in short, for a README or a pull request."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from recsim_train.report import alone, anatomy, cuts, limits, rounds, text, what_if
from recsim_train.report.caveats import stated
from recsim_train.report.claim_text import claim_lines, plain
from recsim_train.report.claims import Judged
from recsim_train.report.compare import Findings
from recsim_train.report.doubts import doubts
from recsim_train.results.statistics import median


def markdown(findings: Findings, pictures: Collection[str], claims: Sequence[Judged] = ()) -> str:
    """Headlines, the table, why, caveats; figures are linked relative to the file."""
    lines: list[str] = []
    if claims:
        lines += ["# Published claims beside predictions", "", *claim_lines(claims), ""]
        if not findings.comparisons and not findings.unpaired:
            return "\n".join(lines)
    found = alone.headlines(findings)
    only = bool(found) and not findings.comparisons
    lines += ["# Predictions" if only else "# Predicted against measured", ""]
    lines += [f"- {plain(sentence)}." for sentence in found] or [f"{alone.UNPAIRED}."]
    lines += [] if findings.comparisons else [""]
    faults = [(c, b) for c in findings.comparisons for b in c.faults]
    if faults:
        lines += ["", "**Payload bytes disagree; do not trust this prediction:**", ""]
        lines += [
            f"- {plain(c.label)}, {text.effect(b.effect)}: {text.exact(b.predicted)} bytes per "
            f"counted step predicted, {text.exact(b.measured)} measured{b.beyond}"
            for c, b in faults
        ]
    if findings.comparisons:
        lines += ["", *_table(findings), ""]
        lines += [
            f"Median absolute error {text.percent(findings.median_abs_error)}, "
            f"largest {text.percent(max(findings.absolute_errors))}, "
            f"rank agreement {text.number(findings.rank_agreement, 2)}. Errors larger than the "
            f"intervals of both explain: {findings.unexplained} of {len(findings.comparisons)}.",
            "",
        ]
    if said := rounds.table([(plain(c.label), c.rounds) for c in findings.comparisons]):
        lines += [*said, ""]
        errors = findings.rounds_errors
        lines += [
            f"Synchronisation in the background: median absolute error of the rounds "
            f"{text.percent(median(errors))}, largest {text.percent(max(errors))}.",
            "",
        ]
    if "throughput" in pictures:
        lines += ["![Predicted and measured throughput](figures/throughput.svg)", ""]
    for c in findings.comparisons:
        if c.why:
            lines += [f"## Why: {plain(c.label)}", ""]
            lines += [f"- {plain(sentence)}" for sentence in c.why.sentences] + [""]
        if said := anatomy.sentences(c.simulated.summary):
            lines += [f"## Bounds: {plain(c.label)}", "", *(f"- {plain(s)}." for s in said), ""]
        if said := what_if.sentences(c.simulated.summary):
            lines += [f"## What if: {plain(c.label)}", "", *(f"- {plain(s)}." for s in said), ""]
        if c.net:
            lines += [f"## Cuts: {plain(c.label)}", "", *(f"- {plain(s)}." for s in c.net), ""]
        if c.compression:
            lines += [f"## Compression: {plain(c.label)}", ""]
            lines += [f"- {plain(sentence)}." for sentence in c.compression] + [""]
    if warnings := doubts(findings):
        lines += ["## Caveats", "", *(f"- {plain(w)}" for w, _ in warnings), ""]
    if findings.unpaired:
        lines += ["## Runs without a partner", ""]
        lines += [f"{alone.UNPAIRED}.", ""] if only else []
        for u in findings.unpaired:
            lines.append(f"- {plain(u.record.run_id)}: {plain(u.reason)}")
            said = [*limits.sentences(u.record.summary), *cuts.sentences(u.record)]
            lines += [f"    - {plain(s)}." for s in said]
            lines += [f"    - {plain(s)}" for s in stated(u.record)]
        lines.append("")
    return "\n".join(lines)


def _table(findings: Findings) -> list[str]:
    rows = [
        "| strategy | predicted examples/s | from calibration | measured examples/s | signed error "
        "| spread | predicted bytes/step | measured bytes/step |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for c in findings.comparisons:
        spread = f"± {text.percent(c.measured_spread)}" if c.measured_spread is not None else "–"
        rows.append(
            f"| {plain(c.label)} | {c.predicted_eps:,.0f} "
            f"| {what_if.calibration(c.simulated.summary)} | {c.measured_eps:,.0f} "
            f"| {text.percent(c.signed_error, signed=True)} | {spread} "
            f"| {text.exact(sum(b.predicted for b in c.payload))} "
            f"| {text.exact(sum(b.measured for b in c.payload))} |"
        )
    return rows
