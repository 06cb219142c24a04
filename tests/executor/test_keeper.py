"""Processes that make checkpoints together: two trainers and a server as threads, one store."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from recsim_train.checkpoints.going_on import Keeping
from recsim_train.checkpoints.manifest import (
    MANIFEST,
    WholeCheckpoint,
    check,
    read_manifest,
    steps_of,
)
from recsim_train.executor.checkpoint import keeper as keepers
from recsim_train.executor.checkpoint.files import MemoryBlock, Source
from recsim_train.executor.checkpoint.keeper import Keeper
from recsim_train.placement.plan import Plan
from tests.checkpoints.test_manifest import with_checkpoints
from tests.executor.checkpoint_jobs import plan_of

TOTAL, LOOP = 22, "worker[0]"


class Process:
    """One of a job's, with a counter for its state."""

    def __init__(self, plan: Plan, rank: int, folder: Path, store: HashStore) -> None:
        self.instance, self.failed = plan.instances[rank], threading.Event()
        self.state = torch.zeros(1)
        self.settled: list[int] = []
        self.store = store
        keeping = Keeping(folder)
        self.errors: list[BaseException] = []
        stopped = self.failed.is_set
        self.keeper = Keeper(plan, self.instance, keeping, store, self, stopped, self.fail)

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self.failed.set()

    def settle(self) -> None:
        self.settled.append(int(self.state))

    def held(self) -> Iterable[MemoryBlock]:
        yield MemoryBlock(f"state.{self.instance.name}", (1,), (0,), self.state)

    def train(self, seconds: float) -> None:
        """All iterations, each of which adds one."""
        loop, halts = f"{self.instance.name}.{LOOP}", self.keeper.halts
        assert halts is not None
        for number in range(TOTAL):
            assert halts.take(loop, 0)
            time.sleep(seconds)
            self.state += 1
            halts.ended(loop, number + 1)
        halts.take(loop, 0)
        self.store.set(f"done/{self.instance.index}", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def job(folder: Path, **rules: object) -> list[Process]:
    """Two trainers and one server."""
    plan, store = with_checkpoints(plan_of(2, 1), **rules), HashStore()
    return [Process(plan, rank, folder, store) for rank in range(3)]


def trained(processes: list[Process], seconds: tuple[float, float] = (0.001, 0.004)) -> None:
    """To the end."""
    loops = [
        threading.Thread(target=p.train, args=(s,))
        for p, s in zip(processes[:2], seconds, strict=True)
    ]
    for process in processes:
        process.keeper.start()
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(30.0)
        assert not thread.is_alive()
    ends = [threading.Thread(target=p.keeper.finish, args=(p.held(),)) for p in processes]
    for thread in ends:
        thread.start()
    for thread in ends:
        thread.join(30.0)
        assert not thread.is_alive()


def states(path: Path) -> Iterator[float]:
    manifest = read_manifest(path)
    check(path, manifest)
    with Source(WholeCheckpoint(path, manifest)) as source:
        for name in sorted(manifest.tensors):
            whole = source.whole(name)
            assert whole is not None
            yield float(whole)


def test_all_copy_the_same_moment_and_the_end(folder: Path) -> None:
    processes = job(folder, every="6 steps", keep=9)
    trained(processes)
    assert [p.name for p in reversed(steps_of(folder))] == [
        f"step-{number:09d}" for number in (6, 12, 18, 22)
    ]
    for path in steps_of(folder):
        known = read_manifest(path)
        # the server counts nothing; both trainers have done all that lies before
        assert list(states(path)) == [0.0, known.iteration, known.iteration]
        assert known.ended == (known.iteration == TOTAL)
    assert processes[0].settled == processes[1].settled == [6, 12, 18]
    made = processes[0].keeper.made
    assert [(one.iteration, one.problem) for one in made] == [
        (number, "") for number in (6, 12, 18, 22)
    ]
    assert all(one.still_seconds >= 0.0 and one.seconds > 0.0 for one in made)


def test_by_time_they_stand_where_all_can(folder: Path) -> None:
    trained(job(folder, every="60 ms", keep=99), (0.03, 0.05))
    paths = steps_of(folder)
    assert len(paths) >= 2
    for path in paths:
        assert list(states(path))[1:] == [read_manifest(path).iteration] * 2


def test_asked_for_there_is_one_soon(folder: Path) -> None:
    processes = job(folder, every="1 h")
    asked = threading.Timer(0.1, processes[1].keeper.last, (20.0,))
    asked.start()
    trained(processes, (0.03, 0.03))
    asked.join(1.0)
    first, end = (read_manifest(path) for path in reversed(steps_of(folder)))
    assert first.iteration < TOTAL
    assert end.ended


def test_who_stands_already_when_others_are_asked_is_waited_for(folder: Path) -> None:
    processes = job(folder, every="6 steps", keep=9)
    asked = threading.Timer(0.12, processes[1].keeper.last, (20.0,))
    asked.start()
    trained(processes, (0.001, 0.05))
    asked.join(1.0)
    assert [read_manifest(path).iteration for path in reversed(steps_of(folder))] == [6, 12, 18, 22]


@pytest.mark.parametrize("who", [0, 1, 2])
def test_a_full_disk_costs_that_checkpoint_alone(
    who: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = job(folder, every="6 steps", keep=9)
    name = f"{processes[who].instance.role}-{processes[who].instance.index}"
    write, failed = keepers.write, []

    def full(path: Path, own: str, held: Iterable[MemoryBlock]) -> object:
        if own == name and path.name == "step-000000012":
            failed.append(own)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, own, held)

    monkeypatch.setattr(keepers, "write", full)
    trained(processes)
    assert failed == [name]
    assert [read_manifest(path).iteration for path in steps_of(folder)] == [22, 18, 6]
    problems = {one.iteration: one.problem for one in processes[0].keeper.made}
    assert problems.pop(12).endswith("step-000000012: No space left on device")
    assert set(problems.values()) == {""}


def test_who_cannot_copy_what_it_holds_fails_and_lets_nobody_stand(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = job(folder, every="6 steps")

    def none(held: Iterable[MemoryBlock]) -> list[MemoryBlock]:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(keepers, "snapshot", none)
    for process in processes:
        process.keeper.start()
    loops = [threading.Thread(target=ends, args=(process,)) for process in processes[:2]]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(20.0)
        assert not thread.is_alive()
    for process in processes:
        assert "allocate" in str(process.errors[0])


def test_a_folder_that_cannot_be_made_is_said(folder: Path) -> None:
    folder.write_text("a file")
    processes = job(folder, every="6 steps")
    trained(processes)
    assert [one.problem.rpartition(": ")[2] for one in processes[0].keeper.made] == [
        "Not a directory"
    ] * 4
    assert folder.read_text() == "a file"


def test_without_a_manifest_there_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies before it has written leaves nothing that is taken for a checkpoint."""
    processes = job(folder, every="6 steps")

    def dies(path: Path, own: str, held: Iterable[MemoryBlock]) -> object:
        if own == "trainer-1":
            for process in processes:
                process.failed.set()
            time.sleep(0.2)
            raise OSError(errno.EIO, "gone")
        return write(path, own, held)

    write = keepers.write
    monkeypatch.setattr(keepers, "write", dies)
    for process in processes:
        process.keeper.start()
    loops = [
        threading.Thread(target=ends, args=(process,), daemon=True) for process in processes[:2]
    ]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(10.0)
    time.sleep(0.5)
    assert steps_of(folder)
    assert not list(folder.rglob(MANIFEST))


def ends(process: Process) -> None:
    with pytest.raises(TimeoutError):
        process.train(0.001)
