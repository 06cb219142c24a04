"""Runs whose processes are killed, asked to end, stopped or slowed at a random moment, and what is
left of them: everything follows from a case's seed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import psutil
import yaml

import recsim_train
from recsim_train.checkpoints.manifest import MANIFEST, steps_of, usable
from recsim_train.config.errors import UserError
from tests.ports import free_port

STEPS, EVERY = 300, 25
LIMIT = 200.0
"""Seconds after which a run is taken to hang: torchrun itself waits for a stopped process twice."""
STRATEGIES: dict[str, tuple[str, ...]] = {
    "allreduce": ("strategy=allreduce",),
    "scalefreectr": ("strategy=scalefreectr",),
    "localsgd": ("strategy={kind: localsgd, every: 7, prefetch: 1}",),
    "des": ("strategy={kind: des, partition: hash}", "roles.embedding_servers=0"),
    "hierarchical": ("strategy={kind: hierarchical, hosts: 2}",),
    "flat_ps": ("strategy=flat_ps", "roles.dense_servers=1"),
    "shadowsync": ("strategy={kind: shadowsync, algorithm: ma}",),
}
APART = {"flat_ps", "shadowsync"}
"""Their trainers do not wait for each other: nothing of them is the same twice."""
DEADLY = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)


@dataclass(frozen=True)
class Killing:
    """What is done to a run, and when."""

    seed: int
    strategy: str
    ranks: bool
    """Whether torchrun starts it; else it starts itself."""
    victim: str
    """A process of the plan, or "launcher"."""
    signal: signal.Signals
    """SIGCONT: it is stopped for a second and goes on."""
    after: float
    """Seconds from when it trains."""

    @staticmethod
    def drawn(seed: int) -> Killing:
        draw = Random(seed)
        strategy = sorted(STRATEGIES)[seed % len(STRATEGIES)]
        roles = ["trainer[0]", "trainer[1]", "reader[0]", "launcher"]
        if strategy != "des":
            roles += ["embedding_server[0]", "embedding_server[1]"]
        if strategy == "flat_ps":
            roles.append("dense_server[0]")
        how = draw.choice([*DEADLY, signal.SIGCONT])
        victim = draw.choice(roles)
        if victim == "launcher" and how == signal.SIGSTOP:
            how = signal.SIGKILL  # who is stopped by hand goes on by hand
        return Killing(seed, strategy, bool(draw.getrandbits(1)), victim, how, draw.uniform(0, 1.5))


def experiment(folder: Path) -> Path:
    file = folder / "killed.yaml"
    if not file.exists():
        file.write_text(
            yaml.safe_dump(
                {
                    "name": "killed",
                    "model": {"preset": "tiny"},
                    "data": {"synthetic": {"rows": 20_000, "seed": 7}, "eval_rows": 200},
                    "roles": {
                        "trainers": 2, "embedding_servers": 2, "dense_servers": 0, "readers": 1,
                    },
                    "training": {
                        "batch_size": 32, "threads": 1, "steps": STEPS, "warmup_steps": 5,
                        "dense_optimizer": "adagrad",
                    },
                    "checkpoint": {"every": f"{EVERY} steps", "keep": 2},
                    "execution": {"timeout": "5 s"},
                    "cluster": "local",
                }
            )
        )  # fmt: skip
    return file


def words(folder: Path, case: Killing, *more: str) -> list[str]:
    """The command line of a run."""
    sets = [word for one in STRATEGIES[case.strategy] for word in ("--set", one)]
    own = ["-m", "recsim_train", "run", str(experiment(folder)), "--out", "runs", *sets, *more]
    if not case.ranks:
        return [sys.executable, *own]
    study = recsim_train.load(experiment(folder), overrides=list(STRATEGIES[case.strategy]))
    world = str(len(study.plans[0].instances))
    way = ["--nproc-per-node", world, "--master-port", str(free_port())]
    return [sys.executable, "-m", "torch.distributed.run", *way, *own]


def family(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def find(case: Killing, folder: Path, started: psutil.Process) -> psutil.Process | None:
    """The process that is meant, once it is there."""
    if case.victim == "launcher":
        return started
    names = [
        i.name
        for i in recsim_train.load(experiment(folder), overrides=list(STRATEGIES[case.strategy]))
        .plans[0]
        .instances
    ]
    for process in family(started):
        with suppress(psutil.Error, FileNotFoundError):
            if case.ranks and process.environ().get("RANK") == str(names.index(case.victim)):
                return process
            if not case.ranks and case.victim in process.cmdline():
                return process
    return None


def losses(folder: Path) -> pd.Series[float]:
    """Of the last run that was kept."""
    runs = sorted(folder.glob("killed-*-real-*"), key=lambda path: path.stat().st_mtime)
    found = pd.read_parquet(runs[-1] / "iterations.parquet")
    return found.set_index(["loop", "iteration"])["loss"].sort_index()


def go(folder: Path, case: Killing, log: Path, *more: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as sink:
        return subprocess.Popen(
            words(folder, case, *more), cwd=folder, stdout=sink, stderr=sink,
            start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def left_over(seen: list[psutil.Process]) -> list[str]:
    """Processes of a run that are still there."""
    gone = time.monotonic() + 20.0
    while there := [p for p in seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
        if time.monotonic() > gone:
            return [" ".join(p.cmdline())[:120] for p in there]
        time.sleep(0.1)
    return []


def killed(case: Killing, folder: Path) -> dict[str, Any]:
    """Do it, look at what is left, go on to the end; what came of it. Raises AssertionError."""
    log = folder / "first.log"
    process = go(folder, case, log)
    started = psutil.Process(process.pid)
    seen: list[psutil.Process] = []
    end = time.monotonic() + LIMIT
    try:
        while (b"training" not in log.read_bytes() and not case.ranks) or not find(
            case, folder, started
        ):
            assert time.monotonic() < end, "it has not begun"
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        time.sleep(case.after)
        seen = [started, *family(started)]
        victim = find(case, folder, started)
        if victim is not None:
            with suppress(psutil.NoSuchProcess):
                if case.signal == signal.SIGCONT:
                    victim.suspend()
                    time.sleep(1.0)
                victim.send_signal(case.signal)
        process.wait(max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it hangs: {log.read_text()}") from None
    finally:
        for one in [*family(started), started]:
            with suppress(psutil.Error):
                one.kill() if process.poll() is None else None
        process.wait(10.0)
    code = process.returncode
    assert "Traceback" not in log.read_text() or case.ranks, log.read_text()
    assert not (orphans := left_over(seen)), orphans
    whole = kept(folder)
    resumed = go(folder, case, folder / "second.log", "--resume")
    assert resumed.wait(LIMIT) == 0, (folder / "second.log").read_text()
    said = (folder / "second.log").read_text()
    return {"code": code, "checkpoints": whole, "from": gone_on(said)}


def kept(folder: Path) -> int:
    """How many complete checkpoints are left, all of which are whole."""
    folders = list((folder / "runs").glob("*-checkpoints*"))
    complete = [path for one in folders for path in steps_of(one) if (path / MANIFEST).exists()]
    for found in usable(folders):
        if isinstance(found, UserError):
            assert "no complete checkpoint" in str(found), found
    return len(complete)


def gone_on(said: str) -> int:
    """With which iteration; -1: the run had been complete."""
    if "going on from" in said:
        return int(said.partition("with iteration ")[2].split()[0].replace(",", ""))
    return 0 if "beginning at the beginning" in said else -1
