"""Quantities with units: "25 Gbit/s", "50 us", "4 MiB".

A number without a unit is refused. Bits and bytes, decimal and binary prefixes differ and are
never guessed: Gbit/s, GB/s and GiB/s are three different rates.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

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

_SPELLINGS = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "percent": "%", "byte": "B"}
_SPELLINGS |= {"bytes": "B", "minutes": "min", "mins": "min", "hours": "h", "pct": "%"}

_QUANTITY = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*$")


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


def suggest_unit(unit: str, units: dict[str, float]) -> str | None:
    """The unit that a wrong one was probably meant to be: "Gbps" is "Gbit/s"."""
    if _SPELLINGS.get(unit.lower()) in units:
        return _SPELLINGS[unit.lower()]
    spelled = re.sub(r"(?i)(bits?|b)ps$", lambda m: _bits_or_bytes(m[1]) + "/s", unit)
    spelled = re.sub(r"b/s(ec)?$", "bit/s", spelled)
    for candidate in (spelled, unit):
        for name in units:
            if candidate == name or candidate.lower() == name.lower():
                return name
    close = difflib.get_close_matches(unit, units, n=1, cutoff=0.5)
    return close[0] if close else None


def _bits_or_bytes(letter: str) -> str:
    return "B" if letter == "B" else "bit"  # "GBps" are bytes, "Gbps" and "Gbitps" are bits


def format_quantity(value: float, units: dict[str, float], digits: int = 6) -> str:
    """Write a number in the base unit with the unit that fits best: 1.32e-8 is "13.2 ns".

    ``units``: the ones to choose from.
    """
    fitting = [name for name, factor in units.items() if value >= factor * (1 - 1e-9)]
    largest = max(fitting, key=units.__getitem__, default=min(units, key=units.__getitem__))
    unit = "s" if value == 0 and "s" in units else largest
    return f"{value / units[unit]:.{digits}g} {unit}"


@dataclass(frozen=True, slots=True)
class Quantity:
    """Marks a field as a quantity with a unit, for messages, schema and reference."""

    what: str
    """With its article: "a duration"."""
    example: str
    base: str
    """Name of the base unit: "seconds"."""
    units: tuple[str, ...]
    """Every unit that is understood."""
    written: tuple[tuple[str, float], ...]
    """Units that the tool itself writes, with their factors."""

    def json_schema(self) -> dict[str, object]:
        """JSON Schema of the text."""
        names = "|".join(re.escape(unit) for unit in self.units)
        number = r"\+?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
        return {
            "type": "string",
            "pattern": rf"^\s*{number}\s*({names})\s*$",
            "examples": [self.example],
        }

    def format(self, value: float, digits: int = 6) -> str:
        """Text with a fitting unit, to ``digits`` significant digits."""
        return format_quantity(value, dict(self.written), digits)

    def format_exact(self, value: float) -> str:
        """The shortest text that reads back as exactly ``value``, if there is one."""
        text = ""
        for digits in range(3, 18):
            text = self.format(value, digits)
            number, unit = text.split()
            if float(number) * dict(self.written)[unit] == value:
                return text
        return f"{value!r} {unit}" if dict(self.written).get(unit) == 1.0 else text


def _quantity(
    what: str, example: str, base: str, units: dict[str, float], written: str
) -> Quantity:
    return Quantity(
        what, example, base, tuple(units), tuple((u, units[u]) for u in written.split())
    )


SIZE = _quantity("a size", "4 MiB", "bytes", SIZES, "B KiB MiB GiB TiB")
RATE = _quantity(
    "a data rate", "25 Gbit/s", "bytes per second", RATES, "bit/s kbit/s Mbit/s Gbit/s Tbit/s"
)
DURATION = _quantity("a duration", "50 us", "seconds", DURATIONS, "ps ns us ms s")
SHARE = _quantity("a share", "5 %", "fraction of one", SHARES, "%")


def _read(value: object, units: dict[str, float], of: Quantity, least: str, most: str) -> float:
    """A quantity of a configuration: 0, or from ``least`` to ``most``, both with their unit.

    What lies beyond is a slip, and its products with counts would leave the range of a float.
    """
    number = parse_quantity(value, units, of.what, of.example)
    if 0 < number < parse_quantity(least, units, "", ""):
        raise ValueError(f"expected {of.what} of at least {least}, got {str(value)!r}")
    if number > parse_quantity(most, units, "", ""):
        raise ValueError(f"expected {of.what} of at most {most}, got {str(value)!r}")
    return number


def _size(value: object) -> float:
    return _read(value, SIZES, SIZE, "0 B", "1e24 B")


def _rate(value: object) -> float:
    return _read(value, RATES, RATE, "1 bit/s", "1e24 bit/s")


def _duration(value: object) -> float:
    return _read(value, DURATIONS, DURATION, "0 s", "1e12 s")


def _share(value: object) -> float:
    return _read(value, SHARES, SHARE, "0 %", "1000 %")


Size = Annotated[float, SIZE, BeforeValidator(_size), WithJsonSchema(SIZE.json_schema())]
"""Bytes."""
Rate = Annotated[float, RATE, BeforeValidator(_rate), WithJsonSchema(RATE.json_schema())]
"""Bytes per second."""
Duration = Annotated[
    float, DURATION, BeforeValidator(_duration), WithJsonSchema(DURATION.json_schema())
]
"""Seconds."""
Share = Annotated[float, SHARE, BeforeValidator(_share), WithJsonSchema(SHARE.json_schema())]
"""A fraction of one, written in per cent."""
