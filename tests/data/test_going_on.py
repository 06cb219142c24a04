"""Streams that go on in the middle give what those from the beginning give there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.stream import open_stream

COLUMNS = [
    {"name": ["price"], "type": "numeric"},
    {"name": ["item"], "type": "categorical", "num_buckets": 500},
    {"name": ["words"], "type": "categorical", "hash_bucket_size": 60, "max_len": 3},
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    draw = np.random.default_rng(3)
    for number, rows in enumerate((700, 40, 1300)):
        frame = pd.DataFrame(
            {
                "clicked": draw.integers(0, 2, rows),
                "price": draw.normal(size=rows).round(2).astype(str),
                "item": draw.integers(0, 500, rows),
                "words": [[f"w{n}" for n in draw.integers(0, 99, k % 4)] for k in range(rows)],
            }
        )
        frame.loc[::17, "price"] = "no number"
        frame.to_parquet(tmp_path / f"part-{number}.parquet", row_group_size=150)
    return tmp_path


def batches(
    model: Model, data: Data, loops: int, position: int, iterations: int, first: int
) -> list[tuple[int, NumpyBatch]]:
    stream = open_stream(
        model,
        data,
        batch_size=32,
        positions=[position],
        total=loops,
        iterations=iterations,
        seed=5,
        first=first,
    )
    return [(fed.iteration, fed.batch) for fed in stream]


@pytest.mark.parametrize("source", ["log", "log in order", "generator"])
@pytest.mark.parametrize(("loops", "first"), [(1, 1), (1, 63), (3, 21), (3, 90), (20, 5)])
def test_batches_from_an_iteration_on_are_those_of_the_whole(
    log: Path, source: str, loops: int, first: int
) -> None:
    tables = (Table(rows=501), Table(rows=61, ids=3, variable=True))
    model = Model(embedding_dim=4, dense_features=1, bottom_mlp=(4,), top_mlp=(1,), tables=tables)
    files = {"path": (str(log),), "label": "clicked", "columns": COLUMNS}
    data = Data.model_validate(
        {"eval_rows": 100} | (files | {"malformed_limit": "100 %", "shuffle": source == "log"})
        if source != "generator"
        else {"eval_rows": 100, "synthetic": {"rows": 900, "seed": 3}}
    )
    for position in (0, loops - 1):
        whole = batches(model, data, loops, position, first + 12, 0)
        rest = batches(model, data, loops, position, first + 12, first)
        assert [number for number, _ in rest] == list(range(first, first + 12))
        for (_, a), (_, b) in zip(whole[first:], rest, strict=True):
            for name in ("dense", "labels", "ids", "lengths"):
                assert np.array_equal(getattr(a, name), getattr(b, name)), name
