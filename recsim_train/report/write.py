"""What is reported, whatever it is of: numbers, figures, words and tables, for a notebook, the
terminal and a folder of files; and reports of runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recsim_train.report import anatomy, figures
from recsim_train.report.compare import Comparison
from recsim_train.report.compared import Compared
from recsim_train.report.document import Chapter, Document, Lines, Picture, TextTable, Where
from recsim_train.report.elsewhere import beside, read_measured
from recsim_train.report.figures import timeline_figure
from recsim_train.report.findings import Findings, alone, compare, headlines
from recsim_train.report.publish import REPORT, fragment, publish
from recsim_train.report.runs import labels, left_out, load_runs
from recsim_train.report.strategies import net_figure
from recsim_train.report.what_if import what_if_figure
from recsim_train.results.environment import reproducing
from recsim_train.results.folder import json_bytes, put, writable, writing
from recsim_train.results.row import of_summary
from recsim_train.results.rundir import RunRecord
from recsim_train.signals import held
from recsim_train.trace.perfetto import TracedRun, trace_file

if TYPE_CHECKING:
    import pandas as pd

MOST_DETAILED = 12
"""Comparisons with figures and a timeline of their own; tables hold all of them."""


R = TypeVar("R", bound="Reported")
Figures = Iterable[Picture | None]
"""What matters most first; None: there is nothing to show in one."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Reported:
    """What was found, of runs, a sweep, a validation or designs."""

    compose: Callable[[Mapping[str, Picture]], Document] = lambda pictures: Document()
    """Lays out all of it, with those of its figures that are given by name."""
    draw: Callable[[], Figures] = tuple
    """Draws its figures."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """All of it as numbers, as ``--json`` prints them."""
    rows: Sequence[Mapping[str, Any]] = ()
    """Figures of each comparison, point, configuration or design."""
    out: Path | None = None
    """The folder that it was written to; None: nowhere."""

    def __repr__(self) -> str:
        """On one line: the first finding."""
        return f"<{type(self).__name__}: {next(iter(self.report.headlines), 'nothing')}>"

    def _repr_html_(self) -> str:
        """In notebooks: what was found, the first table of the page, and the first figure."""
        chapters = [item for item in self.report.items if isinstance(item, Chapter)]
        tables = (item for c in chapters for item in c.items if isinstance(item, TextTable))
        first = next((table for table in tables if Where.PAGE in table.where), None)
        shown = [item for item in (first, self.plot()) if item is not None]
        return fragment(shown, self.report.headlines)

    def plot(self) -> Picture | None:
        """The first figure, which notebooks show; None where there is nothing to show in one."""
        return first_of(self.draw())

    @cached_property
    def report(self) -> Document:
        """All of it in words and tables."""
        said = self.compose({})
        if self.page is None:
            return said
        place = Lines([str(self.page)], Where.TERMINAL, lead="page")
        return replace(said, items=[*said.items, place])

    @property
    def page(self) -> Path | None:
        """The HTML page; None: nothing was written."""
        return None if self.out is None else self.out / "report.html"

    def to_frame(self) -> pd.DataFrame:
        """One row for each of `rows`."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def written(
        self: R,
        out: Path | None,
        short: str = "summary.md",
        numbers: Mapping[str, bytes] | None = None,
    ) -> R:
        """The same with its files in a folder that exists: its page, the Markdown file ``short``,
        figures/ and ``numbers`` by the files' names, or all of them in summary.json; None: nowhere.
        Raises RunFailed if the disk does not take them."""
        if out is None:
            return self
        pictures = by_name(self.draw())
        if numbers is None:
            numbers = {"summary.json": json_bytes(self.document)}
        with held():
            publish(out, self.compose(pictures), pictures, short, numbers)
        return replace(self, out=out)


def by_name(drawn: Figures) -> dict[str, Picture]:
    """Every figure that there is something to show in."""
    return {picture.name: picture for picture in drawn if picture is not None}


def first_of(drawn: Figures) -> Picture | None:
    """The first of them, as wide as a notebook."""
    first = next((picture for picture in drawn if picture is not None), None)
    return None if first is None else replace(first, narrow="")


@dataclass(frozen=True, repr=False, kw_only=True)
class Report(Reported):
    """What runs or a sweep show."""

    findings: Findings = field(default_factory=lambda: Findings(()))
    """Its ``comparisons`` pair predictions with measurements; ``unpaired`` says which runs are
    alone, and why. Of a sweep: none."""
    sweep: Any = None
    """What a sweep shows, `recsim_train.sweep.findings.SweepFindings`: axes, lines, best points and
    what binds; None: there are runs."""


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
    commands = [
        (r.environment.get("command") or (), r.manifest["configuration"].get("cluster"))
        for r in sorted(records, key=lambda r: r.world == "real")
    ]
    said = Compared(findings, commands=reproducing(commands))
    if out is not None:
        writable(out)
        said = replace(said, traces=_traces(out, findings.comparisons))
    made = Report(
        findings=findings,
        compose=lambda pictures: replace(said, pictures=pictures).document(),
        draw=lambda: draw(findings),
        document={**findings.document(), "headlines": headlines(findings)},
        rows=[pair.document() for pair in findings.comparisons],
    )
    return made.written(out)


def draw(findings: Findings) -> Iterator[Picture | None]:
    """Every figure that the runs have something to show in."""
    comparisons = findings.comparisons

    def predicted(record: RunRecord, number: str, label: str) -> Iterator[Picture | None]:
        yield from anatomy.pictures(record.summary, number, label)
        yield what_if_figure(record.summary, f"what-if-{number}", label)

    if several := rated(comparisons) or _rated_alone(findings):
        yield figures.throughput_figure(several)
    records = [u.record for u in findings.unpaired[:MOST_DETAILED]]
    for number, (record, label) in enumerate(zip(records, labels(records), strict=True), start=1):
        if record.world == "simulated":
            yield from predicted(record, f"alone-{number}", label)
    if comparisons:
        yield figures.breakdown_figure(comparisons)
        yield figures.loss_figure(comparisons)
    for number, c in enumerate(comparisons[:MOST_DETAILED], start=1):
        yield timeline_figure(c, f"timeline-{number}")
        yield figures.utilisation_figure(c, f"utilisation-{number}")
        yield from predicted(c.simulated, str(number), c.label)
        yield net_figure(c.simulated, f"net-{number}", c.label)


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
    made: dict[int, tuple[str, Mapping[str, str]]] = {}
    for number, c in enumerate(comparisons[:MOST_DETAILED], start=1):
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
        with writing(out, REPORT):
            put(out / name, content)
        made[number] = name, missing
    return made
