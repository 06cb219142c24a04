"""The cards at the top of a page: throughput with its interval, what binds and what to do about it,
memory, and the error where there is a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recsim_train.report import naming, text
from recsim_train.report.compare import Comparison
from recsim_train.report.document import Cell, Tile
from recsim_train.report.findings import Findings
from recsim_train.report.runs import fullest
from recsim_train.report.what_if import remedy
from recsim_train.report.winner import choose, entry_of_run
from recsim_train.results.interval import Interval, of_summary
from recsim_train.results.rundir import RunRecord

_UNKNOWN = "its spread is not known"


def of_findings(findings: Findings, alone: Sequence[RunRecord]) -> list[Tile]:
    """Of the comparisons, or of runs without any; of several the one that counts: the fastest, of
    those that tie the cheapest."""
    if len(findings.comparisons) == 1:
        return of_pair(findings.comparisons[0])
    if findings.comparisons:
        chosen = _preferred([c.simulated for c in findings.comparisons])
        return [*_errors(findings), *(of_prediction(*chosen) if chosen else ())]
    predictions = [record for record in alone if record.world == "simulated"]
    if predictions:
        chosen = _preferred(predictions)
        found = of_prediction(*chosen) if chosen else []
    else:
        found = [tile for record in alone[:1] for tile in of_measurement(record)]
    if findings.elsewhere:
        worst = max(findings.elsewhere, key=lambda e: abs(e.signed_error))
        many = len(findings.elsewhere)
        of = "of one measurement" if many == 1 else f"the largest of {many}"
        error = text.percent(worst.signed_error, signed=True)
        found.append(Tile("error", Cell(error), f"{of} from elsewhere"))
    return found


def _preferred(records: Sequence[RunRecord]) -> tuple[RunRecord, str] | None:
    """With how it is called; None where they do not do the same work, so that none is."""
    if len(records) == 1:
        return records[0], "predicted"
    entries = [entry_of_run(record) for record in records]
    if len({e.examples_per_step for e in entries}) > 1:
        return None
    choice = choose(entries)
    record = choice.preferred.item
    how = "the fastest" if choice.clear else f"one of {len(choice.tied)} that tie"
    return record, f"predicted: {record.strategy}, {how}"


def of_pair(c: Comparison) -> list[Tile]:
    """A prediction beside its measurement."""
    predicted, *others = of_prediction(c.simulated, "predicted", c.predicted_interval)
    spread = c.measured_spread
    around = _UNKNOWN
    if spread is not None:
        ends = [c.measured_eps * (1 + way * spread) for way in (-1, 1)]
        around = f"{text.between(ends)}, {c.spread_of}"
    error = Cell(text.percent(c.signed_error, signed=True), "off" if c.unexplained else "")
    verdict = c.verdict if c.diverged is None else f"the measured model {c.diverged}"
    if c.faults:
        verdict = "payload bytes differ: do not trust it"
        error = Cell(error.text, "fault")
    return [
        predicted,
        Tile("measured", Cell(f"{text.rate(c.measured_eps)} examples/s"), around),
        Tile("error", error, verdict),
        *others,
    ]


def _errors(findings: Findings) -> list[Tile]:
    many, beyond = len(findings.sound), findings.unexplained
    unsound = len(findings.comparisons) - many
    largest = text.percent(max(findings.absolute_errors, default=None))
    said = f"largest {largest}; {beyond} of {many} beyond the intervals"
    agree = not any(c.faults for c in findings.comparisons)
    rank = findings.rank_agreement
    order = [] if rank is None else [Tile("rank agreement", Cell(text.number(rank, 2)))]
    lost = (
        [Tile("diverged", Cell(str(unsound), "fault"), "of the measured models")] if unsound else []
    )
    return [
        Tile("median error", Cell(text.percent(findings.median_abs_error)), said),
        *order,
        *lost,
        *([] if agree else [Tile("payload", Cell("bytes differ", "fault"), "do not trust it")]),
    ]


def of_prediction(
    record: RunRecord, title: str = "predicted", interval: Interval | None = None
) -> list[Tile]:
    """Throughput, what binds, and memory. ``interval``: 90 %, if it is not the run's own."""
    summary = record.summary
    found = [throughput(title, summary.examples_per_second, interval or of_summary(summary))]
    other, eps = summary.facts.met_otherwise, summary.examples_per_second or 0.0
    if other is not None and text.rate(other) != text.rate(eps):
        way = "at once" if other < eps else "in turn"
        said = f"{found[0].said}; {text.rate(other)} if loops come to the busiest server {way}"
        found[0] = replace(found[0], said=said)
    if (whole := naming.bottleneck(summary.binding)) is not None:
        binds = Cell(naming.binds(summary.binding), hover=naming.phrase(whole))
        found.append(Tile("what binds", binds, f"{remedy(summary)}."))
    if (memory := _memory(record)) is not None:
        found.append(memory)
    return found


def throughput(title: str, eps: float | None, interval: Interval | None) -> Tile:
    """With the whole interval."""
    whole = f"{text.between(interval)} (90 % interval)"
    said = "its errors are not known" if interval is None else whole
    return Tile(title, Cell(f"{text.rate(eps)} examples/s"), said)


def of_measurement(record: RunRecord) -> list[Tile]:
    """A run that no prediction stands beside."""
    summary = record.summary
    found = [
        Tile(
            "measured",
            Cell(f"{text.rate(summary.examples_per_second)} examples/s"),
            f"{text.between(summary.ci95)}, windows of one run" if summary.ci95 else _UNKNOWN,
        )
    ]
    if summary.auc is not None:
        said = f"held-out loss {text.number(summary.loss, 4)}"
        found.append(Tile("AUC", Cell(text.number(summary.auc, 4)), said))
    return found


def _memory(record: RunRecord) -> Tile | None:
    if (used := fullest(record)) is None:
        return None
    share = text.percent(used.filled / used.there)
    return Tile(
        "memory", Cell(text.size(used.filled)), f"{share} of {text.size(used.there)}; {used.where}"
    )
