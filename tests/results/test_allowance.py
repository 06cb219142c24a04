"""What the process may use of its machine: cores it may run on, control groups' limits."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from recsim_train.results import cgroup, environment
from tests.clock import LIMIT

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
ELSE = "22 1 8:1 / / rw - ext4 /dev/root rw\n"
UNLIMITED = 9223372036854771712
G = 1 << 30
FACTS = (
    "import json\nfrom recsim_train.results import environment as e\n"
    "print(json.dumps([e.cores(), e.memory(), e.free_memory(), e.machine()]))"
)


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """A folder that looks like the root of a system."""

    def make(cgroups: str, mounts: str, files: dict[str, object]) -> Path:
        for name, content in {
            "proc/self/cgroup": cgroups, "proc/self/mountinfo": ELSE + mounts, **files
        }.items():  # fmt: skip
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
        return tmp_path

    return make


def unified(files: dict[str, object]) -> dict[str, object]:
    """Files of groups of version 2."""
    return {f"sys/fs/cgroup/{name}": content for name, content in files.items()}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, math.inf),
        ({"a/b/cpu.max": "max 100000"}, math.inf),
        ({"a/b/cpu.max": "150000 100000"}, 1.5),
        ({"a/cpu.max": "50000 100000"}, 0.5),  # of a group around its own
        ({"cpu.max": "300000 100000"}, 3.0),  # a container's topmost one
        ({"a/b/cpu.max": "400000 100000", "a/cpu.max": "40000 20000"}, 2.0),
        ({"a/b/cpu.max": "100000 100000", "a/cpu.max": "400000 100000"}, 1.0),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 2.5),
        ({"a/b/c/cpu.max": "10000 100000", "z/cpu.max": "10000 100000"}, math.inf),
        ({"a/b/cpu.max": ""}, math.inf),
        ({"a/b/cpu.max": "no number"}, math.inf),
        ({"a/b/cpu.max": "100000 0"}, math.inf),
    ],
)
def test_cores_in_version_2(
    tree: Callable[..., Path], files: dict[str, object], quota: float
) -> None:
    assert cgroup.core_quota(tree("0::/a/b", V2, unified(files))) == quota


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"a/b": (-1, 100000)}, math.inf),
        ({"a/b": (150000, 100000), "a": (-1, 100000)}, 1.5),
        ({"a/b": (-1, 100000), "a": (20000, 10000), "": (-1, 100000)}, 2.0),
        ({"a/b": (400000, 100000), "a": (300000, 100000)}, 3.0),
        ({"a/b": (100000, 0)}, math.inf),
    ],
)
def test_cores_in_version_1(
    tree: Callable[..., Path], files: dict[str, tuple[int, int]], quota: float
) -> None:
    written: dict[str, object] = {}
    for group, (limit, period) in files.items():
        folder = f"sys/fs/cgroup/cpu,cpuacct/{group}"
        written[f"{folder}/cpu.cfs_quota_us"] = limit
        written[f"{folder}/cpu.cfs_period_us"] = period
    groups = "4:memory:/other\n3:cpu,cpuacct:/a/b\n1:name=systemd:/a/b"
    assert cgroup.core_quota(tree(groups, V1, written)) == quota


def test_a_quota_without_a_period_is_none(tree: Callable[..., Path]) -> None:
    files = {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": 100000}
    assert cgroup.core_quota(tree("3:cpu,cpuacct:/a", V1, files)) == math.inf


@pytest.mark.parametrize(
    ("files", "limit", "free"),
    [
        ({}, math.inf, math.inf),
        ({"a/b/memory.max": "max", "a/b/memory.current": G}, math.inf, math.inf),
        ({"a/b/memory.max": 4 * G, "a/b/memory.current": G}, 4 * G, 3 * G),
        ({"a/b/memory.max": 4 * G}, 4 * G, 4 * G),
        ({"a/b/memory.max": 4 * G, "a/memory.max": 2 * G}, 2 * G, 2 * G),
        # the group around it is the larger one, and the fuller
        (
            {"a/b/memory.max": 4 * G, "a/b/memory.current": G,
             "a/memory.max": 8 * G, "a/memory.current": 7 * G}, 4 * G, G,
        ),
        ({"a/memory.high": 3 * G, "a/memory.max": 4 * G, "a/memory.current": G}, 3 * G, 2 * G),
        ({"a/b/memory.max": G, "a/b/memory.current": 2 * G}, G, 0),
        (
            {"a/b/memory.max": 4 * G, "a/b/memory.current": 3 * G,
             "a/b/memory.stat": f"anon {G}\nfile {2 * G}\ninactive_file {2 * G}"}, 4 * G, 3 * G,
        ),
    ],
)  # fmt: skip
def test_memory_in_version_2(
    tree: Callable[..., Path], files: dict[str, object], limit: float, free: float
) -> None:
    assert cgroup.memory(tree("0::/a/b", V2, unified(files))) == (limit, free)


def test_memory_in_version_1(tree: Callable[..., Path]) -> None:
    memory = "sys/fs/cgroup/memory"
    files: dict[str, object] = {
        f"{memory}/memory.limit_in_bytes": UNLIMITED,
        f"{memory}/memory.usage_in_bytes": 50 * G,
        f"{memory}/a/memory.limit_in_bytes": 6 * G,
        f"{memory}/a/memory.usage_in_bytes": 5 * G,
        f"{memory}/a/memory.stat": f"inactive_file 0\ntotal_inactive_file {2 * G}",
        f"{memory}/a/b/memory.limit_in_bytes": UNLIMITED,
    }
    found = cgroup.memory(tree("4:memory:/a/b\n3:cpu,cpuacct:/other", V1, files))
    assert found == (6 * G, 3 * G)


def test_a_hybrid_has_each_controller_where_it_is(tree: Callable[..., Path]) -> None:
    mounts = V1 + "40 30 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files: dict[str, object] = {
        "sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_quota_us": 200000,
        "sys/fs/cgroup/cpu,cpuacct/one/cpu.cfs_period_us": 100000,
        "sys/fs/cgroup/unified/three/memory.max": 3 * G,
        "sys/fs/cgroup/memory/two/memory.limit_in_bytes": UNLIMITED,
    }
    root = tree("4:memory:/two\n3:cpu,cpuacct:/one\n0::/three", mounts, files)
    assert cgroup.core_quota(root) == 2.0
    assert cgroup.memory(root).limit == 3 * G


@pytest.mark.parametrize("own", ["/docker/abc", "/docker/abc/inner", "/elsewhere", "/../other"])
def test_a_container_sees_its_own_groups_as_the_topmost(
    tree: Callable[..., Path], own: str
) -> None:
    top = "/" if own == "/../other" else "/docker/abc"
    mounts = f"31 30 0:27 {top} /sys/fs/my\\040groups rw - cgroup cgroup rw,cpu\n"
    files = {
        "sys/fs/my groups/cpu.cfs_quota_us": 100000,
        "sys/fs/my groups/cpu.cfs_period_us": 50000,
        "sys/fs/my groups/docker/abc/cpu.cfs_quota_us": 1000,  # of nobody here
        "sys/fs/my groups/docker/abc/cpu.cfs_period_us": 50000,
    }
    assert cgroup.core_quota(tree(f"3:cpu:{own}", mounts, files)) == 2.0


def test_a_system_without_any(tmp_path: Path, tree: Callable[..., Path]) -> None:
    assert cgroup.core_quota(tmp_path) == math.inf
    assert cgroup.memory(tmp_path) == (math.inf, math.inf)
    assert cgroup.core_quota(tree("0::/a/b", "", unified({"cpu.max": "1 1"}))) == math.inf


@pytest.mark.parametrize(
    ("mask", "quota", "cores"),
    [(4, math.inf, 4), (4, 2.0, 2), (4, 2.99, 2), (4, 0.3, 1), (4, 8.0, 4), (1, 2.0, 1)],
)
def test_the_tighter_of_mask_and_quota_in_whole_cores(
    monkeypatch: pytest.MonkeyPatch, mask: int, quota: float, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3, 3 + mask)), raising=False)
    monkeypatch.setattr(cgroup, "core_quota", lambda: quota)
    assert environment.cores() == cores
    assert environment.machine_name().endswith(", 1 core" if cores == 1 else f", {cores} cores")


def test_the_smaller_of_the_machines_memory_and_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = psutil.virtual_memory().total
    for limit, expected in ((whole // 3, whole // 3), (whole * 2, whole), (math.inf, whole)):
        monkeypatch.setattr(cgroup, "memory", lambda n=limit: cgroup.GroupMemory(n, min(n, 1e6)))
        assert environment.memory() == environment.machine()["memory_bytes"] == expected
        assert environment.free_memory() == 1e6


def facts(code: str = FACTS, **how: object) -> tuple[int, int, int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
        **how,
    )  # type: ignore[call-overload]
    found: tuple[int, int, int, dict[str, object]] = json.loads(done.stdout)
    return found


def test_one_core_of_several() -> None:
    core = min(os.sched_getaffinity(0))
    cores, _, _, machine = facts(preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    assert cores == machine["cores"] == 1
    assert str(machine["machine"]).endswith(", 1 core")


def own_group(controller: str) -> Path:
    """Of this process, really; skips where there is none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            for mount in Path("/proc/self/mountinfo").read_text().splitlines():
                words = mount.split()
                if words[-3] == "cgroup" and controller in words[-1].split(","):
                    return Path(words[4]) / path.lstrip("/")
        if not names and (whole := Path("/sys/fs/cgroup") / path.lstrip("/")).is_dir():
            control = whole / "cgroup.subtree_control"
            if control.exists() and controller in control.read_text().split():
                return whole
    return pytest.skip(f"no control group with the controller {controller} is mounted")


@pytest.fixture
def group(controller: str) -> Iterator[Path]:
    """A real group within this process's own."""
    made = own_group(controller) / f"recsim-test-{uuid.uuid4().hex[:8]}"
    try:
        (made / "within").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"{made}: no group can be made: {error.strerror}")
    yield made
    for folder in (made / "within", made):
        with suppress(OSError):
            folder.rmdir()


@pytest.mark.parametrize("controller", ["cpu", "memory"])
def test_a_real_group(controller: str, group: Path) -> None:
    limits = {
        "cpu.max": "100000 100000", "cpu.cfs_quota_us": "100000",
        "memory.max": str(G), "memory.limit_in_bytes": str(G),
    }  # fmt: skip
    for name in limits.keys() & {path.name for path in group.iterdir()}:
        (group / name).write_text(limits[name])

    def join() -> None:
        (group / "within" / "cgroup.procs").write_text(str(os.getpid()))

    try:
        cores, memory, free, machine = facts(preexec_fn=join)
    except subprocess.CalledProcessError:
        raise
    except subprocess.SubprocessError:
        pytest.skip(f"{group}: no process can be moved there")
    if controller == "cpu":
        assert cores == machine["cores"] == 1
    else:
        assert memory == machine["memory_bytes"] == G
        assert 0 < free < G
