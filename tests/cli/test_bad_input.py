"""What users get wrong, through the command line: one clear sentence, the right exit code.

Errors of configuration files have their own tests (tests/config); here are the ways in which whole
commands fail, before they start (2) and in the middle (1).
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clock import LIMIT
from tests.commands import command, started
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")

EXPERIMENT = """
name: small
model: {embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: {count: 26, rows: 500}}
data: {path: small.tsv, generate: true, eval_rows: 200, synthetic: {rows: 3000}}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 16, threads: 1, steps: 20, warmup_steps: 2}
strategy: flat_ps
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    (tmp_path / "hollow").mkdir()
    (tmp_path / "binary.tsv").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "prose.tsv").write_text("hello\n" * 2000)
    (tmp_path / "fake.gz").write_text("not gzip\n" * 100)
    (tmp_path / "profile.yaml").write_text("name: [unclosed\n")
    (tmp_path / "file").touch()
    (tmp_path / "kept" / "old").mkdir(parents=True)
    (tmp_path / "kept" / "old" / "manifest.json").write_text(
        '{"tool": "recsim-train", "format": 0}'
    )
    return tmp_path


BAD = {
    "no such experiment": (["simulate", "nothing.yaml"], "nothing.yaml"),
    "experiment is a folder": (["run", "."], "Is a directory"),
    "folder without experiments": (["simulate", "hollow"], "no experiment"),
    "experiment is binary": (["simulate", "binary.tsv"], "binary.tsv"),
    "unknown key": (["simulate", "small.yaml", "--set", "roles.trainer=2"], "did you mean"),
    "negative count": (["run", "small.yaml", "--set", "roles.trainers=-1"], "at least 1"),
    "zero trainers": (["run", "small.yaml", "--set", "roles.trainers=0"], "at least 1"),
    "zero batch": (["run", "small.yaml", "--set", "training.batch_size=0"], "at least 1"),
    "fraction": (["run", "small.yaml", "--set", "training.steps=1.5"], "integer"),
    "no unit": (["run", "small.yaml", "--set", "execution.timeout=5"], "unit"),
    "unknown unit": (["run", "small.yaml", "--set", "execution.timeout=5 sex"], "unknown unit"),
    "unknown strategy": (["run", "small.yaml", "--set", "strategy=flat"], "flat_ps"),
    "unknown option": (["run", "small.yaml", "--set", "strategy.evry=2"], "every"),
    "bad choice": (["run", "small.yaml", "--set", "strategy.mode=downpor"], "downpour"),
    "option out of range": (["run", "small.yaml", "--set", "strategy.alpha=2"], "alpha"),
    "set without =": (["run", "small.yaml", "--set", "roles.trainers"], "roles.trainers"),
    "unknown preset": (["run", "small.yaml", "--set", "model=criteo"], "criteo-kaggle"),
    "absent data": (["run", "small.yaml", "--set", "data.path=no.tsv"], "no.tsv"),
    "binary data": (["run", "small.yaml", "--set", "data.path=binary.tsv"], "binary.tsv"),
    "empty data": (["run", "small.yaml", "--set", "data.path=empty.tsv"], "empty.tsv"),
    "other text": (["run", "small.yaml", "--set", "data.path=prose.tsv"], "prose.tsv"),
    "not gzip": (["run", "small.yaml", "--set", "data.path=fake.gz"], "gzip"),
    "data is a folder": (["run", "small.yaml", "--set", "data.path=hollow"], "folder has no file"),
    "data is no pattern": (["run", "small.yaml", "--set", "data.path=*.x"], "no file has a name"),
    "huge tables": (
        ["run", "small.yaml", "--set", "model.tables={count: 26, rows: 4000000000}"],
        "GiB",
    ),
    "huge tables, predicted": (
        ["simulate", "small.yaml", "--cluster", REFERENCE,
         "--set", "model.tables={count: 26, rows: 100000000}"],
        "embedding servers",
    ),
    "too many servers": (
        ["run", "small.yaml", "--set", "roles.embedding_servers=40",
         "--set", "model.tables={count: 26, rows: 3}"],
        "40 embedding shards",
    ),
    "absent profile": (["simulate", "small.yaml", "--cluster", "moon"], "moon"),
    "broken profile": (["simulate", "small.yaml", "--cluster", "profile.yaml"], "profile.yaml:"),
    "out is a file": (["run", "small.yaml", "--out", "file"], "file"),
    "out is a file, predicted": (
        ["simulate", "small.yaml", "--cluster", REFERENCE, "--out", "file"], "file",
    ),
    "report of nothing": (["report", "nowhere"], "nowhere"),
    "report of a folder without runs": (["report", "."], "run"),
    "report of an old format": (["report", "kept/old"], "in format 0, this version reads 1"),
    "bad gate": (["report", ".", "--max-error", "much"], "percentage"),
    "empty profile": (["simulate", "small.yaml", "--cluster", ""], "got empty text"),
    "empty profile, run": (["run", "small.yaml", "--cluster", " "], "got empty text"),
    "empty profile in the YAML": (["run", "small.yaml", "--set", "cluster=''"], "got empty text"),
    "precision above one": (
        ["simulate", "small.yaml", "--cluster", REFERENCE, "--set", "simulation.precision=200%"],
        "simulation.precision: expected a share below 100 %",
    ),
    "a price beyond all sense": (
        ["simulate", "small.yaml", "--cluster", REFERENCE, "--set", "cluster.costs.call=1e300 s"],
        "costs.call.value: expected a duration of at most 1e12 s, got '1e300 s'",
    ),
    "a rate beyond all sense": (
        ["simulate", "small.yaml", "--cluster", REFERENCE,
         "--set", "cluster.hosts.default.nic=1e-300 bit/s"],
        "hosts.default.nic: expected a data rate of at least 1 bit/s",
    ),
    "a billion trainers": (
        ["simulate", "small.yaml", "--dry-run", "--set", "roles.trainers=1000000000"],
        "roles.trainers: expected an integer of at least 1 and at most 100000, got 1000000000",
    ),
    "a billion readers": (
        ["run", "small.yaml", "--dry-run", "--set", "roles.readers=1000000000"],
        "roles.readers: expected an integer of at least 0 and at most 100000, got 1000000000",
    ),
    "a billion threads": (
        ["run", "small.yaml", "--dry-run", "--set", "training.threads=1000000000"],
        "training.threads: expected at most 250,000 threads of all trainers together",
    ),
    "negative seed": (["run", "small.yaml", "--seed", "-1"], "seed"),
    "unknown flag": (["run", "small.yaml", "--quick"], "--quick"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_known_before_starting(name: str, folder: Path) -> None:
    words, part = BAD[name]
    done = command(*words, cwd=folder)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not list(folder.glob("runs/*"))


def test_a_billion_trainers_are_refused_before_any_is_planned(folder: Path) -> None:
    """In bounded processor time, whatever the machine does beside: a plan of 1e9 takes minutes."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = started("simulate", "small.yaml", "--dry-run", "--set", "roles.trainers=1000000000",
                   cwd=folder)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 2
    assert after.ru_utime - before.ru_utime < 10


def test_too_few_racks_are_no_memory(folder: Path) -> None:
    topology = "cluster.topology={racks: 1, hosts_per_rack: 1, oversubscription: 2}"
    words = ["simulate", "small.yaml", "--dry-run", "--cluster", REFERENCE,
             "--set", "cluster.colocate=false", "--set", topology,
             "--set", "cluster.network.latency=20 us",
             "--set", "cluster.network.connection_cap=null",
             "--set", "cluster.hosts.default.nic=10 Gbit/s",
             "--set", "roles.trainers=2", "--set", "strategy=[flat_ps, allreduce]"]  # fmt: skip
    done = command(*words, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert done.stdout.count("hosts: does not fit") == 2
    assert "memory:" not in done.stdout
    said = [line for line in done.stderr.splitlines() if "are too few" in line]
    assert said
    assert len(said) == len(set(said))
    assert "too few" not in done.stdout


def test_a_dry_run_says_whether_it_fits(folder: Path) -> None:
    words = ["simulate", "small.yaml", "--dry-run", "--cluster", REFERENCE]
    done = command(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "memory: fits: " in done.stdout
    large = ["--set", "model.tables={count: 26, rows: 50000000}",
             "--set", "cluster.colocate=false", "--set", "cluster.network.latency=20 us",
             "--set", "cluster.network.connection_cap=null",
             "--set", "cluster.hosts.default.nic=10 Gbit/s"]  # fmt: skip
    done = command(*words, *large, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert "trainer[0]" in done.stdout  # the plan is there nevertheless
    assert "memory: does not fit" in done.stdout
    assert "embedding servers would be enough" in done.stderr
    done = command(*words, *large, "--json", cwd=folder)
    memory = json.loads(done.stdout)["plans"][0]["memory"]
    assert memory["fits"] is False
    assert memory["smallest_servers"]["embedding_server"] > 1


def test_a_truncated_gzip_is_found_before_anything_trains(folder: Path) -> None:
    assert command("data", "generate", "small.yaml", cwd=folder).returncode == 0
    packed = gzip.compress((folder / "small.tsv").read_bytes())
    (folder / "cut.gz").write_bytes(packed[: len(packed) // 2])
    done = command("run", "small.yaml", "--set", "data.path=cut.gz", cwd=folder)
    assert done.returncode == 1, done.stderr
    said = r"cut\.gz: its gzip data ends in the middle \(truncated file\), after 1,\d\d\d rows"
    assert re.search(said, done.stderr)
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("runs/*"))
    assert not list(folder.glob(".recsim-train/cut*"))  # and no half-written conversion


def test_malformed_lines_are_counted_and_training_goes_on(folder: Path) -> None:
    assert command("data", "generate", "small.yaml", cwd=folder).returncode == 0
    lines = (folder / "small.tsv").read_text().splitlines()
    for number in range(0, len(lines), 40):  # whichever rows are read, some of them
        lines[number] = "1\tthree columns\tonly"
    (folder / "dirty.tsv").write_text("\n".join(lines) + "\n")
    done = command("run", "small.yaml", "--set", "data.path=dirty.tsv", "--json",
                   "--set", "data.malformed_limit=10%", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)["runs"][0]["facts"]
    assert sum(facts["malformed_rows"].values()) > 0


def test_a_full_disk_loses_nothing(folder: Path) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("a small file system of one's own needs root and unshare")
    assert command("data", "generate", "small.yaml", cwd=folder).returncode == 0
    (folder / "small").mkdir()
    (folder / "elsewhere").mkdir()
    script = (
        f"mount -t tmpfs -o size=8k tmpfs small && exec {sys.executable} -m recsim_train "
        "run small.yaml --out small"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "TMPDIR": str(folder / "elsewhere")},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    (kept,) = (folder / "elsewhere").glob("recsim-train-kept-*/*")
    assert json.loads((kept / "summary.json").read_text())["steps"] == 20


def test_a_port_in_use_does_not_matter(folder: Path) -> None:
    """A local run opens no port of its own choice; torchrun's variables must be complete."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = command("run", "small.yaml", "--json", cwd=folder, env={"MASTER_PORT": port})
    assert done.returncode == 0, done.stderr


def test_torchrun_with_the_wrong_number_of_ranks(folder: Path) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "7", "MASTER_ADDR": "127.0.0.1"}
    env["MASTER_PORT"] = str(free_port())
    done = started("run", "small.yaml", cwd=folder, env=env)
    assert done.returncode == 2, done.stderr
    assert "needs 3 ranks (trainer[0], embedding_server[0], dense_server[0])" in done.stderr


def test_torchrun_runs_the_same_experiment(folder: Path) -> None:
    assert command("data", "generate", "small.yaml", cwd=folder).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3",
         "-m", "recsim_train", "run", "small.yaml", "--json",
         "--set", "strategy=[flat_ps, {kind: flat_ps, every: 4}]"],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["steps"] for run in runs] == [20, 20]
    local = json.loads(command("run", "small.yaml", "--json", cwd=folder).stdout)["runs"][0]
    assert runs[0]["bytes_sent"] == local["bytes_sent"]


def test_run_checks_this_machine_s_memory_whether_or_not_it_starts_anything(folder: Path) -> None:
    huge = ("--set", "model={preset: tiny, tables: [{rows: 900000000000}]}")
    for words in ((), ("--dry-run",), ("--dry-run", "--json")):
        done = command("run", "small.yaml", *huge, *words, cwd=folder)
        assert done.returncode == 2, done.stderr
        assert "all processes together need " in done.stderr
        assert "GiB too much" in done.stderr
    done = command("run", "small.yaml", "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "  memory: fits: " in done.stdout
    plans = json.loads(command("run", "small.yaml", "--dry-run", "--json", cwd=folder).stdout)
    assert all(plan["memory"]["fits"] for plan in plans["plans"])
