"""The report of predictions beside measurements, and of either alone, as a document.

The cards at the top of its page come first: throughput with its interval, what binds and what to do
about it, memory, and the error where there is a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from recsim_train.report import anatomy, elsewhere, naming, text, what_if
from recsim_train.report import document as doc
from recsim_train.report.caveats import doubts_of
from recsim_train.report.compare import Comparison
from recsim_train.report.comparison_tables import (
    AS_GIVEN,
    background,
    cpu,
    learning,
    parts,
    sent,
    synchronisation,
    throughputs,
)
from recsim_train.report.document import Cell, Tile, Where, stopped
from recsim_train.report.findings import NO_PAIR, Findings, alone, doubts, headlines
from recsim_train.report.machine import environments, since_calibration
from recsim_train.report.runs import data_of, fullest, labels, limits, run_table
from recsim_train.report.strategies import cut_said
from recsim_train.report.what_if import remedy
from recsim_train.report.winner import choose, entry_of_run
from recsim_train.results.row import Interval, of_summary
from recsim_train.results.rundir import RunRecord

_UNKNOWN = "its spread is not known"


def tiles_of(findings: Findings, alone: Sequence[RunRecord]) -> list[Tile]:
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
    if (memory := fullest(record)) is not None:
        where, filled, there = memory
        said = f"{text.percent(filled / there)} of {text.size(there)}; {where}"
        found.append(Tile("memory", Cell(text.size(filled)), said))
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


_PAGE = Where.PAGE
_REPEATING = (
    "In the folder that the experiment’s files are in. The commands write to a folder of their "
    "own: no run of this report is used again or overwritten. Where one of them measures the "
    "machine, its prices are those of today.",
    "Every run directory’s manifest.json holds all settings as they were used, defaults included.",
    "The same figures as numbers: summary.json, beside this page.",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """What a report is composed of."""

    findings: Findings
    pictures: Mapping[str, doc.Picture] = field(default_factory=dict)
    """By name; those of one comparison end in "-" and its number from 1."""
    traces: Mapping[int, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    """File name and what it leaves out, by the same number."""
    commands: Sequence[str] = ()
    """How to make all of it anew."""

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """Predictions that a measurement stands beside."""
        return self.findings.comparisons

    def document(self) -> doc.Document:
        """The report."""
        both = bool(self.comparisons)
        said = headlines(self.findings)
        others = elsewhere.section(self.findings.elsewhere, self.findings.unmatched)
        records = [c.simulated for c in self.comparisons]
        records += [u.record for u in self.findings.unpaired]
        names = [str(record.manifest.get("experiment")) for record in records]
        worlds = {record.world for record in alone(self.findings)}
        against = both or self.findings.elsewhere or not worlds or len(worlds) > 1
        single = "measurements" if worlds == {"real"} else "predictions"
        heading = "Predicted against measured" if against else single.capitalize()
        return doc.Document(
            subject=", ".join(dict.fromkeys(names)),
            kind="predicted against measured" if both else single,
            heading=heading,
            headlines=said or [NO_PAIR],
            tiles=tiles_of(self.findings, alone(self.findings)),
            items=[
                self._alarm(Where.WRITTEN, "bytes per counted step"),
                self._caution("Before you trust these figures", _PAGE),
                *(self._comparing() if both else ()),
                *([others] if self.findings.elsewhere or self.findings.unmatched else ()),
                doc.Lines(self._data(), Where.SHORT, "Data", "data"),
                self._caution("Caveats", Where.SHORT),
                *([self._without(*self._told())] if both else self._alone()),
                *(self._details() if both else ()),
                *self._surroundings(),
            ],
            words=self._words(),
            footer="" if "real" in worlds or against else ". Nothing here was measured.",
        )

    def _drawn(self, *names: str, after: object = "") -> list[doc.Picture]:
        """The figures of these names, or of one part by what their names end in, that there are."""
        ended = [f"{name}-{after}" if after else name for name in names]
        return [self.pictures[name] for name in ended if name in self.pictures]

    def _alarm(self, where: Where, unit: str) -> doc.Lines:
        said = [
            f"{c.label}, {naming.effect(b.effect)}: {text.exact(b.predicted)} {unit} predicted, "
            f"{text.exact(b.measured)} measured{b.beyond}."
            for c in self.comparisons
            for b in c.faults
        ]
        title = (
            "Payload bytes disagree. Both worlds must send the same bytes; until they do, do not "
            "trust this prediction"
        )
        return doc.Lines(said, where, title, "payload bytes disagree", "fault")

    def _caution(self, title: str, where: Where) -> doc.Lines:
        found, many = doubts(self.findings), len(self.comparisons)
        if where is _PAGE and not self.comparisons:
            found, many = self._own_doubts(found), len(self.findings.unpaired)
        many = many if where is _PAGE else 0
        said = [
            f"{warning} ({'; '.join(named)})" if len(named) < many else warning
            for warning, named in found
        ]
        return doc.Lines(said, where, title, "caveat", "off")

    def _own_doubts(self, found: Sequence[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
        """With what must be known of runs that nothing stands beside."""
        said = dict(found)
        records = [u.record for u in self.findings.unpaired]
        for record, label in zip(records, labels(records), strict=True):
            for sentence in doubts_of(record):
                said.setdefault(sentence, []).append(label)
        return list(said.items())

    def _comparing(self) -> list[doc.Item]:
        cs, found = self.comparisons, self.findings
        table = throughputs(cs)
        totals = [
            f"Median absolute error {text.percent(found.median_abs_error)}, "
            f"largest {text.percent(max(found.absolute_errors, default=None))}, "
            f"rank agreement {text.number(found.rank_agreement, 2)}.",
            "Errors larger than the intervals of both explain: "
            f"{found.unexplained} of {len(found.sound)}.",
        ]
        speed = doc.Lines(since_calibration([p for c in cs for p in c.pairs]), listed=False)
        short = [
            table,
            speed,
            self._alarm(Where.TERMINAL, "per step"),
            doc.Lines(totals, Where.MARKDOWN, listed=False),
            *background(self.findings),
            *(replace(p, where=Where.MARKDOWN) for p in self._drawn("throughput")),
        ]
        why = [[doc.Lines(c.why.sentences), parts(c.why)] if c.why else [] for c in cs]
        bounding = [
            self._limits(c.simulated, number, *c.net, *c.compression)
            for number, c in enumerate(cs, start=1)
        ]
        return [
            doc.Chapter("", short, Where.SHORT),
            *(doc.Chapter("", _short(c), Where.SHORT) for c in cs),
            *(doc.Chapter("", cpu(c), Where.SHORT) for c in cs),
            self._topic("throughput", "Predicted against measured", [], table, speed,
                        *self._drawn("throughput")),
            self._topic("why", "Where the time goes, and why the prediction differs", why,
                        *self._drawn("breakdown")),
            self._topic("limits", "What limits it", bounding),
            self._topic("learning", "Did it learn?", [], learning(cs), *self._drawn("loss")),
        ]  # fmt: skip

    def _details(self) -> list[doc.Item]:
        """What the page opens on demand."""
        cs = self.comparisons
        found = [
            self._topic("cpu", "CPU time per example", [cpu(c) for c in cs]),
            self._topic("timeline", "Timeline", [self._timeline(n + 1) for n in range(len(cs))]),
            self._topic("bytes", "Payload bytes per counted step", [[sent(c)] for c in cs]),
            self._topic("synchronisation", "How far apart synchronisations are",
                        [synchronisation(c) for c in cs]),
        ]  # fmt: skip
        return [replace(chapter, folded=True) for chapter in found]

    def _topic(
        self, name: str, title: str, each: Sequence[Sequence[doc.Item]], *first: doc.Item
    ) -> doc.Chapter:
        """A section of the page, with a part for each comparison."""
        labels = [c.label if len(each) > 1 else "" for c in self.comparisons]
        return doc.Chapter(title, [*first, *map(doc.Chapter, labels, each)], _PAGE, name)

    def _limits(self, record: RunRecord, number: object, *more: str) -> list[doc.Item]:
        """What binds a prediction, what nothing can beat, and what would change it."""
        summary = record.summary
        binds, bound = naming.bottleneck(summary.binding), summary.bound_eps
        said = [f"What binds the prediction: {naming.phrase(binds)}"] if binds else []
        if bound and not anatomy.bounds(summary):
            said.append(f"On this profile it could never exceed {text.rate(bound)} examples/s")
        said = stopped([*said, *limits(summary), *more])
        busy = self._drawn("utilisation", "over-time", after=number)
        return [
            doc.Lines(said, _PAGE),
            *self._drawn("critical-path", "bounds", "what-if", after=number),
            doc.Chapter("How busy everything was", busy, _PAGE, folded=True),
        ]

    def _timeline(self, number: int) -> list[doc.Item]:
        drawn = self._drawn("net", "timeline", after=number)
        if number not in self.traces:
            return [*drawn]
        file, left_out = self.traces[number]
        notes = [f"{world.capitalize()}: {said}." for world, said in left_out.items()]
        return [*drawn, doc.Timeline(file, notes)]

    def _alone(self) -> list[doc.Item]:
        """Runs of which none has a partner: a table, and what their own world says of each."""
        records = alone(self.findings)
        worlds = {record.world for record in records}
        title = "Runs"
        if len(worlds) == 1:
            title = "Predictions" if "simulated" in worlds else "Measurements"
        first = "predictions first, " if len(worlds) > 1 else ""
        shown = [replace(run_table(records, f"{first}{AS_GIVEN}"), where=Where.TERMINAL | _PAGE)]
        return [
            doc.Chapter(
                title, [*shown, *self._drawn("throughput")], Where.TERMINAL | _PAGE, "runs"
            ),
            doc.Chapter("What limits it", list(self._told()), name="limits"),
            self._without(),
        ]  # fmt: skip

    def _told(self) -> Iterator[doc.Chapter]:
        """What runs without a partner say of themselves."""
        unpaired = self.findings.unpaired
        names = labels([u.record for u in unpaired])
        for number, u in enumerate(unpaired, start=1):
            cut = cut_said(u.record)
            title = names[number - 1] if len(unpaired) > 1 else ""
            said, *drawn = self._limits(u.record, f"alone-{number}", *cut)
            where = Where.MARKDOWN if self.comparisons else Where.SHORT
            brief = doc.Lines(stopped([*limits(u.record.summary), *cut]), where)
            above = Where.WRITTEN if self.comparisons else Where.MARKDOWN  # else in the page's box
            noted = doc.Lines(doubts_of(u.record), above, mark="note", listed=False)
            yield doc.Chapter(title, [said, brief, noted, *drawn])

    def _without(self, *told: doc.Item) -> doc.Chapter:
        """Why runs have no partner. ``told``: what else is said of them."""
        runs = [(u.record, u.reason) for u in self.findings.unpaired]
        rows = [
            (r.run_id, r.world, text.rate(r.summary.examples_per_second), why) for r, why in runs
        ]
        reasons = [f"{record.run_id}: {why}" for record, why in runs]
        heads, words = ("run", "world", "examples/s", "why"), ("run", "world", "why")
        note = [] if self.comparisons or self.findings.elsewhere else stopped([NO_PAIR])
        items: list[doc.Item] = [
            doc.Lines(note, Where.WRITTEN, mark="note", listed=False),
            doc.TextTable.of(heads, rows, words, where=_PAGE),
            doc.Lines(reasons, Where.TERMINAL, lead="unpaired"),
            doc.Lines(reasons, Where.MARKDOWN),
            *told,
        ]
        return doc.Chapter("Runs without a partner", items, name="unpaired", folded=True)

    def _data(self) -> list[str]:
        paired = chain.from_iterable((*c.all_simulated, *c.all_real) for c in self.comparisons)
        records = [*paired, *(u.record for u in self.findings.unpaired)]
        return data_of(record.manifest["configuration"] for record in records)

    def _words(self) -> dict[str, str]:
        records = [r for c in self.comparisons for r in (c.simulated, c.real)]
        records += alone(self.findings)
        return naming.glossary({effect for r in records for effect in r.summary.time_by_effect})

    def _surroundings(self) -> list[doc.Item]:
        paired = [r for c in self.comparisons for r in (*c.all_simulated, *c.all_real)]
        commands = doc.Lines(self.commands, mark="code")
        note = doc.Lines(_REPEATING, mark="note", listed=False)
        cards = doc.Cards(environments([*paired, *alone(self.findings)]))
        data = doc.Lines(self._data(), title="Data")
        return [
            doc.Chapter("Environment", [data, cards], _PAGE, "environment", folded=True),
            doc.Chapter("How to reproduce", [commands, note], _PAGE, "reproduce", folded=True),
        ]


def _short(c: Comparison) -> list[doc.Lines]:
    """What there is to say of one comparison, for those who show no figures."""
    summary, label = c.simulated.summary, c.label
    looped = [c.rounds.sentence] if c.rounds else []
    said = (
        ("What if", what_if.sentences(summary)), ("Cuts", c.net), ("Compression", c.compression),
    )  # fmt: skip
    return [
        doc.Lines(c.why.sentences if c.why else (), title=f"Why: {label}"),
        doc.Lines(stopped(anatomy.sentences(summary)), Where.MARKDOWN, f"Bounds: {label}"),
        doc.Lines(stopped(looped), Where.TERMINAL, lead=label),
        *(doc.Lines(stopped(s), title=f"{title}: {label}", lead=label) for title, s in said),
    ]
