"""What each field of the configuration's models accepts, and the check of plain data against them:
what does not fit, said in plain words."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from recsim_train.config.problems import KeyPath, Mistakes, dotted, shown, suggest
from recsim_train.config.units import EVERY, Quantity, Section


@dataclass(frozen=True, slots=True)
class Accepts:
    """A field's type with its constraints, however they were annotated."""

    hint: Any
    """The bare type: int, tuple, a Section ..."""
    limits: dict[str, float]
    """ge, gt, le, lt."""
    quantity: Quantity | None = None
    optional: bool = False

    @property
    def words(self) -> str:
        """Such as "an integer of at least 1"."""
        return _words(self) + (" or null" if self.optional else "")

    @property
    def section(self) -> type[BaseModel] | None:
        """The model behind a mapping, if there is one."""
        return (
            self.hint if isinstance(self.hint, type) and issubclass(self.hint, BaseModel) else None
        )


@lru_cache(maxsize=1024)
def of_field(field: FieldInfo) -> Accepts:
    """What a pydantic field accepts."""
    hint = field.annotation
    limits: dict[str, float] = {}
    quantity = next((part for part in field.metadata if isinstance(part, Quantity)), None)
    for part in field.metadata:
        bounds = {key: getattr(part, key, None) for key in _LIMITS}
        limits |= {key: bound for key, bound in bounds.items() if bound is not None}
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    members = [m for m in typing.get_args(hint) if m is not type(None)] if union else []
    if len(members) != 1:
        return Accepts(hint, limits, quantity)
    inside = accepts(members[0])
    return Accepts(inside.hint, inside.limits | limits, inside.quantity or quantity, optional=True)


def accepts(hint: Any) -> Accepts:
    """The same of an annotation."""
    return of_field(FieldInfo.from_annotation(hint))


def of_path(model: type[BaseModel], path: KeyPath) -> Accepts | None:
    """What the value at ``path`` accepts; None where the models have no such place."""
    at = Accepts(model, {})
    for part in path:
        section, origin, inner = at.section, typing.get_origin(at.hint), typing.get_args(at.hint)
        if section is not None:
            field = section.model_fields.get(str(part))
            if field is None:
                return None
            at = of_field(field)
        elif origin is tuple and (isinstance(part, int) or part == EVERY):
            variadic = len(inner) == 2 and inner[1] is Ellipsis
            place = 0 if variadic or part == EVERY else min(int(part), len(inner) - 1)
            at = accepts(inner[place])
        elif origin is dict:
            at = accepts(inner[1])
        else:
            return None
    return at


_LISTED = {int: " of integers"}
_LIMITS = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}
"""Constraints of a field, in words and in their order."""


def _words(what: Accepts) -> str:
    hint, origin = what.hint, typing.get_origin(what.hint)
    if what.quantity is not None:
        return f"{what.quantity.what} such as {what.quantity.example!r}"
    if origin is Literal:
        return "one of " + ", ".join(repr(c) for c in typing.get_args(hint))
    if origin is tuple:
        inner = typing.get_args(hint)
        if inner[0] is str:
            return "text or a list of texts"
        if inner[-1] is not Ellipsis:
            return f"a list of {len(inner)} numbers"
        entry = accepts(inner[0])
        return "a list of mappings" if entry.section else f"a list{_LISTED.get(entry.hint, '')}"
    if origin is dict or what.section is not None:
        return "a mapping"
    noun = {int: "an integer", float: "a number", bool: "true or false", str: "text"}.get(hint)
    if noun is None:
        return "another value"
    there = what.limits
    said = " and ".join(f"{words} {there[key]:g}" for key, words in _LIMITS.items() if key in there)
    if said.startswith("at most"):
        said = f"of {said}"
    return f"{noun} {said}".strip()


M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], data: Mapping[str, Any]) -> M:
    """Strict validation of plain data; lists become tuples. Raises pydantic's ValidationError."""
    # The JSON mode is what makes strictness useful here: no "4" for 4 and no true for 1, while
    # lists and mappings still become tuples and sections.
    return model.model_validate_json(json.dumps(data), strict=True)


def check(
    model: type[M],
    data: Mapping[str, Any],
    mistakes: Mistakes,
    *,
    renamed: Mapping[str, str] | None = None,
    prefix: KeyPath = (),
) -> M | None:
    """The model, or None after adding every problem to ``mistakes``.

    ``renamed``: keys whose names in the YAML differ from the top-level fields'.
    ``prefix``: where ``data`` stands in the document.
    """
    try:
        return parse(model, data)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            _report(model, details, mistakes, renamed or {}, prefix)
        return None


def _report(
    model: type[BaseModel],
    details: ErrorDetails,
    mistakes: Mistakes,
    renamed: Mapping[str, str],
    prefix: KeyPath,
) -> None:
    path: KeyPath = tuple(details["loc"])
    kind, value = details["type"], details["input"]
    if "[key]" in path:
        path = path[: path.index("[key]")]
        mapping = of_path(model, path[:-1])
        keys = typing.get_args(mapping.hint)[0] if mapping else str
        names = list(map(str, typing.get_args(keys)))
        mistakes.add(prefix + path, _unknown_key(model, path, names), at_key=True)
        return
    what, owner = of_path(model, path), of_path(model, path[:-1])
    section = cast("type[Section]", (owner and owner.section) or Section)
    if kind == "extra_forbidden":
        names = [renamed.get(name, name) for name in (*section.model_fields, *section.short_forms)]
        why = section.refused.get(str(path[-1]))
        mistakes.add(prefix + path, _unknown_key(model, path, names, why), at_key=True)
        return
    expected = f"expected {what.words}" if what else "expected another value"
    if kind == "missing":
        mistakes.add(prefix + path, f"missing; {expected}{_meaning(model, path)}")
    elif kind == "too_short":
        what_is_there = "mapping" if isinstance(value, dict) else "list"
        mistakes.add(prefix + path, f"expected at least one value, got an empty {what_is_there}")
    elif kind == "value_error":
        # A quantity's own sentence says more than its type does.
        mistakes.add(prefix + path, str(details["ctx"]["error"]))
    else:
        message = f"{expected}, got {shown(value)}"
        if kind == "literal_error" and isinstance(value, str) and what:
            known = map(str, typing.get_args(what.hint))
            why = section.refused.get(value)
            message += f"; {why}" if why else suggest(value, known)
        elif kind == "string_type" and isinstance(value, int | float | bool):
            message += " (quotes make it text)"
        mistakes.add(prefix + path, message)


def _unknown_key(
    model: type[BaseModel], path: KeyPath, names: list[str], why: str | None = None
) -> str:
    key = str(path[-1])
    where = f" in {dotted(path[:-1])}" if path[:-1] else ""
    if why is not None:
        return f"unknown key{where}; {why}"
    hint = suggest(key, names)
    elsewhere = [name for name in setting_names(model) if name.rpartition(".")[2] == key]
    if len(elsewhere) == 1:
        hint = f"; did you mean {elsewhere[0]!r}?"
    if not hint and names:
        hint = f"; known: {', '.join(names)}"
    return f"unknown key{where}{hint}"


def setting_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields that are no sections, in order."""
    for name, field in model.model_fields.items():
        section = of_field(field).section
        if section is not None:
            yield from setting_names(section, f"{prefix}{name}.")
        else:
            yield prefix + name


def _meaning(model: type[BaseModel], path: KeyPath) -> str:
    """The first sentence of a field's docstring, in brackets."""
    at = of_path(model, path[:-1])
    field = at.section.model_fields.get(str(path[-1])) if at and at.section else None
    if field is None or not field.description:
        return ""
    sentence = " ".join(field.description.split()).split(". ")[0].rstrip(".")
    return f" ({sentence})"


def plain(section: BaseModel, *, digits: int | None) -> dict[str, Any]:
    """A model as the plain data of its YAML: quantities with units, without what is None.

    ``digits``: significant digits of quantities; None: as many as it takes to read back the same.
    """
    fields = type(section).model_fields
    return {
        name: _plain(value, of_field(fields[name]).quantity, digits)
        for name, value in section
        if value is not None
    }


def _plain(value: Any, quantity: Quantity | None, digits: int | None) -> Any:
    if quantity is not None:
        return quantity.format_exact(value) if digits is None else quantity.format(value, digits)
    if isinstance(value, BaseModel):
        return plain(value, digits=digits)
    if isinstance(value, dict):
        return {key: _plain(item, None, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, None, digits) for item in value]
    return value


def written_default(field: FieldInfo) -> str:
    """A field's default as it would be written in the YAML; "-" where there is none."""
    value, quantity = field.default, of_field(field).quantity
    if value is PydanticUndefined or value is None or value == "":
        return "-"
    if quantity is not None:
        return quantity.format_exact(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):  # a part
        return str(value["kind"])
    if value == ():
        return "[]"
    return f"{value:_}" if isinstance(value, int) and value >= 10_000 else str(value)
