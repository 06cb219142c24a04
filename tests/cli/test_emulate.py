"""``recsim-train run --emulate``: roles on hosts of their own, whose links are what binds."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from recsim_train.config.frames import FRAME, SEGMENT
from tests.clock import by_the_clock, tried_anew
from tests.commands import answer, command
from tests.executor.test_emulation import namespaces, refused

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why := refused()), reason=why),
]
BASE = (Path(__file__).parents[2] / "tests" / "frozen-2core.yaml").resolve()
PROFILE = f"""
format: 1
extends: {BASE}
name: emulated
colocate: false
hosts: {{default: {{nic: 20 Mbit/s}}}}
network: {{latency: 30 us, efficiency: 0.9564, connection_cap: null}}
"""
EXPERIMENT = """
name: small
model: {embedding_dim: 16, bottom_mlp: [16], top_mlp: [16, 1], tables: {count: 26, rows: 500}}
data: {path: null, eval_rows: 0}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 256, steps: 8, warmup_steps: 2}
strategy: flat_ps
"""
SYNCHRONOUS = ("--set", "strategy=allreduce", "--set", "roles.trainers=2", "--set",
               "roles.embedding_servers=0", "--set", "roles.dense_servers=0")  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    (tmp_path / "cluster.yaml").write_text(PROFILE)
    return tmp_path


def run(folder: Path, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(run, its facts)"""
    (found,) = answer("run", "small.yaml", *words, "--cluster", "cluster.yaml", cwd=folder)["runs"]
    summary = json.loads((folder / found["run_dir"] / "summary.json").read_text())
    return found, summary["facts"]


@tried_anew()
def test_the_links_bind_and_count_what_was_sent(folder: Path) -> None:
    found, facts = run(folder, "--emulate")
    links = facts["emulated"]["links"]
    assert set(links) == {
        f"{to}{name}"
        for to in ("", "to ")
        for name in ("trainer[0]", "embedding_server[0]", "dense_server[0]")
    }
    payload = 20e6 / 8 * 0.9564
    assert links["trainer[0]"] == pytest.approx(payload * FRAME / SEGMENT)
    # one trainer: rows come, then their gradients go; nothing can be faster than its link
    vectors = 256 * 26 * 16 * 4
    least = 2 * vectors / payload
    # all of a run's payload, ten of whose iterations count eight; requests have headers, too
    sent = sum(size for name, size in facts["emulated"]["sent"].items() if name[:3] != "to ")
    assert sent * SEGMENT / FRAME == pytest.approx(found["bytes_sent"] * 10 / 8, rel=0.03)
    alone, without = run(folder)
    assert without.get("emulated") is None
    assert alone["bytes_sent"] == found["bytes_sent"]
    assert 0.95 * least < found["seconds"] / 8  # no load makes a link wider
    with by_the_clock():
        assert found["seconds"] / 8 < 1.35 * least
        assert alone["seconds"] < 0.5 * found["seconds"]


def test_collectives_go_over_the_links_and_change_no_loss(folder: Path) -> None:
    found, facts = run(folder, *SYNCHRONOUS, "--emulate")
    alone, _ = run(folder, *SYNCHRONOUS)
    assert found["bytes_sent"] == alone["bytes_sent"]
    losses = [
        json.loads((folder / each["run_dir"] / "summary.json").read_text())["train_loss_last"]
        for each in (found, alone)
    ]
    assert losses[0] == losses[1]
    sent = facts["emulated"]["sent"]
    assert sent["trainer[0]"] * SEGMENT / FRAME > found["bytes_sent"] / 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "cluster.colocate=true"), "there are no hosts to emulate"),
        (("--set", "cluster.network.connection_cap=1 Mbit/s"), "network.connection_cap"),
        (("--set", "cluster.network.latency=20 ms"), "network.latency"),
    ],
)
def test_what_cannot_be_emulated_is_refused(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    done = command(
        "run", "small.yaml", "--cluster", "cluster.yaml", "--emulate", *words, cwd=folder
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not list((folder / "runs").glob("*-real-*"))


@tried_anew()
def test_modelled_compute_takes_what_the_prediction_says(folder: Path) -> None:
    """A net that takes long here and no time on its modelled host, and the other way round."""
    sets = (
        "model.top_mlp=[512, 512, 1]",
        "training.steps=4",
        "cluster.hosts.default.nic=50 Mbit/s",
    )
    wide = [word for each in sets for word in ("--set", each)]
    found, facts = run(folder, "--emulate", "--compute", "modelled", *wide)
    trainer = facts["slept"]["trainer[0]"]
    assert "train_loss_last" not in found or found["train_loss_last"] is None
    dear = ("--set", "cluster.costs.gemm_flop=2 ns")
    slower, told = run(folder, "--emulate", "--compute", "modelled", *wide, *dear)
    assert slower["bytes_sent"] == found["bytes_sent"]
    assert told["slept"]["trainer[0]"]["asked"] > 40 * trainer["asked"]
    with by_the_clock():
        assert trainer["taken"] == pytest.approx(trainer["asked"], rel=0.5)
        assert slower["seconds"] > 2 * found["seconds"]


@pytest.mark.parametrize("strategy", ["des", "{kind: hierarchical, hosts: 2}"])
def test_stand_ins_of_cut_nets_send_what_true_passes_do(folder: Path, strategy: str) -> None:
    roles = "roles={trainers: 2, embedding_servers: 1, dense_servers: 0}"
    if strategy == "des":
        roles = roles.replace("embedding_servers: 1", "embedding_servers: 0")
    words = ("--set", f"strategy={strategy}", "--set", roles)
    found, _ = run(folder, "--emulate", "--compute", "modelled", *words)
    true = answer("run", "small.yaml", *words, cwd=folder)["runs"][0]
    assert found["bytes_sent"] == true["bytes_sent"] > 0


def left_over(folder: Path) -> dict[str, set[str]]:
    """What a run of this folder makes outside of it."""
    commands = [p for p in psutil.process_iter() if p.pid != os.getpid()]
    return {
        "namespaces": namespaces(),
        "devices": {path.name for path in Path("/sys/class/net").iterdir()},
        "processes": {str(p.pid) for p in commands if str(folder) in ended_or(p)},
        "files": {path.name for path in (folder / "tmp").iterdir()},
        "shared memory": unmapped(),
    }


def unmapped() -> set[str]:
    """Shared memory that no living process has mapped: neither other programs' nor that of a
    process which is told as such."""
    before = list(Path("/dev/shm").iterdir())
    held: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            # by its number: a semaphore is mapped under the name that it is made with
            held |= set(re.findall(r" (\d+) +/dev/shm/", maps.read_text()))
    found = set()
    for path in before:
        with contextlib.suppress(FileNotFoundError):
            if str(path.stat().st_ino) not in held:
                found.add(path.name)
    return found


def ended_or(process: psutil.Process) -> str:
    """Its folder and command line."""
    try:
        return f"{process.cwd()} {process.cmdline()}"
    except psutil.Error:
        return ""


@pytest.mark.thorough
def test_nothing_is_left_of_a_run_that_is_killed_at_any_moment(folder: Path) -> None:
    """SIGKILL of the command, at 20 moments of its few seconds."""
    (folder / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    words = ["run", "small.yaml", "--cluster", "cluster.yaml", "--emulate"]
    before = left_over(folder)
    draw = random.Random(7)
    for _ in range(20):
        with subprocess.Popen(
            [sys.executable, "-m", "recsim_train", *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.2, 8.0))
            process.kill()
        end = time.monotonic() + 15.0
        while (left := left_over(folder)) != before and time.monotonic() < end:
            time.sleep(0.1)
        assert left == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--compute", "modelled"), "add --emulate"),
        (("--emulate", "--set", "cluster.stragglers={tail: {distribution: pareto, index: 4}}"),
         "stragglers are not emulated"),
    ],
)  # fmt: skip
def test_what_is_not_emulated_is_said(folder: Path, words: tuple[str, ...], said: str) -> None:
    for dry in ((), ("--dry-run",)):
        done = command("run", "small.yaml", "--cluster", "cluster.yaml", *words, *dry, cwd=folder)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr


def test_hosts_need_a_profile(folder: Path) -> None:
    done = command("run", "small.yaml", "--emulate", cwd=folder)
    assert done.returncode == 2
    assert "--emulate needs a cluster profile, and there is none called 'local'" in done.stderr
