"""Quantities with units, such as "25 Gbit/s", and sections, which have others by dotted keys.

A number without a unit is refused. Bits and bytes, decimal and binary prefixes differ and are
never guessed: Gbit/s, GB/s and GiB/s are three different rates.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from recsim_train.config.problems import shown

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

SIZES = {f"{p}B": f for p, f in {**_DECIMAL, **_BINARY}.items()}
RATES = {f"{p}B/s": f for p, f in {**_DECIMAL, **_BINARY}.items()} | {
    f"{p}bit/s": f / 8 for p, f in {**_DECIMAL, **_BINARY}.items()
}
DURATIONS = {
    "ps": 1e-12,
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
SHARES = {"%": 0.01}

_SPELLINGS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "percent": "%", "byte": "B",
    "bytes": "B", "minutes": "min", "mins": "min", "hours": "h", "pct": "%",
}  # fmt: skip

_NUMBER = r"[+-]?(?:\d(?:_?\d)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(\S*)\s*$")
# of what a price is for; a month is a twelfth of a year, as in price lists
_HOURS = {"h": 1.0, "hour": 1.0, "day": 24.0, "month": 730.0, "year": 8760.0}


def parse_quantity(text: object, units: dict[str, float], what: str, example: str) -> float:
    """Read ``text`` ("25 Gbit/s") as a number in the base unit of ``units``.

    Raises ValueError with one sentence that says what was expected.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"expected {what} such as {example!r}")
    if isinstance(text, int | float):
        raise ValueError(
            f"expected {what} with its unit, such as {example!r}: {text:g} has no unit"
        )
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f"expected {what} such as {example!r}, got {text!r}")
    number, unit = float(match[1].replace("_", "")), match[2]
    if not unit:
        raise ValueError(f"expected {what} with its unit, such as {example!r}: {text!r} has none")
    if unit not in units:
        guess = suggest_unit(unit, units)
        hint = f"did you mean {guess!r}? Known" if guess else "known"
        raise ValueError(f"unknown unit {unit!r} for {what}; {hint}: {', '.join(units)}")
    value = number * units[unit]
    if math.isinf(value):
        raise ValueError(f"expected {what} such as {example!r}: {text!r} is too large")
    if value < 0:
        raise ValueError(f"expected {what} that is not negative, got {text!r}")
    return value


def parse_money(text: object, currency: str) -> float:
    """Read ``text`` ("36k USD/month") as money per hour in ``currency``: nothing is converted.

    Raises ValueError with one sentence that says what was expected.
    """
    unit = rf"{re.escape(currency)}\s*/\s*({'|'.join(_HOURS)})"
    match = re.fullmatch(rf"\s*({_NUMBER})([kMG]?)\s*{unit}\s*", str(text))
    amount, short, time = ("0", "", "h") if match is None else match.groups()
    value = float(amount.replace("_", "")) * _DECIMAL[short] / _HOURS[time]
    if not 0.0 < value < math.inf:
        raise ValueError(
            f"expected an amount above 0 in the profile's currency, with its time, such as '50 "
            f"{currency}/h' or '36k {currency}/month' (730 h); nothing is converted; got {text!r}"
        )
    return value


def suggest_unit(unit: str, units: dict[str, float]) -> str | None:
    """The unit that a wrong one was probably meant to be: "Gbps" is "Gbit/s"."""
    if _SPELLINGS.get(unit.lower()) in units:
        return _SPELLINGS[unit.lower()]
    # "GBps" are bytes, "Gbps" and "Gbitps" are bits
    spelled = re.sub(r"(?i)(bits?|b)ps$", lambda m: "B/s" if m[1] == "B" else "bit/s", unit)
    spelled = re.sub(r"b/s(ec)?$", "bit/s", spelled)
    alike = [name for c in (spelled, unit) for name in units if c.lower() == name.lower()]
    return next(iter(alike or difflib.get_close_matches(unit, units, n=1, cutoff=0.5)), None)


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """Marks a field as a quantity with a unit, for reading, messages, schema and reference."""

    what: str
    """With its article: "a duration"."""
    example: str
    units: dict[str, float]
    """Every unit that is understood, with its factor."""
    written: tuple[str, ...]
    """Units that the tool itself writes."""
    least: str
    most: str
    """0, or from ``least`` to ``most``, both with their unit. What lies beyond is a slip, and its
    products with counts would leave the range of a float."""

    def read(self, value: object) -> float:
        """A value of a configuration in the base unit; ValueError with one sentence."""
        number = parse_quantity(value, self.units, self.what, self.example)
        if 0 < number < parse_quantity(self.least, self.units, "", ""):
            raise ValueError(f"expected {self.what} of at least {self.least}, got {str(value)!r}")
        if number > parse_quantity(self.most, self.units, "", ""):
            raise ValueError(f"expected {self.what} of at most {self.most}, got {str(value)!r}")
        return number

    def read_positive(self, value: object) -> float:
        """As `read`, without 0."""
        number = self.read(value)
        if number == 0:
            raise ValueError(f"expected {self.what} above 0")
        return number

    def json_schema(self) -> dict[str, object]:
        """JSON Schema of the text."""
        names = "|".join(re.escape(unit) for unit in self.units)
        number = r"\+?([0-9](_?[0-9])*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
        return {
            "type": "string",
            "pattern": rf"^\s*{number}\s*({names})\s*$",
            "examples": [self.example],
        }

    def format(self, value: float, digits: int = 6) -> str:
        """Text with the unit that fits best, to ``digits`` significant digits: "13.2 ns"."""
        units = {name: self.units[name] for name in self.written}
        fitting = [name for name, factor in units.items() if value >= factor * (1 - 1e-9)]
        largest = max(fitting, key=units.__getitem__, default=min(units, key=units.__getitem__))
        unit = "s" if value == 0 and "s" in units else largest
        return f"{value / units[unit]:.{digits}g} {unit}"

    def format_exact(self, value: float) -> str:
        """The shortest text that reads back as exactly ``value``, if there is one."""
        text = ""
        for digits in range(3, 18):
            text = self.format(value, digits)
            number, unit = text.split()
            if float(number) * self.units[unit] == value:
                return text
        return f"{value!r} {unit}" if self.units[unit] == 1.0 else text


SIZE = Quantity("a size", "4 MiB", SIZES, ("B", "KiB", "MiB", "GiB", "TiB"), "0 B", "1e24 B")
RATE = Quantity(
    "a data rate",
    "25 Gbit/s",
    RATES,
    ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"),
    "1 bit/s",
    "1e24 bit/s",
)
DURATION = Quantity(
    "a duration", "50 us", DURATIONS, ("ps", "ns", "us", "ms", "s"), "0 s", "1e12 s"
)
SHARE = Quantity("a share", "5 %", SHARES, ("%",), "0 %", "1000 %")

IN_SHORT = "in short: 50k, 1.5M, 2G"
"""How large counts of rows may be written."""


def _whole(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f"expected an integer of at least 1 ({IN_SHORT}), got {shown(value)}")
    return value


Positive = Annotated[int, Field(ge=1)]
Rows = Annotated[Positive, BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=0)]
Size = Annotated[
    float, SIZE, BeforeValidator(SIZE.read_positive), WithJsonSchema(SIZE.json_schema())
]
"""Bytes, above 0."""
AnySize = Annotated[float, SIZE, BeforeValidator(SIZE.read), WithJsonSchema(SIZE.json_schema())]
"""Bytes, or none."""
Rate = Annotated[
    float, RATE, BeforeValidator(RATE.read_positive), WithJsonSchema(RATE.json_schema())
]
"""Bytes per second, above 0."""
Duration = Annotated[
    float, DURATION, BeforeValidator(DURATION.read), WithJsonSchema(DURATION.json_schema())
]
"""Seconds."""
PositiveDuration = Annotated[
    float, DURATION, BeforeValidator(DURATION.read_positive), WithJsonSchema(DURATION.json_schema())
]
"""Seconds, above 0."""
Share = Annotated[float, SHARE, BeforeValidator(SHARE.read), WithJsonSchema(SHARE.json_schema())]
"""A fraction of one, written in per cent."""
_PORTION = replace(SHARE, most="100 %")
Portion = Annotated[
    float, _PORTION, BeforeValidator(_PORTION.read), WithJsonSchema(SHARE.json_schema())
]
"""The same, of something of which there is no more than all."""


def every_of(text: str) -> int | float | None:
    """How often: of "1000 steps" the number, of "10 min" the seconds; of nothing nothing.

    Raises ValueError with one sentence that says what was expected.
    """
    if not text:
        return None
    if match := re.fullmatch(r"\s*(\d(?:_?\d)*)\s*steps?\s*", text):
        if not int(match[1]):
            raise ValueError("expected at least 1 step")
        return int(match[1])
    try:
        return DURATION.read_positive(text)
    except ValueError as error:
        raise ValueError(f"{error}; or a number of steps such as '1000 steps'") from None


def _every(value: object) -> str:
    if not isinstance(value, str) or every_of(value) is None:
        raise ValueError("expected a duration such as '10 min', or a number of steps, '1000 steps'")
    return value


Every = Annotated[str, BeforeValidator(_every)]
"""A duration, or a number of steps, as it was written."""


def _names(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_names),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""A name or a list of names."""


class Section(BaseModel):
    """A mapping of the YAML: unknown keys are errors, values never change after reading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )
    refused: ClassVar[Mapping[str, str]] = {}
    """Keys, or names of choices, that one may expect here, such as those of an earlier version, and
    why there are none."""
    short_forms: ClassVar[tuple[str, ...]] = ()
    """Keys of the YAML beyond the fields, which its short forms have."""

    def with_(self, changes: Mapping[str, Any]) -> Self:
        """The same with other values by dotted keys, as `overridden` takes them."""
        return cast("Self", overridden(self, changes))


EVERY = "*"
"""As a part of a key: each entry of a mapping or list that is there."""


class Times(NamedTuple):
    """As a value of an override, so many times what a setting is, and of one that is not given
    nothing: "twice the network card" is ``{"hosts.*.nic": Times(2)}``."""

    factor: float


def overridden(settings: Any, changes: Mapping[str, Any]) -> Any:
    """Settings with others at these keys, one after the other. Nothing is checked; a key that
    names no field is an error of ours."""
    for key, value in changes.items():
        settings = _changed(settings, key.split("."), value)
    return settings


def _changed(at: Any, path: list[str], value: Any) -> Any:
    if not path:
        relative = isinstance(value, Times) and at is not None
        return at * value.factor if relative else None if isinstance(value, Times) else value
    part, rest = path[0], path[1:]
    if isinstance(at, BaseModel):
        assert part in type(at).model_fields, f"{type(at).__name__} has no {part}"
        return at.model_copy(update={part: _changed(getattr(at, part), rest, value)})
    if isinstance(at, tuple):
        chosen: Iterable[int] = range(len(at)) if part == EVERY else (int(part),)
        changed = {index: _changed(at[index], rest, value) for index in chosen}
        return tuple(changed.get(index, entry) for index, entry in enumerate(at))
    if at is None and (part == EVERY or isinstance(value, Times)):
        return None
    known = at or {}
    keys = list(known) if part == EVERY else [part]
    return {**known, **{key: _changed(known.get(key), rest, value) for key in keys}}
