"""The report of a validation: gates, errors, baselines, every configuration; and its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from recsim_train.config.experiment import Validation
from recsim_train.report import document as doc
from recsim_train.report import naming, text
from recsim_train.report.document import Where
from recsim_train.report.machine import speed_sentence
from recsim_train.report.naming import glossary
from recsim_train.report.what_if import made_of
from recsim_train.report.write import Reported
from recsim_train.results.folder import clean_document, csv_bytes, json_bytes
from recsim_train.results.row import FAILED
from recsim_train.results.undisturbed import MOVED, moved
from recsim_train.validation import folder as results
from recsim_train.validation.configurations import row_document
from recsim_train.validation.fidelity import (
    GROUPS,
    LINE_COUNTS,
    LINE_OFF,
    CpuLine,
    Errors,
    Fidelity,
    Gate,
    cpu_lines,
    document,
    fidelity,
    judge,
    raw_errors,
    sound,
)
from recsim_train.validation.figures import draw

_MARKS = {"pass": "good", "fail": "fault", "not enough data": "off"}
_FEW = 12
"""Groups that are listed however few configurations there are."""
NAMED = "configuration (trainers x threads + embedding + dense servers)"
_PAGE, _WRITTEN = Where.PAGE, Where.WRITTEN
_MOST_NAMED = 5


@dataclass(frozen=True, repr=False, kw_only=True)
class Validated(Reported):
    """A validation, judged."""

    folder: results.ValidationFolder
    wanted: Validation
    fidelity: Fidelity
    gates: tuple[Gate, ...]

    @property
    def failed(self) -> list[Gate]:
        """Gates that do not hold."""
        return [gate for gate in self.gates if not gate.holds]

    @property
    def complete(self) -> bool:
        """Whether every run of every repeat is there, and a measurement."""
        return self.made and not self.folder.diverged

    @property
    def made(self) -> bool:
        """Whether every run of every repeat is there, those that diverged too."""
        numbers = range(len(self.fidelity.rows))
        repeats = range(1, self.wanted.repeats + 1)
        return all(self.folder.done(repeat, number) for repeat in repeats for number in numbers)


def write(folder: results.ValidationFolder, wanted: Validation) -> Validated:
    """Judge what is there, and write it: validation.json and .csv, .md, report.html, figures/."""
    found = fidelity(
        folder.predicted(), folder.measured(), wanted.repeats, folder.at_calibration,
        folder.measured(dropped=True),
    )  # fmt: skip
    gates = judge(found, wanted.gates)
    if wanted.tier == "emulated":
        ended = [run for run in folder.runs.values() if run["status"] != FAILED]
        gates.append(sound(len(ended), len(folder.broken)))
    judged = Validated(folder=folder, wanted=wanted, fidelity=found, gates=tuple(gates))
    made = replace(
        judged,
        compose=lambda pictures: composed(judged, pictures),
        draw=lambda: draw(found),
        document=result_of(judged),
        rows=[row_document(row) for row in found.rows],
    )
    numbers = {
        results.RESULT: json_bytes(made.document, indent=1),
        results.TABLE: csv_bytes(list(made.rows[0]), made.rows),
    }
    return made.written(folder.path, "validation.md", numbers)


def result_of(made: Validated) -> dict[str, Any]:
    """The result file: predictions, runs, figures and gates, which needs no other file."""
    predictions, runs = made.folder.predictions, made.folder.runs
    return clean_document(
        {
            **predictions,
            "predictions_sha256": made.folder.sha256,
            "complete": made.complete,
            "rows": [row_document(row) for row in made.fidelity.rows],
            "summary": document(made.fidelity),
            "interval_made_of": intervals_made_of(made),
            "gates": [gate.document() for gate in made.gates],
            "runs": sorted(runs.values(), key=lambda run: str(run["started"])),
        }
    )


def composed(made: Validated, pictures: Mapping[str, doc.Picture]) -> doc.Document:
    """The report. ``pictures``: as `recsim_train.validation.figures.draw` names them."""
    found, predictions = made.fidelity, made.folder.predictions
    fault = [f"{gate.sentence}." for gate in made.failed]
    drawn = [replace(picture, where=_WRITTEN) for picture in pictures.values()]
    tiles = []
    if (raw := found.raw) is not None:
        of = f"{len(found.measured):,} of {len(found.rows):,} configurations"
        largest = f"the largest is {text.percent(raw.largest)}"
        tiles = [
            doc.Tile(
                "median raw error",
                doc.Cell(text.percent(raw.median)),
                f"{raw.count:,} runs of {of}",
            ),
            doc.Tile("nine in ten within", doc.Cell(text.percent(raw.p90)), largest),
        ]
    heads = ("bar", "figure", "verdict")
    gates = [(g.says, g.figure, doc.Cell(g.verdict, _MARKS[g.verdict])) for g in made.gates]
    held = f"{len(made.gates) - len(made.failed)} of {len(made.gates)}"
    return doc.Document(
        subject=str(predictions["name"]),
        kind="a validation",
        heading=f"Validation: {predictions['name']}",
        headlines=[headline(made)],
        tiles=[
            *tiles,
            doc.Tile(
                "pairs in the right order",
                doc.Cell(text.percent(found.order.share)),
                f"{found.order.right:,} of {found.order.pairs:,} that differ by more than noise",
            ),
            doc.Tile(
                "gates that hold",
                doc.Cell(held, "fault" if made.failed else "good"),
                "limits that were set before the first run",
            ),
        ],
        items=[
            doc.Lines(fault, _PAGE, "Gates that do not hold", mark="fault"),
            doc.Lines(list(notes(made)), _WRITTEN, "Before you trust these figures", mark="off"),
            doc.Chapter("Gates", [doc.TextTable.of(heads, gates, heads)], name="gates"),
            doc.Chapter("Errors", [*drawn, errors_table(found)], name="errors"),
            doc.Chapter("Naive baselines", [baseline_table(found)], name="baselines"),
            *cpu_sections(found),
            doc.Chapter(
                "Every configuration", [row_table(found)], name="configurations", folded=True
            ),
            doc.Chapter(
                "How it was made", [doc.Lines(list(origins(made)))], name="origin", folded=True
            ),
            doc.Lines(list(notes(made)), Where.TERMINAL, lead="note"),
            doc.Lines([str(made.folder.path)], Where.TERMINAL, mark="note"),
        ],
        words=glossary(()),
    )


def headline(made: Validated) -> str:
    """The finding in one sentence, without a full stop."""
    found = made.fidelity
    raw, failed, many = found.raw, len(made.failed), len(made.gates)
    if raw is None:
        return f"{made.folder.predictions['name']}: nothing is measured yet"
    gates = f"{failed} of {many} gates do not hold" if failed else "all gates hold"
    judged = gates if made.gates else "no gate is set"
    return (
        f"{made.folder.predictions['name']}: median absolute raw error {text.percent(raw.median)}, "
        f"nine in ten within {text.percent(raw.p90)}, over {raw.count:,} runs of "
        f"{len(found.measured)} of {len(found.rows)} configurations; {judged}"
    )


def notes(made: Validated) -> Iterator[str]:
    """What a reader must know of it, one sentence each."""
    found, runs = made.fidelity, made.folder.runs.values()
    if missing := [row.predicted.label for row in found.rows if not row.runs]:
        named = "; ".join(missing[:_MOST_NAMED])
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        yield f"{len(missing)} configurations have no measurement that counts: {named}{more}."
    elif not made.made:
        yield "Not every repeat is finished: `--resume` goes on."
    for run in runs:
        if run["status"] == FAILED:
            yield f"{run['label']}, repeat {run['repeat']}, failed: {run['message']}."
    for run in made.folder.diverged:
        yield (
            f"{run['label']}, repeat {run['repeat']}, {run['status']} ({run['message']}): its "
            "throughput is no measurement of these settings and counts in no error."
        )
    for run in made.folder.broken:
        for why in run["broken"]:
            yield (
                f"{run['label']}, repeat {run['repeat']}, counts in no error: it breaks an "
                f"invariant ({why})."
            )
    since = found.moved
    if since is None or since.runs < sum(len(row.runs) for row in found.rows):
        yield (
            "The machine's speed before and after is not known of every run: how much of the "
            "errors is its drift is not known either."
        )
    if since is not None and since.far:
        yield (
            f"{speed_sentence(since)} It moved by more than {text.percent(MOVED)}: errors contain "
            "the machine's drift, and the order alone can be trusted."
        )
    revisions = {str(run.get("revision")) for run in runs}
    made_at = str(made.folder.predictions["agreed"]["code"])
    if revisions - {made_at}:
        yield f"Predicted at revision {made_at}, measured at {', '.join(sorted(revisions))}."


def intervals_made_of(made: Validated) -> dict[str, float]:
    """By cause, its median relative standard error over the configurations."""
    figures = [p.get("figures") or {} for p in made.folder.predictions["predictions"]]
    errors = [found for f in figures if (found := f.get("calibration_errors"))]
    causes = dict.fromkeys(cause for found in errors for cause in found)
    return {cause: median([found.get(cause, 0.0) for found in errors]) for cause in causes}


def bytes_agree(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How predicted bytes and those counted on emulated links agree."""
    counted = [run for run in runs if run.get("frames") and not run["broken"]]
    if not counted:
        return
    equal = sum(r["payload"]["predicted"] == r["payload"]["counted"] for r in counted)
    off = [r["frames"]["counted"] / r["frames"]["predicted"] - 1 for r in counted]
    yield (
        f"Payload bytes of a step: equal in {equal} of {len(counted)} runs. Bytes of frames that "
        f"left the hosts, with those that acknowledge: {text.percent(median(off), signed=True)} "
        f"of what was predicted in the median, from {text.percent(min(off), signed=True)} to "
        f"{text.percent(max(off), signed=True)}."
    )


def origins(made: Validated) -> Iterator[str]:
    """Where the figures come from."""
    predictions = made.folder.predictions
    profile, runs = predictions["profile"], list(made.folder.runs.values())
    calibrated = (profile.get("calibration") or {}).get("date", "not calibrated")
    yield (f"Profile {profile['name']} ({calibrated}), SHA-256 {predictions['agreed']['profile']}.")
    first = f" ({min(str(run['started']) for run in runs)})" if runs else ""
    yield (
        f"Predictions written {predictions['made']}, SHA-256 {made.folder.sha256}, before the "
        f"first run{first}."
    )
    yield f"Machine: {predictions['environment'].get('machine')}."
    if (since := made.fidelity.moved) is not None:
        yield speed_sentence(since)
    yield from bytes_agree(runs)
    others = [run["others_cores"] for run in runs if run.get("others_cores") is not None]
    if others:
        yield (
            f"Other work beside the runs: median {median(others):.2f} cores, at most "
            f"{max(others):.2f}."
        )
    order = made.fidelity.order
    yield (
        f"Order: {order.right:,} of {order.pairs:,} pairs beyond the noise are right; of "
        f"{order.within:,} more the measured difference may be noise."
    )
    for said in made_of(intervals_made_of(made)):
        yield f"Intervals, medians over the configurations: {said}."
    yield (
        "Each repeat went through all configurations in an order of its own, which was settled "
        "with the predictions."
    )


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

    def around(value: float | None, half: float | None) -> str:
        rate = text.exact(None if value is None else round(value))
        return rate if half is None else f"{rate} ± {text.percent(half)}"

    rows = found.rows
    since = [moved(found.at_calibration, [run.speeds for run in row.runs]) for row in rows]
    held = {None: text.NONE, True: "yes", False: "no"}
    columns: dict[str, Sequence[str | doc.Cell]] = {
        NAMED: [row.predicted.label for row in rows],
        "regime": [row.predicted.regime for row in rows],
        "predicted examples/s": [
            around(row.predicted.examples_per_second, row.half_width or None) for row in rows
        ],
        "measured": [
            around(row.measured, row.spread) if row.runs else "not measured" for row in rows
        ],
        "runs": [str(len(row.runs)) for row in rows],
        "raw error": [text.percent(row.raw_error, signed=True) for row in rows],
        "speed since calibration": [
            text.percent(None if one is None else one.change, signed=True) for one in since
        ],
        "in interval": [held[row.covered] for row in rows],
        "AUC": [text.number(row.quality("auc"), 4) for row in rows],
        "NE": [text.number(row.quality("normalized_entropy"), 4) for row in rows],
    }
    return doc.TextTable.filled(columns, (NAMED, "regime"), order="as in the file")
