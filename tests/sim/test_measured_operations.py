"""Operations that were measured at their own shapes, beside unit prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from math import hypot
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train import calls
from recsim_train.config.cluster import Cluster
from recsim_train.config.measured import MeasuredOperation, Pooled
from recsim_train.placement.plan import Plan
from recsim_train.sim.pricing import Pricing
from recsim_train.sim.runtime import Runtime
from recsim_train.workload.operations import OPS, cost, seconds
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import dense_parameters
from recsim_train.workload.signature import Signature, signature
from tests.commands import ROOT
from tests.simulated import elasticities, operations_of, scaled, simulate

Plans = Callable[..., Plan]
Clusters = Callable[..., Cluster]


def prices_of(cluster: Cluster) -> dict[str, float]:
    return {name: getattr(cluster.costs, name).value for name in type(cluster.costs).model_fields}


def entry(
    cluster: Cluster, name: str, scope: Scope, ratio: float = 1.0, **more: Any
) -> MeasuredOperation:
    """A measurement that is ``ratio`` times what unit prices say."""
    work = dict(cost(name, scope))
    found = ratio * seconds(work, prices_of(cluster))[0]
    return MeasuredOperation.model_construct(
        operation=name,
        shape=str(signature(name, scope)),
        seconds=found,
        alone=more.pop("alone", found),
        uncertainty=0.05,
        pooled=more.pop("pooled", None),
        work=work,
    )


def with_all(plan: Plan, cluster: Cluster, ratio: float = 1.0, **ratios: float) -> Cluster:
    """The profile with every operation that the plan asks for measured."""
    found = operations_of(plan, cluster)
    entries = tuple(entry(cluster, n, s, ratios.get(n, ratio)) for n, s in found)
    return cluster.model_copy(update={"operations": entries})


@pytest.fixture
def plan(plans: Plans) -> Plan:
    return plans(
        roles={"trainers": 2, "embedding_servers": 2, "dense_servers": 1},
        simulation={"what_if_steps": 0},
    )


def priced(plan: Plan, cluster: Cluster, name: str, threads: int = 1, **sizes: Any) -> Any:
    pricing = Pricing(plan.experiment, cluster, plan.examples, threads)
    return pricing.operation(name, **sizes), pricing.rests


def test_without_measured_operations_nothing_changes(plan: Plan, clusters: Clusters) -> None:
    plain = clusters(cores=2, colocate=True)
    empty = plain.model_copy(update={"operations": ()})
    first, second = simulate(plan, plain), simulate(plan, empty)
    assert repr(dataclasses.astuple(first)) == repr(dataclasses.astuple(second))
    assert first.facts.resting is not None
    assert first.facts.resting.unit == 1.0


def test_a_ratio_of_one_is_the_unit_price(plan: Plan, clusters: Clusters) -> None:
    plain = clusters(cores=2, colocate=True)
    speeds = [simulate(plan, c).speed for c in (plain, with_all(plan, plain))]
    assert None not in speeds
    assert speeds[1].examples_per_second == pytest.approx(  # type: ignore[union-attr]
        speeds[0].examples_per_second,
        rel=1e-9,  # type: ignore[union-attr]
    )


def test_a_shape_that_was_measured_takes_what_it_took(plan: Plan, clusters: Clusters) -> None:
    plain = clusters()
    spec = plan.experiment
    scope = Scope(spec.model, spec.training, batch=plan.examples, ids=192, unique=150, tables=3)
    known = entry(plain, "update_pooled", scope, 3.0)
    cluster = plain.model_copy(update={"operations": (known,)})
    sizes = {"ids": 192, "unique": 150, "tables": 3}
    (total, held, parts), rests = priced(plan, cluster, "update_pooled", **sizes)
    (unit, unit_held, _), _ = priced(plan, plain, "update_pooled", **sizes)
    assert total == known.seconds
    assert held / total == pytest.approx(unit_held / unit)
    assert parts == (("update_pooled", total, 0.0, 0.0, 0.0),)
    assert rests == {"update_pooled": {"measured": total}}
    # prices do not move what was measured
    dearer = scaled(cluster, {"costs.scatter_row": 2.0, "costs.call": 3.0})
    assert priced(plan, dearer, "update_pooled", **sizes)[0][0] == known.seconds


@given(
    ratio=st.floats(0.1, 10.0),
    ids=st.integers(1, 100_000),
    tables=st.integers(1, 40),
    there=st.integers(1, 100_000),
)
def test_other_shapes_are_scaled_by_the_nearest(
    ratio: float, ids: int, tables: int, there: int
) -> None:
    from pathlib import Path

    from tests.modules import loaded

    helpers = loaded(Path(__file__).with_name("conftest.py"))
    plan, plain = helpers.make_plan(), helpers.make_cluster()
    spec = plan.experiment
    scope = Scope(spec.model, spec.training, batch=64, ids=there, tables=7)
    cluster = plain.model_copy(
        update={"operations": (entry(plain, "lookup_pooled", scope, ratio),)}
    )
    (total, _, _), rests = priced(plan, cluster, "lookup_pooled", ids=ids, tables=tables)
    (unit, _, _), _ = priced(plan, plain, "lookup_pooled", ids=ids, tables=tables)
    assert total == pytest.approx(ratio * unit)
    [rest] = rests["lookup_pooled"]
    own = tables == 7 and abs(ids - there) <= 0.25 * there
    assert rest == ("measured" if own else "scaled")


def test_the_nearest_shape_is_the_one_that_counts(plan: Plan, clusters: Clusters) -> None:
    plain, spec = clusters(), plan.experiment
    other = spec.model.model_copy(update={"embedding_dim": 64})
    sizes = {"batch": 64, "tables": 3}
    entries = (
        entry(plain, "lookup_pooled", Scope(spec.model, spec.training, ids=100, **sizes), 2.0),
        entry(plain, "lookup_pooled", Scope(spec.model, spec.training, ids=900, **sizes), 3.0),
        entry(plain, "lookup_pooled", Scope(other, spec.training, ids=300, **sizes), 5.0),
    )
    cluster = plain.model_copy(update={"operations": entries})
    for ids, ratio in ((150, 2.0), (600, 3.0), (300, 2.0)):
        (total, _, _), _ = priced(plan, cluster, "lookup_pooled", ids=ids, tables=3)
        (unit, _, _), _ = priced(plan, plain, "lookup_pooled", ids=ids, tables=3)
        assert total == pytest.approx(ratio * unit)


def test_busy_cores_and_idle_ones(plan: Plan, clusters: Clusters) -> None:
    """On busy cores an operation comes to what it took there, contention included."""
    plain, spec = clusters(contention=0.8), plan.experiment
    scope = Scope(spec.model, spec.training, elements=500)
    known = entry(plain, "load", scope, 2.0, alone=1e-4)
    cluster = plain.model_copy(update={"operations": (known,)})
    for beside, expected in ((1.0, known.seconds * 0.8), (0.0, 1e-4)):
        pricing = Pricing(spec, cluster, plan.examples, beside=beside)
        assert pricing.operation("load", elements=500)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("trainers", "threads", "cores", "share"),
    [(1, 1, 2, 0.0), (2, 1, 2, 1.0), (2, 2, 2, 1.0), (2, 1, 5, 0.25), (1, 1, 1, 1.0)],
)
def test_how_crowded_a_machine_is_follows_from_its_loops(
    plans: Plans,
    clusters: Clusters,
    fake_counts: Any,
    trainers: int,
    threads: int,
    cores: int,
    share: float,
) -> None:
    roles = {"trainers": trainers, "embedding_servers": 1, "dense_servers": 1}
    plan, plain = plans(roles=roles, training={"threads": threads}), clusters(cores=cores)
    elements = dense_parameters(plan.experiment.model)
    scope = Scope(plan.experiment.model, plan.experiment.training, elements=elements)
    known = entry(plain, "load", scope, 1.0, alone=1e-3)
    for colocate, expected in ((True, share), (False, min(1.0, (threads - 1) / max(1, cores - 1)))):
        cluster = plain.model_copy(update={"operations": (known,), "colocate": colocate})
        runtime = Runtime(plan, cluster, fake_counts(plan), iterations=1)
        runtime.run()
        found = runtime.pricing.operation("load", elements=elements)[0]
        wanted = 1.0 if cores == 1 else expected
        assert found == pytest.approx(1e-3 + wanted * (known.seconds - 1e-3))


def test_threads_come_to_what_they_took(plan: Plan, clusters: Clusters) -> None:
    plain, spec = clusters(), plan.experiment
    scope = Scope(spec.model, spec.training, elements=50_000)
    once = entry(plain, "load", scope, 2.0).seconds
    pooled = Pooled.model_construct(threads=2, seconds=0.6 * once, cpu=1.1 * once)
    known = entry(plain, "load", scope, 2.0, pooled=pooled)
    cluster = plain.model_copy(update={"operations": (known,)})
    (total, _, [(_, _, saved, added, further)]), _ = priced(
        plan, cluster, "load", 2, elements=50_000
    )
    assert total == known.seconds
    assert total - saved == pytest.approx(pooled.seconds)
    assert total + added == pytest.approx(pooled.cpu)
    assert total + added - further == pytest.approx(pooled.seconds)
    # of four threads the law says it, of as many seconds as were measured on one; one operator is
    # divided, and waking takes the same whatever its work is
    (_, _, [(_, _, saved, added, _)]), _ = priced(plan, cluster, "load", 4, elements=50_000)
    (unit, _, [(_, _, by_law, more, _)]), _ = priced(plan, plain, "load", 4, elements=50_000)
    wake = plain.threads.wake
    wall, cpu = wake.wall, wake.caller + 3 * wake.pool
    assert (saved + wall) / total == pytest.approx((by_law + wall) / unit)
    assert (added - cpu) / total == pytest.approx((more - cpu) / unit)
    assert by_law + wall > 0.0


def test_threads_may_have_taken_longer_than_one(plan: Plan, clusters: Clusters) -> None:
    plain, spec = clusters(), plan.experiment
    scope = Scope(spec.model, spec.training, elements=50_000)
    once = entry(plain, "load", scope).seconds
    pooled = Pooled.model_construct(threads=2, seconds=3.0 * once, cpu=1.5 * once)
    known = entry(plain, "load", scope, pooled=pooled)
    cluster = plain.model_copy(update={"operations": (known,)})
    (total, _, [(_, _, saved, added, further)]), _ = priced(
        plan, cluster, "load", 2, elements=50_000
    )
    assert total - saved == pytest.approx(3.0 * once)
    assert total + added == pytest.approx(1.5 * once)
    assert further == 0.0


def test_half_the_seconds_of_a_lookup_change_the_prediction(plan: Plan, clusters: Clusters) -> None:
    plain = clusters(cores=1, colocate=True)
    whole, half = (with_all(plan, plain, 1.0, lookup_pooled=20.0 * r) for r in (1.0, 0.5))
    speeds = [simulate(plan, cluster).speed for cluster in (whole, half)]
    assert speeds[0] is not None
    assert speeds[1] is not None
    assert speeds[1].examples_per_second > 1.1 * speeds[0].examples_per_second


def test_a_prediction_says_what_it_rests_on(plan: Plan, clusters: Clusters) -> None:
    plain = clusters(cores=2, colocate=True)
    cluster = with_all(plan, plain, 2.0)
    outcome = simulate(plan, cluster)
    rests = outcome.facts.resting
    assert rests is not None
    assert rests.measured > 0.1
    assert rests.scaled == 0.0
    assert rests.measured + rests.unit == pytest.approx(1.0)
    [said] = [w for w in outcome.facts.warnings if "rest on operations measured" in w]
    assert f"{rests.measured:.1%} rest on" in said
    other = plan_with(plan, batch_size=96)
    moved = simulate(other, cluster).facts.resting
    assert moved is not None
    assert moved.scaled > 0.05
    assert moved.measured > 0.0  # what does not depend on the batch
    # by hand: of all CPU seconds those of the operations
    ledger = outcome.facts.ledger
    assert ledger is not None
    names = {name for name, _ in operations_of(plan, plain)}
    counted = sum(line.seconds for line in ledger.lines if line.what in names)
    assert rests.measured == pytest.approx(counted / ledger.total, rel=0.1)


def plan_with(plan: Plan, **training: Any) -> Plan:
    from recsim_train.placement.build import build_plan

    spec = plan.experiment
    changed = spec.training.model_copy(update=training)
    return build_plan(spec.model_copy(update={"training": changed}), plan.strategy)


def test_their_own_errors_make_the_interval(
    plan: Plan, clusters: Clusters, fake_counts: Any
) -> None:
    plain = clusters(cores=2, colocate=True)
    unsure = plain.model_copy(
        update={
            "costs": plain.costs.model_copy(
                update={
                    name: getattr(plain.costs, name).model_copy(update={"uncertainty": 0.5})
                    for name in ("gemm_flop", "stream_byte", "gather_row", "scatter_row", "call")
                }
            )
        }
    )
    counts = fake_counts(plan)
    found = elasticities(plan, with_all(plan, unsure), counts, 10)
    without = elasticities(plan, unsure, counts, 10)
    assert found.changes["operations"] < -0.01
    assert "operations" not in without.changes
    causes = (each.causes.values() for each in (found, without))
    unsure_by, unsure_without = (hypot(*errors) for errors in causes)
    assert unsure_by < 0.5 * unsure_without


# ---------------------------------------------------------------- signatures


def test_a_signature_reads_back(plan: Plan) -> None:
    spec = plan.experiment
    for name in OPS:
        for pooling in ("server", "worker"):
            scope = Scope(
                spec.model, spec.training, pooling, batch=64, ids=1234567.0, unique=812.25,
                tables=3, elements=9_123_456, shards=2, numbers=77.5, kept=5,
            )  # fmt: skip
            shape = signature(name, scope)
            assert Signature.parse(str(shape)) == shape
            assert shape.is_own(shape)
            assert shape.distance(shape) == 0.0


@pytest.mark.parametrize("text", ["", "any", "; ids 3", "any; ids", "any; feet 3", "any; ids -3"])
def test_what_is_no_signature(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|settings|convert"):
        Signature.parse(text)


def test_only_what_work_depends_on_tells_shapes_apart(plan: Plan) -> None:
    spec = plan.experiment
    wider = spec.model.model_copy(update={"top_mlp": (64, 1), "name": "wider"})
    named = spec.model.model_copy(update={"name": "other"})
    adagrad = spec.training.model_copy(update={"dense_optimizer": "adagrad"})

    def text(name: str, model: Any = spec.model, training: Any = spec.training) -> str:
        return str(signature(name, Scope(model, training, batch=64, ids=99, tables=3, elements=5)))

    for name in OPS:
        assert text(name) == text(name, named)
    assert text("forward_backward") != text("forward_backward", wider)
    assert text("lookup_pooled") == text("lookup_pooled", wider)
    assert text("dense_apply") == text("dense_apply", wider)
    assert text("dense_apply") != text("dense_apply", training=adagrad)
    assert text("lookup_pooled") == text("lookup_pooled", training=adagrad)


def test_the_shipped_profile_knows_the_shapes_of_the_quickstarts_own_net() -> None:
    """Whatever becomes of models' fields: else what was measured would count as another net's."""
    study = calls.load(ROOT / "experiments" / "quickstart.yaml", "reference-2core")
    (job,) = study.jobs()
    entries = job.profile.operations or ()
    kin = {Signature.parse(e.shape).kin for e in entries if e.operation == "forward_backward"}
    spec = job.plan.experiment
    scope = Scope(model=spec.model, training=spec.training, batch=spec.training.batch_size)
    assert signature("forward_backward", scope).kin in kin
