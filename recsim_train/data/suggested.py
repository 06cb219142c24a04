"""A description of a log as lines, as JSON, and as the experiment that it suggests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from recsim_train.config.errors import UserError
from recsim_train.config.units import SIZE
from recsim_train.config.yaml_source import one_line
from recsim_train.data.describe import Described, Description

DIM, _NUMBER_BYTES = 16, 4
"""Of the embeddings."""
_BRACKETS = "in brackets: at least, and at most where rows that were not read are like these"


def lines(description: Description) -> Iterator[str]:
    """What the sample was, and each column, as an experiment has it."""
    yield f"{description.sample}{f'; {_BRACKETS}' if description.sample.share < 1.0 else ''}"
    if (label := description.label) is not None:
        yield f"label: {one_line(label.name)}   # {_said(label)}"
    yield "columns:"
    for one in description.columns:
        keys = (
            f"{key}: {one_line(value) if isinstance(value, str) else value}"
            for key, value in one.column.items()
        )
        yield f"  - {{{', '.join(keys)}}}   # {_said(one)}"
    for name, why in description.left_out.items():
        yield f"  # left out: {one_line(name)}: {why}"


def document(description: Description) -> dict[str, Any]:
    """The same as JSON."""
    figures = ("format", "parts", "parts_read", "rows", "rows_read", "malformed")
    return {
        "paths": description.paths,
        **{name: getattr(description.sample, name) for name in figures},
        "label": None if description.label is None else asdict(description.label),
        "columns": [asdict(one) | {"table_bytes": _bytes(one)} for one in description.columns],
        "left_out": description.left_out,
        "problems": description.problems,
    }


def _bytes(one: Described) -> int:
    """Of its table, if it has one."""
    return one.rows * DIM * _NUMBER_BYTES


def _said(one: Described) -> str:
    """What its values are, and its table's memory."""
    about, least, most = one.distinct.values()
    bounds = f" ({least:,} to {most:,})" if most > least else ""
    numbers = (f"{name} {value:,.6g}" for name, value in (one.numbers or {}).items())
    lists = "lists of {mean:.3g} ids in the mean, 95 % up to {usual:,.0f}, most {most:,.0f}"
    parts = [
        one.type, f"{100 * one.missing:.3g} % missing", f"{about:,} distinct{bounds}", *numbers,
        *([lists.format(**one.lengths)] if one.lengths else []),
    ]  # fmt: skip
    if one.positives is not None:
        parts.append(f"{100 * one.positives:.3g} % are 1")
    if one.rows:
        skew = f"skew {one.skew:.2f}, " if one.skew is not None else ""
        parts.append(f"{skew}table of {SIZE.format(_bytes(one), 3)}")
    return ", ".join(parts)


def experiment(description: Description, name: str) -> str:
    """The experiment, as YAML with comments. Raises UserError where there can be none."""
    if description.problems:
        raise UserError(description.problems[0])
    read, *columns = lines(description)
    tables = [one for one in description.columns if one.rows]
    of_tables, data = "", "".join(f"  {line}\n" for line in columns)
    if description.sample.format == "Criteo text":
        # whose columns are known: only the tables' rows are to be said
        of_tables = "  tables:   # in the order of Criteo's categorical columns\n" + "".join(
            f"    - {{rows: {one.rows}}}   # {_said(one)}\n" for one in tables
        )
        data = ""
    skews = [min(max(0.0, one.skew), 4.0) for one in tables if one.skew is not None]
    if skews:
        data += f"  synthetic: {{zipf: {np.mean(skews):.2f}}}   # the ids' mean skew\n"
    return f"""\
# Suggested by `recsim-train data describe` after reading
# {read}.
# Every line may be changed: `recsim-train show settings` says what each means.
name: {one_line(name)}

model:
  kind: dlrm
  embedding_dim: {DIM}        # tables: {SIZE.format(sum(map(_bytes, tables)), 3)} in all
  bottom_mlp: [64, {DIM}]
  top_mlp: [64, 1]
{of_tables}
data:
  path: {json.dumps(description.paths)}
{data}\
  eval_share: 5 %
  eval_from: end       # held out: the last rows of a log in order of time

roles: {{trainers: 2, embedding_servers: 1}}
training: {{batch_size: 256, steps: 200, warmup_steps: 20}}   # batches are of a worker thread
strategy: flat_ps     # `recsim-train show strategies` lists them
cluster: local        # this machine: the first prediction measures it; or name another profile
"""
