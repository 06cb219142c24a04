"""Measurements that were made elsewhere, by another trainer or on a real cluster, as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recsim_train.config.errors import UserError
from recsim_train.config.units import SHARES, parse_quantity

SPEED, SPREAD = "examples_per_second", "spread"
NAMES = ("key", "strategy")
COUNTS = ("trainers", "threads", "batch")
COLUMNS = (*NAMES, *COUNTS, SPEED, SPREAD)


@dataclass(frozen=True, slots=True)
class MeasuredLine:
    """One line of the file. What it leaves empty is None, and matches every prediction."""

    where: str
    """File and line."""
    key: str | None
    """Of the experiment and strategy, as reports and run directories have it."""
    strategy: str | None
    """Its kind, or a prediction's whole label."""
    counts: Mapping[str, int]
    """By name, as far as they are given: `COUNTS`."""
    examples_per_second: float
    spread: float | None
    """Half the range of repeats, relative to the measurement."""

    @property
    def title(self) -> str:
        """Place and what it says of itself."""
        named = [text for text in (self.strategy, self.key) if text]
        return (
            f"{self.where} ({', '.join([*named, *(f'{k} {v}' for k, v in self.counts.items())])})"
        )


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
    problems = list(_head_problems(f"{path}, line {number}", names))
    found = []
    for number, cells in body if not problems else ():
        where = f"{path}, line {number}"
        if len(cells) != len(names):
            problems.append(f"{where}: expected {len(names)} cells, got {len(cells)}")
            continue
        texts = {name: text.strip() for name, text in zip(names, cells, strict=True)}
        found.append(_line(where, {k: v for k, v in texts.items() if v}, problems))
    if problems:
        raise UserError("\n".join(problems))
    return found


def _head_problems(where: str, names: list[str]) -> list[str]:
    problems = []
    for name in names:
        if name not in COLUMNS:
            known = ", ".join(COLUMNS)
            problems.append(f"{where}, column {name!r}: unknown; the columns are {known}")
        elif names.count(name) > 1:
            problems.append(f"{where}, column {name}: named twice")
    if SPEED not in names:
        problems.append(f"{where}: there is no column {SPEED}")
    if not set(NAMES) & set(names):
        problems.append(f"{where}: expected a column key or strategy, which names the prediction")
    return list(dict.fromkeys(problems))


def _line(where: str, texts: Mapping[str, str], problems: list[str]) -> MeasuredLine:
    """One line; what is wrong with it goes to the problems."""

    def number(column: str, wanted: str, least: float) -> float | None:
        text = texts.get(column)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value < float("inf"):
            problems.append(f"{where}, column {column}: expected {wanted}, got {text!r}")
            return None
        return value

    if not set(NAMES) & texts.keys():
        problems.append(f"{where}: expected a key or a strategy, got neither")
    counts = {}
    for column in COUNTS:
        value = number(column, "a whole number above 0", 1.0)
        if value is not None and value != int(value):
            said = f"expected a whole number above 0, got {texts[column]!r}"
            problems.append(f"{where}, column {column}: {said}")
        elif value is not None:
            counts[column] = int(value)
    if SPEED not in texts:
        problems.append(f"{where}, column {SPEED}: expected a number above 0, got nothing")
    speed = number(SPEED, "a number above 0", 5e-324)
    spread = None
    if SPREAD in texts:
        try:
            spread = parse_quantity(texts[SPREAD], SHARES, "a share", "3 %")
        except ValueError as error:
            problems.append(f"{where}, column {SPREAD}: {error}")
    key, strategy = texts.get("key"), texts.get("strategy")
    return MeasuredLine(where, key, strategy, counts, speed or 0.0, spread)
