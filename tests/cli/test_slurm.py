"""Slurm's start file under a Slurm of this machine's own; skipped where there is none installed
(Debian: slurm-wlm), and as root only."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.commands import ROOT, command
from tests.ports import free_port

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        shutil.which("slurmctld") is None or os.geteuid() != 0, reason="no slurmctld, or not root"
    ),
]

STEPS = 3000
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}
SlurmctldPort={first}
SlurmdPort={second}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
JobRequeue=1
KillWait=30
ReturnToService=2
NodeName={host} CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A controller and one node of eight pretended CPUs; its folder."""
    folder, host = tmp_path / "slurm", socket.gethostname().partition(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    known = {"host": host, "first": free_port(), "second": free_port(), "folder": folder}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**known))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    daemons = []
    try:
        for program in (["slurmctld", "-D", "-c"], ["slurmd", "-D"]):
            with (folder / f"{program[0]}.out").open("wb") as out:
                daemons.append(subprocess.Popen(program, stdout=out, stderr=out))
        until(lambda: "idle" in asked("sinfo", "-h", "-o", "%T"), 60)
        yield folder
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)


def asked(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout + done.stderr).strip()


def until(enough: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not enough():  # type: ignore[operator]
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.2)


def losses(folder: Path) -> pd.Series[float]:
    found = pd.read_parquet(folder / "iterations.parquet")
    return found.set_index(["loop", "iteration"])["loss"].sort_index()


def test_a_job_that_is_requeued_goes_on_and_ends_as_one_that_was_not(
    tmp_path: Path, slurm: Path
) -> None:
    experiment = {
        "name": "mine",
        "model": {"preset": "tiny"},
        "data": {"synthetic": {"rows": 20_000}, "eval_rows": 500},
        "roles": {"trainers": 2, "embedding_servers": 1},
        "training": {"batch_size": 32, "threads": 1, "steps": STEPS, "warmup_steps": 10},
        "checkpoint": {"every": "200 steps"},
        "strategy": "allreduce",
        "cluster": "reference-2core",
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(experiment))
    shutil.copytree(ROOT / "cluster_profiles", tmp_path / "cluster_profiles")
    done = command("launch", "slurm", "mine.yaml", "-o", "job", "--minutes", "10", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = tmp_path / "job"
    number = subprocess.run(
        ["sbatch", "--parsable", "run.sbatch"], cwd=job, capture_output=True, text=True, check=True,
        timeout=60,
    ).stdout.strip()  # fmt: skip

    def steps() -> int:
        kept = job.glob("runs/*-checkpoints/step-*/checkpoint.json")
        return max((int(path.parent.name.removeprefix("step-")) for path in kept), default=0)

    until(lambda: steps() >= STEPS // 2, 240)
    print(asked("squeue"))
    assert asked("scontrol", "requeue", number) == ""
    until(lambda: "PENDING" in asked("scontrol", "show", "job", number), 60)
    assert steps() < STEPS
    print(asked("scontrol", "show", "job", number))
    asked("scontrol", "update", f"jobid={number}", "StartTime=now")
    until(lambda: "COMPLETED" in asked("scontrol", "show", "job", number), 300)
    log = (job / f"mine-allreduce-{number}.log").read_text()
    print(log)
    assert "going on from" in log
    done = command("run", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (whole,) = (tmp_path / "runs").glob("mine-allreduce-real-*")
    rest = max((job / "runs").glob("mine-allreduce-real-*"), key=lambda p: p.stat().st_mtime)
    known, found = losses(whole), losses(rest)
    assert 0 < len(found) < len(known)
    pd.testing.assert_series_equal(found, known[found.index], check_exact=True)
