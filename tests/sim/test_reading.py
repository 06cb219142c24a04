"""What reading costs in a prediction: rows, numbers, ids, its own measured shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.cluster import Cluster, Costs
from recsim_train.config.columns import Column
from recsim_train.config.experiment import Synthetic, Table
from recsim_train.config.measured import MeasuredOperation
from recsim_train.data.generated import write_generated
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import positions_of, reading_of
from recsim_train.trace.record import Outcome
from recsim_train.workload.operations import cost, seconds
from recsim_train.workload.signature import signature
from tests.simulated import operations_of, simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]
OutcomeOf = Callable[[Plan, Cluster], Outcome]

FILES: dict[str, Any] = {"path": ("never-opened.parquet",), "eval_rows": 0}
HASHED: dict[str, Any] = FILES | {
    "label": "click",
    "columns": (
        Column(name=("a", "b", "c", "d"), type="numeric"),
        Column(name=("e", "f", "g"), type="categorical", num_buckets=999),
        Column(name=("h", "i"), type="categorical", hash_bucket_size=999),
    ),
}
FREE = {"call": "0 ns", "interpreter": "0 ns", "handover": "0 ns"}
NO_WHAT_IF = {"what_if_steps": 0}


def tables(ids: int, *, variable: bool = False, count: int = 6) -> dict[str, Any]:
    return {"tables": tuple(Table(rows=1000, ids=ids, variable=variable) for _ in range(count))}


def read_seconds(outcome: Outcome) -> float:
    """CPU seconds of the line ``reading``."""
    assert outcome.facts.ledger is not None
    return sum(line.seconds for line in outcome.facts.ledger.lines if line.what == "reading")


def per_row(plan: Plan, cluster: Cluster, reader: Any = None) -> float:
    scope = reading_of(plan, reader)
    prices = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    return seconds(cost("reading", scope), prices)[0] / (scope.batch * scope.batches)


def test_the_generator_is_paid_by_rows_and_ids(plans: Plans, clusters: Clusters) -> None:
    cluster = clusters(prices=FREE | {"synthesize_row": "2 us", "synthesize_id": "100 ns"})
    # of the labels: a hidden effect of each id, and a vector of four for those of four tables
    six, twelve = 1 + 4 * 4 / 6, 1 + 4 * 4 / 12
    for model, ids in (
        (tables(1), 6 + six * 6 / 8),
        (tables(1, count=12), 12 + twelve * 12 / 8),
        (tables(40), 240 + six * (240 / 8 + 6 / 2)),
        (tables(40, variable=True), 240 + six * (123 / 8 + 6 / 2)),
        (tables(1, count=1), 1 + 1 / 8),
    ):
        found = per_row(plans(model=model), cluster)
        assert found == pytest.approx(2e-6 + ids * 1e-7), model


def test_more_ids_take_more_of_the_cores(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    """Everything else is as fast as with few: bags are summed for nothing."""
    cluster = clusters(prices=FREE | {"synthesize_row": "1 us", "synthesize_id": "50 ns"})
    few, many = (plans(model=tables(ids), simulation=NO_WHAT_IF) for ids in (2, 20))
    read = [read_seconds(outcome_of(plan, cluster)) for plan in (few, many)]
    expected = [per_row(plan, cluster) for plan in (few, many)]
    assert expected[1] > 4 * expected[0]
    assert read[1] / read[0] == pytest.approx(expected[1] / expected[0], rel=0.15)


def test_a_file_is_paid_by_rows_numbers_and_ids_whoever_reads_it(
    plans: Plans, clusters: Clusters
) -> None:
    prices = {"read_row": "2 us", "read_number": "50 ns", "read_id": "100 ns", "read_text": "1 us"}
    cluster = clusters(prices=FREE | prices)
    model = {**tables(1, count=5), "dense_features": 4}
    for data, ids in ((FILES, 5 * 100e-9), (HASHED, 3 * 100e-9 + 2 * 1e-6)):
        for roles, training, reader in (
            ({"trainers": 1}, {}, False),
            ({"trainers": 4}, {"threads": 2}, False),
            ({"trainers": 4, "readers": 1}, {}, True),
            ({"trainers": 4, "readers": 2}, {}, True),
        ):
            plan = plans(roles=roles, training=training, data=data, model=model)
            who = plan.of_role("reader")[0] if reader else None
            assert per_row(plan, cluster, who) == pytest.approx(2e-6 + 4 * 50e-9 + ids), roles
    # the generator makes any row at once
    alone, among = (plans(roles={"trainers": n}) for n in (1, 4))
    assert per_row(alone, clusters()) == per_row(among, clusters())


def test_what_is_decoded_for_several_loops_is_paid_by_each(
    plans: Plans, clusters: Clusters, tmp_path: Path
) -> None:
    free = FREE | {"read_number": "0 ns", "read_id": "0 ns", "feed_batch": "0 ns"}
    cluster, found = clusters(prices=free | {"read_row": "1 us"}), []
    for group in (2000, 8000):
        data, path = Synthetic(rows=8000), tmp_path / f"{group}.parquet"
        # files of held-out rows are none that loops read
        held_out = {"eval_path": ("never-opened.parquet",), "eval_rows": 9}
        own = {"path": (str(path),), **held_out}
        plan = plans(roles={"trainers": 4}, data=own, simulation=NO_WHAT_IF)
        write_generated(path, plan.experiment.model, data, data.rows, group=group)
        found.append(read_seconds(simulate(plan, cluster)))
    # of one group the four decode 1 to 4 quarters, 2.5 times their own; that is 40 % of all
    assert found[1] / found[0] == pytest.approx(1 + 0.4 * 1.5)


def test_of_lists_the_mean_counts(plans: Plans, clusters: Clusters) -> None:
    cluster = clusters(prices=FREE | {"read_row": "0 ns", "read_number": "0 ns", "read_id": "1 us"})
    for table, ids in (
        (Table(rows=1000, ids=9, variable=True, mean_ids=2.5), 2.5 + 7),
        (Table(rows=1000, ids=9, variable=True), 5.0 + 7),
        (Table(rows=1000, ids=9), 9.0),
    ):
        plan = plans(model={"tables": (table,)}, data=FILES)
        # a list takes what seven ids do, beside its own
        assert per_row(plan, cluster) == pytest.approx(ids * 1e-6), table


def test_small_batches_are_made_together(plans: Plans) -> None:
    def made(batch: int, **more: Any) -> float:
        plan = plans(training={"batch_size": batch}, **more)
        readers = plan.of_role("reader")
        return reading_of(plan, readers[0] if readers else None).batches

    assert [made(batch) for batch in (64, 1000, 2048)] == [16, 1, 1]
    assert made(64, data=FILES) == 16
    # a reader process decodes batch by batch
    assert made(64, data=FILES, roles={"readers": 1}) == 1
    assert made(64, roles={"readers": 1}) == 16


def test_loops_that_get_the_same_batch_have_it_read_once(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf
) -> None:
    prices = FREE | {"synthesize_row": "1 us", "synthesize_id": "0 ns"}
    cluster = clusters(prices=prices)
    roles = {"trainers": 2, "embedding_servers": 0, "dense_servers": 0}
    found = []
    for readers in (0, 1):
        training = {"steps": 100}
        roles["readers"] = readers
        plan = plans("des", roles=roles, training=training, simulation=NO_WHAT_IF)
        reader = plan.of_role("reader")
        assert positions_of(plan, reader[0] if reader else None) == [0]
        found.append(read_seconds(outcome_of(plan, cluster)))
    assert found[0] == pytest.approx(2 * found[1], rel=0.15)


def test_a_batch_is_handed_over(plans: Plans, clusters: Clusters, outcome_of: OutcomeOf) -> None:
    """Small batches are dear, by whatever their rows take."""
    free = FREE | {"synthesize_row": "0 ns", "synthesize_id": "0 ns"}
    cluster = clusters(prices=free | {"feed_batch": "30 us"})
    # a reader is ahead by what it makes at a time and a full queue: 16 and 4 batches
    plan = plans(training={"steps": 640}, simulation=NO_WHAT_IF)
    assert read_seconds(outcome_of(plan, cluster)) == pytest.approx(640 * 30e-6, rel=0.05)
    rests = outcome_of(plan, measured(plan, clusters(prices={"feed_batch": "30 us"}), 1.0)).facts
    assert rests.resting is not None
    assert 0.0 < rests.resting.unit < 1.0


@pytest.mark.parametrize(
    ("changes", "together"),
    [({}, 16), ({"training": {"batch_size": 600}}, 1), ({"roles": {"readers": 1}}, 16)],
)
def test_batches_are_made_in_bunches(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, changes: Any, together: int
) -> None:
    """The first batch is there when all are that are made with it, the others at once."""
    free = FREE | {"synthesize_id": "0 ns", "feed_batch": "0 ns"}
    cluster = clusters(prices=free | {"synthesize_row": "100 us"})
    plan = plans(**changes, simulation=NO_WHAT_IF)
    found = outcome_of(plan, cluster)
    waited = [s.end - s.start for s in found.spans if s.effect == "next_batch"]
    made = together * plan.examples * 100e-6
    assert waited[0] == pytest.approx(made, rel=0.01)
    bunches = [seconds for seconds in waited[:together] if seconds > 0.01 * made]
    assert len(bunches) == 1


# ---------------------------------------------------------------- its own measured shape


def measured(plan: Plan, cluster: Cluster, ratio: float) -> Cluster:
    """With reading measured as ``ratio`` times what unit prices say."""
    [scope] = [scope for name, scope in operations_of(plan, cluster) if name == "reading"]
    work = dict(cost("reading", scope))
    # what handing over a batch takes is no part of it
    prices = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
    once = ratio * seconds(work, prices)[0]
    entry = MeasuredOperation.model_construct(
        operation="reading",
        shape=str(signature("reading", scope)),
        seconds=once,
        alone=once,
        uncertainty=0.05,
        pooled=None,
        work=work,
    )
    return cluster.model_copy(update={"operations": (entry,)})


@pytest.mark.parametrize("readers", [0, 1])
def test_reading_that_was_measured_takes_what_it_took(
    plans: Plans, clusters: Clusters, outcome_of: OutcomeOf, readers: int
) -> None:
    cluster = clusters(prices=FREE | {"synthesize_id": "100 ns", "feed_batch": "0 ns"})
    plan = plans(
        model=tables(5), roles={"trainers": 2, "readers": readers}, simulation=NO_WHAT_IF,
        training={"steps": 640},
    )  # fmt: skip
    plain, twice = outcome_of(plan, cluster), outcome_of(plan, measured(plan, cluster, 2.0))
    assert read_seconds(twice) == pytest.approx(2 * read_seconds(plain), rel=0.1)
    ledger, rests = twice.facts.ledger, twice.facts.resting
    assert ledger is not None
    assert rests is not None
    assert rests.measured == pytest.approx(read_seconds(twice) / ledger.total, rel=0.2)


def test_other_models_and_streams_are_scaled_by_it(plans: Plans, clusters: Clusters) -> None:
    cluster = clusters()
    known = measured(plans(model=tables(5), simulation=NO_WHAT_IF), cluster, 3.0)
    for model, scaled in ((tables(5), False), (tables(9), True), (tables(5, count=7), True)):
        rests = simulate(plans(model=model, simulation=NO_WHAT_IF), known).facts.resting
        assert rests is not None
        assert (rests.scaled > 0.0) is scaled
        assert (rests.measured > 0.0) is not scaled


def test_shapes_tell_apart_what_takes_different_time(plans: Plans) -> None:
    def shape(**changes: Any) -> str:
        return str(signature("reading", reading_of(plans(**changes), None)))

    one = tables(1, count=5)
    different = [
        shape(),
        shape(model=tables(2)),
        shape(model=tables(2, variable=True)),
        shape(training={"batch_size": 128}),
        shape(data=FILES),
        shape(data=FILES, model=tables(2)),
        shape(data=FILES, model=one),
        shape(data=FILES, model={"dense_features": 2}),
        shape(data=HASHED, model=one),
    ]
    assert len(set(different)) == len(different)
    # whoever reads makes its own loops' rows only
    assert shape(data=FILES) == shape(data=FILES, model={"top_mlp": (16, 1)})
    assert shape(data=FILES) == shape(data=FILES, roles={"trainers": 3})
    assert shape(data=FILES) == shape(data=FILES, training={"threads": 2})
    assert shape() == shape(roles={"trainers": 3})
    assert shape() == shape(model={"top_mlp": (16, 1)})
