"""What a checkpoint costs, against the least that one can do with the same bytes.

    python benchmarks/checkpoints.py [--rounds 5] [--megabytes 100 2000]

CPU seconds of one process, in turn: a copy of its tables, `safetensors.torch.save_file` of it and
the crc32 of its bytes; and what a run's process does (`recsim_train.executor.checkpoint`): its
snapshot, its files, and the manifest. Shares are of the latter.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import zlib
from pathlib import Path

import torch
from paired import median_of
from safetensors.torch import save_file
from script import options, table

from recsim_train.checkpoints.manifest import complete, manifest_of
from recsim_train.config.experiment import Data, Experiment, Model, StrategyChoice, Table
from recsim_train.executor.checkpoint.memory import MemoryBlock, snapshot
from recsim_train.executor.checkpoint.writing import write
from recsim_train.placement.build import build_plan

DIM, TABLES = 16, 8


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
        found = [paired(megabytes) for _ in range(asked.rounds)]
        ratio = median_of([sum(own) / sum(plain) for plain, own in found])
        parts = [[one / sum(own) for one in own] for _, own in found]
        shares = [f"{sorted(part)[len(part) // 2]:.0%}" for part in zip(*parts, strict=True)]
        cpu = median_of([sum(own) for _, own in found])
        rows.append((megabytes, str(ratio), f"{cpu.value if cpu else 0.0:.2f}", *shares))
    columns = ("MB", "CPU, ours / plain", "CPU s", "copy", "files", "manifest")
    print("\n".join(table(columns, rows)))


def paired(megabytes: int) -> tuple[list[float], list[float]]:
    """CPU seconds of both, by stage."""
    rows = megabytes * 1_000_000 // (4 * DIM * TABLES)
    tables = {f"tables.{n}.rows": torch.rand(rows, DIM) for n in range(TABLES)}
    held = [MemoryBlock(name, (rows, DIM), (0, 0), rows_) for name, rows_ in tables.items()]
    choice = StrategyChoice(kind="allreduce", options={})
    shape = {"bottom_mlp": (DIM,), "top_mlp": (1,), "tables": (Table(rows=rows),) * TABLES}
    spec = Experiment(
        name="checkpoint", model=Model(embedding_dim=DIM, **shape), data=Data(),
        strategies=(choice,),
    )  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="recsim-train-"))
    try:
        times = [time.process_time()]
        copies = {name: one.clone() for name, one in tables.items()}
        times.append(time.process_time())
        save_file(copies, folder / "plain.safetensors")
        times.append(time.process_time())
        for one in copies.values():
            zlib.crc32(one.view(torch.uint8).numpy().data)
        times.append(time.process_time())
        del copies
        (folder / "plain.safetensors").unlink()
        (folder / "ours").mkdir()
        ours = [time.process_time()]
        kept = snapshot(held)
        ours.append(time.process_time())
        tensors, files = write(folder / "ours", "server-0", kept)
        ours.append(time.process_time())
        plan = build_plan(spec, choice)
        complete(folder / "ours", manifest_of(plan, 1, tensors, files, ended=False))
        ours.append(time.process_time())
    finally:
        shutil.rmtree(folder)
    return _each(times), _each(ours)


def _each(times: list[float]) -> list[float]:
    return [after - before for before, after in zip(times, times[1:], strict=False)]


if __name__ == "__main__":
    main()
