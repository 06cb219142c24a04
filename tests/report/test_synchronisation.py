"""Background loops in run directories and reports: their bytes, the sync gap, staleness."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsim_train.config.experiment import Simulation, StrategyChoice
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.report.findings import compare
from recsim_train.report.gap import ROUNDS
from recsim_train.report.runs import finished, load_runs
from recsim_train.report.terminal import show
from recsim_train.report.write import report_on
from recsim_train.results.statistics import Distribution
from recsim_train.trace.record import Outcome
from recsim_train.workload.shape import dense_parameters
from tests.simulated import simulate

LATENCY = {"simulated": "20 us", "real": "700 us"}
"""The "measurement" is a prediction for a slower network, so that its rounds are fewer."""


def plan_of(factory: Any, **options: Any) -> Plan:
    choice = StrategyChoice(kind="shadowsync", options=options)
    return build_plan(factory.experiment(simulation=Simulation(precision="0 %")), choice)


def outcome_of(factory: Any, plan: Plan, world: str) -> Outcome:
    prices = {"gemm_flop": "20 ps", "stream_byte": "100 ps", "dot_flop": "20 ps"}
    cluster = factory.cluster()
    costs = cluster.costs.model_copy(
        update={
            name: getattr(cluster.costs, name).model_copy(
                update={"value": float(text[:-3]) * 1e-12}
            )
            for name, text in prices.items()
        }
    )
    network = cluster.network.model_copy(update={"latency": float(LATENCY[world][:-3]) * 1e-6})
    return simulate(plan, cluster.model_copy(update={"costs": costs, "network": network}))


def write_both(factory: Any, out: Path, plan: Plan) -> None:
    for world in ("simulated", "real"):
        factory.write(out, plan, world, found=outcome_of(factory, plan, world))


def test_a_background_loops_bytes_are_compared_round_by_round(tmp_path: Path, factory: Any) -> None:
    plan = plan_of(factory, gap=0)
    write_both(factory, tmp_path, plan)
    (c,) = compare(load_runs([tmp_path])).comparisons
    exchange = next(b for b in c.payload if b.effect == "exchange")
    assert exchange.predicted > 1.2 * exchange.measured
    assert (exchange.agree, exchange.excuse, exchange.fault) == (False, ROUNDS, False)
    assert c.faults == []
    assert all(b.agree for b in c.payload if b.effect != "exchange")
    dense = 4 * dense_parameters(plan.experiment.model)
    for record in (c.simulated, c.real):
        assert record.summary.round_bytes_by_effect == {"exchange": 2 * 2 * dense}


@pytest.mark.parametrize("where", ["shadow[0]", "worker[0]"])
def test_a_byte_too_many_is_still_a_fault(tmp_path: Path, factory: Any, where: str) -> None:
    plan = plan_of(factory)
    factory.write(tmp_path, plan, "simulated", found=outcome_of(factory, plan, "simulated"))
    odd = outcome_of(factory, plan, "real")
    for key, total in odd.totals.items():
        if key.loop == where and key.effect in ("exchange", "lookup"):
            total.bytes += 1
    factory.write(tmp_path, plan, "real", found=odd)
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert [b.effect for b in c.faults] == ["exchange" if where == "shadow[0]" else "lookup"]


def test_bytes_per_step_hold_the_rounds_of_the_counted_window(tmp_path: Path, factory: Any) -> None:
    plan = plan_of(factory)
    outcome = outcome_of(factory, plan, "simulated")
    summary = factory.write(tmp_path, plan, "simulated", found=outcome).summary
    counted = [i for i in outcome.iterations if i.iteration >= 5]
    start, end = min(i.start for i in counted), max(i.end for i in counted)
    inside = [r for r in outcome.rounds if start < r.end <= end]
    assert 0 < len(inside) < len(outcome.rounds)
    dense = 4 * dense_parameters(plan.experiment.model)
    assert summary.bytes_by_effect["exchange"] == pytest.approx(len(inside) * 2 * dense / 60)
    gap = summary.synchronisation.sync_gap
    syncs = [s for s in outcome.syncs if "shadow" in s.loop and start < s.end <= end]
    assert gap.count == len(syncs) - 2
    assert abs(len(syncs) - len(inside)) <= 2  # a round's bytes move, and end it, after its sync
    # four threads, two trainers: together they end 4 * 60 iterations meanwhile
    assert gap.mean == pytest.approx(4 * 60 / len(inside), rel=0.1)
    assert summary.synchronisation.sync_gap_per_thread == gap.mean / 2


def test_foreground_gaps(tmp_path: Path, factory: Any) -> None:
    """k iterations of a worker between two syncs, whoever stops for them."""
    gaps = {}
    for number, algorithm in enumerate(("easgd", "ma")):
        plan = plan_of(factory, algorithm=algorithm, sync="foreground", every=4)
        outcome = outcome_of(factory, plan, "simulated")
        summary = factory.write(tmp_path / str(number), plan, "simulated", found=outcome).summary
        gaps[algorithm] = summary.synchronisation
    # each of two threads exchanges every 4th of its iterations: the trainer after 4 of all
    assert gaps["easgd"].sync_gap.mean == pytest.approx(4, rel=0.05)
    # all threads together, after 4 iterations of each
    assert gaps["ma"].sync_gap == Distribution(28, mean=8.0, p50=8, p95=8, largest=8)
    assert gaps["ma"].sync_gap_per_thread == 4.0
    assert gaps["ma"].elp == 128 * 2 * 2


def test_a_gap_does_not_hang_on_the_effects_that_synchronise(tmp_path: Path, factory: Any) -> None:
    """With DCT the exchange is a Pull and a Push; the marks of the syncs are the same."""
    gaps = []
    for number, compression in enumerate(("none", "dct")):
        plan = plan_of(factory, sync="foreground", every=4, compression={"kind": compression})
        outcome = outcome_of(factory, plan, "simulated")
        found = factory.write(tmp_path / str(number), plan, "simulated", found=outcome).summary
        assert ("exchange" in found.count_by_effect) == (compression == "none")
        gaps.append(found.synchronisation.sync_gap)
    assert gaps[1].mean == pytest.approx(4, rel=0.05)
    assert gaps[0].count == gaps[1].count == 58


def test_marks_of_syncs_are_never_dropped(tmp_path: Path, factory: Any) -> None:
    plan = plan_of(factory, sync="foreground")
    outcome = outcome_of(factory, plan, "simulated")
    outcome.spans, outcome.dropped_spans = [], len(outcome.spans)
    found = factory.write(tmp_path, plan, "simulated", found=outcome).summary.synchronisation
    assert found.sync_gap.count > 0
    assert found.staleness.count == 240


def test_strategies_in_lock_step_have_no_staleness(tmp_path: Path, factory: Any) -> None:
    record = factory.write(tmp_path, factory.plan("allreduce"), "simulated")
    assert record.summary.synchronisation.staleness is None
    free = factory.write(tmp_path, factory.plan(), "simulated")
    assert free.summary.synchronisation.staleness.count == 240
    assert free.summary.synchronisation.sync_gap is None


def test_reports_show_the_gap_where_there_is_one(tmp_path: Path, factory: Any) -> None:
    write_both(factory, tmp_path / "a", plan_of(factory))
    result = report_on([tmp_path / "a"], tmp_path / "report")
    page = result.page.read_text(encoding="utf-8")
    assert "sync gap, iterations of a trainer" in page
    assert "example-level parallelism" in page
    document = result.document["comparisons"][0]
    assert document["predicted_synchronisation"]["sync_gap"]["mean"] > 0
    runs = load_runs([tmp_path / "a"])
    out = io.StringIO()
    show(finished(runs), Console(file=out, width=200))
    assert "sync gap" in out.getvalue()
    assert "per thread" in out.getvalue()
    factory.write(tmp_path / "b", factory.plan(), "simulated")
    factory.write(tmp_path / "b", factory.plan(), "real")
    other = report_on([tmp_path / "b"], tmp_path / "other")
    assert "sync gap, iterations of a trainer" not in other.page.read_text(encoding="utf-8")


def test_predicted_rounds_are_held_against_those_that_were_done(
    tmp_path: Path, factory: Any
) -> None:
    """Rounds of one background loop that end in the counted window, by its seconds, by hand."""
    plan = plan_of(factory)
    expected = {}
    for world in ("simulated", "real"):
        outcome = outcome_of(factory, plan, world)
        factory.write(tmp_path / "runs", plan, world, found=outcome)
        counted = [i for i in outcome.iterations if i.iteration >= 5]
        start, end = min(i.start for i in counted), max(i.end for i in counted)
        inside = [r for r in outcome.rounds if start < r.end <= end]
        loops = len({r.loop for r in outcome.rounds})
        assert loops == 2
        expected[world] = len(inside) / loops / (end - start)
    result = report_on([tmp_path / "runs"], tmp_path / "report")
    (document,) = result.document["comparisons"]
    predicted, measured = (
        document[f"{way}_rounds_per_second"] for way in ("predicted", "measured")
    )
    assert predicted == pytest.approx(expected["simulated"])
    assert measured == pytest.approx(expected["real"])
    error = predicted / measured - 1
    assert document["rounds_error"] == pytest.approx(error)
    summary = result.document["summary"]
    assert summary["median_abs_rounds_error"] == pytest.approx(error)
    assert summary["max_abs_rounds_error"] == pytest.approx(error)
    page = result.page.read_text(encoding="utf-8")
    short = (tmp_path / "report" / "summary.md").read_text(encoding="utf-8")
    assert error > 1  # the slower network lets far fewer of them happen
    assert f"(error +{100 * error:.0f} %)" in page
    assert "| sync rounds/s predicted | measured | signed error |" in short
    assert f"median absolute error of the rounds {100 * error:.0f} %" in short


def test_without_background_loops_there_are_no_rounds_to_predict(
    tmp_path: Path, factory: Any
) -> None:
    factory.write(tmp_path / "runs", factory.plan(), "simulated")
    factory.write(tmp_path / "runs", factory.plan(), "real")
    document = report_on([tmp_path / "runs"], tmp_path / "report").document
    assert document["comparisons"][0]["rounds_error"] is None
    assert document["summary"]["median_abs_rounds_error"] is None
    assert "sync rounds" not in (tmp_path / "report" / "summary.md").read_text(encoding="utf-8")
