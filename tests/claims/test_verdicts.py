"""What checks make of runs, and what is said about it."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recsim_train.config.claim import Check, Claim, Sensitivity
from recsim_train.report.claim_text import conclusion, published, sentences
from recsim_train.report.claims import (
    Judged,
    judge,
    judge_check,
    judge_grid,
    verdict,
    without_claims,
)
from recsim_train.report.markdown import render
from recsim_train.report.measures import (
    NoFigureError,
    bytes_per_example,
    crossing,
    figure,
    slope,
)
from recsim_train.results.claims import Change, ClaimRuns, read_claim_runs, write_claim_runs
from recsim_train.results.figures import Summary
from recsim_train.results.rundir import RunRecord, read_run
from recsim_train.trace.record import Total, TotalKey


def check(**changes: Any) -> Check:
    if "near" in changes:
        changes = {"tolerance": "20 %", "tolerance_from": "us", **changes}
    fields = {"says": "a over b", "measure": "eps", "form": "ratio", "of": ("a",), "over": ("b",)}
    return Check.model_validate({**fields, **changes})


def record(eps: float = 100.0, trainers: int = 2, **summary: Any) -> RunRecord:
    manifest = {
        "run_id": f"run-{eps}",
        "configuration": {"roles": {"trainers": trainers}},
        "plan": {"groups": {"trainers[0]": ["x"] * 4}, "loops": []},
    }
    none: dict[str, Any] = dict.fromkeys(field.name for field in fields(Summary))
    known = {"examples_per_second": eps, "round_bytes_by_effect": {}, "operation_threads": 1}
    known |= summary
    return RunRecord(Path("run"), manifest, {}, Summary(**{**none, **known}))


DENSITY = {"measure": "value_compression", "form": "value", "follows_from": "density"}


@pytest.mark.parametrize(
    ("settings", "value", "expected", "said"),
    [
        ({"near": 1.9}, 1.9, 1.9, "reproduced"),
        ({"near": 1.9}, 2.2, 1.9, "reproduced"),
        ({"near": 1.9}, 2.3, 1.9, "partly"),  # more than claimed is not what was claimed
        ({"near": 1.9}, 1.46, 1.9, "partly"),
        ({"near": 1.9}, 1.44, 1.9, "not reproduced"),
        ({"near": 1.9}, 0.5, 1.9, "not reproduced"),
        ({"near": 0.4, "form": "saved"}, 0.33, 0.4, "reproduced"),
        ({"near": 0.4, "form": "saved"}, 0.21, 0.4, "partly"),
        ({"near": 0.4, "form": "saved"}, -0.4, 0.4, "not reproduced"),
        ({"at_least": 100}, 100, 100, "reproduced"),
        ({"at_least": 100}, 99.5, 100, "partly"),
        ({"at_least": 100}, 40, 100, "not reproduced"),
        # whatever comes out of a density that was chosen for it
        ({**DENSITY, "at_least": 100}, 100, 100, "follows from the input"),
        ({**DENSITY, "at_least": 100}, 40, 100, "follows from the input"),
        ({"at_most": 0.5, "form": "exponent"}, 0.1, 0.5, "reproduced"),
        ({"at_most": 0.5, "form": "exponent"}, 0.9, 0.5, "partly"),
        ({"at_most": 0.5, "form": "exponent"}, 1.1, 0.5, "not reproduced"),
        ({"near": 1.9, "tolerance": "2.6 %"}, 1.86, 1.9, "reproduced"),
        ({"near": 1.9, "tolerance": "2.6 %"}, 1.96, 1.9, "partly"),
        ({}, 1.0, None, "for context"),
    ],
)
def test_verdicts(
    settings: dict[str, Any], value: float, expected: float | None, said: str
) -> None:
    assert verdict(check(**settings), value, expected) == said


def test_figures() -> None:
    runs = {"a": record(300.0, 4), "b": record(100.0, 2), "c": record(150.0, 8)}
    assert figure(check(), runs) == 3
    assert figure(check(form="value", over=()), runs) == 300
    # seconds per example: a third of b's, so two thirds are saved
    assert figure(check(measure="time", form="saved"), runs) == pytest.approx(2 / 3)
    along: dict[str, Any] = {"of": ("b", "a"), "over": (), "along": "roles.trainers"}
    assert figure(check(form="exponent", **along), runs) == pytest.approx(math.log2(3))
    # 50 per trainer at b, 300 at a: the line reaches that level at 6 trainers
    assert figure(check(form="knee", **along), runs) == pytest.approx(6)


def hosted(threads: int, cores: int, eps: float = 100.0, **profile: Any) -> RunRecord:
    run = record(eps, threads=threads)
    hosts = {"default": {"cores": cores}}
    run.manifest["cluster"] = {"colocate": False, "hosts": hosts, **profile}
    return replace(run, summary=replace(run.summary, trainers=2))


def test_speed_on_one_of_many_cores_is_not_comparable() -> None:
    faster = check(at_least=1)
    found = judge_check(faster, {"a": hosted(1, 20), "b": hosted(24, 20)})
    assert found.verdict == "not comparable"
    assert found.why == "'a' computes on 1 of each host's 20 cores"
    assert found.figure == 1
    assert judge_check(faster, {"a": hosted(24, 20), "b": hosted(1, 20)}).why.startswith(
        "'b' comput"
    )
    for measure, said in (("eps", "reproduced"), ("time", "reproduced")):
        runs = {"a": hosted(20, 20), "b": hosted(24, 20)}
        assert judge_check(check(at_least=1, measure=measure), runs).verdict == said
    # Trainers of one machine share its cores; a role's own hosts and single ones count.
    runs = {"a": hosted(2, 4, colocate=True), "b": hosted(2, 4, colocate=True)}
    assert judge_check(faster, runs).verdict == "reproduced"
    own = {"default": {"cores": 1}, "trainer": {"cores": 20}}
    assert judge_check(faster, {"a": hosted(1, 1, hosts=own), "b": hosted(1, 1)}).why
    mixed = {"trainer": [{"count": 1, "cores": 8}, {"count": None, "cores": None}]}
    assert judge_check(faster, {"a": hosted(1, 1, mixed=mixed), "b": hosted(1, 1)}).why
    single = {"trainer": [{"count": None, "cores": 1}]}
    assert not judge_check(faster, {"a": hosted(1, 20, mixed=single), "b": hosted(1, 1)}).why
    # What is shown for context says it too.
    context = judge_check(check(), {"a": hosted(1, 20), "b": hosted(24, 20)})
    assert (context.verdict, bool(context.why)) == ("for context", True)


def test_up_to_is_reached_somewhere_or_not_at_all() -> None:
    saved = check(form="saved", measure="time", up_to=0.687)
    base = {"b": record(100.0)}
    # a third, and 68.6 % or 68.8 % less time
    points = [({"n": "1"}, {"a": record(150.0), **base})]
    near = [*points, ({"n": "2"}, {"a": record(100 / 0.314), **base})]
    there = [*points, ({"n": "2"}, {"a": record(100 / 0.312), **base})]
    assert judge_grid(saved, near).verdict == "not reproduced"
    found = judge_grid(saved, there)
    assert (found.verdict, found.expected) == ("reproduced", 0.687)
    assert found.figure == pytest.approx(0.688)
    assert [value for _, value in found.points] == pytest.approx([1 / 3, 0.688])
    # beyond it is reached too; a point without its runs leaves the question open
    assert judge_grid(saved, [({}, {"a": record(1e6), **base})]).verdict == "reproduced"
    assert judge_grid(saved, [*there, ({"n": "3"}, base)]).verdict == "no figure"
    assert judge_grid(saved, []).why == "no point was simulated"
    idle = [({"n": "1"}, {"a": hosted(1, 20), "b": hosted(1, 20)})]
    assert judge_grid(saved, idle).verdict == "not comparable"


def test_what_is_missing_is_said() -> None:
    with pytest.raises(NoFigureError, match="not simulated: b"):
        figure(check(), {"a": record()})
    with pytest.raises(NoFigureError, match="no number in the settings"):
        figure(check(form="exponent", of=("a", "a"), over=(), along="roles.x"), {"a": record()})
    with pytest.raises(NoFigureError, match="does not differ"):
        slope([2.0, 2.0], [1.0, 3.0])
    found = judge_check(check(near=2), {"a": record()})
    assert (found.verdict, found.figure) == ("no figure", None)


def test_slopes_and_crossings() -> None:
    assert slope([1, 2, 4, 8], [3, 6, 12, 24]) == pytest.approx(1)
    assert slope([1, 2, 4, 8], [3, 3, 3, 3]) == 0
    assert crossing([2, 4, 8], [0.25, 0.5, 2.0]) == pytest.approx(math.sqrt(32))
    assert crossing([8, 2, 4], [2.0, 0.25, 0.5]) == pytest.approx(math.sqrt(32))
    assert crossing([2, 4], [0.25, 0.5]) is None


def test_bytes_count_an_all_reduce_as_its_ring_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = {
        TotalKey("trainer[0]", "worker[0]", "all_reduce", "trainers"): Total(1, 1.0, 1000),
        TotalKey("trainer[0]", "worker[0]", "lookup", "embedding"): Total(1, 1.0, 40),
        TotalKey("server[0]", "w", "serve_lookup", "embedding"): Total(1, 1.0, 60),
    }
    monkeypatch.setattr(RunRecord, "totals", lambda _: totals)
    run = record(counted_iterations=5, batch_size=2)
    assert bytes_per_example(run) == pytest.approx((1000 * 1.5 + 100) / 10)
    assert bytes_per_example(run, ("lookup",)) == pytest.approx(10)
    with pytest.raises(NoFigureError, match="background"):
        bytes_per_example(record(round_bytes_by_effect={"exchange": 1.0}))


def claim(*checks: Check) -> Claim:
    return Claim(
        statement="a is faster",
        source="nobody",
        mark="recalled",
        setting="two runs",
        hinges_on="chance",
        fitted={},
        variants={"a": (), "b": ()},
        checks=checks,
        sensitivity=(Sensitivity(input="luck", changes={"x2": ("seed=2",)}),),
    )


def judged(folder: Path, factory: ModuleType, *checks: Check) -> Judged:
    a = factory.write(folder, factory.plan("flat_ps"), "simulated")
    b = factory.write(folder, factory.plan("allreduce"), "simulated")
    change = Change("luck", "x2", {"a": b.run_id, "b": a.run_id})
    made = ClaimRuns(
        "c", "c.yaml", claim(*checks), {"a": a.run_id, "b": b.run_id}, (change,), folder=folder
    )
    write_claim_runs(folder, made)
    (read,) = read_claim_runs(folder)
    assert read == made
    return judge(read)


def test_the_first_check_decides(tmp_path: Path, factory: ModuleType) -> None:
    sent: dict[str, Any] = {"measure": "bytes"}
    always, never = check(at_least=0.0, **sent), check(at_least=1e9, **sent)
    assert judged(tmp_path / "1", factory, always).verdict == "reproduced"
    partly = judged(tmp_path / "2", factory, always, never)
    assert partly.verdict == "partly"
    assert conclusion(partly).endswith("but one of the further expectations is not met")
    assert judged(tmp_path / "3", factory, never, always).verdict == "not reproduced"
    assert judged(tmp_path / "4", factory, always, check()).verdict == "reproduced"


def test_a_claim_says_what_it_leans_on(tmp_path: Path, factory: ModuleType) -> None:
    found = judged(tmp_path, factory, check(near=1e9, measure="bytes", quality="AUC falls"))
    (varied,) = found.varied
    base = found.checks[0].figure
    assert base is not None
    assert varied.figure == pytest.approx(1 / base)
    text = " ".join(sentences(found))
    for words in ("a reconstruction", "No input was fitted", "hinges on chance", "luck x2"):
        assert words in text
    lines = "\n".join(render([published([found])]))
    assert "**Not reproduced**: " in lines
    assert "is expected; AUC falls" in lines  # in the verdict's own line
    assert "not reproduced; AUC falls |" in lines
    assert "Tolerance of 20.0 %: us." in text
    changes = {"fitted": {"the clock": "as found"}, "checks": (check(at_least=0, measure="bytes"),)}
    fitted = found.claim.model_copy(update=changes)
    made = ClaimRuns("c", "c.yaml", fitted, found.made.runs, folder=tmp_path)
    again = judge(made)
    assert "Fitted inputs: the clock (as found)." in sentences(again)
    assert conclusion(again).startswith("reproduced with fitted inputs: ")


def test_a_claims_runs_are_not_listed_as_unpaired(tmp_path: Path, factory: ModuleType) -> None:
    found = judged(tmp_path, factory, check(near=2))
    own = read_run(tmp_path / found.made.runs["a"])
    other = factory.write(tmp_path, factory.plan("flat_ps", {"mode": "easgd"}), "simulated")
    assert without_claims([own, other], [found]) == [other]


def test_a_missing_run_gives_no_figure(tmp_path: Path, factory: ModuleType) -> None:
    found = judged(tmp_path, factory, check(near=2))
    (tmp_path / found.made.runs["b"] / "summary.json").unlink()
    assert judge(found.made).verdict == "no figure"
