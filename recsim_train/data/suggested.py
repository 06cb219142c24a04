"""A description of a log as lines, as JSON, and as the experiment that it suggests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from recsim_train.config.errors import UserError
from recsim_train.config.units import SIZE
from recsim_train.data.describe import Described, Description, Distinct, Lengths, Spread

DIM = 16
"""Of the embeddings."""
_NUMBER_BYTES = 4
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""That YAML takes for something else than text."""


def lines(description: Description) -> Iterator[str]:
    """What the sample was, and each column."""
    sample = description.sample
    yield str(sample)
    if (label := description.label) is not None:
        yield f"  {_name(label.name)}: the label, {_values(label)}"
    for one in description.columns:
        if one.column is None:
            yield f"  {_name(one.name)}: left out: {one.note}; {_values(one)}"
        else:
            yield f"  {_name(one.name)}: {_values(one)} -> {_suggestion(one)}"
    for name, why in sample.left_out.items():
        yield f"  {_name(name)}: left out: {why}"
    if sample.share < 1.0:
        yield _BRACKETS


_BRACKETS = "in brackets: at least, and at most where rows that were not read are like these"


def document(description: Description) -> dict[str, Any]:
    """The same as JSON."""
    sample, label = description.sample, description.label
    return {
        "paths": list(description.paths),
        "files": sample.files,
        "row_groups": sample.groups,
        "row_groups_read": sample.groups_read,
        "texts": sample.texts,
        "texts_read": sample.texts_read,
        "rows": sample.rows,
        "rows_read": sample.rows_read,
        "malformed": sample.malformed,
        "label": None if label is None else _document(label),
        "columns": [_document(one) for one in description.columns],
        "left_out": [
            {"name": one.name, "why": one.note} for one in description.columns if not one.column
        ]
        + [{"name": name, "why": why} for name, why in sample.left_out.items()],
        "problems": description.problems,
    }


def _document(one: Described) -> dict[str, Any]:
    found = asdict(one) | {"column": _keys(one), "table_bytes": _bytes(one) if one.rows else None}
    tuples = (Distinct, Lengths, Spread)
    return {k: v._asdict() if isinstance(v, tuples) else v for k, v in found.items()}


def _keys(one: Described) -> dict[str, Any] | None:
    """A column's entry in data.columns."""
    if one.column is None:
        return None
    return {**one.column.model_dump(exclude_unset=True), "name": one.name}


def _bytes(one: Described) -> int:
    return one.rows * DIM * _NUMBER_BYTES


def _values(one: Described) -> str:
    """What its values are."""
    parts = [one.type, f"{100 * one.missing:.3g} % missing"]
    if one.positives is not None:
        parts.append(f"{100 * one.positives:.3g} % are 1")
    about, least, most = one.distinct
    bounds = f" ({least:,} to {most:,})" if most > least else ""
    parts.append(f"{'about ' * bool(bounds)}{about:,} distinct{bounds}")
    if one.skew is not None and (one.column is None or one.rows):
        parts.append(f"skew {max(0.0, one.skew):.2f}")
    if one.numbers is not None:
        low, median, high = map(_number, one.numbers)
        parts.append(f"{low} to {high}, median {median}")
    if (lengths := one.lengths) is not None:
        parts.append(
            f"{lengths.mean:.3g} ids in the mean, 95 % up to {lengths.usual:,}, up to "
            f"{lengths.most:,}"
        )
    return ", ".join(parts)


def _number(value: float) -> str:
    plain = value.is_integer() or 100.0 <= abs(value) < 1e12
    return f"{value:,.0f}" if plain else f"{value:.3g}"


def _suggestion(one: Described) -> str:
    keys = {k: v for k, v in (_keys(one) or {}).items() if k not in ("name", "out_of_range")}
    parts = [keys.pop("type"), *(f"{key} {_shown(value)}" for key, value in keys.items())]
    parts += [f"table of {SIZE.format(_bytes(one), 3)}"] if one.rows else []
    return ", ".join([*parts, one.note] if one.note else parts)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if value.strip() and value.isalnum() else repr(value)
    return f"{value:,}"


def _name(name: str) -> str:
    """As YAML has it."""
    if _PLAIN.fullmatch(name) and name.lower() not in _WORDS:
        return name
    return json.dumps(name)


def experiment(description: Description, name: str) -> str:
    """The experiment, as YAML with comments. Raises UserError where there can be none."""
    sample, label = description.sample, description.label
    if description.problems or label is None:
        raise UserError(description.problems[0])
    tables = description.of_type("categorical")
    memory = SIZE.format(sum(map(_bytes, tables)), 3)
    paths = [json.dumps(path) for path in description.paths]
    brackets = f"# Of distinct ids stand {_BRACKETS}.\n" if sample.share < 1.0 else ""
    text = f"""\
# Suggested by `recsim-train data describe` after reading {sample}.
# Every line may be changed: `recsim-train show settings` says what each means.
{brackets}name: {_name(name)}

model:
  kind: dlrm
  embedding_dim: {DIM}        # tables: {memory} in all
  bottom_mlp: [64, {DIM}]
  top_mlp: [64, 1]
"""
    if sample.criteo:
        text += "  tables:   # in the order of Criteo's categorical columns\n"
        text += "".join(f"    - {{rows: {one.rows}}}   # {_comment(one)}\n" for one in tables)
    path = paths[0] if len(paths) == 1 else f"[{', '.join(paths)}]"
    text += f"\ndata:\n  path: {path}\n"
    if not sample.criteo:
        text += f"  label: {_name(label.name)}   # {_values(label)}\n  columns:\n"
        for one in description.columns:
            text += f"    - {{{_flow(one)}}}   # {_comment(one)}\n" if one.column else ""
        left_out = {one.name: one.note for one in description.columns if one.column is None}
        left_out |= sample.left_out
        text += "".join(
            f"    # left out: {_name(column)}: {why}\n" for column, why in left_out.items()
        )
    lookups = [(one.skew, one.lengths.mean if one.lengths else 1.0) for one in tables]
    skews = [(max(0.0, skew), ids) for skew, ids in lookups if skew is not None]
    if skews:
        mean = sum(skew * ids for skew, ids in skews) / sum(ids for _, ids in skews)
        text += f"  synthetic: {{zipf: {min(mean, 4.0):.2f}}}   # the skew of the ids\n"
    return f"""{text}\
  eval_share: 5 %
  eval_from: end       # held out: the last rows of a log in order of time

roles: {{trainers: 2, embedding_servers: 1}}
training: {{batch_size: 256, steps: 200, warmup_steps: 20}}   # batches are of a worker thread
strategy: flat_ps     # `recsim-train show strategies` lists them
cluster: local        # this machine: the first prediction measures it; or name another profile
"""


def _flow(one: Described) -> str:
    """Its entry in data.columns."""
    keys = _keys(one) or {}
    order = {"name": keys["name"], **keys}
    return ", ".join(
        f"{key}: {_name(value) if isinstance(value, str) else value}"
        for key, value in order.items()
    )


def _comment(one: Described) -> str:
    """What is known of a column that is used; of a table, its memory."""
    parts = [_values(one)]
    parts += [f"table of {SIZE.format(_bytes(one), 3)}"] if one.rows else []
    said = "; ".join([*parts, one.note] if one.note else parts)
    return json.dumps(said)[1:-1] if not said.isprintable() else said
