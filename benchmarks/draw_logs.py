"""Logs and settings that nobody chose: an experiment of drawn settings on files of one's own kind.

    python benchmarks/draw_logs.py FOLDER [--count 10] [--seed 80] [--cores 2]

Writes FOLDER/drawn-logs.yaml and the logs that it names, for `recsim-train validate`. Each has
numbers with gaps, ids as numbers and as text, and lists of both, as Parquet or as CSV; how many of
each, strategy, batch size, trainers, threads, readers and servers come from `random.Random(seed)`.
Nothing is drawn again. Draw before calibration, replace none.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import yaml
from draw_settings import BATCHES, FREE, RATES, STRATEGIES, THREADS, TRAINERS, WIDTHS, steps_of
from draw_settings import experiment as settings
from script import options

ROWS, FILES, GROUP = 40_000, 3, 20_000
"""Of a file; files; rows of a row group."""
MEAN = 4
"""Ids of a list."""


def log(draw: Random, folder: Path, number: int) -> dict[str, Any]:
    """A log on disk, and the section ``data`` that describes it."""
    random = np.random.default_rng(draw.getrandbits(32))
    parquet, counts = draw.random() < 0.7, [draw.choice((1, 3, 6)) for _ in range(4)]
    features = draw.choice((2, 8, 16))
    columns: list[dict[str, Any]] = [
        {"name": [f"n{n}" for n in range(features)], "type": "numeric", "normalizer": "log1p"}
    ]
    kinds = [(n, text, many) for (text, many), count in
             zip(((0, 0), (1, 0), (0, 1), (1, 1)), counts, strict=True)
             for n in range(count)]  # fmt: skip
    for n, text, many in kinds:
        column: dict[str, Any] = {"name": f"{'ti'[not text]}{'ls'[not many]}{n}"}
        column |= {"type": "categorical"}
        column |= {"hash_bucket_size": 20_000} if text else {"num_buckets": 50_000}
        column |= {"max_len": 8, "mean_len": MEAN} if many else {}
        columns.append(column | ({"separator": "|"} if many and not parquet else {}))
    place = folder / f"log-{number}"
    place.mkdir(parents=True)
    for file in range(FILES):
        frame = pd.DataFrame({"clicked": random.integers(0, 2, ROWS)})
        for n in range(features):
            numbers = pd.Series(random.exponential(30.0, ROWS).round(2))
            frame[f"n{n}"] = numbers.mask(random.random(ROWS) < 0.1)
        for (_, text, many), column in zip(kinds, columns[1:], strict=True):
            ids = random.zipf(1.2, ROWS * (2 * MEAN - 1)) % 50_000
            values: Any = [f"id-{n}" for n in ids] if text else ids
            ends = np.cumsum(random.integers(1, 2 * MEAN, ROWS)) if many else []
            values = np.split(values, ends)[:ROWS] if many else values[:ROWS]
            if many and not parquet:
                values = ["|".join(map(str, own)) for own in values]
            frame[column["name"]] = list(values)
        if parquet:
            frame.to_parquet(place / f"{file}.parquet", row_group_size=GROUP, index=False)
        else:
            frame.to_csv(place / f"{file}.csv", index=False)
    return {"path": str(place), "label": "clicked", "columns": columns, "eval_rows": 0}


def point(draw: Random, folder: Path, number: int, cores: int) -> dict[str, Any]:
    """One setting."""
    strategy = dict(draw.choice(STRATEGIES[number % len(STRATEGIES)]))
    data, dim = log(draw, folder, number), draw.choice((8, 16, 32))
    trainers = max(2, draw.choice(TRAINERS[cores]))
    threads = draw.choice(THREADS[cores]) if strategy["kind"] in FREE else 1
    batch, tables = draw.choice(BATCHES), len(data["columns"]) - 1
    shape = {"embedding_dim": dim, "top_mlp": [draw.choice(WIDTHS), 1]}
    model = {"kind": "dlrm", **shape, "bottom_mlp": [draw.choice(WIDTHS), dim]}
    steps = steps_of({**model, "tables": {"count": tables}}, trainers * threads * batch, cores)
    return {
        "strategy": strategy,
        "model": model,
        "data": data,
        "roles": {
            "trainers": trainers,
            "embedding_servers": draw.choice((1, 2)),
            "dense_servers": 1,
            "readers": draw.choice((0, 0, 1)),
        },
        "training": {"batch_size": batch, "threads": threads, "steps": steps, **RATES},
    }


def main() -> None:
    """Write the logs and the experiment."""
    about = {
        "folder": {"type": Path, "help": "where logs and the experiment go"},
        "--count": (10, "settings"),
        "--seed": (80, "of the draw"),
        "--cores": (2, "of the machine"),
    }
    asked = options(__doc__, about)
    draw, whole = Random(asked.seed), settings(asked.count, asked.seed, asked.cores)
    points = [point(draw, asked.folder, n, asked.cores) for n in range(asked.count)]
    whole |= {"name": "drawn-logs", "data": points[0]["data"], "model": points[0]["model"]}
    whole["sweep"] = {"points": points}
    file = asked.folder / "drawn-logs.yaml"
    plain = json.loads(json.dumps(whole))  # no part is named in place of another
    file.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main()
