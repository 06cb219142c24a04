"""The settings of strategies and of their parts as data, and the check of values for them: of a
single option, of a choice by name with its options, and of ``strategy`` in the YAML."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from recsim_train.config.problems import KeyPath, Mistakes, shown, suggest
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


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """The sentence for a name that does not exist."""
    hint = suggest(name, known)
    lead = f"unknown {what} {name!r}" + (f"{hint} Known" if hint else "; known")
    return f"{lead}: {', '.join(known)}"


def check_choice(
    what: str, value: object, schemas: Schemas, expected: str, at: KeyPath, mistakes: Mistakes
) -> dict[str, Any] | None:
    """A choice as ``{"kind", "options"}``, from its name or a mapping with ``kind`` and options.

    Options are in the order of their schema, without those that equal their default. ``what`` and
    ``expected`` are for messages. What is wrong goes to the mistakes, and the answer is None.
    """
    kind_path, kind, given = at, value, {}
    if isinstance(value, dict):
        if "kind" not in value:
            mistakes.add(at, f"missing 'kind', the {what}'s name (known: {', '.join(schemas)})")
            return None
        kind_path, kind = (*at, "kind"), value["kind"]
        given = {key: inner for key, inner in value.items() if key != "kind"}
    if not isinstance(kind, str):
        mistakes.add(kind_path, f"expected {expected}, got {shown(kind)}")
        return None
    if kind not in schemas:
        mistakes.add(kind_path, unknown(what, kind, schemas))
        return None
    options = _check_options(f"{what} {kind!r}", schemas[kind], given, at, mistakes)
    return None if options is None else {"kind": kind, "options": options}


def _check_options(
    owner: str,
    schemas: Mapping[str, OptionSchema],
    given: Mapping[str, object],
    at: KeyPath,
    mistakes: Mistakes,
) -> dict[str, Any] | None:
    options: dict[str, Any] = {}
    before = len(mistakes.problems)
    for name, value in given.items():
        option = schemas.get(name)
        if option is None:
            hint = suggest(name, ["kind", *schemas]) or (
                f"; it has: {', '.join(schemas)}" if schemas else "; it has none"
            )
            mistakes.add((*at, name), f"{owner} has no option {name!r}{hint}", at_key=True)
        elif option.type == "part":
            names = ", ".join(map(repr, option.parts))
            part = check_choice(
                name,
                value,
                option.parts,
                f"one of {names}, or a mapping with 'kind' and options",
                (*at, name),
                mistakes,
            )
            if part is not None and part != {"kind": option.default, "options": {}}:
                options[name] = {"kind": part["kind"], **part["options"]}
        else:
            try:
                checked = check_option(option, value)
            except ValueError as error:
                mistakes.add((*at, name), str(error))
                continue
            if checked != option.default:
                options[name] = checked
    sound = len(mistakes.problems) == before
    return {name: options[name] for name in schemas if name in options} if sound else None


_EXPECTED_STRATEGY = "a strategy's name, a mapping with 'kind' and options, or a list"


def write_out_strategies(raw: object, schemas: Schemas, mistakes: Mistakes) -> list[dict[str, Any]]:
    """Every entry as ``{"kind", "options"}``; problems go to ``mistakes``.

    Options that equal their default are left out, so that two ways of writing the same strategy
    are one: they have one identity, and one label in reports.
    """
    path: KeyPath = ("strategy",)
    if raw is None:
        mistakes.add(path, f"missing; expected {_EXPECTED_STRATEGY} (known: {', '.join(schemas)})")
        return []
    entries = raw if isinstance(raw, list) else [raw]
    if not entries:
        mistakes.add(path, "expected at least one strategy, got an empty list")
    choices: list[dict[str, Any]] = []
    position: list[int] = []
    for index, entry in enumerate(entries):
        at: KeyPath = (*path, index) if isinstance(raw, list) else path
        choice = check_choice("strategy", entry, schemas, _EXPECTED_STRATEGY, at, mistakes)
        if choice is not None and choice in choices:
            first = position[choices.index(choice)]
            mistakes.add(at, f"the same strategy with the same options as entry {first}")
        elif choice is not None:
            choices.append(choice)
            position.append(index + 1)
    return choices
