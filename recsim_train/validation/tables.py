"""The tables of a validation's report: gates, errors, CPU time, baselines, every configuration."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.report import document as doc
from recsim_train.report import naming, text
from recsim_train.report.document import Where
from recsim_train.results.drift import moved
from recsim_train.validation.fidelity import (
    GROUPS,
    LINE_COUNTS,
    LINE_OFF,
    CpuLine,
    Errors,
    Fidelity,
    cpu_lines,
    raw_errors,
)
from recsim_train.validation.gates import Gate

_MARKS = {"pass": "good", "fail": "fault", "not enough data": "off"}
_FEW = 12
"""Groups that are listed however few configurations there are."""
NAMED = "configuration (trainers x threads + embedding + dense servers)"


def gate_table(gates: Sequence[Gate]) -> doc.TextTable:
    """Bar, figure and verdict of each gate."""
    rows = [(g.says, g.figure, doc.Cell(g.verdict, _MARKS[g.verdict])) for g in gates]
    return doc.TextTable.of(("bar", "figure", "verdict"), rows, ("bar", "figure", "verdict"))


def errors_table(found: Fidelity) -> doc.TextTable:
    """Raw errors of all runs, then by strategy, regime and so on; beside them those that the
    tightest bound has, and of all runs where some do not count."""
    every = found.with_dropped
    groups = {"all": every.measured}
    for name, by in GROUPS.items():
        divided = every.grouped(by)
        if len(divided) <= max(_FEW, len(every.measured) / 2):  # else each is of one or two
            groups |= {f"{name} {value}": rows for value, rows in divided.items()}
    counting = {row.predicted.key: row for row in found.measured}
    dropped = any(row.dropped for row in found.rows)
    lines = []
    for name, all_runs in groups.items():
        rows = [counting[key] for row in all_runs if (key := row.predicted.key) in counting]
        runs = sum(len(row.runs) for row in rows)
        lines.append(
            (
                name, str(len(rows)), str(runs), *_said(raw_errors(rows)),
                *_said(raw_errors(row.by_bound for row in rows))[1:3],
                *((str(sum(len(row.runs) for row in all_runs)), *_said(raw_errors(all_runs))[1:3])
                  if dropped else ()),
            )
        )  # fmt: skip
    heads = (
        "of", "configurations", "runs", "median signed", "median absolute", "nine in ten within",
        "largest", "the bound's median", "its nine in ten",
        *(("all runs", "median of all", "nine in ten of all") if dropped else ()),
    )  # fmt: skip
    return doc.TextTable.of(heads, lines, ("of",))


def _said(errors: Errors | None) -> tuple[str, str, str, str]:
    if errors is None:
        return (text.NONE,) * 4
    signed = text.percent(errors.median_signed, signed=True)
    median_abs, nine, largest = map(text.percent, (errors.median, errors.p90, errors.largest))
    return signed, median_abs, nine, largest


def cpu_sections(found: Fidelity) -> list[doc.Chapter]:
    """Predicted and measured ledgers; nothing where they are not known."""
    if not (lines := cpu_lines(found.measured)):
        return []
    counts, off = (sum(getattr(line, what) for line in lines) for what in ("counts", "off"))
    said = (
        f"Of {counts} lines that are more than {text.percent(LINE_COUNTS)} of a configuration's "
        f"CPU time, {off} are more than {text.percent(LINE_OFF)} off. Shares are of all CPU time "
        "that was measured, their means over configurations."
    )
    by_strategy = [
        (kind, line)
        for kind, rows in found.grouped(lambda p: p.strategy).items()
        for line in cpu_lines(rows)
        if line.counts
    ]
    tables = [
        _cpu_table([("all", line) for line in lines if line.counts], Where.ALL),
        _cpu_table(by_strategy, Where.WRITTEN),
    ]
    return [
        doc.Chapter("Where CPU time goes", [doc.Lines([said]), *tables], name="cpu", folded=True)
    ]


def _cpu_table(lines: Sequence[tuple[str, CpuLine]], where: Where) -> doc.TextTable:
    rows = [
        (
            of, naming.line(line.name), text.percent(line.predicted),
            text.percent(line.measured),
            text.NONE if line.ratio is None else text.number(line.ratio, 2),
            text.percent(line.misplaced), f"{line.off} of {line.counts}", line.worst,
        )
        for of, line in lines
    ]  # fmt: skip
    heads = (
        "of", "line", "predicted share", "measured share", "ratio", "wrongly placed", "off",
        "most wrong in",
    )  # fmt: skip
    return doc.TextTable.of(heads, rows, ("of", "line", "most wrong in"), where=where)


def baseline_table(found: Fidelity) -> doc.TextTable:
    """What could be had without a simulator."""
    rows = [
        (
            b.name, str(b.count), str(b.left_out), text.percent(b.error), text.percent(b.ours),
            text.number(b.ratio, 1),
        )
        for b in found.baselines
    ]  # fmt: skip
    heads = ("baseline", "configurations", "without it", "median absolute error", "ours", "ratio")
    return doc.TextTable.of(heads, rows, ("baseline",))


def row_table(found: Fidelity) -> doc.TextTable:
    """Every configuration, measured or not."""
    lines = []
    for row in found.rows:
        p, measured = row.predicted, row.measured
        since = moved(found.at_calibration, [run.speeds for run in row.runs])
        half = text.NONE if row.half_width is None else f" ± {text.percent(row.half_width)}"
        spread = "" if row.spread is None else f" ± {text.percent(row.spread)}"
        lines.append(
            (
                p.label,
                p.regime,
                f"{text.exact(round(p.examples_per_second))}{half if row.half_width else ''}",
                "not measured" if measured is None else f"{text.exact(round(measured))}{spread}",
                str(len(row.runs)),
                text.percent(row.raw_error, signed=True),
                text.percent(None if since is None else since.change, signed=True),
                {None: text.NONE, True: "yes", False: "no"}[row.covered],
            )
        )
    heads = (
        NAMED, "regime", "predicted examples/s", "measured", "runs", "raw error",
        "speed since calibration", "in interval",
    )  # fmt: skip
    return doc.TextTable.of(heads, lines, (NAMED, "regime"))
