"""What all peers share: the model's shape, batches in memory, the timed loop, the line they print.

It imports the standard library and torch only: peers live in environments without recsim-train.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from itertools import cycle
from typing import NamedTuple

import torch

TABLES, ROWS, WIDTH = 26, 100_000, 32
FEATURES = 13
BOTTOM, TOP = (512, 256, WIDTH), (512, 256, 1)
LEARNING_RATE = 0.05
CLICK_RATE = 0.25
EXAMPLES_IN_MEMORY = 65_536
"""Of all processes together, whatever the batch: few batches would keep their rows in the caches of
the processor. Our own file has as many rows (``model.yaml``)."""


class Examples(NamedTuple):
    """One batch."""

    dense: torch.Tensor
    """float32[batch, FEATURES]."""
    ids: torch.Tensor
    """int64[TABLES, batch], uniform, one for each table and example."""
    labels: torch.Tensor
    """float32[batch], 0 or 1."""


def arguments(about: str | None) -> argparse.Namespace:
    """The options of a peer: batch, threads, steps, warmup."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--batch", type=int, default=2048, help="examples of all processes")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--steps", type=int, default=100, help="timed steps")
    parser.add_argument("--warmup", type=int, default=10, help="steps before them")
    return parser.parse_args()


def batches(size: int, *, processes: int = 1, seed: int = 0) -> Iterator[Examples]:
    """Batches of ``size`` for one of ``processes``, made here, dealt again and again."""
    random = torch.Generator().manual_seed(seed)
    made = [
        Examples(
            torch.rand(size, FEATURES, generator=random),
            torch.randint(ROWS, (TABLES, size), generator=random),
            (torch.rand(size, generator=random) < CLICK_RATE).float(),
        )
        for _ in range(max(1, EXAMPLES_IN_MEMORY // processes // size))
    ]
    return cycle(made)


def seconds_of(
    step: Callable[[], object],
    *,
    warmup: int,
    steps: int,
    meet: Callable[[], object] = lambda: None,
) -> float:
    """Wall time of ``steps`` steps after ``warmup`` others. ``meet``: where all processes wait for
    each other, before and after."""
    for _ in range(warmup):
        step()
    meet()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    meet()
    return time.perf_counter() - begin


def report(options: argparse.Namespace, seconds: float, packages: Sequence[str]) -> None:
    """Print the result as one line of JSON."""
    result = {
        "examples_per_second": options.batch * options.steps / seconds,
        "ms_per_step": seconds / options.steps * 1e3,
        "batch": options.batch,
        "steps": options.steps,
        "threads": torch.get_num_threads(),
        "versions": {
            "python": sys.version.split()[0],
            **{package: metadata.version(package) for package in packages},
        },
    }
    print(json.dumps(result), flush=True)
