"""What processes hold goes into files and comes back, whoever held it and whoever gets it."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader

from recsim_train.config.errors import RunFailed
from recsim_train.executor.checkpoint import files, state
from recsim_train.executor.checkpoint.files import CENTRAL, Source
from recsim_train.executor.shards.services import EmbeddingServer
from recsim_train.placement.plan import Plan
from tests.executor.checkpoint_jobs import ROWS, Job, plan_of

HASH, COLUMNS = {"partition": "hash"}, {"partition": "column"}
LAYOUTS: dict[str, Callable[[], Plan]] = {
    "one server": lambda: plan_of(3, 1),
    "two servers": lambda: plan_of(2, 2),
    "three servers": lambda: plan_of(1, 3),
    "trainers": lambda: plan_of(3, 0),
    "by remainder, two": lambda: plan_of(2, 0, kind="des", options=HASH),
    "by remainder, three": lambda: plan_of(3, 0, kind="des", options=HASH),
}


@pytest.mark.parametrize("small", [False, True], ids=["whole files", "small files"])
@pytest.mark.parametrize("after", LAYOUTS)
@pytest.mark.parametrize("before", LAYOUTS)
def test_tables_are_the_same_to_the_last_bit_whoever_holds_them(
    before: str, after: str, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:
        monkeypatch.setattr(files, "_MOST", 400)
    first, second = Job(LAYOUTS[before](), 1), Job(LAYOUTS[after](), 2)
    with Source(first.kept(tmp_path)) as source:
        state.restore(source, second.shards())
    for number in range(len(ROWS)):
        for a, b in zip(first.table(number), second.table(number), strict=True):
            assert not a.isnan().any()
            assert torch.equal(a, b)


def test_tables_by_columns_too(tmp_path: Path) -> None:
    def by_columns(trainers: int) -> Job:
        plan = plan_of(trainers, 0, kind="des", options=COLUMNS, sparse_optimizer="sgd")
        return Job(plan, trainers)

    first, second = by_columns(2), by_columns(3)
    with Source(first.kept(tmp_path)) as source:
        state.restore(source, second.shards())
    for number in range(len(ROWS)):
        assert torch.equal(first.table(number)[0], second.table(number)[0])


@pytest.mark.parametrize("servers", [(1, 3), (3, 2)])
@pytest.mark.parametrize("kind", ["flat_ps", "hierarchical"])
def test_central_parameters_keep_their_places(
    kind: str, servers: tuple[int, int], tmp_path: Path
) -> None:
    """Those of a net that is cut lie in another order on the servers."""
    options: dict[str, Any] = {"hosts": 2, "outer": "easgd"} if kind == "hierarchical" else {}
    first, second = (Job(plan_of(4, 1, dense, kind, options), dense) for dense in servers)
    with Source(first.kept(tmp_path)) as source:
        state.restore(source, second.shards())
        for name in (CENTRAL, f"{CENTRAL}.squares"):
            whole = source.whole(name)
            assert whole is not None
            for held in second.shards():
                if held.name == name:
                    (begin,) = held.offsets
                    assert torch.equal(held.tensor, whole[begin : begin + held.tensor.numel()])
    assert second.dense


def restored(source: Source, job: Job) -> None:
    everyone = set(job.workers)
    for trainer, replica in enumerate(job.replicas):
        state.restore_replica(source, trainer, replica, len(job.replicas))
        mine = [(n, w) for n, w in job.workers.items() if n.startswith(f"trainer[{trainer}]")]
        state.restore_loops(source, mine, everyone)


def test_as_many_trainers_get_back_what_was_their_own(tmp_path: Path) -> None:
    first, second = Job(plan_of(3), 1), Job(plan_of(3), 2)
    for number, worker in enumerate(first.workers.values()):
        worker.residual.left(worker.replica.parameters).fill_(number + 0.5)
        worker.residual.taus = [0.1 * number, 2.0]
        worker.accumulated = torch.full_like(worker.replica.parameters, number)
        worker.block = torch.rand(5), torch.rand(5)
    with Source(first.kept(tmp_path)) as source:
        restored(source, second)
    for a, b in zip(first.replicas, second.replicas, strict=True):
        assert torch.equal(a.parameters, b.parameters)
        assert torch.equal(a.optimizer.state, b.optimizer.state)
    for name, worker in first.workers.items():
        other = second.workers[name]
        assert worker.residual.error is not None
        assert worker.accumulated is not None
        assert worker.block is not None
        assert other.block is not None
        assert torch.equal(worker.residual.error, other.residual.left(worker.residual.error))
        assert worker.residual.taus == other.residual.taus
        assert other.accumulated is not None
        assert torch.equal(worker.accumulated, other.accumulated)
        assert all(map(torch.equal, worker.block, other.block))


@pytest.mark.parametrize("after", [1, 2, 4])
def test_of_equal_replicas_another_number_of_trainers_gets_exactly_these(
    after: int, tmp_path: Path
) -> None:
    first, second = Job(plan_of(3), 1), Job(plan_of(after), 2)
    for replica in first.replicas[1:]:
        replica.parameters.copy_(first.replicas[0].parameters)
        replica.optimizer.state.copy_(first.replicas[0].optimizer.state)
    with Source(first.kept(tmp_path)) as source:
        restored(source, second)
    for replica in second.replicas:
        assert torch.equal(replica.parameters, first.replicas[0].parameters)
        assert torch.equal(replica.optimizer.state, first.replicas[0].optimizer.state)


def test_replicas_that_differ_are_averaged_and_what_was_not_sent_is_summed(tmp_path: Path) -> None:
    first, second = Job(plan_of(3), 1), Job(plan_of(2), 2)
    for number, worker in enumerate(first.workers.values()):
        worker.residual.left(worker.replica.parameters).fill_(2.0**number)
    with Source(first.kept(tmp_path)) as source:
        restored(source, second)
    mean = torch.stack([replica.parameters.double() for replica in first.replicas]).mean(0)
    for replica in second.replicas:
        assert torch.allclose(replica.parameters.double(), mean, rtol=1e-6)
    one, other = (worker.residual.error for worker in second.workers.values())
    assert one is not None
    assert (one == 7.0).all()
    assert other is None


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (3, 1)])
def test_every_loop_has_thresholds_whoever_had_them(
    before: int, after: int, tmp_path: Path
) -> None:
    """Between two refreshes a loop without any could send nothing."""
    first, second = Job(plan_of(before), 1), Job(plan_of(after), 2)
    for worker in first.workers.values():
        worker.residual.taus = [0.25, 2.0]
        worker.residual.left(worker.replica.parameters).fill_(1.0)
    with Source(first.kept(tmp_path)) as source:
        restored(source, second)
    assert [worker.residual.taus for worker in second.workers.values()] == [[0.25, 2.0]] * after
    left = [w.residual.error for w in second.workers.values() if w.residual.error is not None]
    assert sum(float(error[0]) for error in left) == before


def test_hosts_of_a_cut_net_get_their_parts_from_whoever_had_them(tmp_path: Path) -> None:
    def cut(trainers: int, seed: int) -> Job:
        tags = {"hosts": 2, "outer": "none" if trainers == 2 else "ma"}
        return Job(plan_of(trainers, 1, kind="hierarchical", options=tags), seed)

    first, second = cut(2, 1), cut(4, 2)
    with Source(first.kept(tmp_path)) as source:
        restored(source, second)
        whole = source.dense()
    for trainer, replica in enumerate(second.replicas):
        for held in state.of_replica(trainer, replica):
            if held.name.endswith(".dense"):
                (begin,) = held.offsets
                assert torch.equal(held.tensor, whole[begin : begin + held.tensor.numel()])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("layout", ["two servers", "trainers", "by remainder, two"])
def test_torch_puts_tables_together_without_a_process_group(layout: str, tmp_path: Path) -> None:
    job = Job(LAYOUTS[layout](), 5)
    path = job.kept(tmp_path).path
    reader = HuggingFaceStorageReader(str(path))
    known = reader.read_metadata().state_dict_metadata
    state = {
        name: torch.full(tuple(known[name].size), torch.nan)  # type: ignore[union-attr]
        for name in known
        if name.startswith("tables.")
    }
    dcp.load(state, storage_reader=HuggingFaceStorageReader(str(path)))
    for number, size in enumerate(ROWS):
        rows, squares = job.table(number)
        # of shards by remainder row r is at [r // shards, r % shards]
        assert torch.equal(state[f"tables.{number}.rows"].reshape(-1, 4)[:size], rows)
        assert torch.equal(state[f"tables.{number}.squares"].reshape(-1)[:size], squares)


def test_what_is_missing_or_of_another_shape_is_named(tmp_path: Path) -> None:
    found = Job(plan_of(), 1).kept(tmp_path)
    del found.manifest.tensors["tables.1.rows"]
    wider = Job(plan_of(), 2).shards()[0]
    with Source(found) as source:
        with pytest.raises(RunFailed, match=r"has no tables\.1\.rows"):
            state.restore(source, Job(plan_of(), 2).shards())
        with pytest.raises(RunFailed, match=r"tables\.0\.rows is \(1000, 4\), not \(1001, 4\)"):
            source.fill(wider._replace(shape=(1001, 4)))
        with pytest.raises(RunFailed, match="numbers are there, not"):
            source.fill(wider._replace(offsets=(900, 0)))


def test_a_file_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    job = Job(plan_of(), 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            files.write(tmp_path, "server", job.shards())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_who_goes_on_draws_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    assert plan.embedding is not None
    shard = plan.embedding.shards[0]
    kept = EmbeddingServer(plan, shard).state.rows.shape
    monkeypatch.setattr("recsim_train.executor.worker.initial_rows", None)
    assert EmbeddingServer(plan, shard, draws=False).state.rows.shape == kept
    with pytest.raises(TypeError):
        EmbeddingServer(plan, shard)
