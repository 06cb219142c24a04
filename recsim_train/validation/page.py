"""The report of a validation: gates, errors, baselines, every configuration; and its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from recsim_train.config.experiment import Validation
from recsim_train.report import document as doc
from recsim_train.report import text
from recsim_train.report.document import Where
from recsim_train.report.machine import speed_sentence
from recsim_train.report.naming import glossary
from recsim_train.report.publish import publish
from recsim_train.report.what_if import made_of
from recsim_train.results.drift import MOVED
from recsim_train.results.folder import clean_document, csv_bytes, json_bytes, put, writing
from recsim_train.results.row import FAILED
from recsim_train.signals import held
from recsim_train.validation import folder as results
from recsim_train.validation.configurations import row_document
from recsim_train.validation.fidelity import (
    Errors,
    Fidelity,
    document,
    fidelity,
)
from recsim_train.validation.figures import draw
from recsim_train.validation.gates import Gate, judge, sound
from recsim_train.validation.tables import (
    baseline_table,
    cpu_sections,
    errors_table,
    gate_table,
    row_table,
)

_PAGE, _WRITTEN = Where.PAGE, Where.WRITTEN
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Validated:
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
    def document(self) -> dict[str, Any]:
        """The result file: predictions, runs, figures and gates, which needs no other file."""
        predictions, runs = self.folder.predictions, self.folder.runs
        return clean_document(
            {
                **predictions,
                "predictions_sha256": self.folder.sha256,
                "complete": self.complete,
                "rows": [row_document(row) for row in self.fidelity.rows],
                "summary": document(self.fidelity),
                "interval_made_of": intervals_made_of(self),
                "gates": [gate.document() for gate in self.gates],
                "runs": sorted(runs.values(), key=lambda run: str(run["started"])),
            }
        )

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

    @property
    def report(self) -> doc.Document:
        """In words and tables."""
        return composed(self, {})


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
    made = Validated(folder, wanted, found, tuple(gates))
    lines = [row_document(row) for row in found.rows]
    with writing(folder.path), held():
        put(folder.path / results.RESULT, json_bytes(made.document, indent=1))
        put(folder.path / results.TABLE, csv_bytes(list(lines[0]), lines))
    pictures = draw(found)
    publish(folder.path, composed(made, pictures), pictures, "validation.md")
    return made


def composed(made: Validated, pictures: dict[str, doc.Picture]) -> doc.Document:
    """The report. ``pictures``: as `recsim_train.validation.figures.draw` names them."""
    found, predictions = made.fidelity, made.folder.predictions
    fault = [f"{gate.sentence}." for gate in made.failed]
    drawn = [replace(picture, where=_WRITTEN) for picture in pictures.values()]
    raw = found.raw
    return doc.Document(
        subject=str(predictions["name"]),
        kind="a validation",
        heading=f"Validation: {predictions['name']}",
        headlines=[headline(made)],
        tiles=[
            *(_error_tiles(found, raw) if raw else ()),
            doc.Tile(
                "pairs in the right order",
                doc.Cell(text.percent(found.order.share)),
                f"{found.order.right:,} of {found.order.pairs:,} that differ by more than noise",
            ),
            _gates_tile(made),
        ],
        items=[
            doc.Lines(fault, _PAGE, "Gates that do not hold", mark="fault"),
            doc.Lines(list(notes(made)), _WRITTEN, "Before you trust these figures", mark="off"),
            doc.Chapter("Gates", [gate_table(made.gates)], name="gates"),
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
    raw = found.raw
    if raw is None:
        return f"{made.folder.predictions['name']}: nothing is measured yet"
    return (
        f"{made.folder.predictions['name']}: median absolute raw error {text.percent(raw.median)}, "
        f"nine in ten within {text.percent(raw.p90)}, over {raw.count:,} runs of "
        f"{len(found.measured)} of {len(found.rows)} configurations; {_gates_said(made)}"
    )


def _gates_said(made: Validated) -> str:
    if not made.gates:
        return "no gate is set"
    failed = len(made.failed)
    return f"{failed} of {len(made.gates)} gates do not hold" if failed else "all gates hold"


def _error_tiles(found: Fidelity, raw: Errors) -> list[doc.Tile]:
    where = f"{raw.count:,} runs of {len(found.measured):,} of {len(found.rows):,} configurations"
    return [
        doc.Tile("median raw error", doc.Cell(text.percent(raw.median)), where),
        doc.Tile(
            "nine in ten within", doc.Cell(text.percent(raw.p90)),
            f"the largest is {text.percent(raw.largest)}",
        ),
    ]  # fmt: skip


def _gates_tile(made: Validated) -> doc.Tile:
    held_ones = len(made.gates) - len(made.failed)
    mark = "fault" if made.failed else "good"
    figure = doc.Cell(f"{held_ones} of {len(made.gates)}", mark)
    return doc.Tile("gates that hold", figure, "limits that were set before the first run")


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
