"""The settings of strategies and of their parts as sections, like those of the experiment; and the
check of a choice by name with its options, and of ``strategy`` in the YAML."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, create_model
from pydantic.fields import FieldInfo

from recsim_train.config.problems import KeyPath, Mistakes, shown, suggest
from recsim_train.config.units import SHARE, Section
from recsim_train.config.validate import check, plain

Schemas = Mapping[str, type[Section]]
"""The options of each strategy, or of each part of a family, by its name."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Marks an option as one of several parts, with options of its own."""

    parts: Schemas


def parts_of(field: FieldInfo) -> Schemas:
    """The parts that may be chosen for an option; none: it is a plain value."""
    return next((mark.parts for mark in field.metadata if isinstance(mark, Choices)), {})


def options_section(
    owner: type, hints: Mapping[str, Any], parts: Mapping[str, Schemas]
) -> type[Section]:
    """The section of the options of a strategy's or a part's dataclass.

    ``hints``: types of its fields; ``parts``: by field, what may be chosen where it is a part.
    Raises pydantic's errors for a field whose type has no form in YAML.
    """
    fields: dict[str, Any] = {}
    default: Any
    for field in dataclasses.fields(owner):
        told, name = field.metadata, field.name
        least, most = told.get("minimum"), told.get("maximum")
        hint, default = hints[name], field.default
        if name in parts:
            default = {"kind": field.default_factory.kind}  # type: ignore[union-attr]  # a part
            form = choice_schema(parts[name])
            hint = Annotated[dict[str, Any], Choices(parts[name]), WithJsonSchema(form)]
        elif told.get("share"):
            default = SHARE.read(f"{default * 100:g} %")
            hint, least, most = _share(least, most), None, None
        fields[name] = hint, Field(default, description=told["help"], ge=least, le=most)
    return create_model(owner.__name__, __base__=_Options, **fields)


class _Options(Section):
    """Options, beside which stands whose they are."""

    short_forms = ("kind",)


def _share(least: float | None, most: float | None) -> Any:
    """A share with these limits, where there are any."""
    low = SHARE.least if least is None else f"{least * 100:g} %"
    high = SHARE.most if most is None else f"{most * 100:g} %"
    share = replace(SHARE, least=low, most=high)
    read = share.read_positive if least else share.read
    return Annotated[float, share, BeforeValidator(read), WithJsonSchema(share.json_schema())]


def without_base_units(schema: dict[str, Any]) -> None:
    """Take defaults out of a JSON Schema that the YAML refuses: of quantities in base units, and of
    sections and parts."""
    for field in schema.get("properties", {}).values():
        default = field.get("default")
        quantity = isinstance(default, float) and field.get("type") == "string"
        if quantity or isinstance(default, dict):
            del field["default"]


def choice_schema(known: Schemas) -> dict[str, Any]:
    """JSON Schema of the name of a strategy or a part, or of a mapping with its own options."""
    forms: list[dict[str, Any]] = [{"enum": list(known)}]
    for kind, section in known.items():
        own = section.model_json_schema()
        without_base_units(own)
        properties = {"kind": {"const": kind}, **own.get("properties", {})}
        forms.append({**own, "required": ["kind"], "properties": properties})
    return {"anyOf": forms}


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """The sentence for a name that does not exist."""
    hint = suggest(name, known)
    lead = f"unknown {what} {name!r}" + (f"{hint} Known" if hint else "; known")
    return f"{lead}: {', '.join(known)}"


def check_choice(
    what: str, value: object, known: Schemas, expected: str, at: KeyPath, mistakes: Mistakes
) -> dict[str, Any] | None:
    """A choice as a mapping with ``kind`` and options, from its name or such a mapping.

    Options are in the order of their section, without those that equal their default. ``what`` and
    ``expected`` are for messages. What is wrong goes to the mistakes, and the answer is None.
    """
    given = dict(value) if isinstance(value, dict) else {"kind": value}
    kind_path = (*at, "kind") if isinstance(value, dict) else at
    if "kind" not in given:
        mistakes.add(at, f"missing 'kind', the {what}'s name (known: {', '.join(known)})")
        return None
    kind = given.pop("kind")
    if not isinstance(kind, str):
        mistakes.add(kind_path, f"expected {expected}, got {shown(kind)}")
        return None
    if kind not in known:
        mistakes.add(kind_path, unknown(what, kind, known))
        return None
    before, fields = len(mistakes.problems), known[kind].model_fields
    for name, parts in ((name, parts_of(fields[name])) for name in given if name in fields):
        if parts:
            one = f"one of {', '.join(map(repr, parts))}, or a mapping with 'kind' and options"
            given[name] = check_choice(name, given[name], parts, one, (*at, name), mistakes) or {}
    section = check(known[kind], given, mistakes, prefix=at)
    if section is None or len(mistakes.problems) > before:
        return None
    written = plain(section, digits=None)
    changed = [name for name, field in fields.items() if getattr(section, name) != field.default]
    return {"kind": kind, **{name: written[name] for name in changed}}


_EXPECTED_STRATEGY = "a strategy's name, a mapping with 'kind' and options, or a list"


def write_out_strategies(raw: object, known: Schemas, mistakes: Mistakes) -> list[dict[str, Any]]:
    """Every entry as ``{"kind", "options"}``; problems go to ``mistakes``.

    Options that equal their default are left out, so that two ways of writing the same strategy
    are one: they have one identity, and one label in reports.
    """
    path: KeyPath = ("strategy",)
    if raw is None:
        mistakes.add(path, f"missing; expected {_EXPECTED_STRATEGY} (known: {', '.join(known)})")
        return []
    entries = raw if isinstance(raw, list) else [raw]
    if not entries:
        mistakes.add(path, "expected at least one strategy, got an empty list")
    choices: list[dict[str, Any]] = []
    position: list[int] = []
    for index, entry in enumerate(entries):
        at: KeyPath = (*path, index) if isinstance(raw, list) else path
        choice = check_choice("strategy", entry, known, _EXPECTED_STRATEGY, at, mistakes)
        if choice is not None and choice in choices:
            first = position[choices.index(choice)]
            mistakes.add(at, f"the same strategy with the same options as entry {first}")
        elif choice is not None:
            choices.append(choice)
            position.append(index + 1)
    return [{"kind": choice.pop("kind"), "options": choice} for choice in choices]
