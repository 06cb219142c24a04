"""Formats of data files: how they are told apart, which models they can feed, what reading costs.

Config, data, workload and calibration all take from `FORMATS` what they know of a format. How a
file is read stands in the reader that an entry names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recsim_train.config.experiment import Model
    from recsim_train.config.problems import KeyPath

GENERATED = "generated"
"""The source of whoever reads no file: the generator's rows."""
INTEGER_COLUMNS = 13
CATEGORY_COLUMNS = 26
WITHOUT_PATH = "without data.path (null) the generator feeds any model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format."""

    name: str
    """As sentences have it."""
    reader: str
    """Its `recsim_train.data.source.Source`, as "module:class"."""
    ending: str
    """Of the names of its files, ".gz" left out, such as ".csv"; "": all that no other one has."""
    integers: int | None = None
    """Integer columns in a file; None: as many as the file says."""
    categories: int | None = None
    """The same of categorical columns, each of which has one id per example."""
    row: str = "parse_row"
    """The price of a row that is made into an example; see `recsim_train.config.cluster.Costs`."""
    skipped: str = "skip_row"
    """The price of a row that is passed over."""
    calls: float = 12.0
    """Calls of compiled code that making a batch takes."""


FORMATS: dict[str, Format] = {
    "text": Format(
        name="Criteo text",
        reader="recsim_train.data.criteo:CriteoText",
        ending="",
        integers=INTEGER_COLUMNS,
        categories=CATEGORY_COLUMNS,
    ),
}
"""By what signatures of reading call them."""


def source_of(path: str | None) -> str:
    """The key in `FORMATS` of a file, by its name; `GENERATED` without a file."""
    if path is None:
        return GENERATED
    ending = PurePath(path.removesuffix(".gz")).suffix
    endings = {known.ending: key for key, known in FORMATS.items()}
    return endings.get(ending, endings[""])


def unfit(model: Model, source: Format) -> Iterator[tuple[KeyPath, str]]:
    """Why a format's files cannot feed a model: the setting, and what is wrong with it.

    A model may take fewer columns than there are: the first ones, of each kind.
    """
    features, tables = model.dense_features, len(model.tables)
    if source.integers is not None and features > source.integers:
        yield (
            ("model", "dense_features"),
            f"has {source.integers} integer columns, too few for {features} dense features",
        )
    if source.categories is not None and tables > source.categories:
        yield (
            ("model", "tables"),
            f"has {source.categories} categorical columns, too few for {tables} tables",
        )
    for index, table in enumerate(model.tables):
        if table.ids > 1 or table.variable:
            yield (
                ("model", "tables", index),
                f"has one id per column, but table {index} takes "
                f"{'up to ' if table.variable else ''}{table.ids} ids per example",
            )
            break
