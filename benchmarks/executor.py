"""`run` against the field's reference trainers on the same cores: interleaved, paired ratios.

    python benchmarks/executor.py --rounds 12 [--seconds 8] [--only NAME ...] [--out DIR]
        [--dlrm CHECKOUT --dlrm-python PYTHON] [--torchrec-python PYTHON]
    python benchmarks/executor.py --rounds 12 --against CHECKOUT [--old-python PYTHON]

Peers: plain PyTorch, facebookresearch/dlrm (its own script as it is) and TorchRec; what they train
is in benchmarks/peers/model.yaml. dlrm and TorchRec live in environments of their own; a missing
one is skipped with a sentence. Every round runs every piece once, for one batch after the other, in
an order that the seed shuffles. Before the first round each runs shortly, which fills caches and
says how many steps take --seconds. Ratios are taken within a round (benchmarks/paired.py).

With --against it is the quickstart's speed instead, of this tree against another checkout's.

DIR gets executor.md and executor.json (executor-against.*), written anew after every round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import executor_tables as tables
import psutil
from executor_pieces import (
    TREE,
    Environments,
    Measured,
    Piece,
    all_pieces,
    run_experiment,
)
from executor_tables import SPEED, Result
from paired import median_of, ratios, verdict
from programs import PieceError
from script import command, options, spread

from recsim_train.results.environment import cores, machine

BATCHES = (2048, 256)
TRIAL_EXAMPLES = 16_384
"""Of each piece's short run before the first round."""
RESULTS = Path("benchmarks/results")
OLD, NEW = "old", "new"


def measure(piece: Piece, batch: int, steps: int, number: int) -> Result:
    busy = sum(psutil.cpu_percent(interval=0.5, percpu=True)) / 100
    figures, error = None, None
    begin = time.monotonic()
    try:
        figures = piece.run(batch, steps)
    except PieceError as failure:
        error = str(failure)
    wall = round(time.monotonic() - begin, 1)
    speed = f"{figures[SPEED]:>9,.0f} examples/s" if figures else error
    print(f"round {number}  batch {batch:>4}  {piece.name:22s} {wall:5.1f} s  {speed}", flush=True)
    return Result(number, batch, piece.name, steps, round(busy, 2), wall, figures, error)


def interleaved(
    pieces: Sequence[Piece], asked: argparse.Namespace, keep: Callable[[list[Result]], None]
) -> None:
    """All rounds. ``keep`` is given all results after each of them."""
    order = random.Random(asked.seed)
    speeds: dict[tuple[str, int], float] = {}
    results: list[Result] = []
    for number in range(asked.rounds + 1):
        for batch in order.sample(asked.batches, len(asked.batches)):
            for piece in order.sample(pieces, len(pieces)):
                key = piece.name, batch
                if number == 0:  # what is too short to count
                    steps = TRIAL_EXAMPLES // batch
                elif key in speeds:
                    steps = max(20, round(asked.seconds * speeds[key] / batch))
                else:
                    continue  # it failed there, and would do so every time
                result = measure(piece, batch, steps, number)
                if result.figures:
                    speeds[key] = result.figures[SPEED]
                if number > 0 or result.error:
                    results.append(result)
        keep(results)


def write(folder: Path, name: str, lines: Sequence[str], document: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps(document, indent=1, default=asdict)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def against_peers(asked: argparse.Namespace, about: dict[str, Any], scratch: Path) -> None:
    given = Environments(scratch, asked.dlrm, asked.dlrm_python, asked.torchrec_python)
    available, skipped = all_pieces(given)
    if unknown := sorted(set(asked.only or ()) - set(available)):
        sys.exit(f"--only: no {', '.join(unknown)}; there are {', '.join(available)}")
    pieces = [piece for name, piece in available.items() if name in (asked.only or [name])]
    print("\n".join(skipped))

    def keep(results: list[Result]) -> None:
        rows = tables.compared(results, pieces, asked.batches)
        judged = [row for row in rows if row["least"] is not None]
        stated = [row for row in rows if row["least"] is None]
        failed = {f"{r.piece}, batch {r.batch}: {r.error}" for r in results if r.error}
        lines = [
            "# `run` against plain PyTorch, dlrm and TorchRec",
            "",
            *tables.about(about, results),
            *(f"- {sentence}" for sentence in [*skipped, *sorted(failed)]),
            "",
            "A bar is met when the median of paired ratios reaches it and the lower end of its "
            "95 % interval is at most 0.05 below. A step is of all loops together: each of n has "
            "an n-th of the batch. Peers have their batches in memory (dlrm makes them while its "
            "clock stands); ours are read from Criteo text while the clock runs.",
            "",
            *tables.bar_table(judged),
            "",
            *tables.speed_table(results, pieces, asked.batches),
            "",
            "Stated beside:",
            "",
            *tables.bar_table(stated),
            "",
            *tables.own_table(results, pieces, asked.batches),
        ]
        for batch in asked.batches:
            lines += ["", *tables.round_table(results, pieces, batch)]
        document = {
            **about,
            "skipped": skipped,
            "ratios": rows,
            "results": [result._asdict() for result in results],
        }
        write(asked.out, "executor", lines, document)

    interleaved(pieces, asked, keep)
    print((asked.out / "executor.md").read_text(encoding="utf-8"))


def against_checkout(asked: argparse.Namespace, about: dict[str, Any], scratch: Path) -> None:
    given = Environments(scratch)
    trees = {NEW: (TREE, sys.executable), OLD: (asked.against.resolve(), asked.old_python)}

    def run(tree: Path, python: str, _batch: int, _steps: int) -> Measured:
        experiment = tree / "experiments" / "quickstart.yaml"
        return run_experiment(experiment, [], tree=tree, python=python, given=given)

    pieces = [
        Piece(name, str(tree), partial(run, tree, python)) for name, (tree, python) in trees.items()
    ]
    asked.batches = [128]  # of a thread, as the quickstart has it, which says its steps, too

    def keep(results: list[Result]) -> None:
        of, over = (tables.of_rounds(results, name, 128) for name in (NEW, OLD))
        paired = ratios(of, over)
        ratio = median_of(list(paired.values()))
        outside = tables.of_rounds(results, NEW, 128, "outside_share")
        lines = [
            f"# The quickstart's speed against {about['against']}",
            "",
            *tables.about(about, results),
            "",
            f"Paired ratio of examples/s, new over old: median (95 % interval) {ratio}, "
            f"{len(paired)} rounds. Bar 1.5: {verdict(ratio, 1.5)}.",
            "CPU outside operations and reading, new tree's part of all its CPU: "
            f"{spread(outside.values(), '.1%')}.",
            "",
            *tables.speed_table(results, pieces, [128]),
            "",
            *tables.round_table(results, pieces, 128),
        ]
        document = {
            **about,
            "ratio": ratio,
            "by_round": paired,
            "results": [result._asdict() for result in results],
        }
        write(asked.out, "executor-against", lines, document)

    interleaved(pieces, asked, keep)
    print((asked.out / "executor-against.md").read_text(encoding="utf-8"))


def interpreter(given: str) -> str:
    """Its full path, as pieces work in a folder of their own; links of environments are kept."""
    return os.path.abspath(shutil.which(given) or given)


def main() -> None:
    about = {
        "--rounds": (12, "at least 6 for an interval"),
        "--seconds": (8.0, "timed part of a piece"),
        "--seed": (1, "of the order"),
        "--batches": {"type": int, "nargs": "+", "choices": BATCHES, "default": list(BATCHES)},
        "--only": {"nargs": "+", "metavar": "NAME", "help": "these pieces"},
        "--out": (RESULTS, "folder"),
        "--dlrm": {"type": Path, "help": "checkout of facebookresearch/dlrm"},
        "--dlrm-python": {
            "type": interpreter,
            "help": "with torch, scikit-learn, tensorboard, tqdm",
        },
        "--torchrec-python": {"type": interpreter, "help": "with torchrec and fbgemm-gpu-cpu"},
        "--against": {"type": Path, "help": "another checkout of recsim-train"},
        "--old-python": {
            "type": interpreter,
            "default": sys.executable,
            "help": "its environment",
        },
    }
    asked = options(__doc__, about)
    here = {
        **machine(),
        "command": command(),
        "cores": cores(),
        "against": asked.against and asked.against.name,
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # pieces are ended on the way out
    with tempfile.TemporaryDirectory(prefix="recsim-train-peers-") as scratch:
        (against_checkout if asked.against else against_peers)(asked, here, Path(scratch))


if __name__ == "__main__":
    main()
