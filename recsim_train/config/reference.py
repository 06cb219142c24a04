"""The table of all settings by dotted name, for the reference and ``show settings``."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from recsim_train.config.experiment import Experiment
from recsim_train.config.fields import Accepts, accepts, of_field
from recsim_train.config.presets import PRESETS


class SettingRow(NamedTuple):
    """One row of the table."""

    name: str
    """Dotted, as ``--set`` takes it; ``[]`` stands for a position in a list."""
    type: str
    default: str
    """As it would be written in the YAML; "-" where there is none."""
    meaning: str


def settings_table() -> list[SettingRow]:
    """All settings of an experiment, in the order of the models."""
    return list(_rows(Experiment, ""))


def _rows(model: type[BaseModel], prefix: str) -> Iterator[SettingRow]:
    for key, field in model.model_fields.items():
        what, name = of_field(field), prefix + key
        if name == "strategies":
            yield SettingRow("strategy", "name, mapping or list", "-", _meaning(field))
            yield SettingRow(
                "strategy.OPTION",
                "the option's",
                "the option's",
                "An option of the strategy; see `recsim-train show strategies`.",
            )
        elif name == "model":
            yield from _MODEL_FORMS
            yield from _rows(what.hint, "model.")
        elif name == "model.tables":
            yield SettingRow(name, "list or mapping", _DEFAULT_BY_PRESET, _TABLES)
            yield from _rows(typing.get_args(what.hint)[0], "model.tables[].")
        elif what.section is not None:
            yield from _rows(what.section, name + ".")
        elif (item := _listed(what)) is not None:
            yield SettingRow(name, "list", _default(field, what), _meaning(field))
            yield from _rows(item, name + "[].")
        else:
            default = _default(field, what)
            if default in ("-", "[]") and name.startswith("model.") and "[]" not in name:
                default = _DEFAULT_BY_PRESET
            yield SettingRow(name, type_name(what), default, _meaning(field))


_DEFAULT_BY_PRESET = "the preset's"
_TABLES = (
    "The embedding tables, in the order of the data's categorical columns: a list of row counts "
    "(`50M` is 50 million) or mappings {rows, ids, variable}, with `count` for tables that are "
    "all alike; one such mapping; or the path of a CSV, JSON or YAML file of them, relative to the "
    "current directory."
)


_MODEL_FORMS = (
    SettingRow(
        "model",
        "name or mapping",
        "-",
        "A preset's name, or a mapping with a preset and overrides, or with all fields.",
    ),
    SettingRow(
        "model.preset",
        " or ".join(PRESETS),
        "-",
        "The preset that the other keys override; without it they are all required.",
    ),
    SettingRow("model.max_rows", "integer >= 1", "-", "Cap on the rows of every table."),
)


def _listed(what: Accepts) -> type[BaseModel] | None:
    """The section that a list is made of."""
    several = typing.get_origin(what.hint) is tuple
    return accepts(typing.get_args(what.hint)[0]).section if several else None


def type_name(what: Accepts) -> str:
    """A type in a few words: "integer >= 1", "duration", "sgd or adagrad"."""
    if what.quantity is not None:
        text = what.quantity.what.removeprefix("a ")
    elif typing.get_origin(what.hint) is Literal:
        text = " or ".join(map(str, typing.get_args(what.hint)))
    elif typing.get_origin(what.hint) is tuple:
        inner = accepts(typing.get_args(what.hint)[0])
        nouns = {str: "texts", int: "integers"}
        text = f"list of {nouns.get(inner.hint, 'mappings')}"
    elif typing.get_origin(what.hint) is dict:
        text = "mapping"
    else:
        names = {int: "integer", float: "number", bool: "true or false", str: "text"}
        text = names[what.hint]
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    limits = [f"{signs[key]} {value:g}" for key, value in what.limits.items()]
    return " ".join([text, ", ".join(limits)]) if limits else text


def _default(field: FieldInfo, what: Accepts) -> str:
    value = field.default
    if value is PydanticUndefined or value is None or value == "":
        return "-"
    if what.quantity is not None:
        return what.quantity.format_exact(value)
    if isinstance(value, bool):
        return str(value).lower()
    if value == ():
        return "[]"
    return f"{value:_}" if isinstance(value, int) and value >= 10_000 else str(value)


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("``", "`")
