"""Tables for the terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recsim_train.report import alone, compression, limits, text, what_if
from recsim_train.report.claim_text import print_claims
from recsim_train.report.columns import Column, tables
from recsim_train.report.compare import Comparison
from recsim_train.report.doubts import doubts
from recsim_train.report.write import ReportResult
from recsim_train.results.rundir import run_document

if TYPE_CHECKING:
    from rich.console import Console


def console_for(console: Console | None) -> Console:
    """The given console, or one on standard output that is wide enough."""
    from rich.console import Console

    if console is not None:
        return console
    made = Console(highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made = Console(highlight=False, width=140)  # a file or a pipe has no width to keep to
    return made


def run_columns(documents: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Finished runs (entries of ``{"runs": [...]}``), one a row; empty columns are left out."""
    columns = {
        "strategy": [title(str(d["strategy"]), d) for d in documents],
        "world": [str(d["world"]) for d in documents],
        "examples/s": [_rate(d) for d in documents],
        "goodput": [_goodput(d) for d in documents],
        "from calibration": [what_if.calibration(d) for d in documents],
        "steps": [text.exact(d["steps"]) for d in documents],
        "time": [text.seconds(d["seconds"]) for d in documents],
        "payload/step": [_payload(d) for d in documents],
        "sync gap": [text.sync_gap(d) for d in documents],
        "staleness": [text.staleness(d) for d in documents],
        "compression": [compression.cell(d) for d in documents],
        "bound by": [str(d.get("bottleneck") or text.NONE) for d in documents],
        "train loss": [_training(d) for d in documents],
        "loss": [text.number(d.get("loss"), 4) for d in documents],
        "AUC": [text.number(d.get("auc"), 4) for d in documents],
        "NE": [text.number(d.get("normalized_entropy"), 4) for d in documents],
        "status": [text.NONE if d["status"] == "complete" else d["status"] for d in documents],
    }
    words = ("strategy", "world", "compression", "bound by", "status")
    return [
        Column(name, cells, name in words)
        for name, cells in columns.items()
        if any(c != text.NONE for c in cells)
    ]


def title(strategy: str, document: Mapping[str, Any]) -> str:
    """A strategy's name with the options that are not at their default."""
    options = document.get("strategy_options", {})
    shown = [
        f"{name} {value['kind'] if isinstance(value, Mapping) else value}"
        for name, value in options.items()
    ]
    return f"{strategy} ({', '.join(shown)})" if shown else strategy


def _rate(document: Mapping[str, Any]) -> str:
    eps, ci95 = document["examples_per_second"], document["ci95"]
    if eps is None:
        return text.NONE
    half = f" ± {text.percent((ci95[1] - ci95[0]) / 2 / eps)}" if ci95 and eps else ""
    return text.rate(eps) + half


def _goodput(document: Mapping[str, Any]) -> str:
    """Examples per second without work that failures undid; only where hosts may fail."""
    found = (document.get("facts") or {}).get("reliability") or {}
    return text.rate(found.get("goodput"))


def _payload(document: Mapping[str, Any]) -> str:
    per_effect = [v for v in document["bytes_by_effect"].values() if v is not None]
    return text.size(sum(per_effect)) if per_effect else text.NONE


def _training(document: Mapping[str, Any]) -> str:
    first, last = document.get("train_loss_first"), document.get("train_loss_last")
    if first is None or last is None:
        return text.NONE
    return f"{text.number(first, 4)} → {text.number(last, 4)}"


def print_runs(document: Mapping[str, Any], console: Console | None = None) -> None:
    """A table of ``{"runs": [...]}`` and where each run lies."""
    out = console_for(console)
    print_columns(run_columns(document["runs"]), out)
    for run in document["runs"]:
        for sentence in limits.sentences(run):
            out.print(
                f"{title(str(run['strategy']), run)}: {sentence}", markup=False, soft_wrap=True
            )
    for run in document["runs"]:
        out.print(str(run["run_dir"]), style="dim", markup=False, soft_wrap=True)


def comparison_columns(comparisons: Sequence[Comparison]) -> list[Column]:
    """Predicted beside measured, one comparison a row."""
    columns: dict[str, Callable[[Comparison], str]] = {
        "predicted/s": lambda c: text.exact(round(c.predicted_eps)),
        "from calibration": lambda c: what_if.calibration(c.simulated.summary),
        "measured/s": lambda c: text.exact(round(c.measured_eps)),
        "error": lambda c: text.percent(c.signed_error, signed=True),
        "spread": lambda c: (
            text.NONE if c.measured_spread is None else f"± {text.percent(c.measured_spread)}"
        ),
        "bytes predicted": lambda c: text.exact(sum(b.predicted for b in c.payload)),
        "bytes measured": lambda c: text.exact(sum(b.measured for b in c.payload)),
    }
    figures = [Column(name, [cell(c) for c in comparisons]) for name, cell in columns.items()]
    return [Column("strategy", [c.label for c in comparisons], words=True), *figures]


def print_columns(columns: Sequence[Column], out: Console, bad: Sequence[int] = ()) -> None:
    """A table, or several where the console is too narrow for one."""
    for number, table in enumerate(tables(columns, out.width, bad)):
        if number:
            out.print()
        out.print(table)


def print_report(result: ReportResult, console: Console | None = None) -> None:
    """Headlines, the table, why, caveats, and where the page lies."""
    from rich.markup import escape

    out, findings = console_for(console), result.findings
    found = alone.headlines(findings)
    for headline in found:
        out.print(f"[bold]{escape(headline)}.[/bold]", soft_wrap=True)
    if result.claims:
        print_claims(result.claims, out)
    elif not findings.comparisons and not found:
        out.print(f"[bold]{alone.UNPAIRED}.[/bold]")
    if findings.comparisons:
        out.print()
        bad = [n for n, c in enumerate(findings.comparisons) if c.faults]
        print_columns(comparison_columns(findings.comparisons), out, bad)
    elif found:
        out.print()
        print_columns(run_columns([run_document(r) for r in alone.predictions(findings)]), out)
    for c in findings.comparisons:
        for b in c.faults:
            out.print(
                f"[bold red]payload bytes disagree:[/bold red] {escape(c.label)}, "
                f"{text.effect(b.effect)}: {text.exact(b.predicted)} per step predicted, "
                f"{text.exact(b.measured)} measured{b.beyond}",
                soft_wrap=True,
            )
    for c in findings.comparisons:
        if c.why:
            out.print()
            out.print(f"why: {c.label}", style="bold", markup=False)
            for sentence in c.why.sentences:
                out.print(f"  {sentence}", markup=False, soft_wrap=True)
        rounds = [c.rounds.sentence] if c.rounds else []
        predicted = what_if.sentences(c.simulated.summary)
        for sentence in (*rounds, *predicted, *c.net, *c.compression):
            out.print(f"{c.label}: {sentence}", markup=False, soft_wrap=True)
    warnings = doubts(findings)
    if warnings:
        out.print()
    for warning, _ in warnings:
        out.print(f"[yellow]caveat:[/yellow] {escape(warning)}", soft_wrap=True)
    for record in alone.predictions(findings):
        for sentence in limits.sentences(record.summary):
            out.print(f"{record.run_id}: {sentence}", markup=False, soft_wrap=True)
    for u in findings.unpaired:
        out.print(f"unpaired: {u.record.run_id}: {u.reason}", markup=False, soft_wrap=True)
    out.print()
    out.print(f"page: {result.page}", markup=False, soft_wrap=True)
