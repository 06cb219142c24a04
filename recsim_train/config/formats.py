"""Where rows come from, and which models files can feed of which nothing else is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recsim_train.config.experiment import Data, Model
    from recsim_train.config.problems import KeyPath

GENERATED, FILES = "generated", "files"
"""The source of rows: the generator, files."""
INTEGER_COLUMNS = 13
CATEGORY_COLUMNS = 26
WITHOUT_PATH = "without data.path (null) the generator feeds any model"


def source_of(data: Data) -> str:
    """`GENERATED` or `FILES`."""
    return GENERATED if data.path is None else FILES


def unfit(model: Model) -> Iterator[tuple[KeyPath, str]]:
    """Why Criteo's columns cannot feed a model: the setting, and what is wrong with it.

    A model may take fewer columns than there are: the first ones, of each kind.
    """
    features, tables = model.dense_features, len(model.tables)
    if features > INTEGER_COLUMNS:
        yield (
            ("model", "dense_features"),
            f"has {INTEGER_COLUMNS} integer columns, too few for {features} dense features",
        )
    if tables > CATEGORY_COLUMNS:
        yield (
            ("model", "tables"),
            f"has {CATEGORY_COLUMNS} categorical columns, too few for {tables} tables",
        )
    for index, table in enumerate(model.tables):
        if table.ids > 1 or table.variable:
            yield (
                ("model", "tables", index),
                f"has one id per column, but table {index} takes "
                f"{'up to ' if table.variable else ''}{table.ids} ids per example",
            )
            break
