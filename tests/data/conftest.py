from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.convert import convert_text
from recsim_train.data.input import layout_for, to_convert
from recsim_train.data.log import Log, ParquetFile
from recsim_train.data.log_stream import Maker
from recsim_train.data.mapping import Mapper
from recsim_train.data.text import criteo_text


def small_model(rows: tuple[int, ...], features: int = 13) -> Model:
    return Model(
        embedding_dim=4,
        dense_features=features,
        bottom_mlp=(8, 4),
        top_mlp=(8, 1),
        tables=tuple(Table(rows=count) for count in rows),
    )


@pytest.fixture
def make_model() -> Callable[..., Model]:
    return small_model


@dataclass
class Row:
    label: float
    dense: list[float]
    ids: list[int]


class Reference:
    """A slow, obviously right reader of Criteo lines, to hold the fast one against."""

    def row(self, line: bytes, model: Model) -> Row | str:
        """The row in a line (without its end), or how the sentence on what is wrong begins."""
        fields = line.split(b"\t") if line else [b""] * 40
        if len(fields) != 40:
            return f"{len(fields)} column{'' if len(fields) == 1 else 's'}, not 40"
        patterns = [rb"[01]", *[rb"(-?[0-9]{1,18})?"] * 13, *[rb"[0-9a-fA-F]{0,16}"] * 26]
        for column, (pattern, text) in enumerate(zip(patterns, fields, strict=True), 1):
            if not re.fullmatch(pattern, text):
                return f'column {column}: "'
        dense = [math.log(max(int(text or b"0"), 0) + 1) for text in fields[1:14]]
        ids = [
            0 if not text or table.rows == 1 else int(text, 16) % (table.rows - 1) + 1
            for table, text in zip(model.tables, fields[14:], strict=False)
        ]
        return Row(float(fields[0]), dense[: model.dense_features], ids)

    def batch(self, lines: list[bytes], model: Model) -> tuple[list[Row], list[str | None]]:
        """Rows, malformed ones replaced by the next good one, cyclically; and what was wrong."""
        rows = [self.row(line, model) for line in lines]
        wrong = [row if isinstance(row, str) else None for row in rows]
        fixed = [
            next(row for row in rows[at:] + rows[:at] if isinstance(row, Row))
            for at in range(len(rows))
        ]
        return fixed, wrong


@pytest.fixture(scope="session")
def reference() -> Reference:
    return Reference()


def criteo_line(label: str = "1", integer: str = "3", category: str = "0000001f") -> str:
    return "\t".join([label, *[integer] * 13, *[category] * 26])


@pytest.fixture
def make_line() -> Callable[..., str]:
    return criteo_line


def criteo_maker(path: Path, model: Model, limit: float = 1.0) -> Maker:
    """Of a Criteo text, through its conversion."""
    target = path.with_name(f"{path.name}.parquet")
    convert_text(criteo_text(str(path)), target)
    layout = layout_for(model, Data())
    log = Log([ParquetFile(str(target), str(path), 1)], layout)
    return Maker(log, Mapper(layout), str(path), limit)


@pytest.fixture
def make_criteo() -> Callable[..., Maker]:
    return criteo_maker


def all_rows(maker: Maker, batch_size: int = 1 << 30) -> list[NumpyBatch]:
    return list(maker.in_order(0, maker.log.rows, batch_size))


@pytest.fixture
def every_row() -> Callable[..., list[NumpyBatch]]:
    """All rows of a log in order, in batches."""
    return all_rows


def convert_all(data: Data) -> None:
    for _, text, target in to_convert(data):
        assert text is not None
        convert_text(text, target)


@pytest.fixture
def convert() -> Callable[[Data], None]:
    """Converts what is text, as a run does."""
    return convert_all


def row_numbers(batch: NumpyBatch) -> list[int]:
    """Of rows that have their numbers as first integer."""
    found: list[int] = np.expm1(batch.dense[:, 0].astype(float)).round().astype(int).tolist()
    return found


@pytest.fixture
def numbers() -> Callable[[NumpyBatch], list[int]]:
    return row_numbers
