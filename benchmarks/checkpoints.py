"""What a checkpoint costs, against the least that one can do with the same bytes.

    python benchmarks/checkpoints.py [--rounds 5] [--megabytes 100 2000]

CPU seconds of one process, in turn: a copy of its tables, `safetensors.torch.save_file` of it and
the crc32 of its bytes; and what a run's process does (`recsim_train.executor.checkpoint`): its
snapshot, its files, and the manifest. Shares are of the latter. Where a virtual machine gives
memory out anew, pages of files take up to five times as long: so tables are made once, the first
round does not count, and the least of both are compared, too.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import torch
from paired import median_of
from safetensors.torch import save_file
from script import options, table

from recsim_train.checkpoints.manifest import complete, manifest_of
from recsim_train.config.experiment import Data, Experiment, Model, StrategyChoice, Table
from recsim_train.executor.checkpoint.files import MemoryBlock, snapshot, write
from recsim_train.placement.build import build_plan

DIM, TABLES = 16, 8
SHAPE = Model(
    embedding_dim=DIM, bottom_mlp=(DIM,), top_mlp=(1,), tables=(Table(rows=1000),) * TABLES
)
CHOICE = StrategyChoice(kind="allreduce", options={})
PLAN = build_plan(
    Experiment(name="checkpoint", model=SHAPE, data=Data(), strategies=(CHOICE,)), CHOICE
)


def main() -> None:
    """Both, round by round."""
    asked = options(
        __doc__,
        {
            "--rounds": (5, "of both"),
            "--megabytes": {"type": int, "nargs": "+", "default": [100, 2000], "help": "of rows"},
        },
    )
    torch.set_num_threads(1)
    rows = []
    for megabytes in asked.megabytes:
        held = tables(megabytes)
        found = [paired(held, number) for number in range(asked.rounds + 1)][1:]
        ratio = median_of([sum(own) / sum(plain) for plain, own in found])
        parts = [[one / sum(own) for one in own] for _, own in found]
        shares = [f"{sorted(part)[len(part) // 2]:.0%}" for part in zip(*parts, strict=True)]
        cpu = median_of([sum(own) for _, own in found])
        least = min(sum(own) for _, own in found) / min(sum(plain) for plain, _ in found)
        told = f"{least:.2f}", f"{cpu.value if cpu else 0.0:.2f}"
        rows.append((megabytes, str(ratio), *told, *shares))
    columns = ("MB", "CPU, ours / plain", "least / least", "CPU s", "copy", "files", "manifest")
    print("\n".join(table(columns, rows)))


def tables(megabytes: int) -> list[MemoryBlock]:
    """What a process holds, as long as it runs."""
    rows = megabytes * 1_000_000 // (4 * DIM * TABLES)
    return [
        MemoryBlock(f"tables.{n}.rows", (rows, DIM), (0, 0), torch.rand(rows, DIM))
        for n in range(TABLES)
    ]


def paired(held: list[MemoryBlock], number: int) -> tuple[list[float], list[float]]:
    """CPU seconds of both, by stage; who comes first changes from round to round."""
    found: dict[bool, list[float]] = {}
    for ours in (number % 2 == 0, number % 2 == 1):
        folder = Path(tempfile.mkdtemp(prefix="recsim-train-"))
        try:
            times = [time.process_time()]
            for _ in (_ours if ours else _plain)(held, folder):
                times.append(time.process_time())
        finally:
            shutil.rmtree(folder)
        found[ours] = [after - before for before, after in zip(times, times[1:], strict=False)]
    return found[False], found[True]


def _plain(held: list[MemoryBlock], folder: Path) -> Iterator[None]:
    copies = {one.name: one.tensor.clone() for one in held}
    yield
    save_file(copies, folder / "plain.safetensors")
    yield
    for one in copies.values():
        zlib.crc32(one.view(torch.uint8).numpy().data)
    yield


def _ours(held: list[MemoryBlock], folder: Path) -> Iterator[None]:
    kept = snapshot(held)
    yield
    tensors, files = write(folder, "server-0", kept)
    yield
    complete(folder, manifest_of(PLAN, 1, tensors, files, ended=False))
    yield


if __name__ == "__main__":
    main()
