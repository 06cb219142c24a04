"""Quantities with units: "25 Gbit/s", "50 us", "4 MiB".

A number without a unit is refused. Bits and bytes, decimal and binary prefixes differ and are
never guessed: Gbit/s, GB/s and GiB/s are three different rates.
"""

from __future__ import annotations

import re
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
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
SHARES = {"%": 0.01}

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
        known = ", ".join(units)
        raise ValueError(f"unknown unit {unit!r} for {what}; known: {known}")
    value = number * units[unit]
    if value < 0:
        raise ValueError(f"expected {what} that is not negative, got {text!r}")
    return value


def _size(value: object) -> float:
    return parse_quantity(value, SIZES, "a size", "4 MiB")


def _rate(value: object) -> float:
    return parse_quantity(value, RATES, "a data rate", "25 Gbit/s")


def _duration(value: object) -> float:
    return parse_quantity(value, DURATIONS, "a duration", "50 us")


def _share(value: object) -> float:
    return parse_quantity(value, SHARES, "a share", "5 %")


Size = Annotated[float, BeforeValidator(_size), WithJsonSchema({"type": "string"})]
"""Bytes."""
Rate = Annotated[float, BeforeValidator(_rate), WithJsonSchema({"type": "string"})]
"""Bytes per second."""
Duration = Annotated[float, BeforeValidator(_duration), WithJsonSchema({"type": "string"})]
"""Seconds."""
Share = Annotated[float, BeforeValidator(_share), WithJsonSchema({"type": "string"})]
"""A fraction of one, written in per cent."""
