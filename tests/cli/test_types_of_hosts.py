"""Who stands on which type of host: the plan says it before a prediction, the page after it."""

from __future__ import annotations

from pathlib import Path

from tests.commands import ROOT, answer, command

SETS = [
    word
    for key in (
        "data.path=null", "strategy=flat_ps", "roles.trainers=2", "roles.embedding_servers=1",
        "roles.dense_servers=0", "training.steps=8", "simulation.what_if_steps=0",
        "cluster.colocate=false", "cluster.hosts.default.nic=1 Gbit/s",
        "cluster.hosts.default.cores=4",
        "cluster.mixed={default: [{count: 2}, {count: 2, cores: 2}]}",
    )
    for word in ("--set", key)
]  # fmt: skip
SIMULATE = [
    "simulate", ROOT / "experiments/quickstart.yaml", "--cluster", ROOT / "tests/frozen-2core.yaml",
    *SETS,
]  # fmt: skip
SAID = ["hosts of 4 cores: trainer[0], embedding_server[0]", "hosts of 2 cores: trainer[1]"]


def test_it_is_said_before_and_after(tmp_path: Path) -> None:
    (plan,) = answer(*SIMULATE, "--dry-run", cwd=tmp_path)["plans"]
    assert plan["host_types"] == SAID
    shown = command(*SIMULATE, "--dry-run", cwd=tmp_path)
    assert all(f"\n  {line}\n" in shown.stdout for line in SAID), shown.stdout
    done = command(*SIMULATE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").glob("*-simulated-*")
    command("report", run, cwd=tmp_path)
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert f"<dt>types of hosts</dt><dd>{'; '.join(SAID)}</dd>" in page


def test_more_hosts_than_there_are_is_one_sentence(tmp_path: Path) -> None:
    done = command(*SIMULATE, "--set", "roles.trainers=4", cwd=tmp_path)
    assert done.returncode == 2
    assert "4 hosts (mixed.default) are too few for the experiment's 5 hosts" in done.stderr
    assert "Traceback" not in done.stderr
