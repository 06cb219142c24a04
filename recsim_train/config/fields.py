"""Descriptions of what each field of the configuration's models accepts, in words."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from recsim_train.config.options import bounded
from recsim_train.config.overrides import EVERY
from recsim_train.config.problems import KeyPath
from recsim_train.config.units import Quantity


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


def accepts(hint: Any, metadata: typing.Sequence[Any] = ()) -> Accepts:
    """Take an annotation apart."""
    limits: dict[str, float] = {}
    quantity: Quantity | None = None
    optional = False
    parts = list(metadata)
    if typing.get_origin(hint) is Annotated:
        hint, *inner = typing.get_args(hint)
        parts += inner
    for part in parts:
        if isinstance(part, FieldInfo):
            limits |= accepts(int, part.metadata).limits
        elif isinstance(part, Quantity):
            quantity = part
        else:
            bounds = {k: getattr(part, k) for k in ("ge", "gt", "le", "lt") if hasattr(part, k)}
            limits |= {k: v for k, v in bounds.items() if v is not None}
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        members = [m for m in typing.get_args(hint) if m is not type(None)]
        optional = len(members) < len(typing.get_args(hint))
        if len(members) == 1:
            inside = accepts(members[0])
            return Accepts(
                inside.hint, inside.limits | limits, inside.quantity or quantity, optional
            )
    return Accepts(hint, limits, quantity, optional)


def of_field(field: FieldInfo) -> Accepts:
    """What a pydantic field accepts."""
    return accepts(field.annotation, field.metadata)


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


def _words(what: Accepts) -> str:
    hint, origin = what.hint, typing.get_origin(what.hint)
    if what.quantity is not None:
        return f"{what.quantity.what} such as {what.quantity.example!r}"
    if origin is Literal:
        return "one of " + ", ".join(repr(c) for c in typing.get_args(hint))
    if origin is tuple:
        inner = typing.get_args(hint)
        return "a list" if inner[-1] is Ellipsis else f"a list of {len(inner)} numbers"
    if origin is dict or what.section is not None:
        return "a mapping"
    noun = {int: "an integer", float: "a number", bool: "true or false", str: "text"}.get(hint)
    if noun is None:
        return "another value"
    names = {"ge": "at_least", "gt": "above", "le": "at_most", "lt": "below"}
    return bounded(noun, **{names[k]: v for k, v in what.limits.items()})
