"""Runs on some of the machine's cores: what they say of them, and what OpenMP makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clock import LIMIT, by_the_clock, tried_anew
from tests.ports import free_port

EXPERIMENT = """
name: small
model: tiny
data: {eval_rows: 0, synthetic: {rows: 2000}}
roles: {trainers: 1, embedding_servers: 0, dense_servers: 0}
training: {threads: 2, batch_size: 512, steps: 60, warmup_steps: 1}
strategy: allreduce
"""
SPIN = "import os\nos.sched_setaffinity(0, {%d})\nwhile os.getppid() == %d: pass"
MASKS = """
import json, os, sys

def main():
    import torch
    torch.set_num_threads(2)
    torch.mm(torch.ones(600, 600), torch.ones(600, 600))
    tasks = os.listdir("/proc/self/task")
    assert len(tasks) > 1
    print(json.dumps([sorted(os.sched_getaffinity(int(task))) for task in tasks]))
"""
START = """
import sys
from recsim_train.executor.process import forkserver
process = forkserver.start("told", [], sys.stderr.buffer)
print(process.stdout.readline().decode())
"""
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
several = pytest.mark.skipif(len(CORES) < 2, reason="there is one core only")
TIED = pytest.mark.parametrize(
    "variables",
    [
        {"OMP_PROC_BIND": "close"},
        {"GOMP_CPU_AFFINITY": f"{CORES[0]}-{CORES[-1]}"},
        {"OMP_PLACES": "cores"},
    ],
    ids=lambda variables: "".join(variables) if isinstance(variables, dict) else None,
)


def run(folder: Path, cores: set[int], **environment: str) -> Any:
    """The run's directory as documents by name."""
    (folder / "small.yaml").write_text(EXPERIMENT)
    done = subprocess.run(
        [sys.executable, "-m", "recsim_train", "run", "small.yaml", "--json"],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, **environment}, preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = folder / json.loads(done.stdout)["runs"][0]["run_dir"]
    return {path.stem: json.loads(path.read_text()) for path in found.glob("*.json")}


@several
@tried_anew()
def test_one_of_several_cores_is_one_and_others_count_on_that_one_only(tmp_path: Path) -> None:
    spinning = subprocess.Popen([sys.executable, "-c", SPIN % (CORES[1], os.getpid())])
    try:
        found = run(tmp_path, {CORES[0]})
    finally:
        spinning.kill()
        spinning.wait()
    assert found["environment"]["cores"] == 1
    assert found["environment"]["machine"].endswith(", 1 core")
    use = found["summary"]["facts"]["ledger"]["machine"]
    assert use["cores"] == 1
    # the neighbour would be a whole core of others beside what this one does
    with by_the_clock():
        assert use["own"] + use["others"] + use["steal"] < 1.3


@several
@TIED
def test_no_variable_of_openmp_ties_processes_to_a_core(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    (tmp_path / "told.py").write_text(MASKS)
    done = subprocess.run(
        [sys.executable, "-c", START],
        cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=True,
        env={**os.environ, **variables},
    )  # fmt: skip
    masks = json.loads(done.stdout)
    assert masks == [CORES] * len(masks)


@several
def test_a_rank_keeps_its_cores(tmp_path: Path) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    rank["MASTER_PORT"] = str(free_port())
    found = run(tmp_path, set(CORES), **rank, OMP_PROC_BIND="close")
    assert found["summary"]["facts"]["launched_by"] == "torchrun"
    assert found["environment"]["cores"] == len(CORES)
