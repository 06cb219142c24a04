"""Placement: nothing lost, nothing twice, loads balanced, too much refused."""

from __future__ import annotations

import pickle
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import (
    Experiment,
    Model,
    Placement,
    Roles,
    StrategyChoice,
    Table,
    Training,
)
from recsim_train.placement import build
from recsim_train.placement.build import build_plan, cut_tables, pack_tables, row_cuts, table_needs
from recsim_train.placement.describe import describe, plan_document
from recsim_train.strategy.registry import strategies
from recsim_train.workload import operations
from recsim_train.workload.scope import Op


def experiment(
    rows: list[int],
    kind: str = "flat_ps",
    *,
    split: float = 1.0,
    cost: Literal["modelled", "bytes"] = "modelled",
    **roles: int,
) -> Experiment:
    return Experiment(
        name="t",
        model=Model(
            embedding_dim=8,
            bottom_mlp=(16, 8),
            top_mlp=(8, 1),
            tables=tuple(Table(rows=r) for r in rows),
        ),
        roles=Roles(**roles),
        training=Training(threads=2),
        placement=Placement(split_rows_above=split, cost=cost),
        strategies=(StrategyChoice(kind=kind),),
    )


@given(
    rows=st.lists(st.integers(1, 10**6), min_size=1, max_size=30),
    shards=st.integers(1, 8),
    split=st.floats(0.1, 5),
)
def test_every_row_has_exactly_one_home(rows: list[int], shards: int, split: float) -> None:
    content = pack_tables(experiment(rows, split=split), shards)
    homes = sorted(part for shard in content for part in shard)
    for table, count in enumerate(rows):
        parts = [p for p in homes if p.table == table]
        assert parts[0].start == 0
        assert parts[-1].stop == count
        assert all(a.stop == b.start for a, b in zip(parts, parts[1:], strict=False))


@given(rows=st.lists(st.integers(1, 10**6), min_size=4, max_size=30), shards=st.integers(1, 4))
def test_whole_tables_are_packed_within_the_bound_of_longest_first(
    rows: list[int], shards: int
) -> None:
    spec = experiment(rows, split=10.0)
    # all tables cost the same, so that their number is balanced beside their bytes
    size, time = [r / sum(rows) for r in rows], [1 / len(rows)] * len(rows)
    packed = pack_tables(spec, shards)
    most = max(*size, *time)
    for share in (size, time):
        loads = [sum(share[p.table] for p in shard) for shard in packed]
        assert sum(loads) == pytest.approx(1.0)
        # whoever came last found every shard's larger need no smaller, and all needs are two
        assert max(loads) <= 2 / shards + most + 1e-9


@given(rows=st.lists(st.integers(1, 10**6), min_size=4, max_size=30), shards=st.integers(1, 4))
def test_bytes_alone_are_packed_within_the_bound_of_longest_first(
    rows: list[int], shards: int
) -> None:
    spec = experiment(rows, split=10.0, cost="bytes")
    loads = [sum(rows[p.table] for p in shard) for shard in pack_tables(spec, shards)]
    fair = sum(rows) / shards
    assert max(loads) <= max(4 / 3 * fair, fair + max(rows) * (1 - 1 / shards)) + 1e-9


def test_bytes_and_time_are_each_balanced() -> None:
    """Three tables are nearly all bytes, and ids come from the many small ones."""
    large = [Table(rows=50_000_000, ids=n) for n in (8, 19, 18)]
    middle = [Table(rows=1_000_000, ids=n) for n in (5, 12, 30, 20, 16, 21, 19, 3, 20, 1)]
    small = [Table(rows=10_000, ids=1 + 7 * n % 30) for n in range(27)]
    tables = [*large, *middle, *small]
    spec = experiment([1]).model_copy(
        update={"model": experiment([1]).model.model_copy(update={"tables": tuple(tables)})}
    )
    packed = pack_tables(spec, 6)
    assert all(len([p for p in shard if p.table < 3]) == 3 for shard in packed)  # split
    every = [(p, tables[p.table]) for shard in packed for p in shard]
    rows, ids = sum(t.rows for t in tables), sum(t.ids for t in tables)
    assert sum(p.rows for p, _ in every) == rows
    for shard in packed:
        parts = [(p.rows, p.rows / tables[p.table].rows * tables[p.table].ids) for p in shard]
        assert 0.9 * rows / 6 < sum(size for size, _ in parts) < 1.1 * rows / 6
        assert 0.85 * ids / 6 < sum(asked for _, asked in parts) < 1.15 * ids / 6


@pytest.mark.parametrize("balanced", ["modelled", "bytes"])
@pytest.mark.parametrize("large", ["bytes", "time"])
def test_a_table_is_split_that_is_large_in_either(large: str, balanced: str) -> None:
    """Four shards: half of the bytes with few of the ids, or the other way round."""
    odd = Table(rows=1_000_000, ids=1) if large == "bytes" else Table(rows=1_000, ids=1_000)
    others = [Table(rows=100_000, ids=20) for _ in range(12)]
    base = experiment([1], cost=balanced)
    model = base.model.model_copy(update={"tables": (odd, *others)})
    packed = pack_tables(base.model_copy(update={"model": model}), 4)
    shards_of_odd = sum(part.table == 0 for shard in packed for part in shard)
    assert shards_of_odd == (1 if (large, balanced) == ("time", "bytes") else 4)


def test_a_price_that_is_added_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it usually is."""

    def needs() -> list[float]:
        spec = experiment([1000] * 2)
        tables = Table(rows=1000, ids=1), Table(rows=1000, ids=3)
        model = spec.model.model_copy(update={"tables": tables})
        return [need.time for need in table_needs(model, spec.training, spec.placement)]

    before = needs()
    monkeypatch.setitem(build._WEIGHTS, "hopped_id", 1e-5)
    lookup = operations.OPS["lookup_pooled"].cost
    dearer = Op(lambda s: {**lookup(s), "hopped_id": s.ids}, fit="lookup")
    monkeypatch.setitem(operations.OPS, "lookup_pooled", dearer)
    after = needs()
    assert before[1] < after[1] == pytest.approx(0.75, rel=0.01)  # three of four ids


def test_an_access_to_a_random_row_weighs_more_than_a_byte_in_order() -> None:
    """Twice as many ids of half as wide rows move the same bytes, and touch twice as many rows."""

    def needs(dim: int) -> list[float]:
        spec = experiment([1000] * 2)
        tables = Table(rows=1000, ids=1), Table(rows=1000, ids=8)
        update = {"tables": tables, "embedding_dim": dim, "bottom_mlp": (16, dim)}
        model = spec.model.model_copy(update=update)
        return [need.time for need in table_needs(model, spec.training, spec.placement)]

    # of one id a bag there is no sum, and wide rows are mostly their bytes; of narrow ones each
    # access is as dear as hundreds of bytes
    assert needs(4)[1] == pytest.approx(8 / 9, rel=0.02)


def test_each_shard_has_a_slice_of_every_table_by_hash() -> None:
    """A table of fewer rows than shards, too: some have no row of it, from its end on."""
    slices = cut_tables(experiment([5, 2]), 4, "hash")
    assert [[(s.table, s.start, s.stop, s.step) for s in shard] for shard in slices] == [
        [(0, 0, 5, 4), (1, 0, 2, 4)],
        [(0, 1, 5, 4), (1, 1, 2, 4)],
        [(0, 2, 5, 4), (1, 2, 2, 4)],
        [(0, 3, 5, 4), (1, 2, 2, 4)],
    ]
    assert [[s.rows for s in shard] for shard in slices] == [[2, 1], [1, 1], [1, 0], [1, 0]]


@given(rows=st.integers(0, 10**9), parts=st.integers(1, 100))
def test_row_cuts_differ_by_at_most_one(rows: int, parts: int) -> None:
    sizes = [stop - start for start, stop in row_cuts(rows, parts)]
    assert sum(sizes) == rows
    assert max(sizes) - min(sizes) <= 1


def test_a_large_table_is_split_and_small_ones_are_not() -> None:
    plan = build_plan(e := experiment([100_000, 50, 60, 70], embedding_servers=2), e.strategies[0])
    assert plan.embedding is not None
    assert plan.embedding.split_tables == {0}


def test_without_servers_the_shards_live_in_the_trainers() -> None:
    plan = build_plan(e := experiment([100, 90, 80], trainers=3), e.strategies[0])
    assert [i.name for i in plan.instances] == ["trainer[0]", "trainer[1]", "trainer[2]"]
    assert plan.embedding is not None
    assert plan.dense is not None
    assert [s.host.name for s in plan.embedding.shards] == [i.name for i in plan.instances]
    assert [s.host.name for s in plan.dense.shards] == [i.name for i in plan.instances]


def test_unused_roles_are_said_and_threads_are_within_operations_in_lock_step() -> None:
    plan = build_plan(
        e := experiment([9], "allreduce", trainers=2, dense_servers=1, embedding_servers=1),
        e.strategies[0],
    )
    assert (plan.worker_threads, plan.operation_threads) == (1, 2)
    assert "its operations on 2 threads" in describe(plan)
    assert not plan.of_role("dense_server")
    assert [note.split(":")[0] for note in plan.notes] == [
        "allreduce needs no dense_server",
    ]


def test_more_servers_than_anything_to_hold_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"4 embedding shards .* at most 2"):
        build_plan(e := experiment([3, 2], embedding_servers=4), e.strategies[0])


def test_streams_of_the_loops_do_not_overlap() -> None:
    plan = build_plan(e := experiment([100], trainers=2, readers=1), e.strategies[0])
    assert [loop.name for loop in plan.feeding] == [
        "trainer[0].worker[0]",
        "trainer[0].worker[1]",
        "trainer[1].worker[0]",
        "trainer[1].worker[1]",
    ]
    assert {str(plan.reader_of(loop)) for loop in plan.feeding} == {str(plan.of_role("reader")[0])}


def test_a_plan_can_be_printed() -> None:
    plan = build_plan(
        e := experiment([100_000, 50], trainers=2, embedding_servers=2), e.strategies[0]
    )
    text = describe(plan)
    for instance in plan.instances:
        assert instance.name in text
    assert "0[0:50000]" in text
    assert plan_document(plan)["processes"] == [i.name for i in plan.instances]


@pytest.mark.parametrize("kind", strategies())
def test_a_plan_is_data_that_processes_are_sent(kind: str) -> None:
    spec = experiment([100_000, 50], kind, trainers=2, embedding_servers=2, dense_servers=1)
    plan = build_plan(spec, spec.strategies[0])
    sent = pickle.loads(pickle.dumps(plan))
    assert sent == plan
    assert plan_document(sent) == plan_document(plan)


def test_a_shard_full_of_one_need_takes_what_needs_the_other() -> None:
    """Five tables that two shards can hold with equal bytes and equal ids."""
    tables = tuple(
        Table(rows=1000 * rows, ids=ids)
        for rows, ids in ((8, 20), (4, 10), (2, 50), (4, 10), (2, 50))
    )
    base = experiment([1])
    model = base.model.model_copy(update={"tables": tables})
    for shard in pack_tables(base.model_copy(update={"model": model}), 2):
        assert sum(part.rows for part in shard) == 10_000
        assert sum(tables[part.table].ids for part in shard) == 70


def test_a_fair_share_is_not_exceeded_by_rounding() -> None:
    for shards in (3, 5, 6, 7, 9, 11, 13, 49):
        packed = pack_tables(experiment([1000] * shards), shards)
        assert [len(shard) for shard in packed] == [1] * shards
