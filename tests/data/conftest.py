from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from recsim_train.config.experiment import Model, Table


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
        """The row in a line (without its line feed), or what is wrong with it."""
        fields = line.removesuffix(b"\r").split(b"\t")
        if len(fields) != 40:
            return "columns"
        if fields[0] not in (b"0", b"1"):
            return "label"
        if not all(re.fullmatch(rb"(-?[0-9]{1,18})?", text) for text in fields[1:14]):
            return "integer"
        if not all(re.fullmatch(rb"[0-9a-fA-F]{0,16}", text) for text in fields[14:]):
            return "category"
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
