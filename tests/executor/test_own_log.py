"""A user's own log: what runs train on is what a plain PyTorch program reads of it by pandas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import recsim_train
from recsim_train.executor.net.model import initial_dense, initial_rows

ROWS, FILES, BATCH, STEPS, LR = 700, 4, 32, 40, 0.05
COLUMNS: list[dict[str, Any]] = [
    {"name": ["price", "age"], "type": "numeric", "normalizer": "log1p", "fill_na": 2},
    {"name": "user", "type": "categorical", "hash_bucket_size": 200},
    {"name": "item", "type": "categorical", "num_buckets": 50},
    {"name": "shop", "type": "categorical", "hash_bucket_size": 40},
    {"name": "history", "type": "categorical", "hash_bucket_size": 90, "max_len": 3},
]


def frames() -> Iterator[pd.DataFrame]:
    """Names, numbers with gaps, text, and lists with gaps and of any length, also none."""
    draw = np.random.default_rng(11)
    for _ in range(FILES):
        frame = pd.DataFrame(
            {
                "clicked": draw.integers(0, 2, ROWS),
                "price": draw.exponential(20.0, ROWS).round(3),
                "age": draw.integers(-1, 90, ROWS).astype(float),
                "user": [f"user {n}" for n in draw.zipf(1.3, ROWS) % 900],
                "item": draw.integers(0, 50, ROWS),
                "shop": draw.integers(0, 300, ROWS).astype(float),
                "history": [
                    [f"h{n}" for n in draw.integers(0, 400, size)]
                    for size in draw.integers(0, 6, ROWS)
                ],
            }
        )
        for column, share in ("price", 0.1), ("age", 0.2), ("user", 0.1), ("shop", 0.15):
            frame[column] = frame[column].mask(draw.random(ROWS) < share)
        yield frame


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows as Parquet, and as CSV."""
    folder = tmp_path_factory.mktemp("log")
    for name in "parquet", "csv":
        (folder / name).mkdir()
    for number, frame in enumerate(frames()):
        frame.to_parquet(folder / "parquet" / f"part-{number}.parquet", index=False)
        flat = frame.assign(history=frame["history"].map("|".join))
        flat.to_csv(folder / "csv" / f"part-{number}.csv", index=False)
    return folder


def experiment(path: Path, columns: Sequence[dict[str, Any]], **data: Any) -> dict[str, Any]:
    return {
        "name": "own",
        "model": {
            "kind": "dlrm", "embedding_dim": 4, "bottom_mlp": [6, 4], "top_mlp": [5, 1],
        },
        "data": {
            "path": str(path), "label": "clicked", "columns": columns, "eval_rows": 0, **data,
        },
        "roles": {"trainers": 2, "embedding_servers": 0, "dense_servers": 0},
        "training": {
            "batch_size": BATCH, "threads": 1, "steps": STEPS, "warmup_steps": 0,
            "dense_optimizer": "sgd", "sparse_optimizer": "sgd", "dense_lr": LR, "sparse_lr": LR,
        },
        "strategy": "allreduce",
        "cluster": "local",
    }  # fmt: skip


def losses(folder: Path, spec: dict[str, Any]) -> np.ndarray[Any, Any]:
    """[loops, steps], of a real run."""
    file = folder / "own.yaml"
    file.write_text(yaml.safe_dump(spec))
    made = recsim_train.measure(recsim_train.load(file), out=folder / "runs")
    (run,) = made
    done = pd.read_parquet(run.folder / "iterations.parquet").sort_values("iteration")
    return np.array([own["loss"].to_numpy() for _, own in done.groupby("loop")])


def of_text(history: str | None = "|") -> list[dict[str, Any]]:
    return [{**c, "separator": history} if c["name"] == "history" else c for c in COLUMNS]


def hashed(value: object, buckets: int) -> int:
    """FNV-1a of 64 bits, as the manual has it."""
    found = 0xCBF29CE484222325
    for byte in str(value).encode():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found % buckets + 1


def inputs(frame: pd.DataFrame) -> tuple[torch.Tensor, torch.Tensor, list[list[list[int]]]]:
    """(labels, features, ids by table and row) as a program of its own would make them."""
    numbers = frame[["price", "age"]].fillna(2.0).clip(lower=0.0)
    features = torch.tensor(np.log1p(numbers.to_numpy()), dtype=torch.float32)
    ids = [
        [[0] if pd.isna(v) else [hashed(v, 200)] for v in frame["user"]],
        [[v + 1] for v in frame["item"]],
        [[0] if math.isnan(v) else [hashed(int(v), 40)] for v in frame["shop"]],
        [[hashed(v, 90) for v in bag[:3]] for bag in frame["history"]],
    ]
    return torch.tensor(frame["clicked"].to_numpy(), dtype=torch.float32), features, ids


class Plain(torch.nn.Module):
    """The net, with the run's initial weights."""

    def __init__(self, model: Any, seed: int) -> None:
        super().__init__()
        flat = iter(initial_dense(model, seed).split([12, 6, 24, 4, 14 * 5, 5, 5, 1]))
        self.dense = torch.nn.ParameterList(
            next(flat).reshape(shape).clone()
            for shape in ((6, 2), (6,), (4, 6), (4,), (5, 14), (5,), (1, 5), (1,))
        )
        self.tables = torch.nn.ParameterList(
            initial_rows(model, seed, n, 0, table.rows) for n, table in enumerate(model.tables)
        )

    def forward(self, features: torch.Tensor, ids: list[list[list[int]]]) -> torch.Tensor:
        w1, b1, w2, b2, w3, b3, w4, b4 = self.dense
        first = torch.relu(torch.relu(features @ w1.T + b1) @ w2.T + b2)
        vectors = [first]
        for table, bags in zip(self.tables, ids, strict=True):
            empty = torch.zeros(0, dtype=torch.int64)
            rows = [torch.tensor(bag) if bag else empty for bag in bags]
            vectors.append(torch.stack([table[row].sum(0) for row in rows]))
        pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(5) for j in range(i)]
        joined = torch.cat([first, torch.stack(pairs, 1)], 1)
        return (torch.relu(joined @ w3.T + b3) @ w4.T + b4)[:, 0]


def test_losses_are_those_of_a_plain_program(tmp_path: Path, log: Path) -> None:
    found = losses(tmp_path, experiment(log / "parquet", COLUMNS, shuffle=False))
    study = recsim_train.load(tmp_path / "own.yaml").experiment
    net = Plain(study.model, study.seed)
    # whole groups, here files, are dealt in turn, epoch after epoch
    parts = list(frames())
    streams = [pd.concat([*parts[loop::2]] * 2) for loop in (0, 1)]
    for step in range(STEPS):
        pieces = [inputs(s.iloc[step * BATCH : (step + 1) * BATCH]) for s in streams]
        own = [
            torch.nn.functional.binary_cross_entropy_with_logits(net(features, ids), labels)
            for labels, features, ids in pieces
        ]
        for loop, loss in enumerate(own):
            assert found[loop, step] == pytest.approx(float(loss.detach()), abs=1e-5), step
        (sum(own) / 2).backward()  # type: ignore[union-attr]
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(LR * parameter.grad)  # type: ignore[operator]
                parameter.grad = None


def test_csv_and_parquet_give_the_same_losses(tmp_path: Path, log: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = losses(tmp_path / "a", experiment(log / "parquet", COLUMNS))
    other = losses(tmp_path / "b", experiment(log / "csv", of_text()))
    assert one.shape == (2, STEPS)
    assert (one == other).all()


@pytest.mark.parametrize(
    "strategy",
    [
        "hierarchical", "des", "scalefreectr", "shadowsync", "flat_ps", "localsgd",
        "{kind: flat_ps, pooling: worker}",
    ],
)  # fmt: skip
def test_every_strategy_trains_on_it(tmp_path: Path, log: Path, strategy: str) -> None:
    """Empty bags and missing ids, too; a held-out share at the end is measured."""
    spec = experiment(log / "parquet", COLUMNS, eval_share="10 %", eval_from="end")
    del spec["data"]["eval_rows"]
    spec["strategy"] = yaml.safe_load(strategy)
    spec["roles"] |= {"embedding_servers": 1, "dense_servers": 1}
    spec["training"]["steps"] = 12
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(spec))
    (run,) = recsim_train.measure(recsim_train.load(file), out=tmp_path / "runs")
    assert run.auc is not None
    assert 0.0 < run.auc < 1.0
