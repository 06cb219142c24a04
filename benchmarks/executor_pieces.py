"""The pieces of benchmarks/executor.py: how each trainer is started, and what it says of its speed.

A piece is one training run of one configuration, ours or a peer's, in processes of its own. Ours is
started as users start it: ``recsim-train run`` on an experiment file.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from programs import PieceError, commit, output, version

from recsim_train.trace.ledger import AROUND, READING

TREE = Path(__file__).resolve().parents[1]
PEERS = TREE / "benchmarks" / "peers"
WARMUP = 10
"""Steps before the timed ones, of every piece."""
_TABLES, _ROWS = 26, 100_000
_PRINT_EVERY = 10
"""Steps whose mean dlrm prints at a time: the first ones are its warm-up."""
_DLRM_LINE = re.compile(r"it \d+/\d+ of epoch \d+, ([\d.]+) ms/it")

Measured = dict[str, Any]
"""``examples_per_second``, ``ms_per_step``, and what else the program says."""


@dataclass(frozen=True, slots=True)
class Environments:
    """What is supplied from outside."""

    scratch: Path
    """The working directory of all pieces."""
    dlrm: Path | None = None
    """A checkout of facebookresearch/dlrm."""
    dlrm_python: str | None = None
    torchrec_python: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One configuration."""

    name: str
    title: str
    run: Callable[[int, int], Measured]
    """Of (examples of all loops in one step, timed steps). Raises PieceError."""


@dataclass(slots=True)
class Pieces:
    """What can be measured, and a sentence for each that cannot."""

    available: dict[str, Piece] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def add(self, name: str, title: str, run: Callable[[int, int], Measured]) -> None:
        """Take one more."""
        self.available[name] = Piece(name, title, run)


def all_pieces(given: Environments) -> Pieces:
    """Every piece whose environment is there."""
    pieces = Pieces()
    _add_plain(pieces, given)
    _add_dlrm(pieces, given)
    _add_torchrec(pieces, given)
    _add_own(pieces, given)
    return pieces


def _add_plain(pieces: Pieces, given: Environments) -> None:
    for threads in (1, 2):

        def run(batch: int, steps: int, threads: int = threads) -> Measured:
            program = [sys.executable, str(PEERS / "plain_pytorch.py")]
            return _last_line([*program, *_sizes(batch, steps, threads)], given, threads)

        pieces.add(f"plain-{threads}", f"plain PyTorch, {_count(threads, 'thread')}", run)


def _add_torchrec(pieces: Pieces, given: Environments) -> None:
    python = given.torchrec_python
    if python is None:
        pieces.skipped.append("TorchRec is skipped: --torchrec-python does not say where it is.")
        return
    if version(python, "torchrec") is None:
        pieces.skipped.append(f"TorchRec is skipped: {python} does not have it.")
        return
    for processes, name in ((1, "torchrec-1"), (2, "torchrec-2p")):

        def run(batch: int, steps: int, processes: int = processes) -> Measured:
            program = [*_torchrun(python, processes), str(PEERS / "torchrec_dlrm.py")]
            return _last_line([*program, *_sizes(batch, steps, 1)], given, 1)

        pieces.add(name, f"TorchRec, {_count(processes, 'process')}", run)


def _add_dlrm(pieces: Pieces, given: Environments) -> None:
    folder, python = given.dlrm, given.dlrm_python
    if folder is None or python is None:
        pieces.skipped.append("dlrm is skipped: it needs --dlrm and --dlrm-python.")
        return
    script = folder.resolve() / "dlrm_s_pytorch.py"
    if not script.exists() or (torch := version(python, "torch")) is None:
        pieces.skipped.append(f"dlrm is skipped: there is no {script}, or no torch in {python}.")
        return
    versions = {"dlrm": commit(folder), "torch": torch}
    model = [
        "--arch-embedding-size=" + "-".join([str(_ROWS)] * _TABLES),
        "--arch-sparse-feature-size=32",
        "--arch-mlp-bot=13-512-256-32",
        "--arch-mlp-top=512-256-1",
        "--data-generation=random",
        "--num-indices-per-lookup=1",
        "--num-indices-per-lookup-fixed=True",
        "--loss-function=bce",
        "--round-targets=True",
        "--learning-rate=0.05",
        "--print-time",
        f"--print-freq={_PRINT_EVERY}",
    ]
    shapes = (("dlrm-1", 1, 1), ("dlrm-2", 1, 2), ("dlrm-2p", 2, 1))
    for name, processes, threads in shapes:
        alone = processes == 1

        def run(batch: int, steps: int, alone: bool = alone, threads: int = threads) -> Measured:
            printed = -(-(WARMUP + steps) // _PRINT_EVERY)
            program = [python] if alone else _torchrun(python, 2)
            more = [] if alone else ["--dist-backend=gloo"]
            sizes = [f"--mini-batch-size={batch}", f"--num-batches={printed * _PRINT_EVERY}"]
            said = output([*program, str(script), *model, *sizes, *more], given.scratch, threads)
            return {**_dlrm_figures(said, batch), "threads": threads, "versions": versions}

        shape = _count(threads, "thread") if alone else _count(processes, "process")
        pieces.add(name, f"dlrm, {shape}", run)


def _dlrm_figures(said: str, batch: int) -> Measured:
    """From the means that it prints, without the first, which is its warm-up. Making a batch is not
    within the time that it takes."""
    times = [float(ms) for ms in _DLRM_LINE.findall(said)][WARMUP // _PRINT_EVERY :]
    if not times:
        raise PieceError(f"dlrm printed no times: {said[-300:]!r}")
    ms = sum(times) / len(times)
    return {"examples_per_second": batch / ms * 1e3, "ms_per_step": ms}


def _add_own(pieces: Pieces, given: Environments) -> None:
    servers = ["roles.embedding_servers=1", "roles.dense_servers=1"]
    shadow = "strategy=shadowsync"
    twin = "strategy={kind: shadowsync, algorithm: easgd, sync: foreground, every: 5}"
    own: list[tuple[str, str, int, int, Sequence[str]]] = [
        # name, title, trainers, threads, settings
        ("flat_ps-1", "flat_ps, one process, 1 thread", 1, 1, []),
        ("flat_ps-2", "flat_ps, one process, 2 Hogwild threads", 1, 2, []),
        ("flat_ps-2p", "flat_ps, 2 trainers, no servers", 2, 1, []),
        ("allreduce-2p", "allreduce, 2 trainers, no servers", 2, 1, ["strategy=allreduce"]),
        ("flat_ps-2p-servers", "flat_ps, 2 trainers, 1 + 1 servers", 2, 1, servers),
        (
            "allreduce-2p-servers",
            "allreduce, 2 trainers, 1 embedding server (it needs no dense one)",
            2,
            1,
            [servers[0], "strategy=allreduce"],
        ),
        ("shadowsync-2p", "shadowsync easgd, 2 trainers, no servers", 2, 1, [shadow]),
        ("fr-easgd-5-2p", "FR-EASGD-5, 2 trainers, no servers", 2, 1, [twin]),
    ]

    for name, title, trainers, threads, sets in own:
        loops = trainers * threads
        fixed = [f"roles.trainers={trainers}", f"training.threads={threads}", *sets]

        def run(
            batch: int, steps: int, loops: int = loops, fixed: Sequence[str] = fixed
        ) -> Measured:
            sizes = [
                f"training.batch_size={batch // loops}",
                f"training.steps={steps}",
                f"training.warmup_steps={WARMUP}",
            ]
            figures = run_experiment(
                PEERS / "model.yaml",
                [*fixed, *sizes],
                tree=TREE,
                python=sys.executable,
                given=given,
            )
            return {**figures, "ms_per_step": batch / figures["examples_per_second"] * 1e3}

        pieces.add(name, f"ours: {title}", run)


def run_experiment(
    experiment: Path, sets: Sequence[str], *, tree: Path, python: str, given: Environments
) -> Measured:
    """``recsim-train run`` of the package in ``tree``, and what its summary says.

    Raises PieceError.
    """
    with tempfile.TemporaryDirectory(dir=given.scratch) as out:
        command = [python, "-m", "recsim_train", "run", str(experiment), "--json", "--out", out]
        for each in sets:
            command += ["--set", each]
        said = output(command, given.scratch, None, {"PYTHONPATH": str(tree)})
    (run,) = json.loads(said)["runs"]
    if run["status"] != "complete":
        raise PieceError(f"the run is {run['status']}: {run['message']}")
    measured: Measured = {"examples_per_second": run["examples_per_second"]}
    if gap := run["synchronisation"].get("sync_gap"):
        measured["sync_gap"] = gap["mean"]
    # a tree of before the ledger has none
    if (ledger := run.get("facts", {}).get("ledger")) is not None:
        measured |= _cpu(ledger, run["examples"])
    return measured


def _cpu(ledger: Mapping[str, Any], examples: int) -> Measured:
    total = ledger["total"]
    by_what: dict[str, float] = {}
    for line in ledger["lines"]:
        by_what[line["what"]] = by_what.get(line["what"], 0.0) + line["seconds"]
    remainder = total - sum(by_what.values())
    outside = remainder + sum(s for what, s in by_what.items() if what in AROUND)
    return {
        "cpu_us_per_example": total / examples * 1e6,
        "reading_share": by_what.get(READING, 0.0) / total,
        "outside_share": outside / total,
        "cores": ledger.get("machine"),
    }


def _sizes(batch: int, steps: int, threads: int) -> list[str]:
    given = {"batch": batch, "steps": steps, "threads": threads, "warmup": WARMUP}
    return [f"--{name}={value}" for name, value in given.items()]


def _count(number: int, noun: str) -> str:
    several = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else several}"


def _torchrun(python: str, processes: int) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [python, *launcher]


def _last_line(command: Sequence[str], given: Environments, threads: int) -> Measured:
    """The line of JSON with which our own programs of peers end."""
    lines = output(command, given.scratch, threads).strip().splitlines()
    found: Measured = json.loads(lines[-1])
    return found
