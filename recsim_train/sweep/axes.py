"""The swept settings of a sweep, as axes of figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recsim_train.config.points import accepted
from recsim_train.config.sweep import written
from recsim_train.config.tables import rows_of
from recsim_train.config.units import SHARE
from recsim_train.results.row import Row


@dataclass(frozen=True, slots=True)
class Axis:
    """One swept setting."""

    key: str
    label: str
    """Short name."""
    values: tuple[Any, ...]
    """As written, sorted where they are numbers."""
    numbers: tuple[float, ...] | None
    """The same as numbers; None: they are names."""
    unit: str = ""
    """Of the numbers, where they are quantities."""

    def number(self, value: Any) -> float:
        """A value's place on a numeric axis."""
        assert self.numbers is not None
        return self.numbers[self.values.index(value)]


def settings_of(row: Row, axes: Iterable[Axis]) -> list[str]:
    """Which values a point has, in words."""
    there = ((axis, row.settings.get(axis.key)) for axis in axes)
    return [f"{axis.label} {written(value)}" for axis, value in there if value is not None]


def axis_of(key: str, values: Iterable[Any], keys: Sequence[str]) -> Axis:
    """The axis of one swept setting; ``keys``: of all, among which its label must be unique."""
    last = key.rsplit(".", 1)[-1]
    unique = sum(k.rsplit(".", 1)[-1] == last for k in keys) == 1
    label = (last if unique else key).replace("_", " ")
    made = tuple(values)
    numbers, unit = _numbers(key, made)
    if numbers is not None:
        order = sorted(range(len(made)), key=numbers.__getitem__)
        made, numbers = tuple(made[i] for i in order), tuple(numbers[i] for i in order)
    return Axis(key, label, made, numbers, unit)


def _numbers(key: str, values: Sequence[Any]) -> tuple[tuple[float, ...] | None, str]:
    """Of a setting that takes quantities those in the unit of the first, of one that counts rows
    those in short, too; None where not all are numbers."""
    path = tuple(key.split("."))
    what = accepted((*path, "value")) or accepted(path)  # a price may be written as its value
    quantity = SHARE if path[0] == "strategy" else None if what is None else what.quantity
    if quantity is not None and all(isinstance(value, str) for value in values):
        unit = values[0].lstrip("+-._0123456789eE ").rstrip()
        with suppress(ValueError):
            return tuple(quantity.read(value) / quantity.units[unit] for value in values), unit
        return None, ""
    read = map(rows_of, values) if re.match(r"model\.(.*\.)?(max_)?rows$", key) else values
    numbers = [v for v in read if isinstance(v, int | float) and not isinstance(v, bool)]
    return (tuple(map(float, numbers)) if len(numbers) == len(values) else None), ""
