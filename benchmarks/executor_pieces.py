"""The pieces of benchmarks/executor.py: how each trainer is started, and what it says of its speed.

A piece is one training run of one configuration, ours or a peer's, in processes of its own. Ours is
started as users start it: ``recsim-train run`` on an experiment file.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from programs import PieceError, commit, output, version

from recsim_train.trace.ledger import AROUND, READING

TREE = Path(__file__).resolve().parents[1]
PEERS = TREE / "benchmarks" / "peers"
WARMUP = 10
"""Steps before the timed ones, of every piece."""
_PRINT_EVERY = 10
"""Steps whose mean dlrm prints at a time: the first ones are its warm-up."""
_DLRM_LINE = re.compile(r"it \d+/\d+ of epoch \d+, ([\d.]+) ms/it")

Measured = dict[str, Any]
"""``examples_per_second``, ``ms_per_step``, and what else the program says."""


class Environments(NamedTuple):
    """What is supplied from outside: the working directory of all pieces, a checkout of
    facebookresearch/dlrm, and interpreters that have what the peers need."""

    scratch: Path
    dlrm: Path | None = None
    dlrm_python: str | None = None
    torchrec_python: str | None = None


class Piece(NamedTuple):
    """One configuration. ``run``: of (examples of all loops in one step, timed steps), raises
    PieceError."""

    name: str
    title: str
    run: Callable[[int, int], Measured]


def all_pieces(given: Environments) -> tuple[dict[str, Piece], list[str]]:
    """By name every piece whose environment is there; a sentence for each that is missing."""
    found = [*_plain(given), *_dlrm(given), *_torchrec(given), *_own(given)]
    pieces = {each.name: each for each in found if isinstance(each, Piece)}
    return pieces, [each for each in found if isinstance(each, str)]


def _plain(given: Environments) -> Iterator[Piece | str]:
    for threads in (1, 2):
        program = [sys.executable, str(PEERS / "plain_pytorch.py")]
        title = f"plain PyTorch, {_count(threads, 'thread')}"
        yield Piece(f"plain-{threads}", title, partial(_peer, program, given, threads))


def _torchrec(given: Environments) -> Iterator[Piece | str]:
    python = given.torchrec_python
    if python is None:
        yield "TorchRec is skipped: --torchrec-python does not say where it is."
    elif version(python, "torchrec") is None:
        yield f"TorchRec is skipped: {python} does not have it."
    else:
        for processes, name in ((1, "torchrec-1"), (2, "torchrec-2p")):
            program = [*_torchrun(python, processes), str(PEERS / "torchrec_dlrm.py")]
            title = f"TorchRec, {_count(processes, 'process')}"
            yield Piece(name, title, partial(_peer, program, given, 1))


def _peer(
    program: Sequence[str], given: Environments, threads: int, batch: int, steps: int
) -> Measured:
    """Our own programs of peers end with a line of JSON."""
    sizes = {"batch": batch, "steps": steps, "threads": threads, "warmup": WARMUP}
    more = (f"--{name}={value}" for name, value in sizes.items())
    return json.loads(output([*program, *more], given.scratch, threads).strip().splitlines()[-1])


DLRM = [
    "--arch-embedding-size=" + "-".join(["100000"] * 26),
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


def _dlrm(given: Environments) -> Iterator[Piece | str]:
    if given.dlrm is None or given.dlrm_python is None:
        yield "dlrm is skipped: it needs --dlrm and --dlrm-python."
        return
    python, script = given.dlrm_python, given.dlrm.resolve() / "dlrm_s_pytorch.py"
    torch = version(python, "torch")
    if not script.exists() or torch is None:
        yield f"dlrm is skipped: there is no {script}, or no torch in {python}."
        return
    told = {"versions": {"dlrm": commit(given.dlrm), "torch": torch}}

    def run(processes: int, threads: int, batch: int, steps: int) -> Measured:
        printed = -(-(WARMUP + steps) // _PRINT_EVERY)
        sizes = [f"--mini-batch-size={batch}", f"--num-batches={printed * _PRINT_EVERY}"]
        alone = [python, str(script), *DLRM, *sizes]
        many = [*_torchrun(python, processes), *alone[1:], "--dist-backend=gloo"]
        said = output(alone if processes == 1 else many, given.scratch, threads)
        return {**_dlrm_figures(said, batch), "threads": threads, **told}

    for name, processes, threads, shape in (
        ("dlrm-1", 1, 1, "1 thread"),
        ("dlrm-2", 1, 2, "2 threads"),
        ("dlrm-2p", 2, 1, "2 processes"),
    ):
        yield Piece(name, f"dlrm, {shape}", partial(run, processes, threads))


def _dlrm_figures(said: str, batch: int) -> Measured:
    """From the means that it prints, without the first, which is its warm-up. Making a batch is not
    within the time that it takes."""
    times = [float(ms) for ms in _DLRM_LINE.findall(said)][WARMUP // _PRINT_EVERY :]
    if not times:
        raise PieceError(f"dlrm printed no times: {said[-300:]!r}")
    ms = sum(times) / len(times)
    return {"examples_per_second": batch / ms * 1e3, "ms_per_step": ms}


def _own(given: Environments) -> Iterator[Piece | str]:
    servers = ["roles.embedding_servers=1", "roles.dense_servers=1"]
    shadow = "strategy=shadowsync"
    twin = "strategy={kind: shadowsync, algorithm: easgd, sync: foreground, every: 5}"
    two = "2 trainers, no servers"
    one = "2 trainers, 1 embedding server (it needs no dense one)"

    def run(loops: int, fixed: Sequence[str], batch: int, steps: int) -> Measured:
        sizes = {"batch_size": batch // loops, "steps": steps, "warmup_steps": WARMUP}
        sets = [*fixed, *(f"training.{name}={value}" for name, value in sizes.items())]
        figures = run_experiment(
            PEERS / "model.yaml", sets, tree=TREE, python=sys.executable, given=given
        )
        return {**figures, "ms_per_step": batch / figures["examples_per_second"] * 1e3}

    for name, title, trainers, threads, sets in (
        ("flat_ps-1", "flat_ps, one process, 1 thread", 1, 1, []),
        ("flat_ps-2", "flat_ps, one process, 2 Hogwild threads", 1, 2, []),
        ("flat_ps-2p", f"flat_ps, {two}", 2, 1, []),
        ("allreduce-2p", f"allreduce, {two}", 2, 1, ["strategy=allreduce"]),
        ("flat_ps-2p-servers", "flat_ps, 2 trainers, 1 + 1 servers", 2, 1, servers),
        ("allreduce-2p-servers", f"allreduce, {one}", 2, 1, [servers[0], "strategy=allreduce"]),
        ("shadowsync-2p", f"shadowsync easgd, {two}", 2, 1, [shadow]),
        ("fr-easgd-5-2p", f"FR-EASGD-5, {two}", 2, 1, [twin]),
    ):
        fixed = [f"roles.trainers={trainers}", f"training.threads={threads}", *sets]
        yield Piece(name, f"ours: {title}", partial(run, trainers * threads, fixed))


def run_experiment(
    experiment: Path, sets: Sequence[str], *, tree: Path, python: str, given: Environments
) -> Measured:
    """``recsim-train run`` of the package in ``tree``, and what its summary says.

    Raises PieceError.
    """
    with tempfile.TemporaryDirectory(dir=given.scratch) as out:
        command = [python, "-m", "recsim_train", "run", str(experiment), "--json", "--out", out]
        command += [word for each in sets for word in ("--set", each)]
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
    total, by_what = ledger["total"], Counter[str]()
    for line in ledger["lines"]:
        by_what[line["what"]] += line["seconds"]
    within = sum(seconds for what, seconds in by_what.items() if what not in AROUND)
    return {
        "cpu_us_per_example": total / examples * 1e6,
        "reading_share": by_what[READING] / total,
        "outside_share": (total - within) / total,
        "cores": ledger.get("machine"),
    }


def _count(number: int, noun: str) -> str:
    several = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else several}"


def _torchrun(python: str, processes: int) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [python, *launcher]
