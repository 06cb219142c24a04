"""Machines that cannot emulate hosts, or only with less: found by two hosts, before anything else.

Programs that lack a word stand before the real ones in PATH; a container's /proc/sys is one that
a mount namespace has read-only; rights are taken away by setpriv.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clock import LIMIT
from tests.commands import command
from tests.executor.test_emulation import refused
from tests.validation.test_emulated_tier import POINTS

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(bool(why := refused()), reason=why),
    pytest.mark.skipif(os.geteuid() != 0, reason="takes rights away, and mounts"),
]
TRY = """
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.emulation.cluster import check_here
try:
    check_here(["fair"])
except UserError as error:
    print(error)
"""
IP, TC = shutil.which("ip"), shutil.which("tc")


def tried(*before: str, path: str = os.environ["PATH"]) -> str:
    """What is said where hosts cannot be emulated; nothing where they can."""
    done = subprocess.run(
        [*before, sys.executable, "-c", TRY], cwd=ROOT, capture_output=True, text=True,
        timeout=LIMIT, env={**os.environ, "PATH": path}, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def program(folder: Path, name: str, script: str) -> str:
    """A PATH in which this one comes first."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


OLD_IP = f"""
read_all=$(cat)
case "$read_all" in
  *gro_max_size*) echo 'Error: either "dev" is duplicate, or "gro_max_size" is a garbage.' >&2
                  echo 'Command failed -:1' >&2; exit 1;;
esac
printf '%s\\n' "$read_all" | {IP} "$@"
"""
NO_HTB = f"""
read_all=$(cat)
case "$read_all" in
  *htb*) echo 'Error: Specified qdisc kind is unknown.' >&2; echo 'Command failed -:1' >&2; exit 1;;
esac
printf '%s\\n' "$read_all" | {TC} "$@"
"""


def test_here_they_can() -> None:
    assert tried() == ""


def test_an_ip_that_is_too_old_for_a_word_does_without_it(tmp_path: Path) -> None:
    assert tried(path=program(tmp_path, "ip", OLD_IP)) == ""


@pytest.mark.parametrize(
    ("name", "script", "words"),
    [
        ("tc", NO_HTB, "htb default 2` failed: Error: Specified qdisc kind is unknown"),
        ("ip", "echo 'ip: unrecognized option: b' >&2; exit 1", "unrecognized option: b"),
        ("tc", "exit 3", "failed: exit code 3"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    tmp_path: Path, name: str, script: str, words: str
) -> None:
    said = tried(path=program(tmp_path, name, script))
    assert said.startswith("hosts cannot be emulated here: `")
    assert words in said
    assert said.endswith("it takes ip and tc of iproute2, and a kernel with veth, bridge, htb, "
                         "bfifo and u32")  # fmt: skip
    assert "\n" not in said


def test_programs_of_the_system_are_found_that_are_not_in_path(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    assert tried(path=str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("taken", "named"),
    [
        ("-net_admin", "CAP_NET_ADMIN"),
        ("-sys_admin", "CAP_SYS_ADMIN"),
        ("-sys_admin,-net_admin", "CAP_SYS_ADMIN and CAP_NET_ADMIN"),
    ],
)
def test_rights_are_named(taken: str, named: str) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv")
    said = tried("setpriv", f"--inh-caps={taken}", f"--bounding-set={taken}")
    assert said.startswith(f"hosts cannot be emulated here without {named}: ")


READ_ONLY = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys"
SET = f"""
import os
from recsim_train.config.errors import UserError
from recsim_train.executor.emulation.namespaces import Namespace
name, other = "net/ipv4/tcp_congestion_control", "net/ipv6/conf/all/disable_ipv6"
place = Namespace()
place.set({{name: "reno"}}, must=[name])
assert os.system({READ_ONLY!r}) == 0
place.set({{name: "reno", other: "1"}}, must=[name])
print("goes on")
try:
    place.set({{other: "1", name: "cubic"}}, must=[name])
except UserError as error:
    print(error)
"""


def test_a_read_only_proc_sys_matters_only_where_it_must_be_written() -> None:
    """As in containers."""
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", SET], cwd=ROOT, capture_output=True, text=True,
        timeout=LIMIT, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "goes on",
        "hosts cannot be emulated here: /proc/sys/net/ipv4/tcp_congestion_control is 'reno' and "
        "must be 'cubic', which cannot be written (Read-only file system), as in a container: set "
        "it outside, or make /proc/sys writable",
    ]


def test_nothing_is_predicted_or_run_where_hosts_cannot_be_emulated(tmp_path: Path) -> None:
    (tmp_path / "links.yaml").write_text(POINTS)
    (tmp_path / "bin").mkdir()
    path = program(tmp_path / "bin", "tc", NO_HTB)
    done = command("validate", "links.yaml", cwd=tmp_path, env={"PATH": path})
    assert done.returncode == 2, done.stderr
    assert "error: hosts cannot be emulated here: `tc qdisc add dev" in done.stderr
    assert not list(tmp_path.glob("runs/*"))
    run = command(
        "run", "links.yaml", "--emulate", "--set", "sweep=null",
        "--set", "cluster.colocate=false", cwd=tmp_path, env={"PATH": path},
    )  # fmt: skip
    assert run.returncode == 2, run.stderr
    assert "error: hosts cannot be emulated here: `tc qdisc add dev" in run.stderr
    (tmp_path / "one.yaml").write_text(POINTS.partition("validation:")[0])
    found = command(
        "recommend", "one.yaml", "--cluster", ROOT / "cluster_profiles" / "example-racks.yaml",
        "--hosts", "4", "--measure", "1", cwd=tmp_path, env={"PATH": path},
    )  # fmt: skip
    assert found.returncode == 2, found.stderr
    assert "error: hosts cannot be emulated here: `tc qdisc add dev" in found.stderr
    assert "simulating" not in found.stderr
