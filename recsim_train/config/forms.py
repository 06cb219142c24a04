"""The short forms of ``model`` and ``strategy`` in the YAML, written out as the models' fields."""

from __future__ import annotations

from typing import Any

from recsim_train.config.experiment import Model
from recsim_train.config.options import Schemas, check_choice, unknown
from recsim_train.config.presets import PRESETS
from recsim_train.config.problems import KeyPath, Mistakes, shown
from recsim_train.config.tables import is_integer, rows_of, write_out_tables
from recsim_train.config.units import IN_SHORT
from recsim_train.config.validate import check

MODEL_KEYS = ("preset", "max_rows")
"""Keys of ``model`` beyond the model's own fields."""
_EXPECTED_MODEL = "expected a preset's name or a mapping"
_EXPECTED_STRATEGY = "a strategy's name, a mapping with 'kind' and options, or a list"


def write_out_model(raw: object, mistakes: Mistakes) -> dict[str, Any] | None:
    """The model's fields, or None if there is nothing to check further.

    A name; a mapping with ``preset`` and overrides; or all fields. ``tables`` may be written in the
    forms of `recsim_train.config.tables`; ``max_rows`` caps every table.
    """
    path: KeyPath = ("model",)
    if raw is None:
        mistakes.add(path, f"missing; {_EXPECTED_MODEL} (presets: {', '.join(PRESETS)})")
        return None
    preset_path = path if isinstance(raw, str) else (*path, "preset")
    if isinstance(raw, str):
        raw = {"preset": raw}
    if not isinstance(raw, dict):
        mistakes.add(path, f"{_EXPECTED_MODEL}, got {shown(raw)}")
        return None
    own = {key: value for key, value in raw.items() if key not in MODEL_KEYS}
    fields = dict(own)
    if "preset" in raw:
        preset = raw["preset"]
        if not isinstance(preset, str):
            mistakes.add(preset_path, f"expected a preset's name, got {shown(preset)}")
            return None
        if preset not in PRESETS:
            mistakes.add(preset_path, unknown("model preset", preset, PRESETS))
            # The overrides' own mistakes are still worth saying.
            stand_in = PRESETS["tiny"].model("tiny") | {
                k: v for k, v in own.items() if k != "tables"
            }
            check(Model, stand_in, mistakes, prefix=path, extra_keys={(): MODEL_KEYS})
            return None
        fields = PRESETS[preset].model(preset) | own
        dim = own.get("embedding_dim")
        if is_integer(dim) and "bottom_mlp" not in own and fields["bottom_mlp"]:
            # The interaction needs both widths equal: one override is meant for both.
            fields["bottom_mlp"] = [*fields["bottom_mlp"][:-1], dim]
    if "tables" in own:
        dim = fields.get("embedding_dim")
        fields["tables"] = write_out_tables(own["tables"], dim, mistakes)
    if raw.get("max_rows") is not None:
        fields["tables"] = _capped(fields.get("tables"), raw["max_rows"], mistakes)
    return fields


def _capped(tables: object, most: object, mistakes: Mistakes) -> object:
    most = rows_of(most)
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        short = f" ({IN_SHORT})" if isinstance(most, str) else ""
        mistakes.add(
            ("model", "max_rows"), f"expected an integer of at least 1{short}, got {shown(most)}"
        )
        return tables
    if not isinstance(tables, list):
        return tables
    return [
        {**table, "rows": min(table["rows"], most)}
        if isinstance(table, dict) and is_integer(table.get("rows"))
        else table
        for table in tables
    ]


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
