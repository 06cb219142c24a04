"""The probe of readers: rows of Criteo text parsed, rows of the generator made."""

from __future__ import annotations

import time
from pathlib import Path

from recsim_train.calibration.grid import READER_MODEL as MODEL
from recsim_train.config.experiment import Data, Synthetic
from recsim_train.data.stream import open_stream
from recsim_train.data.synthetic import write_criteo
from recsim_train.executor.feed import to_batch

_SYNTHETIC = Synthetic(rows=40_000, seed=23)
_BATCHES = (64, 160, 448)


def measure(folder: str, *, quick: bool) -> dict[str, list[dict[str, float]]]:
    """CPU seconds per batch of some sizes, one entry for each pass."""
    rows = 6_000 if quick else 30_000
    path = Path(folder) / "rows.tsv"
    write_criteo(path, MODEL, _SYNTHETIC, rows)
    passes = 1 if quick else 2
    text = Data(path=str(path), eval_rows=0, synthetic=_SYNTHETIC)
    generated = Data(eval_rows=0, synthetic=_SYNTHETIC)
    return {
        "parse_row": [_pass(text, b, rows) for b in _BATCHES for _ in range(passes)],
        "synthesize_row": [_pass(generated, b, rows) for b in _BATCHES for _ in range(passes)],
    }


def _pass(data: Data, batch: int, rows: int) -> dict[str, float]:
    begin = time.thread_time()
    with open_stream(
        MODEL, data, batch_size=batch, positions=(0,), total=1, iterations=rows // batch
    ) as stream:
        for fed in stream:
            to_batch(MODEL, fed.batch)
    return {"batch": batch, "seconds": (time.thread_time() - begin) / (rows // batch)}
