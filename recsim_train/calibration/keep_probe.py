"""What a process takes to keep what it holds, and to get it back: by the keeper's own copies, files
and sums, and by what fills shards again."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from recsim_train.checkpoints.manifest import Manifest, WholeCheckpoint, check
from recsim_train.executor.checkpoint.files import (
    MemoryBlock,
    Source,
    bytes_of,
    snapshot,
    write,
)

_TABLES = ((1 << 20, 16), (1 << 18, 64))
"""(rows, columns) of what a process holds: 64 MiB each, for which new memory is always asked of
the system."""


def keeping(folder: str) -> Callable[[bool], dict[str, list[float]]]:
    """What measures it, with files in a folder."""
    return partial(measure, Path(folder))


def measure(folder: Path, quick: bool) -> dict[str, list[float]]:
    """Seconds per byte in each round, by the name of its price."""
    held = [
        MemoryBlock(str(table), shape, (0, 0), torch.ones(shape))
        for table, shape in enumerate(_TABLES)
    ]
    rounds: list[dict[str, float]] = []
    for _ in range(2 if quick else 5):
        began = time.monotonic()
        copies = snapshot(held)
        copied, spent = time.monotonic(), time.thread_time()
        tensors, files = write(folder, "process", copies)
        busy, written = time.thread_time() - spent, time.monotonic()
        manifest = Manifest(
            0, 0, ended=False, trainers=1, carried="", experiment="", strategy={}, tables=(),
            parameters={}, columns={}, configuration={}, versions={}, tensors=tensors, files=files,
        )  # fmt: skip
        check(folder, manifest)
        verified = time.monotonic()
        with Source(WholeCheckpoint(folder, manifest)) as source:
            for block in held:
                source.fill(block)
        rounds.append(
            {
                "copied_byte": copied - began,
                "written_byte": busy,
                "disk_byte": max(0.0, written - copied - busy),
                "verified_byte": verified - written,
                "loaded_byte": time.monotonic() - verified,
            }
        )
    return {name: [seconds[name] / bytes_of(held) for seconds in rounds] for name in rounds[0]}
