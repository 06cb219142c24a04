"""What a process takes to keep what it holds, and to get it back: by the keeper's own copies, files
and sums, and by what fills shards again."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from recsim_train.checkpoints.manifest import Manifest, WholeCheckpoint, check
from recsim_train.executor.checkpoint.memory import MemoryBlock, bytes_of, snapshot
from recsim_train.executor.checkpoint.source import Source
from recsim_train.executor.checkpoint.writing import write

_TABLES = ((1 << 20, 16), (1 << 18, 64))
"""(rows, columns) of what a process holds: 64 MiB each, for which new memory is always asked of
the system."""
_DEALT = 2
"""Of how many shards the process is one: of each table it has each so-manieth row."""
_ROUNDS = 5, 2
"""Full and quick."""


def measure(folder: Path, *, quick: bool) -> dict[str, list[float]]:
    """Seconds per byte in each round, by the name of its price."""
    held = [
        MemoryBlock(str(n), (_DEALT * rows, width), (1, 0), torch.ones(rows, width), _DEALT)
        for n, (rows, width) in enumerate(_TABLES)
    ]
    rounds = [_round(folder, held) for _ in range(_ROUNDS[quick])]
    return {name: [seconds[name] / bytes_of(held) for seconds in rounds] for name in rounds[0]}


def _round(folder: Path, held: list[MemoryBlock]) -> dict[str, float]:
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
    loaded = time.monotonic()
    return {
        "copied_byte": copied - began,
        "written_byte": busy,
        "disk_byte": max(0.0, written - copied - busy),
        "verified_byte": verified - written,
        "loaded_byte": loaded - verified,
    }
