"""The ways to write a model's tables, in the experiment or in a file, written out as a list."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Table
from recsim_train.config.problems import ConfigErrors, KeyPath, Mark, Marks, Mistakes, shown
from recsim_train.config.sets import parse_value
from recsim_train.config.validate import check
from recsim_train.config.yaml_source import parse_yaml, read_text

TABLES: KeyPath = ("model", "tables")
MOST_TABLES = 100_000
LARGE = r"^\d{1,15}(\.\d+)?[kMG]$"
"""Large counts of rows in short: 50k, 1.5M, 2G are thousands, millions, billions."""
_TIMES = {"k": 10**3, "M": 10**6, "G": 10**9}
TORCHREC = {"num_embeddings": "rows", "embedding_dim": "dim"}
"""What TorchRec calls a table's fields."""
_ONLY = {"data_type": "FP32", "pooling": "SUM"}
"""Fields of its EmbeddingBagConfig with the value that tables have here."""
_OF_NO_ACCOUNT = frozenset({
    "feature_names", "weight_init_max", "weight_init_min", "num_embeddings_post_pruning", "init_fn",
    "need_pos", "input_dim", "total_num_buckets", "use_virtual_table",
    "virtual_table_eviction_policy", "enable_embedding_update",
})  # fmt: skip
"""Fields of it that say nothing of how long a step takes."""
_COLUMNS = ("name", "rows", "dim", "ids", "max_ids", "variable")
_STAND_IN = {"rows": 1}
"""In place of a table with mistakes, so that the rest is still checked."""
_CAUSES = {
    r"(?i)sep=": "; 'sep=' is a spreadsheet's own line: leave it out",
    r".*;": "; here columns are separated by semicolons: expected commas",
    r".*\t": "; here columns are separated by tabs: expected commas",
    r"(?i)(.*,)?(rows|num_embeddings)(,|$)": "; names of columns are in lower case",
}
"""Why a first line may have no such column."""


def write_out_tables(raw: object, dim: object, mistakes: Mistakes) -> list[Any]:
    """A mapping with a table's own fields for each table, or what stands in its place.

    ``raw``: a list of row counts or of mappings, one mapping with ``count``, or the path of a file:
    CSV, or JSON or YAML with such a list; ``dim``: the model's, of which all tables are.
    """
    if isinstance(raw, str) and raw.endswith(tuple(_FILES)):
        file = Path(raw)
        what, read = _FILES[file.suffix]
        try:
            raw = read(read_text(file, what), file, mistakes)
        except ConfigErrors:
            raise
        except (UserError, csv.Error) as error:
            mistakes.add(TABLES, str(error))
            return [_STAND_IN]
    if not isinstance(raw, list | dict):
        mistakes.add(
            TABLES,
            "expected a list of row counts or of mappings, {count: 26, rows: 100000}, or the path "
            f"of a file *.csv, *.json or *.yaml, got {shown(raw)}",
        )
        return [_STAND_IN]
    alone = isinstance(raw, dict)
    found: list[Any] = []
    places: list[KeyPath] = []
    for index, item in enumerate([raw] if alone else raw):
        path = TABLES if alone else (*TABLES, index)
        several = _written(item, alone, dim, path, mistakes)
        found += several
        places += [path] * len(several)
    if not alone and len(places) > len(raw):
        _move(mistakes.marks, places)
    return found


def rows_of(value: object) -> object:
    """A number of rows that may be written in short: "50M" is 50 million."""
    if isinstance(value, str) and re.match(LARGE, value):
        return round(float(value[:-1]) * _TIMES[value[-1]])
    return value


def is_integer(value: Any) -> bool:
    """Whether it is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _written(
    item: object, alone: bool, dim: object, path: KeyPath, mistakes: Mistakes
) -> list[Any]:
    """The tables that one entry stands for."""
    if not isinstance(item, dict):
        rows = rows_of(item)
        return [{"rows": rows} if is_integer(rows) or str(rows)[:1].isdigit() else item]
    table = _fields(item, path, mistakes)
    _check_width(table, dim, path, mistakes)
    if not alone and "count" not in table:
        return [table]
    count: Any = table.pop("count", None)
    if not is_integer(count) or not 1 <= count <= MOST_TABLES:
        given = "count" in item
        got = f", got {shown(count)}" if given else "; 'count' is missing"
        mistakes.add(
            (*path, "count") if given else path,
            f"expected an integer of at least 1 and at most {MOST_TABLES}{got}",
        )
        count = 1
    # Checked once here: as items of the list, one mistake would be reported `count` times.
    sound = check(Table, table, mistakes, prefix=path)
    return [table if sound else _STAND_IN] * count


def _fields(item: Mapping[Any, Any], path: KeyPath, mistakes: Mistakes) -> dict[Any, Any]:
    """With our names, without the table's own; of TorchRec's configurations what is of account."""
    own = dict(item)
    if "num_embeddings" in own:
        if len(features := own.get("feature_names") or ()) > 1:
            mistakes.add(
                (*path, "feature_names"),
                f"{len(features)} features share this table, which no prediction models: expected "
                "a table for each",
            )
        for key, here in _ONLY.items():
            if (given := str(own.pop(key, here)).rpartition(".")[2]).upper() != here:
                mistakes.add((*path, key), f"expected {here}, as all tables are here, got {given}")
        own = {key: value for key, value in own.items() if key not in _OF_NO_ACCOUNT}
    table = {TORCHREC.get(key, key): value for key, value in own.items() if key != "name"}
    if "rows" in table:
        table["rows"] = rows_of(table["rows"])
    return table


def _check_width(table: dict[Any, Any], dim: object, path: KeyPath, mistakes: Mistakes) -> None:
    """Take a table's width out, which is to be the model's."""
    own = table.pop("dim", dim)
    if own != dim:
        mistakes.add(
            path,
            f"is {shown(own)} wide, and model.embedding_dim is {shown(dim)}: all tables of a model "
            "have the same width",
        )


def _move(marks: Marks, places: list[KeyPath]) -> None:
    """The place of each table is that of its entry, which may stand for several."""
    below: dict[KeyPath, list[tuple[KeyPath, Mark]]] = {}
    for path in [path for path in marks if path[: len(TABLES) + 1] in places]:
        at, rest = path[: len(TABLES) + 1], path[len(TABLES) + 1 :]
        below.setdefault(at, []).append((rest, marks.pop(path)))
    for index, place in enumerate(places):
        marks.update({(*TABLES, index, *rest): mark for rest, mark in below.get(place, ())})


def _of_list(text: str, path: Path, mistakes: Mistakes) -> object:
    """What a file of YAML says, of which JSON is a part; its places are those of mistakes."""
    if path.suffix == ".json":  # where tabs may indent
        text = text.replace("\t", " ")
    _, found, marks, problems = parse_yaml(text, str(path), TABLES)
    mistakes.problems += problems
    mistakes.marks.update(marks)
    return found


def _of_csv(text: str, path: Path, mistakes: Mistakes) -> list[dict[str, Any]]:
    """A table a line; columns ``rows``, and ``ids`` or ``max_ids`` for bags of 1 to so many."""
    lines = [*csv.reader(io.StringIO(text, newline=""))]
    first = lines[0] if lines else []
    head = [TORCHREC.get(name.strip(), name.strip()) for name in first]
    if problem := _head_problem(head, len(lines) - 1):
        mistakes.add_at(Mark(str(path), 1, 1, ",".join(first)), "", problem)
        return [_STAND_IN]
    found: list[dict[str, Any]] = []
    for number, cells in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        at: KeyPath = (*TABLES, len(found))
        line = ",".join(f'"{cell}"' if "," in cell else cell for cell in cells)
        mistakes.marks[at] = Mark(str(path), number, 1, line)
        if len(cells) == len(head):
            found.append(dict(_of_line(head, cells, f"{path}:{number}")))
        else:
            mistakes.add(at, f"expected {len(head)} columns as in the first line, got {len(cells)}")
            found.append(_STAND_IN)
    return found


def _head_problem(head: list[str], tables: int) -> str:
    """What is wrong with a file's first line; nothing where it is sound."""
    if "rows" not in head:
        why = next((why for shape, why in _CAUSES.items() if re.match(shape, ",".join(head))), "")
        return f"expected a first line with the column 'rows' (known: {', '.join(_COLUMNS)}){why}"
    if strange := [name for name in head if name not in _COLUMNS]:
        return f"unknown column {strange[0]!r} (known: {', '.join(_COLUMNS)})"
    if len(set(head)) < len(head):
        return "a column is there twice"
    if {"ids", "max_ids"} <= set(head):
        return "expected one of the columns 'ids' and 'max_ids', got both"
    return "" if 1 <= tables <= MOST_TABLES else f"expected 1 to {MOST_TABLES} tables"


def _of_line(head: list[str], cells: list[str], where: str) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(head, (cell.strip() for cell in cells), strict=True):
        if name == "name" or not cell:
            continue
        value = int(cell) if len(cell) < 19 and cell.isdecimal() else parse_value(cell, where)
        if name == "max_ids":
            yield "ids", value
            yield "variable", True
        else:
            yield name, value


_FILES = {
    ".csv": ("CSV of tables", _of_csv),
    **dict.fromkeys((".json", ".yaml", ".yml"), ("a list of tables", _of_list)),
}
"""What files may hold, by how their names end, and what makes a list of it."""
