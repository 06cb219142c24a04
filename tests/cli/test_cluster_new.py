"""``recsim-train cluster new``: a profile that can be read and simulated on at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.profiles import load_cluster
from tests.commands import command

BASE = str((Path(__file__).parents[2] / "cluster_profiles" / "reference-2core.yaml").resolve())
EXPERIMENT = """
name: small
model: tiny
data: {path: null}
roles: {trainers: 4, embedding_servers: 2, dense_servers: 1}
training: {batch_size: 64, steps: 20, warmup_steps: 2}
simulation: {what_if_steps: 0}
strategy: flat_ps
"""
TWENTY = ("--hosts", "20", "--cores", "32", "--memory", "128GiB", "--nic", "25Gbit/s")
RACKS = ("--racks", "2", "--oversubscription", "2")


def test_what_is_written_is_what_was_asked_for(tmp_path: Path) -> None:
    done = command("cluster", "new", "mine.yaml", *TWENTY, *RACKS, "--extends", BASE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, base = load_cluster(str(tmp_path / "mine.yaml")), load_cluster(BASE)
    host = found.hosts["default"]
    assert (host.cores, host.memory, host.nic) == (32, 128 << 30, 25e9 / 8)
    assert (found.name, found.colocate, found.costs) == ("mine", False, base.costs)
    assert found.network.loopback == base.network.loopback  # of which nothing is left in use
    assert found.network.connection_cap is None
    racks = found.topology
    assert racks is not None
    assert (racks.racks, racks.hosts_per_rack, racks.oversubscription) == (2, 10, 2.0)
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    done = command("simulate", "small.yaml", "--cluster", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_rack_needs_no_topology(tmp_path: Path) -> None:
    assert command("cluster", "new", "a.yaml", "--extends", BASE, cwd=tmp_path).returncode == 0
    assert load_cluster(str(tmp_path / "a.yaml")).topology is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nic", "25GB"), "new.yaml:15:10: hosts.default.nic: unknown unit 'GB'"),
        (("--memory", "128"), "hosts.default.memory: "),
        (("--latency", "fast"), "network.latency: "),
        (("--extends", "nobodys"), "new.yaml:5:10: extends: there is no cluster profile 'nobodys'"),
        (("--oversubscription", "2"), "give --racks, too"),
        (("--racks", "2", "--oversubscription", "0"), "topology.oversubscription: "),
    ],
)
def test_what_makes_no_profile_is_written_nowhere(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = command("cluster", "new", "new.yaml", "--extends", BASE, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_profile_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    words = "cluster", "new", "mine.yaml", "--extends", BASE
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "mine.yaml exists already; --force overwrites it" in done.stderr
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert command(*words, "--force", cwd=tmp_path).returncode == 0
    assert load_cluster(str(tmp_path / "mine.yaml")).name == "mine"
