"""Columns of a log: what is read of it, and the tables that follow. One table for each categorical
column, in their order; features are the numeric columns, in theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from recsim_train.config.problems import KeyPath, Mistakes, shown
from recsim_train.config.units import Names, Positive, Section

Buckets = Annotated[int, Field(ge=1, le=10**12)]


class Column(Section):
    """A column of the data, or several that are alike."""

    refused: ClassVar[Mapping[str, str]] = {  # of what other tools know of a column
        "embedding_name": "each categorical column has a table of its own",
        "embedding_dim": "all tables are of model.embedding_dim",
        "vocab_list": "give hash_bucket_size, or number the values and give num_buckets",
        "vocab_file": "give hash_bucket_size, or number the values and give num_buckets",
        "pooling": "the embeddings of a list are summed",
        "dtype": "the type is what the file says",
        "share_embedding": "each categorical column has a table of its own",
        "default_value": "of numbers it is fill_na; a missing id has a row of its own, row 0",
    }

    name: Names
    """Its name in the files; or a list of names."""
    type: Literal["numeric", "categorical"]
    """numeric: one feature; categorical: ids of a table of its own."""
    fill_na: float = 0.0
    """numeric: the value in place of a missing one."""
    normalizer: Literal["log1p", "none"] = "none"
    """numeric: log1p takes log(1 + x), and numbers below 0 as 0."""
    num_buckets: Buckets | None = None
    """categorical: ids are whole numbers from 0 to below this."""
    hash_bucket_size: Buckets | None = None
    """categorical: ids are hashed, as text, into so many buckets (FNV-1a of 64 bits, modulo)."""
    out_of_range: Literal["error", "bucket"] = "error"
    """num_buckets: what an id outside of it is: malformed, or taken for a missing one and
    counted."""
    max_len: Positive | None = None
    """categorical: the values are lists, and of each its first so many ids are taken, which are
    summed; none: one id."""
    mean_len: Annotated[float, Field(ge=0.0)] | None = None
    """max_len: ids of a list in the mean, as `data describe` found; none: half of max_len."""
    separator: str | None = None
    """max_len: what stands between a list's ids where it is text."""

    @property
    def buckets(self) -> int:
        """Of a categorical column."""
        return self.num_buckets or self.hash_bucket_size or 0


class Columns(Section):
    """All of them."""

    columns: tuple[Column, ...]


class Numeric(NamedTuple):
    """One feature."""

    name: str
    fill: float
    log: bool


class Categorical(NamedTuple):
    """One table's ids. Row 0 is that of missing ones."""

    name: str
    rows: int
    mapping: Literal["buckets", "hash", "remainder"]
    """Of whole numbers as they are; of hashes; by the remainder by one less than the rows."""
    most: int = 0
    """Of a list's ids; 0: no list."""
    separator: str | None = None
    strict: bool = True
    """Whether numbers outside of the buckets are malformed."""


class Layout(NamedTuple):
    """What is read of a log."""

    label: str
    numeric: tuple[Numeric, ...]
    categorical: tuple[Categorical, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all columns, the label's first."""
        return (self.label, *(c.name for c in self.numeric), *(c.name for c in self.categorical))


def layout_of(label: str, columns: tuple[Column, ...]) -> Layout:
    """What a label and columns ask for."""
    numeric, categorical = [], []
    for column in columns:
        for name in column.name:
            if column.type == "numeric":
                numeric.append(Numeric(name, column.fill_na, column.normalizer == "log1p"))
            else:
                mapping: Any = "buckets" if column.num_buckets else "hash"
                categorical.append(
                    Categorical(
                        name, column.buckets + 1, mapping, column.max_len or 0, column.separator,
                        column.out_of_range == "error",
                    )
                )  # fmt: skip
    return Layout(label, tuple(numeric), tuple(categorical))


def tables_of(columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    """The tables that follow from columns, as plain data."""
    found: list[dict[str, Any]] = []
    for column in columns:
        table: dict[str, Any] = {"rows": column.buckets + 1}
        if column.max_len is not None:
            table |= {"ids": column.max_len, "variable": True}
            table |= {} if column.mean_len is None else {"mean_ids": column.mean_len}
        found += [table] * len(column.name) if column.type == "categorical" else []
    return found


_ONLY = {
    "fill_na": "numeric", "normalizer": "numeric", "num_buckets": "categorical",
    "hash_bucket_size": "categorical", "out_of_range": "categorical", "max_len": "categorical",
    "mean_len": "categorical", "separator": "categorical",
}  # fmt: skip
"""Keys of one type of column."""


def check_columns(label: str | None, columns: tuple[Column, ...], mistakes: Mistakes) -> None:
    """Columns that fit together."""
    path: KeyPath = ("data", "columns")
    if not columns:
        if label is not None:
            mistakes.add(
                ("data", "label"),
                "there are no data.columns; `recsim-train data describe` writes both",
            )
        return
    if label is None:
        mistakes.add(("data", "label"), "missing; expected the name of the column of clicks")
    seen = {label}
    for n, column in enumerate(columns):
        given = column.model_fields_set
        for key, of in _ONLY.items():
            if key in given and of != column.type:
                mistakes.add((*path, n, key), f"a {column.type} column has none", at_key=True)
        for name in column.name:
            if name in seen:
                mistakes.add((*path, n, "name"), f"{shown(name)} is named twice")
            seen.add(name)
        if column.type == "numeric":
            continue
        if (column.num_buckets is None) == (column.hash_bucket_size is None):
            mistakes.add(
                (*path, n),
                "expected exactly one of num_buckets (ids are whole numbers from 0 on) and "
                "hash_bucket_size (ids are hashed)",
            )
        if "out_of_range" in given and column.num_buckets is None:
            mistakes.add((*path, n, "out_of_range"), "only num_buckets has a range", at_key=True)
        for key in ("mean_len", "separator"):
            if key in given and column.max_len is None:
                mistakes.add(
                    (*path, n, key), "only lists, which have max_len, have it", at_key=True
                )
        if (column.mean_len or 0.0) > (column.max_len or 0):
            mistakes.add((*path, n, "mean_len"), f"expected at most max_len ({column.max_len})")
        if column.separator == "":
            mistakes.add((*path, n, "separator"), "expected some text between a list's ids")
    for kind, what in ("numeric", "a feature"), ("categorical", "a table"):
        if not any(column.type == kind for column in columns):
            mistakes.add(path, f"expected at least one {kind} column, of which {what} is made")
