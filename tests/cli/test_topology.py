"""Racks, stragglers and failures through the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from rich.console import Console

from recsim_train.report.runs import finished, load_runs
from recsim_train.report.terminal import show
from tests.commands import command

ROOT = Path(__file__).parents[2]
EXPERIMENT = str(ROOT / "experiments" / "racks.yaml")
FAILING = (
    "training.steps=60",
    "simulation.what_if_steps=0",
    "checkpoint.every=300 ms",
    "cluster.failures={restart: 200 ms, schedule: [{at: 900 ms, host: 'trainer[3]'}]}",
    "cluster.checkpoints={copied_byte: {value: 2 ns}, written_byte: {value: 0 s}, "
    "disk_byte: {value: 0 s}, verified_byte: {value: 0 s}, loaded_byte: {value: 0 s}, "
    "start: {value: 100 ms}}",
)


def simulated(*sets: str, cwd: Path, options: tuple[str, ...] = ()) -> CompletedProcess[str]:
    words = [word for setting in (*FAILING, *sets) for word in ("--set", setting)]
    return command("simulate", EXPERIMENT, *words, *options, cwd=cwd)


def answer(*sets: str, cwd: Path, out: str = "runs") -> Any:
    done = simulated(*sets, cwd=cwd, options=("--json", "--out", out))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_example(tmp_path: Path) -> None:
    document = answer("recovery.policy=restart", cwd=tmp_path)
    runs = {run["strategy"]: run for run in document["runs"]}
    assert list(runs) == ["shadowsync", "flat_ps", "allreduce"]
    for run in runs.values():
        facts, reliability = run["facts"], run["facts"]["reliability"]
        assert facts["racks"]["trainer[5]"] == 1
        assert len(facts["slow_hosts"]) == 1
        assert facts["slow_hosts"] == runs["flat_ps"]["facts"]["slow_hosts"]
        assert [(f["host"], f["at"]) for f in reliability["first_failures"]] == [
            ("trainer[3]", 0.9)
        ]
        # all stood still until the host was back and all were started, and for each checkpoint
        each = reliability["checkpoint_seconds"]
        still = 0.2 + 0.1 + each * reliability["checkpoints"]
        assert reliability["standstill_seconds"] == pytest.approx(still, abs=1.02 * each)
        assert each > 0.01
        lost = reliability["lost_examples"] / (60 * 8 * 256)
        assert 0.0 < lost < 0.5
        assert reliability["goodput"] == pytest.approx(run["examples_per_second"] * (1 - lost))
        assert "rack[0].up" in run["utilisation"]
    assert runs["shadowsync"]["examples_per_second"] > runs["allreduce"]["examples_per_second"]
    shown = io.StringIO()
    show(finished(load_runs([tmp_path / "runs"])), Console(file=shown, width=250))
    assert "goodput" in shown.getvalue()
    # equal inputs, equal bytes
    again = answer("recovery.policy=restart", cwd=tmp_path, out="again")
    for run in (*document["runs"], *again["runs"]):
        run.pop("run_dir")
    assert again == document


def test_an_abort_is_said(tmp_path: Path) -> None:
    done = simulated("recovery.policy=stop", "strategy=flat_ps", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "failed after 0.9 s of simulated time: recovery.policy is stop" in done.stderr
    early = "cluster.failures.schedule.0.at=1 ms"
    done = simulated("recovery.policy=stop", early, cwd=tmp_path)
    assert done.returncode == 1
    assert "failed: trainer[3] failed after 0.001 s" in done.stderr


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (
            "cluster.topology.racks=1",
            "8 hosts (topology.hosts_per_rack) are too few for the experiment's 16 hosts",
        ),
        ("roles.trainers=2", "failures.schedule[0].host: there is no trainer[3]"),
        ("cluster.mixed.trainer.1.count=1", "mixed.trainer has 7 hosts for trainers, too few for"),
        ("cluster.colocate=true", "topology: with colocate: true all roles are processes of one"),
        ("recovery.policy=again", "recovery.policy: expected one of 'stop'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(tmp_path: Path, setting: str, sentence: str) -> None:
    done = simulated(setting, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
