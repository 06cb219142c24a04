"""Writes the report of a sweep: documents, figures and one page that needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_train import __version__
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.report import text
from recsim_train.report.drawing import Picture, svg_for_page
from recsim_train.report.html import unbroken
from recsim_train.report.sweep import SweepFindings
from recsim_train.report.sweep_figures import draw
from recsim_train.report.sweep_text import HEADS, cells, notes, sweep_markdown
from recsim_train.report.write import put
from recsim_train.results.commands import local_profile, reproducing
from recsim_train.results.folder import writable
from recsim_train.results.rundir import is_run
from recsim_train.results.sweep import SweepRecord, base_path, is_sweep, read_sweep

MOST_LISTED = 2000
"""Points that the page lists; the Parquet file has all."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What was found and where it was written."""

    findings: SweepFindings
    out: Path

    @property
    def document(self) -> dict[str, Any]:
        """The document of ``report --json``."""
        return self.findings.document()

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.out / "report.html"


def find_sweep(paths: Sequence[Path]) -> Path | None:
    """The sweep among the paths, or in the one folder that is named; None: there are only runs.

    Raises UserError where a sweep is named beside something else.
    """
    named = [path for path in paths if is_sweep(path)]
    if not named and len(paths) == 1 and paths[0].is_dir() and not is_run(paths[0]):
        inside = [p for p in sorted(paths[0].iterdir()) if not p.name.startswith(".")]
        if any(map(is_run, inside)):
            return None  # the runs are compared; a sweep beside them has a report of its own
        named = [p for p in inside if is_sweep(p)]
        if len(named) > 1:
            names = ", ".join(map(str, named))
            raise UserError(f"{paths[0]} holds several sweeps, one a report: {names}")
    elif named and len(paths) > 1:
        raise UserError(f"{named[0]} is a sweep: it has a report of its own, name it alone")
    return named[0] if named else None


def write_sweep_report(path: Path, out: Path) -> SweepReport:
    """Write summary.json, summary.md, report.html and figures/ of a sweep.

    Raises UserError for bad input and RunFailed if the disk does not take the report.
    """
    findings = SweepFindings(read_sweep(path))
    if not findings.record.rows:
        raise UserError(f"{path}: no point of this sweep has a prediction")
    writable(out)
    pictures = draw(findings)
    try:
        (out / "figures").mkdir(exist_ok=True)
        for picture in pictures.values():
            put(out / "figures" / f"{picture.name}.svg", picture.svg.encode("utf-8"))
            put(out / "figures" / f"{picture.name}.png", picture.png)
        document = json.dumps(findings.document(), indent=2, allow_nan=False, ensure_ascii=False)
        put(out / "summary.json", f"{document}\n".encode())
        put(out / "summary.md", sweep_markdown(findings, pictures).encode("utf-8"))
        html = sweep_page(findings, pictures, how_to_reproduce(findings.record))
        put(out / "report.html", html.encode("utf-8"))
    except OSError as error:
        raise RunFailed(f"{out}: the report could not be written: {error.strerror}") from None
    return SweepReport(findings, out)


def how_to_reproduce(record: SweepRecord) -> list[str]:
    """The commands that make this sweep and its report anew."""
    header = record.header
    command = list(map(str, header["command"]))
    profile = None if "cluster" in header["axes"] else header["settings"].get("cluster.name")
    result = base_path(Path(), str(header["name"])).name
    return reproducing([(command, local_profile(command, profile))], result)


def sweep_page(
    findings: SweepFindings, pictures: Mapping[str, Picture], commands: Sequence[str]
) -> str:
    """The HTML page. Everything that came from outside is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("recsim_train.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    rows = [
        (row["point"] + 1, cells(findings, findings.strategy(row), row))
        for row in findings.record.rows
    ]
    return environment.get_template("sweep.html.j2").render(
        title=findings.record.header["name"],
        findings=findings,
        t=text,
        notes=notes(findings),
        heads=HEADS,
        best=[cells(findings, name, row) for name, row in findings.best],
        rows=rows[:MOST_LISTED],
        more_rows=max(0, len(rows) - MOST_LISTED),
        figures={
            name: {"title": p.title, "svg": Markup(svg_for_page(p))} for name, p in pictures.items()
        },
        profiles=sorted({str(row["profile"]) for row in findings.record.rows}),
        commands=commands,
        version=__version__,
    )
