"""The report of a sweep as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from recsim_train.config.errors import UserError
from recsim_train.report import cost, text
from recsim_train.report import document as doc
from recsim_train.report.compared import throughput
from recsim_train.report.document import Where, stopped
from recsim_train.report.naming import glossary
from recsim_train.report.runs import data_of
from recsim_train.report.what_if import relief
from recsim_train.report.winner import UNKNOWN
from recsim_train.report.write import Report
from recsim_train.results.environment import reproducing
from recsim_train.results.folder import base_path, writable
from recsim_train.results.row import Row
from recsim_train.sweep.figures import draw
from recsim_train.sweep.findings import SweepFindings, binding
from recsim_train.sweep.folder import SweepRecord, read_sweep

MOST_ROWS = 24
"""A longer table is no help on a terminal: then the best points stand for it."""
MOST_ANSWERS = 6
"""Cards of them."""
MOST_LISTED = 2000
"""Points that the page lists; the Parquet file has all."""


def swept(
    findings: SweepFindings,
    pictures: Mapping[str, doc.Picture] | None = None,
    commands: Sequence[str] = (),
) -> doc.Document:
    """The document of a sweep: all points of a small one on the terminal, the best ones of a large
    one. ``commands``: how to make all of it anew."""
    record, drawn = findings.record, pictures or {}
    page, written = Where.PAGE, Where.WRITTEN
    points = [(findings.strategy(row), row) for row in record.rows]
    large = len(points) > MOST_ROWS
    profiles = sorted({str(row.profile) for row in record.rows})

    def figure(name: str) -> list[doc.Picture]:
        return [replace(drawn[name], where=Where.WRITTEN)] if name in drawn else []

    name = str(record.header["name"])
    changes = stopped(findings.changes)
    sized = len(findings.sizes) > 1
    each = f"Best point of each strategy{' at equal examples a step' if sized else ''}"
    explained = [
        *(["Points are compared at equal examples a step only."] if sized else ()),
        "Of points that cannot be told apart, the one with the fewest processes, then "
        "cores and threads, then the slowest network cards.",
        "Predicted: examples per second, with the interval in which nine of ten lie; "
        "examples/step: of one step of the whole job; the bound is what nothing can beat on this "
        "profile; memory is the fullest host's.",
        f"Profile{'s' if len(profiles) > 1 else ''}: {', '.join(profiles)}.",
    ]
    first = "of those that tie with the fastest, the one that needs least; then the fastest"
    best = _table(findings, findings.best, f"{'fewest examples a step; ' * sized}{first}")
    data = _data(record)
    shown: list[doc.Item] = [
        best if large else _table(findings, points),
        doc.Lines(stopped(findings.findings), lead="best"),
        doc.Lines(findings.notes, lead="caveat", mark="off"),
        doc.Lines([str(record.path)], mark="note"),
        doc.Lines(data, lead="data"),
    ]
    if large:
        at = ", at each number of examples a step," if sized else ""
        said = [f"the best point of each strategy{at} of {len(points)} points"]
        shown[1:1] = [doc.Lines(said, mark="note"), doc.Lines(changes, lead="binds")]
    listed = _table(findings, points[:MOST_LISTED])
    numbers = doc.TableColumn(
        "point", [str((row.number or 0) + 1) for _, row in points[:MOST_LISTED]]
    )
    more = f"{len(points) - MOST_LISTED} more points are in sweep.parquet"
    every = [
        doc.Lines(stopped(findings.findings)),
        doc.Lines(explained, mark="note", listed=False),
        doc.Lines([f"{more}."] if len(points) > MOST_LISTED else []),
        replace(listed, columns=[numbers, *listed.columns]),
    ]
    chosen = [
        doc.Lines(stopped(findings.findings), Where.MARKDOWN),
        best,
        doc.Lines(data, Where.MARKDOWN, title="Data"),
    ]
    binds = [*figure("binding"), doc.Lines(changes)]
    answered = "; ".join(f"{answer.setting}: {answer.short}" for answer in findings.answers)
    return doc.Document(
        subject=name,
        kind="a sweep of predictions",
        heading=f"Sweep: {name}",
        headlines=[*filter(None, [answered]), findings.headline],
        tiles=_tiles(findings),
        items=[
            doc.Lines(notes(findings), written, "Before you trust these figures", mark="off"),
            doc.Chapter("", shown, Where.TERMINAL),
            doc.Chapter(each, chosen, written, "best"),
            doc.Chapter("Throughput", figure("scaling"), written, "scaling"),
            doc.Chapter("All points", every, page, "points", folded=True),
            doc.Chapter("Over two settings", figure("map"), written, "map", folded=True),
            doc.Chapter("What binds where", binds, written, "binding", folded=True),
            doc.Chapter(
                "How it was made",
                [doc.Lines(data, listed=False), doc.Lines(commands, mark="code")],
                page,
                "made",
                folded=True,
            ),
        ],
        footer=". Everything here is predicted; nothing was measured.",
        words=glossary(()),
    )


def _tiles(findings: SweepFindings) -> list[doc.Tile]:
    """The answers; and what the best point gives, where there is one."""
    found = [
        doc.Tile(answer.setting, doc.Cell(answer.short), f"{answer.why}.")
        for answer in findings.answers[:MOST_ANSWERS]
    ]
    if findings.fastest is None:
        return found
    entry, row = findings.fastest.preferred, findings.fastest.preferred.item
    known = None if entry.interval == UNKNOWN else entry.interval
    best = "one of those that tie"
    if findings.fastest.clear or findings.fastest.cheaper:
        best = "fastest point" if findings.fastest.clear else "cheapest of those that tie"
    do = relief(row.what_binds)
    found += [
        throughput(best, entry.eps, known),
        doc.Tile("what binds", doc.Cell(binding(row)), f"{do}." if do else "there"),
    ]
    if row.memory_share is not None:
        share = text.percent(row.memory_share)
        found.append(doc.Tile("memory", doc.Cell(share), "of the fullest host, at this point."))
    return found


def _data(record: SweepRecord) -> list[str]:
    """Where the rows come from, or by which of the swept settings that differs."""
    if varied := [key for key in record.keys if key.startswith("data.")]:
        return [f"By point: {', '.join(varied)}."]
    data: dict[str, Any] = {}
    for key, value in record.header["settings"].items():
        section, *path = key.split(".")
        if section == "data":
            reduce(lambda at, part: at.setdefault(part, {}), path[:-1], data)[path[-1]] = value
    return data_of([{"data": data}])


def _table(
    findings: SweepFindings,
    points: Sequence[tuple[str, Row]],
    order: str = "as in the sweep",
) -> doc.TextTable:
    """One point a row."""
    rows = [row for _, row in points]
    columns: dict[str, Sequence[str | doc.Cell]] = {
        "strategy": [name for name, _ in points],
        "settings": [findings.settings(row) or text.NONE for row in rows],
        "examples/step": [text.exact(row.examples_per_step) for row in rows],
        "predicted": [text.rate(row.examples_per_second) for row in rows],
        "90 % interval": [text.between(row.interval90()) for row in rows],
        "bound": [text.rate(row.bound_eps) for row in rows],
        "payload/step": [text.size(row.bytes_per_step) for row in rows],
        "memory": [text.percent(row.memory_share) for row in rows],
        cost.HEAD: [cost.of_row(row) for row in rows],
        "AUC": [text.number(row.auc, 4) for row in rows],
        "NE": [text.number(row.normalized_entropy, 4) for row in rows],
        "bound by": [
            binding(row) if row.examples_per_second else f"{row.status}: {row.why}" for row in rows
        ],
    }
    return doc.TextTable.filled(columns, ("strategy", "settings", "bound by"), order=order)


def notes(findings: SweepFindings) -> Sequence[str]:
    """What a reader must know of the sweep."""
    record, said = findings.record, []
    if not record.complete:
        total = len(record.header["points"])
        said.append(f"The sweep is unfinished: {len(record.rows)} of {total} points are there.")
    if findings.without:
        first = findings.without[0]
        said.append(
            f"{len(findings.without)} points have no figure; the first ({first.status}): "
            f"{first.why}."
        )
    if len(findings.strategies) > 1:
        said.append(
            "Throughput only: what a strategy learns from an example differs, and only real runs "
            "measure it."
        )
    if findings.best_of:
        names = ", ".join(a.label for a in findings.best_of)
        most = ", of points with most examples a step" if len(findings.sizes) > 1 else ""
        said.append(f"Lines and maps show the best value of {names} at each place{most}.")
    return [*said, *findings.notes]


def report_on_sweep(place: Path, out: Path | None = None) -> Report:
    """What the sweep at ``place`` shows. ``out``: as for `recsim_train.report.write.report_on`."""
    sweep = SweepFindings(read_sweep(place))
    if not sweep.record.rows:
        raise UserError(f"{place}: no point of this sweep has a prediction")
    if out is not None:
        writable(out)
    header = sweep.record.header
    profile = None if "cluster" in header["axes"] else header["settings"].get("cluster.name")
    result = base_path(Path(), str(header["name"]), "sweep").name
    commands = reproducing([(header["command"], profile)], result)
    made = Report(
        sweep=sweep,
        compose=lambda pictures: swept(sweep, pictures, commands),
        draw=lambda: draw(sweep),
        document=sweep.document(),
        rows=[row.document for row in sweep.record.rows],
    )
    return made.written(out)
