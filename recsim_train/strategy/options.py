"""A strategy's settings as data: what the YAML, ``--help`` and the docs are made from."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, TypeVar

from recsim_train.config.options import options_section, parts_of
from recsim_train.config.units import Section
from recsim_train.config.validate import written_default
from recsim_train.strategy.parts import Part, parts

T = TypeVar("T")


_hints = cache(typing.get_type_hints)
"""Of a class: they never change, and every simulated trainer asks for them."""


def option_schemas(owner: type) -> type[Section]:
    """The settings of a strategy's or a part's class, from its dataclass fields."""
    chosen: list[tuple[str, tuple[tuple[str, type[Section]], ...]]] = []
    for field in dataclasses.fields(owner):
        hint = _hints(owner)[field.name]
        if isinstance(hint, type) and issubclass(hint, Part):
            fits = field.metadata["fits"]
            made = {k: part for k, part in parts(hint.family).items() if not fits or fits(part)}
            known = tuple((kind, option_schemas(part)) for kind, part in made.items())
            chosen.append((field.name, known))
    return _section(owner, tuple(chosen))


@cache
def _section(
    owner: type, chosen: tuple[tuple[str, tuple[tuple[str, type[Section]], ...]], ...]
) -> type[Section]:
    return options_section(owner, _hints(owner), {name: dict(known) for name, known in chosen})


def build(owner: type[T], options: Mapping[str, object]) -> T:
    """An instance with the chosen options, the parts among them made from their own options."""
    given = {}
    for field in dataclasses.fields(owner) if options else ():  # type: ignore[arg-type]
        if field.name not in options:
            continue
        value = options[field.name]
        if "fits" in field.metadata and isinstance(value, str | Mapping):
            chosen = {"kind": value} if isinstance(value, str) else dict(value)
            known = parts(_hints(owner)[field.name].family)  # type: ignore[arg-type]  # a class
            value = build(known[str(chosen.pop("kind"))], chosen)
        elif field.metadata.get("share") and isinstance(value, str):
            value = float(value.removesuffix("%")) / 100
        given[field.name] = value
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


def rows(options: type[Section]) -> Iterator[tuple[str, str, str]]:
    """(dotted name, default as written, what it means) of settings and of those of their parts.

    What several parts of a family have under one name and with one default is one row.
    """
    for name, field in options.model_fields.items():
        family, hint = parts_of(field), field.annotation
        choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else tuple(family)
        said = f" ({', '.join(choices)})" if choices else ""
        yield name, written_default(field), f"{field.description}{said}"
        same: dict[tuple[str, str], dict[str, list[str]]] = {}
        for kind, inner in family.items():
            for key, default, means in rows(inner):
                same.setdefault((key, default), {}).setdefault(means, []).append(kind)
        for (key, default), meanings in same.items():
            each = (f"{', '.join(kinds)}: {means}" for means, kinds in meanings.items())
            yield f"{name}.{key}", default, "; ".join(each)
