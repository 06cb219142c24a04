from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Placement,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.data import counts as counts_module
from recsim_train.data.counts import counts_for, depends_on_data, shape_counts, stream_counts
from recsim_train.data.generated import write_generated
from recsim_train.data.stream import open_stream
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan

SINGLE = (Table(rows=40), Table(rows=3000), Table(rows=1), Table(rows=700), Table(rows=90_000))
SEVERAL = (Table(rows=500, ids=3), Table(rows=60, ids=4, variable=True), Table(rows=9000))


def plan_of(
    tables: tuple[Table, ...] = SINGLE,
    *,
    pooling: str = "server",
    split: bool = False,
    data: Data | None = None,
    batch_size: int = 50,
    steps: int = 4,
) -> Plan:
    choice = StrategyChoice(kind="flat_ps", options={"pooling": pooling})
    model = Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=tables)
    experiment = Experiment(
        name="counts",
        model=model,
        data=data or Data(synthetic=Synthetic(rows=900), eval_rows=100),
        roles=Roles(trainers=2, embedding_servers=3, dense_servers=1),
        training=Training(batch_size=batch_size, threads=2, steps=steps, warmup_steps=1),
        strategies=(choice,),
        placement=Placement(split_rows_above=0.5 if split else 100.0, cost="bytes"),
    )
    return build_plan(experiment, choice)


def brute_force(plan: Plan) -> dict[tuple[int, int], Any]:
    """(ids, distinct ids) of every shard and of the batch, one id at a time."""
    experiment, total = plan.experiment, len(plan.feeding)
    assert plan.embedding is not None
    found = {}
    stream = open_stream(
        experiment.model,
        experiment.data,
        batch_size=experiment.training.batch_size,
        positions=range(total),
        total=total,
        iterations=experiment.training.warmup_steps + experiment.training.steps,
        seed=experiment.seed,
    )
    for fed in stream:
        ids, lengths = iter(fed.batch.ids.tolist()), iter(fed.batch.lengths.tolist())
        pairs = [
            (t, next(ids))
            for t, table in enumerate(experiment.model.tables)
            for _ in range(fed.batch.size)
            for _ in range(next(lengths) if table.variable else table.ids)
        ]
        assert next(ids, None) is None
        shards = []
        for shard in plan.embedding.shards:
            inside = [
                (t, i)
                for t, i in pairs
                if any(s.table == t and s.start <= i < s.stop for s in shard.slices)
            ]
            shards.append((len(inside), len(set(inside))))
        found[fed.position, fed.iteration] = (shards, (len(pairs), len(set(pairs))))
    return found


@pytest.mark.parametrize(
    ("tables", "pooling", "split"),
    [
        (SINGLE, "worker", False),
        (SINGLE, "worker", True),
        (SINGLE, "server", True),
        (SEVERAL, "server", False),
        (SEVERAL, "worker", True),
        (SEVERAL, "server", True),
    ],
)
def test_counts_are_those_of_the_streams_own_batches(
    tables: tuple[Table, ...], pooling: str, split: bool
) -> None:
    plan = plan_of(tables, pooling=pooling, split=split)
    assert plan.embedding is not None
    assert bool(plan.embedding.split_tables) == split
    counts = counts_for(plan)
    expected = brute_force(plan)
    # loops drift apart: any order of asking
    for position, iteration in sorted(expected, key=lambda place: (place[0], -place[1])):
        shards, batch = expected[position, iteration]
        found = counts.shard_counts(position, iteration)
        assert [(c.ids, c.unique) for c in found] == shards
        assert counts.batch_counts(position, iteration) == batch
    assert counts.source == "counted in the ids of the generator's stream, batch by batch"
    assert depends_on_data(plan)


def test_lengths_travel_for_variable_and_split_tables_where_the_server_pools() -> None:
    plan = plan_of(SEVERAL, split=True)
    assert plan.embedding is not None
    expected = [
        50 * sum(s.table == 1 or s.table in plan.embedding.split_tables for s in shard.slices)
        for shard in plan.embedding.shards
    ]
    assert [c.lengths for c in counts_for(plan).shard_counts(0, 0)] == expected
    assert sum(expected) > 0
    pooled = counts_for(plan_of(SEVERAL, split=True, pooling="worker"))
    assert [c.lengths for c in pooled.shard_counts(0, 0)] == [0, 0, 0]


def test_batches_beyond_the_exact_ones_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(pooling="worker")
    exact = stream_counts(plan)
    monkeypatch.setattr(counts_module, "_most_exact", lambda *_: 6)
    few = stream_counts(plan)
    assert few.source.endswith("its first 6 batches, over and over")
    # batch 7 of the stream is loop 3's second; the sixth after it is the first again
    assert few.shard_counts(1, 1) == exact.shard_counts(1, 1)
    assert few.shard_counts(3, 1) == exact.shard_counts(1, 0) != exact.shard_counts(3, 1)
    assert few.shard_counts(0, 10**6) == few.shard_counts((4 * 10**6) % 6, 0)


def test_what_is_counted_exactly_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(pooling="worker")
    monkeypatch.setattr(counts_module, "_EXACT_IDS", 20 * 50 * 5)
    monkeypatch.setattr(counts_module, "_REPEATED_IDS", 3 * 50 * 5)
    assert stream_counts(plan).exact  # 4 loops of 5 steps
    monkeypatch.setattr(counts_module, "_EXACT_IDS", 20 * 50 * 5 - 1)
    assert "its first 3 batches" in stream_counts(plan).source
    monkeypatch.setattr(counts_module, "_EXACT_ENTRIES", 8)
    assert "its first 2 batches" in stream_counts(plan).source


def test_shapes_alone_need_no_file_and_agree_with_the_stream(tmp_path: Path) -> None:
    data = Data(path=(str(tmp_path / "absent.txt"),), eval_rows=100, synthetic=Synthetic(rows=900))
    absent, direct = counts_for(plan_of(data=data)), stream_counts(plan_of())
    assert absent.source == "ids from the shapes, distinct ids expected for a Zipf exponent of 1.05"
    found, exact = absent.shard_counts(0, 0), [direct.shard_counts(p, 0) for p in range(4)]
    assert [c.ids for c in found] == [c.ids for c in exact[0]]
    assert [c.lengths for c in found] == [0, 0, 0]
    mean = np.mean([[c.unique for c in batch] for batch in exact], axis=0)
    assert [c.unique for c in found] == pytest.approx(mean, rel=0.15)
    assert absent.batch_counts(1, 3)[0] == 250


def test_shapes_with_a_file_sample_its_distinct_ids(tmp_path: Path) -> None:
    data = Data(path=(str(tmp_path / "x.txt"),), eval_rows=0)
    plan = plan_of(data=data)
    write_generated(tmp_path / "x.txt", plan.experiment.model, Synthetic(zipf=3.0), 300)
    counts = shape_counts(plan)
    assert counts.source.endswith("the mean of 4 batches of " + str(tmp_path / "x.txt"))
    stream = open_stream(
        plan.experiment.model, data, batch_size=50, positions=(0,), total=1, iterations=4, seed=1
    )
    unique = [sum(len(set(ids)) for ids in fed.batch.ids.reshape(5, 50).tolist()) for fed in stream]
    assert counts.batch_counts(2, 7) == (250, round(np.mean(unique)))


def test_file_that_the_generator_will_write_is_counted_before_it_exists(tmp_path: Path) -> None:
    """In the generator's order; the file's rows, which are the same, are dealt in another."""
    path = tmp_path / "later.txt"
    data = Data(path=(str(path),), generate=True, eval_rows=100, synthetic=Synthetic(rows=900))
    plan = plan_of(data=data, pooling="worker")
    before = counts_for(plan)
    places = [(p, k) for p in range(4) for k in range(4)]  # one epoch of 800 rows
    early = [before.batch_counts(*place) for place in places]
    write_generated(path, plan.experiment.model, data.synthetic, data.synthetic.rows)
    after = counts_for(plan)
    late = [after.batch_counts(*place) for place in places]
    assert [ids for ids, _ in late] == [ids for ids, _ in early]
    assert np.mean([unique for _, unique in late]) == pytest.approx(
        np.mean([unique for _, unique in early]), rel=0.02
    )
    assert "will write to" in before.source
    assert after.source == f"counted in the ids of {path}, batch by batch"


def test_counts_of_a_file_are_those_of_its_own_batches(tmp_path: Path) -> None:
    data = Data(path=(str(tmp_path / "x.parquet"),), eval_rows=100)
    plan = plan_of(data=data, pooling="worker")
    write_generated(tmp_path / "x.parquet", plan.experiment.model, Synthetic(), 900)
    counts = counts_for(plan)
    for (position, iteration), (shards, batch) in brute_force(plan).items():
        found = counts.shard_counts(position, iteration)
        assert [(c.ids, c.unique) for c in found] == shards
        assert counts.batch_counts(position, iteration) == batch


def test_counting_an_absent_file_is_a_user_error(tmp_path: Path) -> None:
    data = Data(path=(str(tmp_path / "absent.txt"),))
    with pytest.raises(UserError, match=r"absent\.txt: no such file; expected Criteo"):
        counts_for(plan_of(data=data, pooling="worker"))
