"""A strategy's settings as data: what the YAML, ``--help`` and the docs are made from."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Literal

from recsim_train.strategy.base import Strategy


@dataclass(frozen=True, slots=True)
class OptionSchema:
    """One setting of a strategy."""

    name: str
    type: Literal["int", "float", "bool", "str"]
    choices: tuple[str, ...]
    default: object
    minimum: float | None
    maximum: float | None
    help: str


def option_schemas(strategy: type[Strategy]) -> dict[str, OptionSchema]:
    """The settings of a strategy class, from its dataclass fields.

    Raises TypeError for a field whose type has no YAML form.
    """
    hints = typing.get_type_hints(strategy)
    schemas = {}
    for field in dataclasses.fields(strategy):  # type: ignore[arg-type]
        hint = hints[field.name]
        choices: tuple[str, ...] = ()
        if typing.get_origin(hint) is Literal:
            choices, hint = typing.get_args(hint), str
        names: dict[object, Literal["int", "float", "bool", "str"]] = {
            int: "int",
            float: "float",
            bool: "bool",
            str: "str",
        }
        if hint not in names:
            raise TypeError(f"{strategy.__name__}.{field.name}: {hint!r} has no form in YAML")
        schemas[field.name] = OptionSchema(
            name=field.name,
            type=names[hint],
            choices=choices,
            default=field.default,
            minimum=field.metadata.get("minimum"),
            maximum=field.metadata.get("maximum"),
            help=field.metadata.get("help", ""),
        )
    return schemas
