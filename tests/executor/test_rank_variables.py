"""Variables that make a process a rank: each that makes no sense is a sentence, the others work."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.link import rendezvous
from recsim_train.executor.link.rendezvous import read_rank, under_torchrun
from recsim_train.executor.process.launch import execute
from tests.clock import LIMIT
from tests.executor.one_rank import codes, prepared, ranks
from tests.executor.test_failures import make_plan
from tests.ports import free_port

GOOD = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
UNSET = "`unset RANK` has recsim-train start all processes itself"
BAD = {
    ("RANK", "x"): "RANK='x' is not a whole number from 0 to 2, below WORLD_SIZE = 3",
    ("RANK", ""): "RANK='' is not a whole number from 0 to 2",
    ("RANK", "0x1"): "RANK='0x1' is not",
    ("RANK", "-1"): "RANK='-1' is not",
    ("RANK", "3"): "RANK='3' is not a whole number from 0 to 2",
    ("RANK", " 1"): "RANK=' 1' is not",
    ("RANK", "1_0"): "RANK='1_0' is not",
    ("RANK", "٣"): "is not a whole number",
    ("WORLD_SIZE", "2.0"): "WORLD_SIZE='2.0' is not a whole number from 1 to",
    ("WORLD_SIZE", "0"): "WORLD_SIZE='0' is not",
    ("WORLD_SIZE", ""): "WORLD_SIZE='' is not",
    ("MASTER_PORT", "abc"): "MASTER_PORT='abc' is not a whole number from 1 to 65535",
    ("MASTER_PORT", ""): "MASTER_PORT='' is not",
    ("MASTER_PORT", "99999"): "MASTER_PORT='99999' is not",
    ("MASTER_PORT", "-1"): "MASTER_PORT='-1' is not",
    ("MASTER_ADDR", ""): "MASTER_ADDR is empty",
    ("MASTER_ADDR", "[]"): "MASTER_ADDR is empty",
}


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(rendezvous.VARIABLE, raising=False)
    return monkeypatch


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_variable_that_makes_no_sense_is_named(
    name: str, value: str, variables: pytest.MonkeyPatch
) -> None:
    variables.setenv(name, value)
    with pytest.raises(UserError) as refused:
        read_rank()
    assert BAD[name, value] in str(refused.value)
    assert UNSET in str(refused.value)


def test_missing_variables_are_named_and_none_is_no_rank(variables: pytest.MonkeyPatch) -> None:
    assert under_torchrun()
    variables.delenv("MASTER_ADDR")
    variables.delenv("WORLD_SIZE")
    with pytest.raises(UserError, match="RANK is set, but WORLD_SIZE and MASTER_ADDR not: "):
        read_rank()
    variables.delenv("RANK")
    assert not under_torchrun()


def test_good_variables_are_taken(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("MASTER_ADDR", "[::1]")
    variables.setenv("TORCHELASTIC_RUN_ID", "job-7")
    me = read_rank()
    assert (me.rank, me.world, me.host, me.port, me.job) == (1, 3, "::1", 29500, "job-7")
    assert not me.keeps_store
    variables.setenv("RANK", "0")
    assert read_rank().keeps_store
    variables.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")  # then torchrun's agent does
    assert not read_rank().keeps_store


def test_the_command_says_so_without_a_traceback(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    cases = [("RANK", "x"), ("RANK", ""), ("MASTER_PORT", "abc"), ("RANK", "-1"), ("RANK", "5")]
    with ranks() as start:
        started = [start(folder, 0, 3, **{name: value}) for name, value in cases]
        assert codes(started) == [2] * len(cases)
    for one, (name, value) in zip(started, cases, strict=True):
        assert one.said.startswith(f"error: {name}={value!r} is not a whole number")
        assert one.said.count("\n") == 1


@pytest.mark.parametrize(
    ("address", "names"),
    [("::1", ""), ("[::1]", ""), ("127.0.1.1", ""), ("localhost", "lo,lo"), ("127.0.0.1", "")],
)
def test_ways_to_write_the_loopback_work(address: str, names: str, tmp_path: Path) -> None:
    if ":" in address and "::1" not in rendezvous.interfaces().get("lo", ()):
        pytest.skip("no IPv6 here")
    folder = prepared(tmp_path)
    with ranks() as start:
        words = {"MASTER_ADDR": address, rendezvous.VARIABLE: names}
        started = start.all(folder, 3, **words)
        assert codes(started) == [0, 0, 0], started[0].said + started[1].said


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("nope", "'nope' is no network interface; there are "),
        ("lo,nope", "'nope' is no network interface; there are "),
        ("^docker", "'^docker' is no network interface; gloo takes names only, and none to leave"),
        ("lo,", "'' is no network interface; there are "),
    ],
)
def test_interfaces_that_there_are_not_are_named(names: str, expected: str, tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with ranks() as start:
        started = [
            start(folder, rank, 3, **({rendezvous.VARIABLE: names} if rank else {}))
            for rank in range(3)
        ]
        assert codes(started) == [2, 2, 2]
    assert f"GLOO_SOCKET_IFNAME={names}: {expected}" in started[1].said
    assert "lo" in started[1].said.rpartition("there are ")[2]
    assert f"refuses to begin: GLOO_SOCKET_IFNAME={names}: " in started[0].said


def test_of_several_interfaces_the_first_is_ours(variables: pytest.MonkeyPatch) -> None:
    variables.setattr(
        rendezvous, "interfaces", lambda: {"eth0": ["10.0.0.7"], "lo": ["127.0.0.1"], "down": []}
    )
    variables.setenv(rendezvous.VARIABLE, "eth0,lo")
    assert rendezvous.interface_address() == "10.0.0.7"
    variables.setenv(rendezvous.VARIABLE, "down")
    with pytest.raises(UserError, match=r"'down' has no IP address; there are eth0, lo$"):
        rendezvous.interface_address()


def test_the_interface_is_that_by_which_others_are_reached(variables: pytest.MonkeyPatch) -> None:
    there = {"lo": ["127.0.0.1"], "eth0": ["192.168.3.4"], "ib0": ["10.0.0.7", "fd00::7"]}
    ways = {"10.0.0.8": "10.0.0.7", "127.0.0.1": "127.0.0.1"}
    variables.setattr(rendezvous, "interfaces", lambda: there)
    variables.setattr(rendezvous, "address_towards", lambda host, port=9: ways.get(host))

    def chosen(own: str, others: list[str]) -> str:
        variables.setenv(rendezvous.VARIABLE, "")  # so that what is chosen ends with the test
        variables.delenv(rendezvous.VARIABLE)
        rendezvous.choose_interface(own, others)
        return os.environ[rendezvous.VARIABLE]

    assert chosen("10.0.0.7", ["10.0.0.8"]) == "ib0"
    assert chosen("fd00::7", []) == "ib0"
    assert chosen("127.0.0.1", []) == "lo"
    assert chosen("127.0.1.1", []) == "lo"
    # its own name stands for 127.0.1.1 on rank 0's machine
    assert chosen("127.0.1.1", ["127.0.0.1", "10.0.0.8"]) == "ib0"
    with pytest.raises(UserError, match=r"MASTER_ADDR=10\.0\.0\.1 leads to 127\.0\.1\.1 here"):
        chosen("127.0.1.1", ["172.16.0.1"])
    variables.setenv(rendezvous.VARIABLE, "lo")
    with pytest.raises(UserError, match="names the loopback interface, which the run's ranks on"):
        rendezvous.choose_interface("10.0.0.7", ["10.0.0.8"])


def test_a_port_that_is_taken_is_named_without_a_stack_of_c(tmp_path: Path) -> None:
    """In a process of its own: what torch writes itself counts."""
    folder = prepared(tmp_path)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen(1)
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "recsim_train", "run", "small.yaml"],
            cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
            env={**os.environ, **GOOD, "RANK": "0", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port},
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    data, said = done.stderr.strip().splitlines()
    assert data.startswith("data: ")
    assert said == (
        f"error: MASTER_PORT={port} is taken on this machine, so that rank 0 cannot listen there: "
        "another run may use it; choose another port, the same for all ranks"
    )


def test_an_address_that_is_nobodys_is_named_without_a_stack_of_c(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "recsim_train", "run", "small.yaml",
         "--set", "execution.start_timeout=3s"],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, **GOOD, "MASTER_ADDR": "no-such-machine.invalid",
             "MASTER_PORT": str(free_port())},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.strip().splitlines()) == 2  # where the data come from, and this
    assert "no rank 0 at no-such-machine.invalid:" in done.stderr


def test_a_folder_without_locks_is_told_with_the_variable_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(RunFailed, match=r"cannot be locked \(No locks available\).* set TMPDIR"):
        execute(make_plan(steps=2), staging=tmp_path)
