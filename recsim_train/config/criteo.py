"""The columns of Criteo text, and which models they can feed: the one place that says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recsim_train.config.experiment import Model
    from recsim_train.config.problems import KeyPath

INTEGER_COLUMNS = 13
CATEGORY_COLUMNS = 26
WITHOUT_PATH = "without data.path (null) the generator feeds any model"


def unfit(model: Model) -> Iterator[tuple[KeyPath, str]]:
    """Why Criteo text cannot feed a model: the setting, and what is wrong with it.

    A model may take fewer columns than there are: the first ones, of each kind.
    """
    if model.dense_features > INTEGER_COLUMNS:
        yield (
            ("model", "dense_features"),
            f"has {INTEGER_COLUMNS} integer columns, too few for {model.dense_features} dense "
            "features",
        )
    if len(model.tables) > CATEGORY_COLUMNS:
        yield (
            ("model", "tables"),
            f"has {CATEGORY_COLUMNS} categorical columns, too few for {len(model.tables)} tables",
        )
    for index, table in enumerate(model.tables):
        if table.ids > 1 or table.variable:
            yield (
                ("model", "tables", index),
                f"has one id per column, but table {index} takes "
                f"{'up to ' if table.variable else ''}{table.ids} ids per example",
            )
            break
