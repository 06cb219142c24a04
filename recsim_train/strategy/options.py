"""A strategy's settings as data: what the YAML, ``--help`` and the docs are made from."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, TypeVar

from recsim_train.config.options import OptionSchema, Type
from recsim_train.strategy.parts import Part, parts

T = TypeVar("T")


_hints = cache(typing.get_type_hints)
"""Of a class: they never change, and every simulated trainer asks for them."""


def option_schemas(owner: type) -> dict[str, OptionSchema]:
    """The settings of a strategy's or a part's class, from its dataclass fields.

    Raises TypeError for a field whose type has no YAML form.
    """
    return {f.name: _schema(owner, f, _hints(owner)[f.name]) for f in dataclasses.fields(owner)}


def _schema(owner: type, field: dataclasses.Field[object], hint: object) -> OptionSchema:
    text = field.metadata.get("help", "")
    if isinstance(hint, type) and issubclass(hint, Part):
        fits = field.metadata["fits"]
        chosen = parts(hint.family).items()
        known = {kind: option_schemas(made) for kind, made in chosen if not fits or fits(made)}
        default: object = field.default_factory
        assert isinstance(default, type)
        assert issubclass(default, Part)
        return OptionSchema(field.name, "part", (), default.kind, None, None, text, known)
    choices: tuple[str, ...] = ()
    if typing.get_origin(hint) is Literal:
        choices, hint = typing.get_args(hint), str
    names: dict[object, Type] = {int: "int", float: "float", bool: "bool", str: "str"}
    if hint not in names:
        raise TypeError(f"{owner.__name__}.{field.name}: {hint!r} has no form in YAML")
    kind, value = names[hint], field.default
    if field.metadata.get("share"):
        assert isinstance(value, float)
        kind, value = "share", f"{value * 100:g} %"
    return OptionSchema(
        name=field.name,
        type=kind,
        choices=choices,
        default=value,
        minimum=field.metadata.get("minimum"),
        maximum=field.metadata.get("maximum"),
        help=text,
    )


def build(owner: type[T], options: Mapping[str, object]) -> T:
    """An instance with the chosen options, the parts among them made from their own options."""
    known = option_schemas(owner) if options else {}
    given = {}
    for name, value in options.items():
        schema = known.get(name)
        given[name] = value
        if schema is not None and schema.type == "part" and isinstance(value, str | Mapping):
            chosen = {"kind": value} if isinstance(value, str) else dict(value)
            known_parts = parts(_hints(owner)[name].family)  # type: ignore[arg-type]  # a class
            given[name] = build(known_parts[str(chosen.pop("kind"))], chosen)
        elif schema is not None and schema.type == "share" and isinstance(value, str):
            given[name] = float(value.removesuffix("%")) / 100
    return owner(**given)


def flat(options: Mapping[str, object]) -> dict[str, object]:
    """Chosen options by dotted name: a part is its name, its own options come after it."""
    found: dict[str, object] = {}
    for name, value in options.items():
        if not isinstance(value, Mapping):
            found[name] = value
            continue
        found[name] = value["kind"]
        inner = {key: own for key, own in value.items() if key != "kind"}
        found |= {f"{name}.{key}": own for key, own in flat(inner).items()}
    return found


def rows(options: Mapping[str, OptionSchema]) -> Iterator[tuple[str, OptionSchema, str]]:
    """(dotted name, setting, what it means) of settings and of those of their parts.

    What several parts of a family have under one name and with one default is one row.
    """
    for name, schema in options.items():
        choices = [*schema.choices, *schema.parts]
        yield name, schema, schema.help + (f" ({', '.join(choices)})" if choices else "")
        same: dict[tuple[str, str], tuple[OptionSchema, dict[str, list[str]]]] = {}
        for kind, inner in schema.parts.items():
            for key, own, means in rows(inner):
                _, meanings = same.setdefault((key, own.written), (own, {}))
                meanings.setdefault(means, []).append(kind)
        for (key, _), (own, meanings) in same.items():
            said = (f"{', '.join(kinds)}: {means}" for means, kinds in meanings.items())
            yield f"{name}.{key}", own, "; ".join(said)
