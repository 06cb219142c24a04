from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Execution
from recsim_train.report.compared import Compared
from recsim_train.report.comparison_tables import throughputs
from recsim_train.report.findings import compare
from recsim_train.report.publish import markdown
from recsim_train.report.runs import load_runs, run_table
from recsim_train.report.write import report_on
from recsim_train.trace.facts import Emulated, PayloadSpread, Slept
from recsim_train.workload.compression import Tally, compressed


def both(factory: Any, out: Path, plan: Any = None, **real: Any) -> None:
    plan = plan or factory.plan()
    factory.write(out, plan, "simulated")
    factory.write(out, plan, "real", found=factory.outcome(plan, world="real", **real))


def test_a_prediction_meets_its_measurement(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path, speed=0.8)
    findings = compare(load_runs([tmp_path]))
    (c,) = findings.comparisons
    # Everything but the 50 µs between effects takes 1 / 0.8 as long.
    assert c.signed_error == pytest.approx((14.5 / 0.8 + 0.05) / 14.55 - 1, rel=1e-3)
    assert c.signed_error == pytest.approx(c.predicted_eps / c.measured_eps - 1)
    assert findings.unpaired == ()
    assert c.headline.startswith("flat_ps: predicted 35.")
    assert c.headline.endswith("% too high")


def test_the_document_has_the_fields_of_the_contract(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path)
    document = compare(load_runs([tmp_path])).document()
    assert set(document) >= {"comparisons", "summary", "unpaired"}
    assert set(document["comparisons"][0]) >= {
        "strategy",
        "predicted_eps",
        "measured_eps",
        "signed_error",
        "measured_spread",
        "verdict",
        "predicted_bytes",
        "measured_bytes",
        "bytes_agree",
    }
    assert set(document["summary"]) >= {"median_abs_error", "max_abs_error", "rank_agreement"}
    assert document["comparisons"][0]["predicted_bytes"] == 4 * (2048 + 2 * 8192 + 2 * 4000)
    assert document["summary"]["rank_agreement"] is None
    json.dumps(document, allow_nan=False)


def test_held_out_figures_stand_beside_the_throughput(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    real = factory.write(tmp_path, plan, "real").summary
    table = throughputs(compare(load_runs([tmp_path])).comparisons)
    cells = {column.name: list(column.cells) for column in table.columns}
    assert real.auc is not None
    assert cells["AUC"] == [f"{real.auc:.4f}"]
    assert ("NE" in cells) == (real.normalized_entropy is not None)


def test_repeats_give_median_and_spread(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    for speed in (1.0, 0.8, 0.9):
        outcome = factory.outcome(plan, world="real", speed=speed)
        factory.write(tmp_path, plan, "real", found=outcome)
    (c,) = compare(load_runs([tmp_path])).comparisons
    values = sorted(r.summary.examples_per_second for r in c.all_real)
    assert c.measured_eps == values[1]
    assert c.measured_spread == pytest.approx((values[2] - values[0]) / 2 / values[1])
    assert c.real.summary.examples_per_second == values[1]
    assert c.document()["repeats"] == 3


def test_emulated_hosts_are_compared_with_their_own_profile_alone(
    tmp_path: Path, factory: Any
) -> None:
    """Nor are modelled and real compute repeats of each other."""
    plan = factory.plan()
    own, other = factory.cluster(name="own"), factory.cluster(name="other")
    for profile in (own, other):
        factory.write(tmp_path, plan, "simulated", profile=profile)
    runs = []
    for emulated, slept in ((False, False), (True, False), (True, False), (True, True)):
        outcome = factory.outcome(plan, world="real")
        if emulated:
            outcome.facts.emulated = Emulated({}, "fifo", {}, {}, 0)
        if slept:
            outcome.facts.slept = {"trainer[0]": Slept(1.0, 1.0, 1, 0)}
        runs.append(factory.write(tmp_path, plan, "real", profile=own, found=outcome).run_id)
    found = compare(load_runs([tmp_path]))
    assert not found.unpaired
    made = {
        (c.simulated.manifest["cluster"]["name"], frozenset(r.run_id for r in c.all_real))
        for c in found.comparisons
    }
    plain, *emulated_runs, modelled = runs
    assert made == {
        ("own", frozenset({plain})),
        ("other", frozenset({plain})),
        ("own", frozenset(emulated_runs)),
        ("own", frozenset({modelled})),
    }
    said = {c.label.partition(")")[2] for c in found.comparisons}
    assert said == {"", ", emulated hosts", ", emulated hosts, compute modelled"}


def test_within_the_noise_of_one_run_says_that_it_is_one_run(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path / "once", plan, "simulated")
    once_measured = factory.outcome(plan, world="real", speed=1.005, jitter=0.1)
    factory.write(tmp_path / "once", plan, "real", found=once_measured)
    (once,) = compare(load_runs([tmp_path / "once"])).comparisons
    assert once.verdict == "within the noise"
    assert once.document()["measured_spread_of"] == "windows of one run"
    assert "within the spread of that one run's windows; it was not repeated" in once.headline
    factory.write(tmp_path / "twice", plan, "simulated")
    for speed in (0.85, 1.2):
        found = factory.outcome(plan, world="real", speed=speed)
        factory.write(tmp_path / "twice", plan, "real", found=found)
    (twice,) = compare(load_runs([tmp_path / "twice"])).comparisons
    assert twice.verdict == "within the noise"
    assert twice.document()["measured_spread_of"] == "repeats"
    assert twice.headline.endswith("which is within the measurement's spread")


def test_within_noise_follows_the_spread(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path / "quiet", speed=0.97)
    both(factory, tmp_path / "loud", speed=0.97, jitter=0.6)
    (quiet,) = compare(load_runs([tmp_path / "quiet"])).comparisons
    (loud,) = compare(load_runs([tmp_path / "loud"])).comparisons
    assert quiet.verdict == "beyond the noise"  # the prediction has no interval
    assert loud.measured_spread is not None
    assert quiet.measured_spread is not None
    assert loud.measured_spread > quiet.measured_spread
    small = abs(loud.signed_error) <= loud.measured_spread
    assert (loud.verdict == "within the noise") is small


def test_an_error_is_held_against_what_both_worlds_leave_open(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    for name, share in (("none", None), ("little", 0.02), ("much", 0.4)):
        found = factory.outcome(plan)
        if share is not None:
            eps = 35_200.0
            found.facts.calibration_ci95 = ((1 - share) * eps, (1 + share) * eps)
        factory.write(tmp_path / name, plan, "simulated", found=found)
        real = factory.outcome(plan, world="real", speed=0.8)
        factory.write(tmp_path / name, plan, "real", found=real)
    pairs = {}
    for name in ("none", "little", "much"):
        findings = compare(load_runs([tmp_path / name]))
        (pairs[name],) = findings.comparisons
        assert findings.unexplained == pairs[name].unexplained
        assert findings.document()["summary"]["unexplained"] == pairs[name].unexplained
    assert pairs["little"].unexplained
    assert pairs["none"].unexplained
    assert not pairs["much"].unexplained
    assert pairs["much"].headline.endswith("too high, which the intervals of both explain")
    assert pairs["little"].headline.endswith("too high")
    # one verdict for badge, headline, tile and JSON
    verdicts = {
        "none": "beyond the noise", "little": "beyond the intervals",
        "much": "within the intervals",
    }  # fmt: skip
    for name, verdict in verdicts.items():
        made = report_on([tmp_path / name], tmp_path / f"report-{name}")
        (pair,) = made.document["comparisons"]
        assert pairs[name].verdict == pair["verdict"] == verdict
        page = (tmp_path / f"report-{name}" / "report.html").read_text(encoding="utf-8")
        badge = "chip off" if verdict.startswith("beyond") else "chip good"
        assert re.search(rf'class="[^"]*{badge}[^"]*"><span [^>]*>{verdict}<', page)
        cards = page.split('<div class="tiles">')[1].split('<div class="box')[0]
        assert f"<span>{verdict}</span>" in cards
        assert page.count("beyond noise") == 0
    low, high = pairs["much"].predicted_interval or (0.0, 0.0)
    eps, narrower = pairs["much"].predicted_eps, 1.645 / 1.96  # 90 % of what is known as 95 %
    assert low == pytest.approx(eps - narrower * (eps - 0.6 * 35_200))
    assert high == pytest.approx(eps + narrower * (1.4 * 35_200 - eps))


def test_equal_payload_agrees_and_one_byte_more_does_not(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path / "a")
    both(factory, tmp_path / "b", sent={"update": (8193, 0)})
    (same,) = compare(load_runs([tmp_path / "a"])).comparisons
    assert same.faults == []
    assert set(same.document()["bytes_agree"].values()) == {True}
    findings = compare(load_runs([tmp_path / "b"]))
    (other,) = findings.comparisons
    assert [b.effect for b in other.faults] == ["update"]
    assert other.document()["bytes_agree"] == {
        "lookup": True,
        "pull": True,
        "push": True,
        "update": False,
    }
    assert findings.document()["summary"]["bytes_agree"] is False


def test_an_effect_missing_in_one_world_is_a_fault(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path, sent={"push": (0, 0)})
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert [(b.effect, b.predicted, b.measured) for b in c.faults] == [("push", 16000, 0)]


def test_a_fault_in_any_repeat_is_shown(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path)
    plan = factory.plan()
    odd = factory.outcome(plan, world="real", speed=0.5, sent={"pull": (0, 4001)})
    factory.write(tmp_path, plan, "real", found=odd)
    good = factory.outcome(plan, world="real", speed=0.99)
    factory.write(tmp_path, plan, "real", found=good)
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert [b.effect for b in c.faults] == ["pull"]


def test_a_shorter_simulation_still_agrees_byte_for_byte(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated", found=factory.outcome(plan, steps=37))
    factory.write(tmp_path, plan, "real")
    (c,) = compare(load_runs([tmp_path])).comparisons
    assert c.faults == []
    assert c.document()["predicted_bytes"] == c.document()["measured_bytes"]


def lookups(
    factory: Any, out: Path, *, steps: int, answer: int, counted: dict[str, Any] | None
) -> Any:
    """Bytes of lookups of which one answer is 8,192 predicted, in so many steps."""
    plan = factory.plan(options={"pooling": "worker"})
    predicted = factory.outcome(plan, steps=steps)
    if counted is not None:
        predicted.facts.payload_spread = PayloadSpread(effects={"lookup": 0.01}, **counted)
    factory.write(out, plan, "simulated", found=predicted)
    found = factory.outcome(plan, world="real", sent={"lookup": (2048, answer)})
    factory.write(out, plan, "real", found=found)
    (c,) = compare(load_runs([out])).comparisons
    return next(b for b in c.payload if b.effect == "lookup")


@pytest.mark.parametrize(
    ("steps", "answer", "counted", "fault"),
    [
        # the very same batches must send the same bytes
        (60, 8193, {"steps": 60, "exact": True}, True),
        # of a third of them the mean may be off by 3.29 * 1 % * sqrt(1/20 - 1/60) = 0.60 %
        (20, 8192 + 60, {"steps": 20, "exact": True}, False),
        (20, 8192 + 63, {"steps": 20, "exact": True}, True),
        (20, 8192 - 63, {"steps": 20, "exact": True}, True),
        # other batches: 3.29 * 1 % * sqrt(1/20 + 1/60) = 0.85 %
        (20, 8192 + 63, {"steps": 20, "exact": False}, False),
        (20, 8192 + 89, {"steps": 20, "exact": False}, True),
        # sizes from shapes: 5 %
        (60, 8192 + 500, {"steps": None, "exact": False}, False),
        (60, 8192 + 520, {"steps": None, "exact": False}, True),
        # a prediction that does not say how its sizes vary explains no difference
        (60, 8193, None, True),
    ],
)
def test_the_data_explain_only_what_sampling_makes(
    steps: int, answer: int, counted: dict[str, Any], fault: bool, tmp_path: Path, factory: Any
) -> None:
    lookup = lookups(factory, tmp_path, steps=steps, answer=answer, counted=counted)
    assert (lookup.agree, lookup.fault) == (False, fault)
    assert lookup.excuse == ("" if fault else "depends on the data")
    assert lookup.difference == pytest.approx((2048 + 8192) / (2048 + answer) - 1)
    assert lookup.beyond.startswith("; the data explain up to") == fault


@pytest.mark.parametrize(("sent", "fault"), [(16_000 * 2, False), (16_000 * 2 + 400, True)])
def test_a_stale_threshold_explains_a_factor_of_two(
    sent: int, fault: bool, tmp_path: Path, factory: Any
) -> None:
    plan = factory.plan(options={"compression": {"kind": "dct"}})
    both(factory, tmp_path, plan, sent={"push": (sent // 4, 0)})
    (c,) = compare(load_runs([tmp_path])).comparisons
    push = next(b for b in c.payload if b.effect == "push")
    assert (push.predicted, push.measured, push.fault) == (16_000, sent, fault)
    assert push.allowance == "up to 2 times as much or as little"
    said = "; the data explain up to 2 times as much or as little" in markdown(
        Compared(compare(load_runs([tmp_path]))).document()
    )
    assert said == fault


def test_an_unfinished_run_may_lack_a_processs_bytes(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    cut = factory.outcome(plan, world="real", sent={"pull": (0, 0)})
    factory.write(tmp_path, plan, "real", found=cut, status="partial")
    (c,) = compare(load_runs([tmp_path])).comparisons
    pull = next(b for b in c.payload if b.effect == "pull")
    assert (pull.agree, pull.fault) == (False, False)


def test_rank_agreement_over_strategies(tmp_path: Path, factory: Any) -> None:
    for kind, speed in (("flat_ps", 1.0), ("allreduce", 1.0)):
        both(factory, tmp_path / "same", factory.plan(kind), speed=speed)
    for kind, speed in (("flat_ps", 0.3), ("allreduce", 1.0)):
        both(factory, tmp_path / "turned", factory.plan(kind), speed=speed)
    assert compare(load_runs([tmp_path / "same"])).rank_agreement == 1.0
    findings = compare(load_runs([tmp_path / "turned"]))
    assert findings.rank_agreement == -1.0
    errors = sorted(findings.absolute_errors)
    assert findings.document()["summary"]["max_abs_error"] == errors[-1]
    assert findings.median_abs_error == pytest.approx(sum(errors) / 2)


def test_other_settings_are_not_paired_and_the_difference_is_named(
    tmp_path: Path, factory: Any
) -> None:
    factory.write(tmp_path, factory.plan(training={"batch_size": 64}), "simulated")
    factory.write(tmp_path, factory.plan(), "real")
    factory.write(tmp_path, factory.plan("allreduce"), "simulated")
    findings = compare(load_runs([tmp_path]))
    assert findings.comparisons == ()
    reasons = {(u.record.strategy, u.record.world): u.reason for u in findings.unpaired}
    assert reasons["flat_ps", "simulated"] == (
        "no measurement of the same settings: training.batch_size is 64 here and 128 there"
    )
    assert reasons["allreduce", "simulated"] == "no measurement of this strategy was given"
    assert findings.document()["summary"] == {
        "median_abs_error": None,
        "max_abs_error": None,
        "rank_agreement": None,
        "median_abs_rounds_error": None,
        "max_abs_rounds_error": None,
        "unexplained": None,
        "bytes_agree": None,
    }


def test_options_of_one_strategy_tell_comparisons_apart(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path, factory.plan())
    both(factory, tmp_path, factory.plan(options={"mode": "easgd", "every": 4}))
    labels = {c.label for c in compare(load_runs([tmp_path])).comparisons}
    assert labels == {"flat_ps (every 1, mode downpour)", "flat_ps (every 4, mode easgd)"}


def test_how_requests_travel_tells_comparisons_apart(tmp_path: Path, factory: Any) -> None:
    full, half = (factory.plan(execution=Execution(wire=wire)) for wire in ("full", "float16"))
    for plan in (full, half):
        both(factory, tmp_path / "both", plan)
    labels = {c.label for c in compare(load_runs([tmp_path / "both"])).comparisons}
    assert labels == {"flat_ps (wire full)", "flat_ps (wire float16)"}
    factory.write(tmp_path / "apart", full, "simulated")
    factory.write(tmp_path / "apart", half, "real")
    findings = compare(load_runs([tmp_path / "apart"]))
    assert findings.comparisons == ()
    assert {u.reason for u in findings.unpaired} == {
        "no measurement of the same settings: execution.wire is full here and float16 there",
        "no prediction of the same settings: execution.wire is float16 here and full there",
    }


def test_each_profile_is_a_comparison_of_its_own(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    for name in ("fast", "slow"):
        factory.write(tmp_path, plan, "simulated", profile=factory.cluster(name=name))
    factory.write(tmp_path, plan, "real")
    found = compare(load_runs([tmp_path])).comparisons
    assert {c.label for c in found} == {"flat_ps (profile fast)", "flat_ps (profile slow)"}


def test_a_partial_run_gives_way_to_a_complete_one(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    cut = factory.outcome(plan, world="real", steps=20, speed=0.2)
    factory.write(tmp_path, plan, "simulated")
    factory.write(tmp_path, plan, "real", found=cut, status="interrupted")
    (alone,) = compare(load_runs([tmp_path])).comparisons
    assert any("is interrupted" in w for w in alone.warnings)
    factory.write(tmp_path, plan, "real")
    findings = compare(load_runs([tmp_path]))
    (c,) = findings.comparisons
    assert c.real.status == "complete"
    assert "a complete run of the same settings is used" in findings.unpaired[0].reason


def test_a_run_without_throughput_is_unpaired(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    nothing = factory.outcome(plan, world="real", steps=0)
    factory.write(tmp_path, plan, "simulated")
    factory.write(tmp_path, plan, "real", found=nothing, status="partial")
    findings = compare(load_runs([tmp_path]))
    assert findings.comparisons == ()
    assert any("counted no iteration" in u.reason for u in findings.unpaired)


def test_the_gate(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path, speed=0.9)
    result = compare(load_runs([tmp_path]))
    error = result.median_abs_error
    assert error is not None
    assert 0.1 < error < 0.12
    assert result.within(0.12)
    assert not result.within(0.1)
    assert result.gate_sentence(0.1) == "the median absolute error 11.1 % is above 10.0 %"
    empty = compare([])
    assert not empty.within(1.0)
    assert "no error to judge" in empty.gate_sentence(1.0)


def test_folders_are_expanded_and_runs_taken_once(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path)
    (tmp_path / ".writing-x").mkdir()
    (tmp_path / "notes").mkdir()
    one = next(p for p in tmp_path.iterdir() if "simulated" in p.name)
    assert len(load_runs([tmp_path, one, tmp_path / "."])) == 2
    for path, sentence in (
        (tmp_path / "notes", "neither is a run directory nor holds any"),
        (tmp_path / "absent", "there is no such run directory"),
    ):
        with pytest.raises(UserError, match=sentence):
            load_runs([path])
    with pytest.raises(UserError, match="no run directory"):
        load_runs([])


def test_a_part_of_a_strategy_is_in_its_label(tmp_path: Path, factory: Any) -> None:
    dct = {"kind": "dct", "density": "5 %"}
    both(factory, tmp_path, factory.plan(options={"compression": dct}))
    (only,) = compare(load_runs([tmp_path])).comparisons
    assert only.label == "flat_ps (compression dct)"
    both(factory, tmp_path, factory.plan(options={"compression": dct | {"density": "2 %"}}))
    labels = {c.label for c in compare(load_runs([tmp_path])).comparisons}
    assert "flat_ps (compression dct, density 2 %)" in labels


def test_what_a_compression_left_out_is_said(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan(options={"compression": {"kind": "dct"}})
    for world, kept in (("simulated", 100), ("real", 200)):
        found = factory.outcome(plan, world=world)
        tally = Tally(values=10_000, kept=kept, dense_bytes=40_000, sent_bytes=8 * kept)
        found.facts.compression = compressed([{"gradients": tally}])
        factory.write(tmp_path, plan, world, found=found)
    (only,) = compare(load_runs([tmp_path])).comparisons
    assert only.compression == [
        "Compression of dense gradients, warm-up included: 50× in values, 25× on the wire "
        "(the prediction assumed 100× and 50×); 2.00 % of the values travelled"
    ]
    assert only.document()["measured_compression"]["gradients"]["wire_compression"] == 25
    assert any("compression dct is a reconstruction" in w for w in only.warnings)
    findings = compare(load_runs([tmp_path]))
    assert "50× in values" in markdown(Compared(findings).document())
    columns = run_table(load_runs([tmp_path]), "").columns
    assert "compression" in [column.name for column in columns]


def test_models_that_differ_in_many_widths_are_told_apart_by_name(
    tmp_path: Path, factory: Any
) -> None:
    other = factory.experiment().model.model_copy(
        update={"name": "wide", "embedding_dim": 16, "bottom_mlp": (32, 16)}
    )
    both(factory, tmp_path)
    both(factory, tmp_path, factory.plan(model=other))
    names = {c.label for c in compare(load_runs([tmp_path])).comparisons}
    assert names == {"flat_ps (model tiny)", "flat_ps (model wide)"}


def test_a_setting_that_differs_within_a_model_is_named_beside_it(
    tmp_path: Path, factory: Any
) -> None:
    model = factory.experiment().model
    both(factory, tmp_path)
    both(factory, tmp_path, factory.plan(model=model.model_copy(update={"top_mlp": (32, 1)})))
    named = model.model_copy(update={"name": "wide", "bottom_mlp": (32, 8)})
    both(factory, tmp_path, factory.plan(model=named))
    names = {c.label for c in compare(load_runs([tmp_path])).comparisons}
    assert {name for name in names if "tiny" in name and "top_mlp [32, 1]" in name}
    assert len(names) == 3


def test_a_run_says_what_its_threads_are(tmp_path: Path, factory: Any) -> None:
    both(factory, tmp_path)
    both(factory, tmp_path, factory.plan("allreduce"))
    both(factory, tmp_path, factory.plan("allreduce", training={"threads": 1}, seed=5))
    runs = load_runs([tmp_path])
    columns = {column.name: column.cells for column in run_table(runs, "").columns}
    assert set(columns["threads"]) == {"2 workers", "2 within operations", "–"}
    found = {
        (c.document()["worker_threads"], c.document()["operation_threads"])
        for c in compare(runs).comparisons
    }
    assert found == {(2, 1), (1, 2), (1, 1)}
