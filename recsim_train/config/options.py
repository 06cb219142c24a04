"""The settings of strategies and of their parts as data, and the check of values for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from recsim_train.config.problems import shown, suggest
from recsim_train.config.units import SHARE, parse_quantity

Type = Literal["int", "float", "bool", "str", "share", "part"]


@dataclass(frozen=True, slots=True)
class OptionSchema:
    """One setting of a strategy or of a part that it composes."""

    name: str
    type: Type
    choices: tuple[str, ...]
    default: object
    """As it is written: a share is text ("1 %"), a part is its name."""
    minimum: float | None
    maximum: float | None
    help: str
    parts: Mapping[str, Mapping[str, OptionSchema]] = field(default_factory=dict)
    """Of a part: the settings of each that may be chosen, by its name."""

    @property
    def written(self) -> str:
        """The default as it would be written in the YAML."""
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


Schemas = Mapping[str, Mapping[str, OptionSchema]]
"""Options by strategy name and option name."""

_NOUNS = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "text"}


def expected_option(schema: OptionSchema) -> str:
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
    pairs = (
        ("of at least", at_least),
        ("above", above),
        ("of at most" if at_least is None and above is None else "at most", at_most),
        ("below", below),
    )
    limits = [f"{words} {value:g}" for words, value in pairs if value is not None]
    return " ".join([noun, " and ".join(limits)]) if limits else noun


def check_option(schema: OptionSchema, value: object) -> object:
    """The value in the option's own type; ValueError with one sentence if it does not fit."""
    wrong = f"expected {expected_option(schema)}, got {shown(value)}"
    if schema.choices:
        if value not in schema.choices or isinstance(value, bool) != (schema.type == "bool"):
            hint = suggest(value, map(str, schema.choices)) if isinstance(value, str) else ""
            raise ValueError(wrong + hint)
        return value
    checked: object
    match schema.type, value:
        case ("bool", bool()) | ("str", str()):
            return value
        case "int" | "float", bool():
            raise ValueError(wrong)
        case "share", _:
            number = parse_quantity(value, SHARE.units, SHARE.what, SHARE.example)
            checked = SHARE.format_exact(number)  # as written, so that it reads back the same
        case "int", int():
            number = checked = value
        case "float", int() | float():
            number = checked = float(value)
        case _:
            raise ValueError(wrong)
    too_small = schema.minimum is not None and number < schema.minimum
    too_large = schema.maximum is not None and number > schema.maximum
    if too_small or too_large:
        raise ValueError(wrong)
    return checked
