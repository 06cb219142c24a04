"""A report of runs or a sweep: what they show, and the files that say it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_train.report import anatomy, figures
from recsim_train.report.compare import Comparison
from recsim_train.report.compared import Compared
from recsim_train.report.document import Chapter, Document, Lines, Picture, TextTable, Where
from recsim_train.report.elsewhere import beside, read_measured
from recsim_train.report.findings import Findings, alone, compare, headlines
from recsim_train.report.html import fragment
from recsim_train.report.publish import REPORT, publish
from recsim_train.report.runs import labels, left_out, load_runs
from recsim_train.report.strategies import net_figure
from recsim_train.report.timeline import timeline_figure
from recsim_train.report.what_if import what_if_figure
from recsim_train.results.commands import local_profile, reproducing
from recsim_train.results.folder import json_bytes, put, writable, writing
from recsim_train.results.interval import of_summary
from recsim_train.results.rundir import RunRecord
from recsim_train.trace.perfetto import TracedRun, trace_file

if TYPE_CHECKING:
    import pandas as pd

MOST_DETAILED = 12
"""Comparisons with figures and a timeline of their own; tables hold all of them."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What runs or a sweep show."""

    findings: Findings
    """Its ``comparisons`` pair predictions with measurements; ``unpaired`` says which runs are
    alone, and why. Of a sweep: none."""
    report: Document
    """All of it in words and tables, and in figures where it was written."""
    document: Mapping[str, Any]
    """The document of ``report --json`` and of summary.json."""
    rows: Sequence[Mapping[str, Any]]
    """Figures of each comparison, or of each point of a sweep."""
    sweep: Any = None
    """What a sweep shows, `recsim_train.sweep.findings.SweepFindings`: axes, lines, best points and
    what binds; None: there are runs."""
    out: Path | None = None
    """The folder that it was written to; None: nowhere."""

    def __repr__(self) -> str:
        """On one line: the first finding."""
        return f"<Report: {next(iter(self.report.headlines), 'nothing')}>"

    def _repr_html_(self) -> str:
        """In notebooks: what was found, and the first table of the page."""
        chapters = [item for item in self.report.items if isinstance(item, Chapter)]
        tables = (item for c in chapters for item in c.items if isinstance(item, TextTable))
        first = next((table for table in tables if Where.PAGE in table.where), None)
        return fragment([first] if first else [], self.report.headlines)

    @property
    def page(self) -> Path | None:
        """The HTML page; None: nothing was written."""
        return None if self.out is None else self.out / "report.html"

    def to_frame(self) -> pd.DataFrame:
        """One row for each comparison, or for each point of a sweep: figures of ``--json``."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))


def report_on(
    paths: Sequence[Path], out: Path | None = None, measured: Path | None = None
) -> Report:
    """What lies at ``paths``: run directories, or folders that hold some.

    ``out``: where summary.json, summary.md, report.html, figures/ and trace-*.json are written;
    None: nowhere. ``measured``: a CSV file of measurements that were made elsewhere, for the
    predictions among the runs (`recsim_train.report.elsewhere`). Raises UserError for bad input and
    RunFailed if the disk does not take them.
    """
    lines = [] if measured is None else read_measured(measured)
    records = load_runs(paths)
    pairs, unmatched = beside(lines, records)
    findings = replace(
        compare(records),
        left_out=tuple(left_out(paths)),
        elsewhere=tuple(pairs),
        unmatched=tuple(unmatched),
    )
    said = Compared(findings, commands=_repeating_runs(records))
    if out is not None:
        writable(out)
        said = replace(said, pictures=draw(findings), traces=_traces(out, findings.comparisons))
    document = {**findings.document(), "headlines": headlines(findings)}
    rows = [pair.document() for pair in findings.comparisons]
    return kept(Report(findings, said.document(), document, rows), said.pictures, out)


def kept(made: Report, pictures: Mapping[str, Picture], out: Path | None) -> Report:
    """A report as it is, or written, with the place of its page at its end."""
    if out is None:
        return made
    numbers = {"summary.json": json_bytes(made.document)}
    publish(out, made.report, pictures, "summary.md", numbers)
    place = Lines([str(out / "report.html")], Where.TERMINAL, lead="page")
    return replace(made, out=out, report=replace(made.report, items=[*made.report.items, place]))


def _repeating_runs(records: Sequence[RunRecord]) -> list[str]:
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

    records = [u.record for u in findings.unpaired[:MOST_DETAILED]]
    for number, (record, label) in enumerate(zip(records, labels(records), strict=True), start=1):
        if record.world == "simulated":
            drawn += predicted(record, f"alone-{number}", label)
    if several := rated(comparisons) or _rated_alone(findings):
        drawn.append(figures.throughput_figure(several))
    if comparisons:
        drawn += [figures.breakdown_figure(comparisons), figures.loss_figure(comparisons)]
    for number, c in enumerate(comparisons[:MOST_DETAILED], start=1):
        drawn.append(timeline_figure(c, f"timeline-{number}"))
        drawn.append(figures.utilisation_figure(c, f"utilisation-{number}"))
        drawn += predicted(c.simulated, str(number), c.label)
        drawn.append(net_figure(c.simulated, f"net-{number}", c.label))
    return {picture.name: picture for picture in drawn if picture is not None}


def rated(comparisons: Sequence[Comparison]) -> list[figures.Rated]:
    """Both throughputs of each."""
    return [
        figures.Rated(
            c.label, c.predicted_eps, c.predicted_interval, c.measured_eps, c.measured_spread
        )
        for c in comparisons
    ]


def _rated_alone(findings: Findings) -> list[figures.Rated]:
    """Of predictions without a measurement: of two or more."""
    records = [record for record in alone(findings) if record.world == "simulated"]
    if len(records) < 2:
        return []
    return [
        figures.Rated(label, record.summary.examples_per_second or 0.0, of_summary(record.summary))
        for record, label in zip(records, labels(records), strict=True)
    ]


def _traces(
    out: Path, comparisons: Sequence[Comparison]
) -> dict[int, tuple[str, Mapping[str, str]]]:
    """Perfetto files of both worlds by number: (file name, what was left out)."""
    shown = enumerate(comparisons[:MOST_DETAILED], start=1)
    with writing(out, REPORT):
        return {number: _trace(out, number, c) for number, c in shown}


def _trace(out: Path, number: int, c: Comparison) -> tuple[str, dict[str, str]]:
    slug = re.sub(r"[^A-Za-z0-9]+", "-", c.label).strip("-")[:60]
    name = f"trace-{number}-{slug}.json"
    sources = [
        TracedRun(
            title,
            record.spans(),
            record.iterations(),
            int(record.manifest["configuration"]["training"]["warmup_steps"]),
            record.summary.steps,
            int(record.manifest.get("dropped_spans", 0)),
        )
        for title, record in (("simulated", c.simulated), ("real", c.real))
    ]
    content, missing = trace_file(sources)
    put(out / name, content)
    return name, missing
