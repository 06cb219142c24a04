"""What can be written: the table of all settings by dotted name, for the reference and ``show
settings``; and JSON Schemas of the files, for editors: completion, help and errors while typing."""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from recsim_train.config.cluster import Cluster
from recsim_train.config.experiment import Experiment, Model
from recsim_train.config.options import Schemas, choice_schema, without_base_units
from recsim_train.config.presets import PRESETS
from recsim_train.config.sweep import Sweep
from recsim_train.config.tables import LARGE, MOST_TABLES, TORCHREC
from recsim_train.config.topology import ROLE_NAMES
from recsim_train.config.units import DURATION
from recsim_train.config.validate import Accepts, accepts, of_field, written_default


class SettingRow(NamedTuple):
    """One row of the table."""

    name: str
    """Dotted, as ``--set`` takes it; ``[]`` stands for a position in a list."""
    type: str
    """In words, such as "an integer of at least 1"."""
    default: str
    """As it would be written in the YAML; "-" where there is none."""
    meaning: str


def settings_table() -> list[SettingRow]:
    """All settings of an experiment, in the order of the models."""
    return list(_rows(Experiment, ""))


def _rows(model: type[BaseModel], prefix: str) -> Iterator[SettingRow]:
    for key, field in model.model_fields.items():
        what, name = of_field(field), prefix + key
        if name == _NOT_WRITTEN:
            continue
        default, listed = written_default(field), _listed(what)
        if name in _FORMS:
            yield from _FORMS[name]
        elif what.section is None:
            preset = prefix == "model." and default in ("-", "[]") and not what.optional
            own = _DEFAULT_BY_PRESET if preset else default
            yield SettingRow(name, what.words, own, _meaning(field))
        if what.section is not None:
            yield from _rows(what.section, f"{name}.")
        elif listed is not None and name != "strategies":
            yield from _rows(listed, f"{name}[].")


_NOT_WRITTEN = "model.described"
"""What is found of a module; nobody sets it."""
_DEFAULT_BY_PRESET = "the preset's"
_FORMS = {
    "strategies": (
        SettingRow(
            "strategy",
            "name, mapping or list",
            "-",
            "A strategy's name, a mapping with `kind` and options, or a list of those.",
        ),
        SettingRow(
            "strategy.OPTION",
            "the option's",
            "the option's",
            "An option of the strategy; see `recsim-train show strategies`.",
        ),
    ),
    "model": (
        SettingRow(
            "model",
            "name or mapping",
            "-",
            "A preset's name, or a mapping with a preset and overrides, or with all fields.",
        ),
        SettingRow(
            "model.preset",
            "one of " + ", ".join(map(repr, PRESETS)),
            "-",
            "The preset that the other keys override; without it they are all required.",
        ),
        SettingRow(
            "model.max_rows", "an integer of at least 1", "-", "Cap on the rows of every table."
        ),
    ),
    "model.tables": (
        SettingRow(
            "model.tables",
            "list or mapping",
            _DEFAULT_BY_PRESET,
            "The embedding tables, in the order of the data's categorical columns: a list of row "
            "counts (`50M` is 50 million) or mappings {rows, ids, variable}, with `count` for "
            "tables that are all alike; one such mapping; or the path of a CSV, JSON or YAML file "
            "of them, relative to the current directory.",
        ),
    ),
}
"""Rows of what may be written in short."""


def _listed(what: Accepts) -> type[BaseModel] | None:
    """The section that a list is made of."""
    several = typing.get_origin(what.hint) is tuple
    return accepts(typing.get_args(what.hint)[0]).section if several else None


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("``", "`")


DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/"


def experiment_schema(schemas: Schemas) -> dict[str, Any]:
    """The schema of experiments. ``schemas``: the known strategies and their options."""
    schema = Experiment.model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    definitions.pop("StrategyChoice")
    _allow_empty(schema)
    strategy = schema["properties"].pop("strategies")
    definitions["Tables"] = _tables(definitions["Table"])
    definitions["Model"] = _model(definitions["Model"])
    definitions["Strategy"] = choice_schema(schemas)
    schema["properties"]["strategy"] = {
        "description": strategy["description"],
        "anyOf": [
            {"$ref": _REF + "Strategy"},
            {"type": "array", "minItems": 1, "items": {"$ref": _REF + "Strategy"}},
        ],
    }
    schema["properties"]["sweep"] = _sweep(schema["properties"]["sweep"])
    schema["required"] = ["strategy" if key == "strategies" else key for key in schema["required"]]
    return {"$schema": DRAFT, **schema, "title": "recsim-train experiment"}


def _sweep(field: dict[str, Any]) -> dict[str, Any]:
    """All of the section, its grid alone, or its points alone."""
    values = {"type": "array", "minItems": 1}
    grid = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"not": {"enum": list(Sweep.model_fields)}},
        "additionalProperties": values,
    }
    return {
        "description": field["description"],
        "anyOf": [
            {"$ref": _REF + "Sweep"},
            grid,
            {"type": "array", "minItems": 1, "items": {"type": "object", "minProperties": 1}},
            {"type": "null"},
        ],
    }


def cluster_schema() -> dict[str, Any]:
    """The schema of cluster profiles."""
    schema = Cluster.model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    price = definitions["Price"]
    definitions["Price"] = {
        "description": price["description"],
        "anyOf": [DURATION.json_schema(), {k: v for k, v in price.items() if k != "description"}],
    }
    for definition in definitions.values():
        without_base_units(definition)
    schema["properties"]["hosts"]["propertyNames"] = {"enum": ["default", *ROLE_NAMES]}
    return {"$schema": DRAFT, **schema, "title": "recsim-train cluster profile"}


def _allow_empty(schema: dict[str, Any]) -> None:
    """Sections that have defaults may be left empty, and defaults are shown as they are written."""
    for key, field in schema["properties"].items():
        if "default" in field and "$ref" in field:
            reference, description = field["$ref"], field.get("description")
            schema["properties"][key] = {"anyOf": [{"$ref": reference}, {"type": "null"}]}
            if description:
                schema["properties"][key]["description"] = description
    for definition in schema["$defs"].values():
        without_base_units(definition)


def _model(model: dict[str, Any]) -> dict[str, Any]:
    """A preset's name, a preset with overrides, or all fields."""
    fields = copy.deepcopy(model["properties"])
    fields["tables"] = {"description": fields["tables"]["description"], "$ref": _REF + "Tables"}
    preset = {"enum": list(PRESETS), "description": "The preset that the other keys override."}
    cap = {"type": "integer", "minimum": 1, "description": "Cap on the rows of every table."}
    more = dict(zip(Model.short_forms, (preset, cap), strict=True))
    overrides: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {**more, **fields},
    }
    explicit = {key: value for key, value in overrides["properties"].items() if key != "preset"}
    # where the data has columns these follow from them
    required = [key for key in model["required"] if key not in ("dense_features", "tables")]
    return {
        "description": model["description"],
        "anyOf": [
            preset,
            {**overrides, "required": ["preset"]},
            {**overrides, "properties": explicit, "required": required},
        ],
    }


def _tables(table: dict[str, Any]) -> dict[str, Any]:
    """Row counts, mappings, mappings that stand for several tables, or a CSV file's path."""
    whole = table["properties"]["rows"]
    rows = {
        "description": whole.pop("description"),
        "anyOf": [dict(whole), {"type": "string", "pattern": LARGE}],
    }
    known: dict[str, Any] = {
        "count": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_TABLES,
            "description": "Number of tables that are all alike.",
        },
        "name": {"description": "Name of the table, which nothing uses."},
        "dim": {"type": "integer", "description": "Width, if it is to be checked: the model's."},
    }
    own = {**known, **table["properties"], "rows": rows}
    ours = {**own, **{theirs: own[name] for theirs, name in TORCHREC.items()}}
    either = [{"required": [name]} for name in ours if TORCHREC.get(name, name) == "rows"]
    entry = {**table, "properties": ours, "anyOf": either}
    entry.pop("required")
    alike = {**entry, "required": ["count"]}
    return {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": {"anyOf": [rows, entry]}},
            alike,
            {"type": "string", "pattern": r"\.csv$", "description": "Path of a CSV file."},
        ]
    }
