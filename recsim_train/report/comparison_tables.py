"""Tables of a report that compares both worlds, the CPU time of an example among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from recsim_train.report import naming, text
from recsim_train.report.compare import Comparison
from recsim_train.report.document import Cell, Item, Lines, TableColumn, TextTable, Where, stopped
from recsim_train.report.drawing import colour
from recsim_train.report.findings import Findings
from recsim_train.report.gap import EffectBytes, Gap, GapPart, name_of
from recsim_train.results.environment import counted_cores

AS_GIVEN = "as the runs were given, those of a folder by their names"


def throughputs(cs: Sequence[Comparison]) -> TextTable:
    """Predicted beside measured, one comparison a row."""
    exact = text.exact

    def column(
        name: str,
        cell: Callable[[Comparison], str | Cell],
        brief: str = "",
        where: Where = Where.ALL,
    ) -> TableColumn:
        return TableColumn(name, [cell(c) for c in cs], brief=brief, where=where)

    def spread(c: Comparison) -> str:
        return text.NONE if c.measured_spread is None else f"± {text.percent(c.measured_spread)}"

    def payload(c: Comparison) -> str | Cell:
        return Cell("bytes differ", "fault") if c.faults else text.size(c.measured_bytes)

    columns = [
        TableColumn("strategy", [c.label for c in cs], words=True),
        column("predicted examples/s", lambda c: exact(round(c.predicted_eps)), "predicted/s"),
        column("90 % interval", lambda c: text.between(c.predicted_interval)),
        column("measured examples/s", lambda c: exact(round(c.measured_eps)), "measured/s"),
        column("signed error", lambda c: text.percent(c.signed_error, signed=True), "error"),
        column("spread", spread),
        column("verdict", _verdict, where=Where.PAGE),
        *([column("status", lambda c: c.diverged or text.NONE)] if any_diverged(cs) else ()),
        column("repeats", lambda c: str(len(c.all_real)), where=Where.PAGE),
        column("predicted bytes/step", lambda c: exact(c.predicted_bytes), "bytes predicted",
               Where.SHORT),
        column("measured bytes/step", lambda c: exact(c.measured_bytes), "bytes measured",
               Where.SHORT),
        column("payload per step", payload, where=Where.PAGE),
        *_quality(cs),
    ]  # fmt: skip
    faults = {n: "fault" for n, c in enumerate(cs) if c.faults}
    return TextTable(columns, marks=faults, order=AS_GIVEN)


def _quality(cs: Sequence[Comparison]) -> Sequence[TableColumn]:
    """Held-out figures of the measurements, where there are any."""
    found = [c.real.summary for c in cs]
    figures = {
        "AUC": [text.number(summary.auc, 4) for summary in found],
        "NE": [text.number(summary.normalized_entropy, 4) for summary in found],
    }
    return TextTable.filled(figures).columns


def any_diverged(cs: Sequence[Comparison]) -> bool:
    """Whether a measured model of these did."""
    return any(c.diverged is not None for c in cs)


def _verdict(c: Comparison) -> Cell:
    if c.diverged is not None:
        return Cell("diverged", "chip off")
    if c.verdict == "within the noise":
        once = " of one run" if len(c.all_real) == 1 else ""
        return Cell(f"{c.verdict}{once}", "chip good")
    return Cell(c.verdict, "chip off" if c.unexplained else "chip good")


def background(findings: Findings) -> list[Item]:
    """Rounds of background loops, where there are any."""
    known = [(c.label, c.rounds) for c in findings.comparisons if c.rounds is not None]
    if not known:
        return []
    percent = text.percent
    rows = [
        (label, f"{r.predicted:,.1f}", f"{r.measured:,.1f}", percent(r.signed_error, signed=True))
        for label, r in known
    ]
    heads = ("strategy", "sync rounds/s predicted", "measured", "signed error")
    errors, where, said = findings.rounds_errors, Where.MARKDOWN, []
    if errors:  # none where every measured model diverged
        said = [
            f"Synchronisation in the background: median absolute error of the rounds "
            f"{percent(median(errors))}, largest {percent(max(errors))}."
        ]
    return [TextTable.of(heads, rows, where=where), Lines(said, where, listed=False)]


def parts(why: Gap) -> TextTable:
    """Every part of the iteration in both worlds."""

    def times(p: GapPart) -> list[str]:
        apart = f"{'+' if p.difference >= 0 else '−'}{text.seconds(abs(p.difference))}"
        return [text.seconds(p.predicted), text.seconds(p.measured), apart]

    heads = ("part", "predicted", "measured", "measured − predicted", "share of the gap")
    rows: list[Sequence[str | Cell]] = [
        (Cell(name_of(p.name), swatch=colour(p.name.partition(" ")[0])), *times(p),
         text.percent(p.share))
        for p in why.parts
    ]  # fmt: skip
    whole = (why.whole.name, *times(why.whole), "")
    return TextTable.of(heads, rows, foot=whole, folded="Every part of the iteration")


def sent(c: Comparison) -> Item:
    """Payload bytes of each effect in both worlds."""
    if not c.payload:
        said = "Nothing was sent: every shard lives in the process that uses it."
        return Lines([said], listed=False)
    exact = text.exact
    rows: list[Sequence[str | Cell]] = [
        (Cell(naming.effect(b.effect), swatch=colour(b.effect)), exact(b.predicted),
         exact(b.measured), _agreement(b))
        for b in c.payload
    ]  # fmt: skip
    return TextTable.of(
        ("request", "predicted", "measured", "verdict"),
        rows,
        ("verdict",),
        marks={number: "fault" for number, b in enumerate(c.payload) if b.fault},
        foot=("all", exact(c.predicted_bytes), exact(c.measured_bytes), ""),
    )


def _agreement(b: EffectBytes) -> Cell:
    if b.agree:
        return Cell("equal", "good")
    apart = text.percent(b.difference, signed=True)
    if b.fault:
        return Cell(f"differ ({apart}){b.beyond}" if b.difference is not None else "differ")
    return Cell(f"{apart} ({', '.join(filter(None, [b.excuse, b.allowance]))})")


def synchronisation(c: Comparison) -> list[Item]:
    """How far apart synchronisations are, where either world has synchronised twice."""
    both = [r.summary.synchronisation for r in (c.simulated, c.real)]
    if not any(figures.sync_gap for figures in both):
        return []
    rows = [
        ("sync gap, iterations of a trainer", *(text.spread(f.sync_gap) for f in both)),
        ("sync gap, mean per thread", *(text.number(f.sync_gap_per_thread, 2) for f in both)),
        ("staleness, iterations of others", *(text.spread(f.staleness) for f in both)),
        ("example-level parallelism", *(text.exact(f.elp) for f in both)),
    ]
    if c.rounds:
        error = text.percent(c.rounds.signed_error, signed=True)
        name = f"sync rounds per second of a background loop (error {error})"
        times = text.number(c.rounds.predicted, 1), text.number(c.rounds.measured, 1)
        rows.insert(2, (name, *times))
    return [TextTable.of(("figure", "predicted", "measured"), rows)]


def learning(cs: Sequence[Comparison]) -> TextTable:
    """Losses and held-out figures of the measurements."""
    figures = {
        "training loss, first tenth": "train_loss_first",
        "training loss, last tenth": "train_loss_last",
        "held-out loss": "loss",
        "AUC": "auc",
        "normalised entropy": "normalized_entropy",
    }
    rows = [
        (
            c.label,
            *(text.number(getattr(c.real.summary, key), 4) for key in figures.values()),
            c.diverged or text.NONE,
        )
        for c in cs
    ]
    table = TextTable.of(("strategy", *figures, "status"), rows, ("strategy", "status"))
    return table if any_diverged(cs) else TextTable(table.columns[:-1])


_WORTH_A_ROW = 0.02
"""Share of all CPU time that a line needs for a row on the terminal."""


def cpu(c: Comparison) -> list[Item]:
    """Where the CPU time of an example goes; nothing where a world has no ledger."""
    predicted, measured = (r.summary.cpu_per_example for r in (c.simulated, c.real))
    if predicted is None or measured is None:
        return []
    return [
        Lines(stopped(sentences(c)), title=f"Where CPU time goes: {c.label}"),
        _table(predicted, measured, _WORTH_A_ROW, Where.TERMINAL),
        _table(predicted, measured, 0.0, Where.WRITTEN),
    ]


def sentences(c: Comparison) -> list[str]:
    """Both factors, and who kept the machine busy; without full stops."""
    ledgers = c.simulated.facts.ledger, c.real.facts.ledger
    lines = [record.summary.cpu_per_example for record in (c.simulated, c.real)]
    if lines[0] is None or lines[1] is None or ledgers[0] is None or ledgers[1] is None:
        return []
    whole = sum(lines[0].values()), sum(lines[1].values())
    cores = ledgers[0].cores_busy, ledgers[1].cores_busy
    slower, idler = whole[1] / whole[0], cores[0] / cores[1]
    said = [
        f"An example takes {text.seconds(whole[0])} of CPU time predicted, "
        f"{text.seconds(whole[1])} measured; {cores[0]:.2f} cores are busy predicted, "
        f"{cores[1]:.2f} measured",
        f"Predicted throughput / measured = {slower * idler:.2f} = {slower:.2f} (CPU time per "
        f"example, measured / predicted) x {idler:.2f} (cores busy, predicted / measured)",
    ]
    if (use := ledgers[1].machine) is not None:
        said.append(
            f"Of the machine's {counted_cores(use.cores)} the run kept {use.own:.2f} busy, other "
            f"programs {use.others:.2f}, and {use.steal:.2f} were taken by the machine's own host"
        )
    return said


def _table(
    predicted: dict[tuple[str, str], float],
    measured: dict[tuple[str, str], float],
    least: float,
    where: Where,
) -> TextTable:
    """By role and what, most measured first; rows of a smaller share than ``least`` left out."""
    sums = sum(predicted.values()), sum(measured.values())

    def row(role: str, what: str, p: float, m: float) -> tuple[str, ...]:
        ratio = text.number(p / m, 2) if p and m else text.NONE
        times = (text.number(seconds * 1e6, 2) for seconds in (p, m))
        return naming.work(what), role.replace("_", " "), *times, ratio

    keys = sorted(predicted.keys() | measured.keys(), key=lambda k: -measured.get(k, 0.0))
    pairs = [(key, predicted.get(key, 0.0), measured.get(key, 0.0)) for key in keys]
    shown = [row(*key, p, m) for key, p, m in pairs if max(p / sums[0], m / sums[1]) >= least]
    heads = ("CPU time per example", "role", "predicted µs", "measured µs", "ratio")
    return TextTable.of(
        heads, shown, heads[:2], where=where, foot=("all", *row("", "all", *sums)[1:])
    )
