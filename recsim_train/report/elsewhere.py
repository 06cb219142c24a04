"""Measurements that were made elsewhere, by another trainer or on a real cluster: read from a CSV
file (`report --measured FILE.csv`) and put beside predictions."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from recsim_train.config.errors import UserError
from recsim_train.config.problems import Mark, Marks, Mistakes
from recsim_train.config.units import Positive, Section, Share
from recsim_train.config.validate import check
from recsim_train.report import text
from recsim_train.report.document import Chapter, Lines, TableColumn, TextTable, Where
from recsim_train.report.runs import labels
from recsim_train.results.folder import clean_document
from recsim_train.results.row import of_summary
from recsim_train.results.rundir import RunRecord


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """One measurement from elsewhere with a prediction of the same configuration."""

    line: MeasuredLine
    label: str
    """Of the prediction."""
    simulated: RunRecord

    @property
    def predicted_eps(self) -> float:
        """Examples per second."""
        eps = self.simulated.summary.examples_per_second
        assert eps is not None  # `beside` leaves the others out
        return eps

    @property
    def signed_error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_eps / self.line.examples_per_second - 1

    @property
    def headline(self) -> str:
        """The finding in one sentence, without a full stop."""
        spread = f" ± {text.percent(self.line.spread)}" if self.line.spread else ""
        return (
            f"{self.label}: predicted {text.rate(self.predicted_eps)} examples/s, measured "
            f"elsewhere {text.rate(self.line.examples_per_second)}{spread}: "
            f"{text.percent(self.signed_error, signed=True)}"
        )

    def document(self) -> dict[str, Any]:
        """The entry of ``measured_elsewhere`` in the report's JSON."""
        return clean_document(
            {
                "where": self.line.where,
                "key": self.simulated.manifest["comparison_key"],
                "label": self.label,
                "cluster": (self.simulated.manifest.get("cluster") or {}).get("name"),
                "predicted_eps": self.predicted_eps,
                "predicted_interval": of_summary(self.simulated.summary),
                "measured_eps": self.line.examples_per_second,
                "measured_spread": self.line.spread,
                "signed_error": self.signed_error,
                "simulated_run": self.simulated.run_id,
            }
        )


def beside(
    lines: Sequence[MeasuredLine], records: Sequence[RunRecord]
) -> tuple[list[Elsewhere], list[str]]:
    """Each line with the predictions of its configuration, one for each profile; and a sentence for
    each line that has none, or may mean several."""
    predictions: dict[tuple[str, str], RunRecord] = {}
    for record in records:
        if record.world == "simulated" and record.summary.examples_per_second:
            profile = json.dumps(record.manifest.get("cluster"), sort_keys=True)
            predictions.setdefault((record.manifest["comparison_key"], profile), record)
    chosen = list(predictions.values())
    named = list(zip(labels(chosen), chosen, strict=True))
    pairs, unmatched = [], []
    for line in lines:
        fitting = [(label, record) for label, record in named if _fits(line, label, record)]
        keys = list(dict.fromkeys(record.manifest["comparison_key"] for _, record in fitting))
        if len(keys) == 1:
            pairs += [Elsewhere(line, label, record) for label, record in fitting]
        elif keys:
            several = ", ".join(f"{r.manifest['comparison_key']} ({label})" for label, r in fitting)
            unmatched.append(
                f"{line.title}: {len(keys)} predictions are of such settings; name one by its key: "
                f"{several}."
            )
        else:
            unmatched.append(f"{line.title}: no prediction of these settings was given.")
    return pairs, unmatched


def _fits(line: MeasuredLine, label: str, record: RunRecord) -> bool:
    summary = record.summary
    counts: Mapping[str, int] = {
        "trainers": summary.trainers,
        "threads": summary.computing_threads,
        "batch": summary.batch_size,
    }
    return (
        line.key in (None, record.manifest["comparison_key"])
        and line.strategy in (None, record.strategy, label)
        and all(counts[name] == value for name, value in line.counts.items())
    )


def section(pairs: Sequence[Elsewhere], unmatched: Sequence[str]) -> Chapter:
    """The table, and lines of the file that are in no row of it."""
    columns = {
        "configuration": [pair.label for pair in pairs],
        "predicted examples/s": [
            text.predicted(pair.predicted_eps, of_summary(pair.simulated.summary)) for pair in pairs
        ],
        "measured": [text.rate(pair.line.examples_per_second) for pair in pairs],
        "spread": [
            text.NONE if p.line.spread is None else f"± {text.percent(p.line.spread)}"
            for p in pairs
        ],
        "signed error": [text.percent(pair.signed_error, signed=True) for pair in pairs],
        "from": [pair.line.where for pair in pairs],
    }
    words = ("configuration", "from")
    table = TextTable([TableColumn(name, cells, name in words) for name, cells in columns.items()])
    title = "Measurements without a prediction"
    left = Lines(unmatched, Where.ALL, title, "unmatched", "off")
    return Chapter("Measured elsewhere", [table, left], name="elsewhere")


class MeasuredLine(Section):
    """One line of the file. What it leaves empty matches every prediction."""

    where: str
    """File and line."""
    key: str | None = None
    """Of the experiment and strategy, as reports and run directories have it."""
    strategy: str | None = None
    """Its kind, or a prediction's whole label."""
    trainers: Positive = 0
    """0, as of the next two: it is not given."""
    threads: Positive = 0
    """Of each trainer."""
    batch: Positive = 0
    """Of one thread and step."""
    examples_per_second: Annotated[float, Field(gt=0.0)]
    """What was measured."""
    spread: Share | None = None
    """Half the range of repeats, relative to the measurement."""

    @property
    def counts(self) -> dict[str, int]:
        """By name, as far as they are given."""
        return {name: given for name in COUNTS if (given := getattr(self, name))}

    @property
    def title(self) -> str:
        """Place and what it says of itself."""
        named = [name for name in (self.strategy, self.key) if name]
        return (
            f"{self.where} ({', '.join([*named, *(f'{k} {v}' for k, v in self.counts.items())])})"
        )


SPEED, NAMES, COUNTS = "examples_per_second", ("key", "strategy"), ("trainers", "threads", "batch")
COLUMNS = (*NAMES, *COUNTS, SPEED, "spread")


def read_measured(path: Path) -> list[MeasuredLine]:
    """The lines of a file. Raises UserError with every bad cell: file, line, column, what was
    expected."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            lines = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is no CSV file in UTF-8: {error}") from None
    if len(lines) < 2:
        raise UserError(
            f"{path}: expected a line with names of columns and one for each measurement"
        )
    (number, head), *body = lines
    names = [name.strip() for name in head]
    problems = list(dict.fromkeys(_head_problems(f"{path}, line {number}", names)))
    found = []
    for number, cells in body if not problems else ():
        where = f"{path}, line {number}"
        if len(cells) != len(names):
            problems.append(f"{where}: expected {len(names)} cells, got {len(cells)}")
            continue
        texts = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
        given = {name: _value(name, cell) for name, cell in texts.items() if cell}
        mistakes = Mistakes(Marks({(): Mark(where)}), where)
        if not set(NAMES) & given.keys():
            mistakes.add((), "expected a key or a strategy, got neither")
        line = check(MeasuredLine, {"where": where, **given}, mistakes)
        problems += map(str, mistakes.problems)
        found += [line] if line else []
    if problems:
        raise UserError("\n".join(problems))
    return found


def _head_problems(where: str, names: list[str]) -> Iterator[str]:
    for name in names:
        if name not in COLUMNS:
            known = ", ".join(COLUMNS)
            yield f"{where}, column {name!r}: unknown; the columns are {known}"
        elif names.count(name) > 1:
            yield f"{where}, column {name}: named twice"
    if SPEED not in names:
        yield f"{where}: there is no column {SPEED}"
    if not set(NAMES) & set(names):
        yield f"{where}: expected a column key or strategy, which names the prediction"


def _value(column: str, cell: str) -> str | float:
    """Numbers as such, whole ones where they are whole."""
    if column in (*COUNTS, SPEED):
        with suppress(ValueError):
            value = float(cell)
            return int(value) if value.is_integer() else value
    return cell
