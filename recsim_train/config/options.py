"""The form of a strategy's options that the configuration checks; strategies declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from recsim_train.config.problems import shown, suggest
from recsim_train.config.units import SHARE, parse_quantity


class DeclaredOption(Protocol):
    """One option of one strategy. Attributes only, so any dataclass with them will do."""

    @property
    def name(self) -> str:
        """Key in the YAML."""

    @property
    def type(self) -> str:
        """One of "int", "float", "bool", "str", "share" (written in per cent) and "part"."""

    @property
    def choices(self) -> Sequence[Any] | None:
        """The values that are allowed; None: not limited to a list."""

    @property
    def default(self) -> Any:
        """Value where nothing is written, as it would be written; of a part its name."""

    @property
    def minimum(self) -> float | None:
        """Smallest value, inclusive."""

    @property
    def maximum(self) -> float | None:
        """Largest value, inclusive."""

    @property
    def help(self) -> str:
        """One line on what it means, with its unit."""

    @property
    def parts(self) -> Mapping[str, Mapping[str, DeclaredOption]]:
        """Of a part: the options of each that may be chosen, by its name."""


Schemas = Mapping[str, Mapping[str, DeclaredOption]]
"""Options by strategy name and option name."""

_NOUNS = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "text"}


def expected_option(schema: DeclaredOption) -> str:
    """What a value must be, in words: "an integer of at least 1"."""
    if schema.choices:
        return "one of " + ", ".join(repr(c) for c in schema.choices)
    if schema.type == "share":
        limits = [None if x is None else x * 100 for x in (schema.minimum, schema.maximum)]
        noun = f"{SHARE.what} such as {SHARE.example!r}"
        words = bounded(noun, at_least=limits[0], at_most=limits[1])
        return words.replace(" and at most", " % and at most") + " %"
    return bounded(_NOUNS[schema.type], at_least=schema.minimum, at_most=schema.maximum)


def bounded(
    noun: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> str:
    """A noun with its limits: "a number above 0 and at most 1"."""
    limits = []
    if at_least is not None:
        limits.append(f"of at least {at_least:g}")
    if above is not None:
        limits.append(f"above {above:g}")
    if at_most is not None:
        limits.append(f"at most {at_most:g}" if limits else f"of at most {at_most:g}")
    if below is not None:
        limits.append(f"below {below:g}")
    return " ".join([noun, " and ".join(limits)]) if limits else noun


def check_option(schema: DeclaredOption, value: object) -> object:
    """The value in the option's own type; ValueError with one sentence if it does not fit."""
    if schema.type == "share":
        return _checked_share(schema, value)
    wrong = f"expected {expected_option(schema)}, got {shown(value)}"
    if schema.choices:
        if value not in schema.choices or isinstance(value, bool) != (schema.type == "bool"):
            hint = suggest(value, map(str, schema.choices)) if isinstance(value, str) else ""
            raise ValueError(wrong + hint)
        return value
    checked: object
    match schema.type, value:
        case "bool", bool():
            return value
        case "str", str():
            return value
        case "int" | "float", bool():
            raise ValueError(wrong)
        case "int", int():
            number: float = value
            checked = value
        case "float", int() | float():
            number = checked = float(value)
        case _:
            raise ValueError(wrong)
    too_small = schema.minimum is not None and number < schema.minimum
    too_large = schema.maximum is not None and number > schema.maximum
    if too_small or too_large:
        raise ValueError(wrong)
    return checked


def _checked_share(schema: DeclaredOption, value: object) -> str:
    """The share as it is written, so that the resolved experiment reads back the same."""
    number = parse_quantity(value, SHARE.units, SHARE.what, SHARE.example)
    low, high = schema.minimum, schema.maximum
    if (low is not None and number < low) or (high is not None and number > high):
        raise ValueError(f"expected {expected_option(schema)}, got {shown(value)}")
    return SHARE.format_exact(number)
