"""The swept settings of a sweep, as axes of figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_train.config.units import DURATIONS, RATES, SHARES, SIZES, parse_quantity


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


def axis_of(key: str, values: Iterable[Any], keys: Sequence[str]) -> Axis:
    """The axis of one swept setting; ``keys``: of all, among which its label must be unique."""
    last = key.rsplit(".", 1)[-1]
    unique = sum(k.rsplit(".", 1)[-1] == last for k in keys) == 1
    label = (last if unique else key).replace("_", " ")
    made, numbers, unit = tuple(values), None, ""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in made):
        numbers = tuple(map(float, made))
    elif all(isinstance(v, str) for v in made):
        numbers, unit = _quantities(made)
    if numbers is not None:
        order = sorted(range(len(made)), key=numbers.__getitem__)
        made, numbers = tuple(made[i] for i in order), tuple(numbers[i] for i in order)
    return Axis(key, label, made, numbers, unit)


def _quantities(values: Sequence[str]) -> tuple[tuple[float, ...] | None, str]:
    """Numbers in the unit of the first value; None where they are no quantities of one kind."""
    for units in (RATES, SIZES, DURATIONS, SHARES):
        try:
            numbers = [parse_quantity(v, units, "", "") for v in values]
        except ValueError:
            continue
        unit = values[0].split()[-1]
        if unit not in units:
            return None, ""
        return tuple(n / units[unit] for n in numbers), unit
    return None, ""
