"""Sweeps in words: for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from recsim_train.report import text
from recsim_train.report.claim_text import plain
from recsim_train.report.columns import Column
from recsim_train.report.sweep import Row, SweepFindings, binding
from recsim_train.results.sweep import SweepRecord

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 24
"""A longer table is no help on a terminal: then the best points stand for it."""
HEADS = ("strategy", "settings", "examples/s", "bound", "payload/step", "memory", "bound by")


def cells(findings: SweepFindings, name: str, row: Row) -> list[str]:
    """One row of the table, by `HEADS`."""
    if not row["examples_per_second"]:
        why = str(row["message"] or "").splitlines()
        failed = [text.NONE, text.NONE, text.NONE, text.NONE]
        return [name, findings.settings(row), *failed, f"{row['status']}: {(why or [''])[0]}"]
    return [
        name,
        findings.settings(row) or text.NONE,
        throughput(row),
        text.rate(row["bound_eps"]),
        text.size(row["bytes_per_step"]),
        text.percent(row["memory_share"]),
        binding(row),
    ]


def throughput(row: Row) -> str:
    """Examples per second with the interval."""
    eps = row["examples_per_second"]
    if row["eps_high"] is None:
        return text.rate(eps)
    return f"{text.rate(eps)} ± {text.percent((row['eps_high'] - row['eps_low']) / 2 / eps)}"


def print_sweep(record: SweepRecord, console: Console | None = None) -> None:
    """All points of a small sweep, the best ones of a large one, and where it lies."""
    from rich.markup import escape

    from recsim_train.report.terminal import console_for, print_columns

    findings = SweepFindings(record)
    out = console_for(console)
    out.print(f"[bold]{escape(findings.headline)}.[/bold]", soft_wrap=True)
    if len(record.rows) <= MOST_ROWS:
        shown = [(findings.strategy(row), row) for row in record.rows]
    else:
        shown = list(findings.best)
    made = zip(*(cells(findings, name, row) for name, row in shown), strict=True)
    words = ("strategy", "settings", "bound by")
    out.print()
    print_columns([Column(h, c, h in words) for h, c in zip(HEADS, made, strict=True)], out)
    if len(shown) < len(record.rows):
        out.print(f"the best point of each strategy, of {len(record.rows)} points", style="dim")
    for sentence in findings.changes if len(record.rows) > MOST_ROWS else ():
        out.print(f"binds: {sentence}", markup=False, soft_wrap=True)
    out.print(str(record.path), style="dim", markup=False, soft_wrap=True)


def sweep_markdown(findings: SweepFindings, pictures: Collection[str]) -> str:
    """Headline, best points, what binds; figures are linked relative to the file."""
    record = findings.record
    lines = [f"# Sweep: {plain(record.header['name'])}", "", f"{plain(findings.headline)}.", ""]
    lines += [f"- {plain(note)}" for note in notes(findings)]
    if findings.best:
        lines += ["", "## Best point of each strategy", ""]
        lines += ["| " + " | ".join(HEADS) + " |", "|---|---|" + "---:|" * 4 + "---|"]
        lines += [
            "| " + " | ".join(map(plain, cells(findings, name, row))) + " |"
            for name, row in findings.best
        ]
    for name in ("scaling", "map", "binding"):
        if name in pictures:
            lines += ["", f"![{name}](figures/{name}.svg)"]
    if findings.changes:
        lines += ["", "## What binds where", ""]
        lines += [f"- {plain(sentence)}" for sentence in findings.changes]
    return "\n".join([*lines, ""])


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
        said.append(f"Lines and maps show the best value of {names} at each place.")
    return said
