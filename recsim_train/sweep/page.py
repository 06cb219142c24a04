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
from recsim_train.report.document import Where, stopped
from recsim_train.report.findings import Findings
from recsim_train.report.naming import glossary
from recsim_train.report.runs import data_of
from recsim_train.report.tiles import throughput
from recsim_train.report.what_if import relief
from recsim_train.report.winner import UNKNOWN, Row
from recsim_train.report.write import Report, kept
from recsim_train.results.commands import local_profile, reproducing
from recsim_train.results.folder import base_path, writable
from recsim_train.results.interval import of_row
from recsim_train.results.row import binding_of
from recsim_train.sweep.answers import headline
from recsim_train.sweep.figures import draw
from recsim_train.sweep.findings import SweepFindings, binding
from recsim_train.sweep.folder import SweepRecord, read_sweep

MOST_ROWS = 24
"""A longer table is no help on a terminal: then the best points stand for it."""
MOST_ANSWERS = 6
"""Cards of them."""
MOST_LISTED = 2000
"""Points that the page lists; the Parquet file has all."""
HEADS = (
    "strategy",
    "settings",
    "examples/step",
    "predicted",
    "90 % interval",
    "bound",
    "payload/step",
    "memory",
    cost.HEAD,
    "bound by",
)
_WORDS = ("strategy", "settings", "bound by")


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
    priced = any(row.get("currency") for row in record.rows)
    profiles = sorted({str(row["profile"]) for row in record.rows})

    def table(points: Sequence[tuple[str, Row]], where: Where) -> doc.TextTable:
        rows = [_cells(findings, name, row) for name, row in points]
        whole = doc.TextTable.of(HEADS, rows, _WORDS, where=where)
        left_out = [cost.HEAD] * (not priced) + ["90 % interval"] * (
            not any(map(of_row, findings.done))
        )
        shown = [c for c in whole.columns if c.name not in left_out]
        return replace(whole, columns=shown)

    def figure(name: str) -> list[doc.Picture]:
        return [replace(drawn[name], where=Where.WRITTEN)] if name in drawn else []

    name = str(record.header["name"])
    changes = stopped(findings.changes)
    sized = len(findings.sizes) > 1
    each = f"Best point of each strategy{' at equal examples a step' if sized else ''}"
    explained = [
        *(["Points are compared at equal examples a step only."] if sized else ()),
        "Of points that tie within their 90 % intervals, the one with the fewest processes, then "
        "cores and threads, then the slowest network cards.",
        "Predicted: examples per second, with the interval in which nine of ten lie; "
        "examples/step: of one step of the whole job; the bound is what nothing can beat on this "
        "profile; memory is the fullest host's.",
        f"Profile{'s' if len(profiles) > 1 else ''}: {', '.join(profiles)}.",
    ]
    data = _data(record)
    shown: list[doc.Item] = [
        table(findings.best if large else points, Where.TERMINAL),
        doc.Lines(stopped(findings.findings), lead="best"),
        doc.Lines(findings.notes, lead="caveat", mark="off"),
        doc.Lines([str(record.path)], mark="note"),
        doc.Lines(data, lead="data"),
    ]
    if large:
        at = ", at each number of examples a step," if sized else ""
        said = [f"the best point of each strategy{at} of {len(points)} points"]
        shown[1:1] = [doc.Lines(said, mark="note"), doc.Lines(changes, lead="binds")]
    listed = table(points[:MOST_LISTED], page)
    numbers = doc.Column("point", [str(row["point"] + 1) for _, row in points[:MOST_LISTED]])
    more = f"{len(points) - MOST_LISTED} more points are in sweep.parquet"
    every = [
        doc.Lines(stopped(findings.findings)),
        doc.Lines(explained, mark="note", listed=False),
        doc.Lines([f"{more}."] if len(points) > MOST_LISTED else []),
        doc.TextTable([numbers, *listed.columns]),
    ]
    best = [
        doc.Lines(stopped(findings.findings), Where.MARKDOWN),
        table(findings.best, written),
        doc.Lines(data, Where.MARKDOWN, title="Data"),
    ]
    binds = [*figure("binding"), doc.Lines(changes)]
    return doc.Document(
        subject=name,
        kind="a sweep of predictions",
        heading=f"Sweep: {name}",
        headlines=[*headline(findings.answers), findings.headline],
        tiles=_tiles(findings),
        items=[
            doc.Lines(notes(findings), written, "Before you trust these figures", mark="off"),
            doc.Chapter("", shown, Where.TERMINAL),
            doc.Chapter(each, best, written, "best"),
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
    do = relief(binding_of(row))
    found += [
        throughput(best, entry.eps, known),
        doc.Tile("what binds", doc.Cell(binding(row)), f"{do}." if do else "there"),
    ]
    if row["memory_share"] is not None:
        share = text.percent(row["memory_share"])
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


def _cells(findings: SweepFindings, name: str, row: Row) -> list[str]:
    """One row of the table, by `HEADS`."""
    if not row["examples_per_second"]:
        why = str(row["message"] or "").splitlines()
        failed = [text.NONE] * (len(HEADS) - 4)
        size = text.exact(row.get("examples_per_step"))
        said = f"{row['status']}: {(why or [''])[0]}"
        return [name, findings.settings(row), size, *failed, said]
    return [
        name,
        findings.settings(row) or text.NONE,
        text.exact(row.get("examples_per_step")),
        text.rate(row["examples_per_second"]),
        text.between(of_row(row)),
        text.rate(row["bound_eps"]),
        text.size(row["bytes_per_step"]),
        text.percent(row["memory_share"]),
        cost.of_row(row),
        binding(row),
    ]


def notes(findings: SweepFindings) -> Sequence[str]:
    """What a reader must know of the sweep."""
    record, said = findings.record, []
    if not record.complete:
        total = len(record.header["points"])
        said.append(f"The sweep is unfinished: {len(record.rows)} of {total} points are there.")
    if findings.without:
        first = findings.without[0]
        why = str(first["message"] or "").splitlines()
        said.append(
            f"{len(findings.without)} points have no figure; the first "
            f"({first['status']}): {(why or [''])[0]}."
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
    pictures: Mapping[str, doc.Picture] = {}
    if out is not None:
        writable(out)
        pictures = draw(sweep)
    said = swept(sweep, pictures, _repeating(sweep.record))
    made = Report(Findings(()), said, sweep.document(), sweep.record.rows, sweep)
    return kept(made, pictures, out)


def _repeating(record: SweepRecord) -> list[str]:
    header = record.header
    command = list(map(str, header["command"]))
    profile = None if "cluster" in header["axes"] else header["settings"].get("cluster.name")
    result = base_path(Path(), str(header["name"]), "sweep").name
    return reproducing([(command, local_profile(command, profile))], result)
