"""``recsim-train cluster new``: a profile that can be read and simulated on at once."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from recsim_train.config.profiles import load_cluster, machines
from recsim_train.placement.hosts import hosts_there
from tests.commands import answer, command

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


@pytest.mark.parametrize(
    ("hosts", "racks", "rooms"),
    [
        (20, 3, [7, 7, 6]), (20, 2, 10), (10, 4, [3, 3, 2, 2]), (2, 2, 1), (9, 5, [2, 2, 2, 2, 1]),
        (20, 1, None),
    ],
)  # fmt: skip
def test_there_are_no_more_hosts_than_were_given(
    tmp_path: Path, hosts: int, racks: int, rooms: int | list[int] | None
) -> None:
    words = "cluster", "new", "mine.yaml", "--extends", BASE, "--hosts", str(hosts)
    done = command(*words, "--racks", str(racks), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = load_cluster(str(tmp_path / "mine.yaml"))
    written = found.topology and found.topology.hosts_per_rack
    assert (list(written) if isinstance(written, tuple) else written) == rooms
    assert found.most_hosts == hosts
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    some = ["--cluster", "mine.yaml", "--dry-run", "--set", "strategy=allreduce"]
    some += ["--set", "roles.embedding_servers=0", "--set", "roles.dense_servers=0"]
    for trainers in (hosts, hosts + 1):
        words = "simulate", "small.yaml", *some, "--set", f"roles.trainers={trainers}"
        done = command(*words, cwd=tmp_path)
        assert done.returncode == (0 if trainers == hosts else 2), done.stderr
    assert f"too few for the experiment's {hosts + 1} hosts" in done.stderr
    assert "Traceback" not in done.stderr
    done = command("recommend", "small.yaml", *some[:3], "--hosts", "50", cwd=tmp_path)
    assert f"on at most {hosts} hosts" in done.stdout


@pytest.mark.parametrize(("under", "racks"), [("1", "3"), ("3", "1"), ("2", "3")])
def test_hosts_and_racks_are_not_those_of_the_profile_that_it_extends(
    tmp_path: Path, under: str, racks: str
) -> None:
    words = "cluster", "new", "a.yaml", "--extends", BASE, "--hosts", "6", "--racks", under
    assert command(*words, cwd=tmp_path).returncode == 0
    words = "cluster", "new", "b.yaml", "--extends", "a", "--hosts", "20", "--racks", racks
    assert command(*words, cwd=tmp_path).returncode == 0
    found = load_cluster(str(tmp_path / "b.yaml"))
    assert hosts_there(found) == 20
    assert (found.topology.racks if found.topology else 1) == int(racks)


def test_a_machine_of_a_vendor(tmp_path: Path) -> None:
    words = "cluster", "new", "a.yaml", "--extends", BASE, "--machine", "c7i.8xlarge"
    assert command(*words, "--hosts", "5", cwd=tmp_path).returncode == 0
    found = load_cluster(str(tmp_path / "a.yaml"))
    host = found.hosts["default"]
    assert (host.cores, host.memory, host.nic) == (16, 64 << 30, 12.5e9 / 8)
    assert found.network.connection_cap == 5e9 / 8
    assert host.rent is None  # a price is nobody's but the user's
    written = (tmp_path / "a.yaml").read_text()
    assert f"a c7i.8xlarge: {machines()['c7i.8xlarge'].source}, " in written
    assert "compute priced by" in written
    assert "not calibrated" in written
    assert command(*words, "--cores", "8", "--force", cwd=tmp_path).returncode == 0
    assert load_cluster(str(tmp_path / "a.yaml")).hosts["default"].cores == 8


def test_a_rate_that_is_not_promised_is_asked_for(tmp_path: Path) -> None:
    words = "cluster", "new", "a.yaml", "--extends", BASE, "--machine", "Standard_D32s_v5"
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "the vendor says a most of 16Gbit/s and promises no rate: give --nic" in done.stderr
    assert command(*words, "--nic", "9Gbit/s", cwd=tmp_path).returncode == 0
    assert load_cluster(str(tmp_path / "a.yaml")).hosts["default"].nic == 9e9 / 8


def test_an_unknown_machine(tmp_path: Path) -> None:
    done = command("cluster", "new", "a.yaml", "--machine", "c7i.8xlarg", cwd=tmp_path)
    assert done.returncode == 2
    assert "'c7i.8xlarg' is not known; did you mean 'c7i.8xlarge'?" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_machines_are_listed_with_their_pages(tmp_path: Path) -> None:
    found = answer("cluster", "machines", cwd=tmp_path)["machines"]
    assert [machine["name"] for machine in found] == list(machines())
    for machine in found:
        assert 2 * machine["cores"] == machine["vcpus"], machine["name"]
        assert bool(machine["nic"]) != bool(machine["nic_most"]), machine["name"]
        assert machine["source"].startswith("https://")
        assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", machine["date"])
    done = command("cluster", "machines", cwd=tmp_path)
    assert "not promised, at most 16Gbit/s" in " ".join(done.stdout.split())
    assert found[0]["source"] in done.stdout.replace("\n", "")


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
        (("--hosts", "2", "--racks", "5"), "expected no more racks than hosts (2), got 5"),
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


@pytest.mark.parametrize(
    "name",
    ["2027", "null", "1e3", "true", "~", "{a}", "@x", "%a", "a: b", "x #y", '"q"', "it's", "a,b",
     "[x", "!t", "&a", "*a", " x ", "a\nb", "\u00e9"],
)  # fmt: skip
def test_a_name_is_the_files_whatever_yaml_would_make_of_it(tmp_path: Path, name: str) -> None:
    done = command("cluster", "new", f"{name}.yaml", "--extends", BASE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = load_cluster(str(tmp_path / f"{name}.yaml"))
    assert found.name == name
    assert found.hosts["default"].memory == 64 * 2**30
    # and so is that of the profile that it extends
    other = command("cluster", "new", "on.yaml", "--extends", name, cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    on = load_cluster(str(tmp_path / "on.yaml"))
    assert f"compute priced by {name}, " in on.description


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    done = command("cluster", "new", "\udcff.yaml", "--extends", BASE, cwd=tmp_path)
    assert done.returncode == 2
    assert "'\\udcff' is no text" in done.stderr
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


def test_the_command_that_it_names_can_be_pasted(tmp_path: Path) -> None:
    name = "it's mine; touch BAD.yaml"
    done = command("cluster", "new", name, *TWENTY, "--extends", BASE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    _, _, words = done.stderr.rpartition("name it with ")
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    again = command("simulate", "small.yaml", *shlex.split(words), "--dry-run", cwd=tmp_path)
    assert shlex.split(words) == ["--cluster", name]
    assert again.returncode == 0, again.stderr
