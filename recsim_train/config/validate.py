"""The check of plain data against a model: what does not fit, said in plain words."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from recsim_train.config.fields import of_field, of_path
from recsim_train.config.problems import KeyPath, Mistakes, dotted, shown, suggest

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
    extra_keys: Mapping[KeyPath, tuple[str, ...]] | None = None,
    renamed: Mapping[str, str] | None = None,
    prefix: KeyPath = (),
) -> M | None:
    """The model, or None after adding every problem to ``mistakes``.

    ``extra_keys``: further keys that the YAML knows in a section, for suggestions.
    ``renamed``: keys whose names in the YAML differ from the top-level fields'.
    ``prefix``: where ``data`` stands in the document.
    """
    try:
        return parse(model, data)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            _report(model, details, mistakes, extra_keys or {}, renamed or {}, prefix)
        return None


def _report(
    model: type[BaseModel],
    details: ErrorDetails,
    mistakes: Mistakes,
    extra: Mapping[KeyPath, tuple[str, ...]],
    renamed: Mapping[str, str],
    prefix: KeyPath,
) -> None:
    path: KeyPath = tuple(details["loc"])
    kind, value = details["type"], details["input"]
    if "[key]" in path:
        path = path[: path.index("[key]")]
        mapping = of_path(model, path[:-1])
        names = _literals(typing.get_args(mapping.hint)[0]) if mapping else []
        mistakes.add(prefix + path, _unknown_key(model, path, names), at_key=True)
        return
    what = of_path(model, path)
    if kind == "extra_forbidden":
        names = [renamed.get(name, name) for name in _fields_at(model, path[:-1])]
        names += extra.get(path[:-1], ())
        mistakes.add(prefix + path, _unknown_key(model, path, names), at_key=True)
        return
    expected = f"expected {what.words}" if what else "expected another value"
    if kind == "missing":
        mistakes.add(prefix + path, f"missing; {expected}{_meaning(model, path)}")
    elif kind == "value_error":
        # A quantity's own sentence says more than its type does.
        mistakes.add(prefix + path, str(details["ctx"]["error"]))
    else:
        message = f"{expected}, got {shown(value)}"
        if kind == "literal_error" and isinstance(value, str) and what:
            message += suggest(value, map(str, typing.get_args(what.hint)))
        elif kind == "string_type" and isinstance(value, int | float | bool):
            message += " (quotes make it text)"
        mistakes.add(prefix + path, message)


def _fields_at(model: type[BaseModel], path: KeyPath) -> Mapping[str, FieldInfo]:
    """Those of the section at a place; none where there is no section."""
    at = of_path(model, path)
    return at.section.model_fields if at and at.section else {}


def _unknown_key(model: type[BaseModel], path: KeyPath, names: list[str]) -> str:
    key = str(path[-1])
    where = f" in {dotted(path[:-1])}" if path[:-1] else ""
    hint = suggest(key, names)
    elsewhere = _leaves(model).get(key, [])
    if len(elsewhere) == 1:
        hint = f"; did you mean {elsewhere[0]!r}?"
    if not hint and names:
        hint = f"; known: {', '.join(names)}"
    return f"unknown key{where}{hint}"


def _leaves(model: type[BaseModel]) -> dict[str, list[str]]:
    """Dotted names of all settings by their last part."""
    by_leaf: dict[str, list[str]] = {}
    for name in setting_names(model):
        by_leaf.setdefault(name.rsplit(".", 1)[-1], []).append(name)
    return by_leaf


def setting_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields that are no sections, in order."""
    for name, field in model.model_fields.items():
        section = of_field(field).section
        if section is not None:
            yield from setting_names(section, f"{prefix}{name}.")
        else:
            yield prefix + name


def _literals(hint: Any) -> list[str]:
    if typing.get_origin(hint) is Literal:
        return [str(value) for value in typing.get_args(hint)]
    return [name for part in typing.get_args(hint) for name in _literals(part)]


def _meaning(model: type[BaseModel], path: KeyPath) -> str:
    """The first sentence of a field's docstring, in brackets."""
    field = _fields_at(model, path[:-1]).get(str(path[-1]))
    if field is None or not field.description:
        return ""
    sentence = " ".join(field.description.split()).split(". ")[0].rstrip(".")
    return f" ({sentence})"
