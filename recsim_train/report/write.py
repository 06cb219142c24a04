"""Write a report: documents, figures, timelines and the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recsim_train.config.errors import RunFailed
from recsim_train.report import anatomy, figures, text
from recsim_train.report.alone import headlines
from recsim_train.report.claims import Judged, judge_all, without_claims
from recsim_train.report.compare import Comparison, Findings, compare
from recsim_train.report.compared import Compared
from recsim_train.report.document import Document, Lines, Picture, Where
from recsim_train.report.html import page
from recsim_train.report.load import left_out, load_runs
from recsim_train.report.markdown import markdown
from recsim_train.report.net_figure import net_figure
from recsim_train.report.what_if import what_if_figure
from recsim_train.results.commands import local_profile, reproducing
from recsim_train.results.folder import put, writable
from recsim_train.results.rundir import RunRecord
from recsim_train.trace.perfetto import Source, write_trace

MOST_DETAILED = 12
"""Comparisons with figures and a timeline of their own; tables hold all of them."""


@dataclass(frozen=True, slots=True)
class ReportResult:
    """What was found and where it was written."""

    findings: Findings
    out: Path
    claims: tuple[Judged, ...] = ()
    report: Document = field(default_factory=Document)
    """What was written, in words and tables."""

    @property
    def document(self) -> dict[str, Any]:
        """The document of ``report --json``."""
        found = {**self.findings.document(), "headlines": headlines(self.findings)}
        return {**found, "claims": [c.document() for c in self.claims]} if self.claims else found

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.out / "report.html"

    def within(self, limit: float) -> bool:
        """Whether the median absolute error is at most ``limit`` (a share); False without one."""
        error = self.findings.median_abs_error
        return error is not None and error <= limit

    def gate_sentence(self, limit: float) -> str:
        """Why `within` says what it says."""
        error = self.findings.median_abs_error
        if error is None:
            return "no prediction is paired with a measurement, so there is no error to judge"
        relation = "at most" if error <= limit else "above"
        return (
            f"the median absolute error {text.percent(error)} is {relation} {text.percent(limit)}"
        )


def read(
    run_dirs: Sequence[Path],
) -> tuple[Findings, tuple[Judged, ...], list[RunRecord]]:
    """What runs show beside each other, the claims among them, and the runs. Raises UserError."""
    claims = judge_all(run_dirs)
    records = load_runs(run_dirs)
    findings = compare(without_claims(records, claims))
    return replace(findings, left_out=tuple(left_out(run_dirs))), tuple(claims), records


def write_report(run_dirs: Sequence[Path], out: Path) -> ReportResult:
    """Compare runs and write summary.json, summary.md, report.html, figures/ and trace-*.json.

    ``run_dirs``: run directories, or folders that hold some. Raises UserError for bad input and
    RunFailed if the disk does not take the report.
    """
    findings, claims, records = read(run_dirs)
    writable(out)
    pictures = draw(findings)
    try:
        traces = {
            number: _trace(out, number, c)
            for number, c in enumerate(findings.comparisons[:MOST_DETAILED], start=1)
        }
    except OSError as error:
        raise unwritable(out, error) from None
    made = Compared(findings, claims, pictures, traces, how_to_reproduce(records)).document()
    result = ReportResult(findings, out, claims)
    return replace(result, report=save(out, made, pictures, result.document))


def save(
    out: Path, report: Document, pictures: Mapping[str, Picture], document: Mapping[str, Any]
) -> Document:
    """Write summary.json, summary.md, report.html and figures/.

    Returns the report with the place of its page at its end. Raises RunFailed if the disk does not
    take them.
    """
    try:
        (out / "figures").mkdir(exist_ok=True)
        for picture in pictures.values():
            put(out / "figures" / f"{picture.name}.svg", picture.svg.encode("utf-8"))
            put(out / "figures" / f"{picture.name}.png", picture.png)
        numbers = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
        put(out / "summary.json", f"{numbers}\n".encode())
        put(out / "summary.md", markdown(report).encode("utf-8"))
        put(out / "report.html", page(report).encode("utf-8"))
    except OSError as error:
        raise unwritable(out, error) from None
    place = Lines([str(out / "report.html")], Where.TERMINAL, lead="page")
    return replace(report, items=[*report.items, place])


def unwritable(out: Path, error: OSError) -> RunFailed:
    """The disk does not take a report."""
    return RunFailed(f"{out}: the report could not be written: {error.strerror}")


def how_to_reproduce(records: Sequence[RunRecord]) -> list[str]:
    """The commands that make these runs and their report anew, predictions first."""
    made = []
    for record in sorted(records, key=lambda r: r.world == "real"):
        command = list(map(str, record.environment.get("command") or ()))
        profile = record.manifest["configuration"].get("cluster")
        made.append((command, local_profile(command, profile)))
    return reproducing(made)


def draw(findings: Findings) -> dict[str, Picture]:
    """Every figure that the runs have something to show in, by name."""
    comparisons = findings.comparisons
    drawn: list[Picture | None] = []

    def predicted(record: RunRecord, number: str, label: str) -> list[Picture | None]:
        what_if = what_if_figure(record.summary, f"what-if-{number}", label)
        return [*anatomy.pictures(record.summary, number, label), what_if]

    for number, u in enumerate(findings.unpaired[:MOST_DETAILED], start=1):
        if u.record.world == "simulated":
            drawn += predicted(u.record, f"alone-{number}", u.record.run_id)
    if comparisons:
        drawn += [
            figures.throughput_figure(comparisons),
            figures.breakdown_figure(comparisons),
            figures.loss_figure(comparisons),
        ]
    for number, c in enumerate(comparisons[:MOST_DETAILED], start=1):
        drawn.append(figures.timeline_figure(c, f"timeline-{number}"))
        drawn.append(figures.utilisation_figure(c, f"utilisation-{number}"))
        drawn += predicted(c.simulated, str(number), c.label)
        drawn.append(net_figure(c, f"net-{number}"))
    return {picture.name: picture for picture in drawn if picture is not None}


def _trace(out: Path, number: int, c: Comparison) -> tuple[str, dict[str, str]]:
    """Both worlds' timeline in one Perfetto file: (file name, what was left out)."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", c.label).strip("-")[:60]
    name = f"trace-{number}-{slug}.json"
    sources = [
        Source(
            title,
            record.spans(),
            record.iterations(),
            int(record.manifest["configuration"]["training"]["warmup_steps"]),
            record.summary.steps,
            int(record.manifest.get("dropped_spans", 0)),
        )
        for title, record in (("simulated", c.simulated), ("real", c.real))
    ]
    return name, write_trace(out / name, sources)
