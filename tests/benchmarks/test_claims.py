"""benchmarks/claims.py: what its files hold, what checks make of runs, and what is said of it."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from recsim_train.config.load import load_points
from recsim_train.config.profiles import load_cluster
from recsim_train.placement.build import build_plan
from recsim_train.placement.program import TaggedNet
from recsim_train.results.rundir import RunRecord
from recsim_train.results.summary import Summary
from recsim_train.strategy.registry import schemas
from recsim_train.trace.facts import Facts
from recsim_train.trace.record import Total, TotalKey
from tests.modules import loaded

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "benchmarks" / "claims").glob("*.yaml"))
claims: Any = loaded(ROOT / "benchmarks" / "claims.py")


def check(**changes: Any) -> Any:
    if "near" in changes:
        changes = {"tolerance": "20 %", "tolerance_from": "us", **changes}
    fields = {"says": "a over b", "measure": "eps", "form": "ratio", "of": ("a",), "over": ("b",)}
    return claims.Check.model_validate({**fields, **changes})


def record(eps: float = 100.0, trainers: int = 2, **summary: Any) -> RunRecord:
    manifest: dict[str, Any] = {
        "run_id": f"run-{eps}",
        "configuration": {"roles": {"trainers": trainers}},
        "plan": {"groups": {"trainers[0]": ["x"] * 4}, "loops": []},
        "cluster": {"colocate": False, "hosts": {"default": {"cores": 1}}, "name": "c"},
    }
    manifest["cluster"]["description"] = "Two hosts."
    none: dict[str, Any] = dict.fromkeys(field.name for field in fields(Summary))
    known = {
        "examples_per_second": eps,
        "round_bytes_by_effect": {},
        "operation_threads": 1,
        "threads": 1,
    }
    known["facts"] = Facts()
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
    assert claims.verdict(check(**settings), value, expected) == said


def test_figures() -> None:
    runs = {"a": record(300.0, 4), "b": record(100.0, 2), "c": record(150.0, 8)}
    assert claims.figure(check(), runs) == 3
    assert claims.figure(check(form="value", over=()), runs) == 300
    # seconds per example: a third of b's, so two thirds are saved
    assert claims.figure(check(measure="time", form="saved"), runs) == pytest.approx(2 / 3)
    along: dict[str, Any] = {"of": ("b", "a"), "over": (), "along": "roles.trainers"}
    assert claims.figure(check(form="exponent", **along), runs) == pytest.approx(math.log2(3))
    # 50 per trainer at b, 300 at a: the line reaches that level at 6 trainers
    assert claims.figure(check(form="knee", **along), runs) == pytest.approx(6)


def hosted(threads: int, cores: int, eps: float = 100.0, **hosts: Any) -> RunRecord:
    run = record(eps, threads=threads)
    default = {"cores": cores}
    run.manifest["cluster"] = {"colocate": False, "hosts": {"default": default, **hosts}}
    return replace(run, summary=replace(run.summary, trainers=2))


def judge(check: Any, runs: dict[str, RunRecord]) -> Any:
    return claims.judge(check, [({}, runs)])


def test_speed_on_one_of_many_cores_is_not_comparable() -> None:
    faster = check(at_least=1)
    found = judge(faster, {"a": hosted(1, 20), "b": hosted(24, 20)})
    assert found.verdict == "not comparable"
    assert found.why == "'a' computes on 1 of each host's 20 cores"
    assert found.figure == 1
    assert judge(faster, {"a": hosted(24, 20), "b": hosted(1, 20)}).why.startswith("'b' comput")
    for measure, said in (("eps", "reproduced"), ("time", "reproduced")):
        runs = {"a": hosted(20, 20), "b": hosted(24, 20)}
        assert judge(check(at_least=1, measure=measure), runs).verdict == said
    # A role has hosts of its own.
    assert judge(faster, {"a": hosted(1, 1, trainer={"cores": 20}), "b": hosted(1, 1)}).why
    # What is shown for context says it too.
    context = judge(check(), {"a": hosted(1, 20), "b": hosted(24, 20)})
    assert (context.verdict, bool(context.why)) == ("for context", True)


def test_up_to_is_reached_somewhere_or_not_at_all() -> None:
    saved = check(form="saved", measure="time", up_to=0.687)
    base = {"b": record(100.0)}
    # a third, and 68.6 % or 68.8 % less time
    points = [({"n": "1"}, {"a": record(150.0), **base})]
    near = [*points, ({"n": "2"}, {"a": record(100 / 0.314), **base})]
    there = [*points, ({"n": "2"}, {"a": record(100 / 0.312), **base})]
    assert claims.judge(saved, near).verdict == "not reproduced"
    found = claims.judge(saved, there)
    assert (found.verdict, found.expected) == ("reproduced", 0.687)
    assert found.figure == pytest.approx(0.688)
    assert [value for _, value in found.points] == pytest.approx([1 / 3, 0.688])
    # beyond it is reached too
    assert claims.judge(saved, [({}, {"a": record(1e6), **base})]).verdict == "reproduced"
    idle = [({"n": "1"}, {"a": hosted(1, 20), "b": hosted(1, 20)})]
    assert claims.judge(saved, idle).verdict == "not comparable"


def test_crossings() -> None:
    assert claims.crossing([2, 4, 8], [1, 1, 4], [4, 2, 2]) == pytest.approx(math.sqrt(32))
    assert claims.crossing([8, 2, 4], [4, 1, 1], [2, 4, 2]) == pytest.approx(math.sqrt(32))
    assert claims.crossing([2, 4], [1, 1], [4, 2]) is None


def test_bytes_count_an_all_reduce_as_its_ring_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = {
        TotalKey("trainer[0]", "worker[0]", "all_reduce", "trainers"): Total(1, 1.0, 1000),
        TotalKey("trainer[0]", "worker[0]", "lookup", "embedding"): Total(1, 1.0, 40),
        TotalKey("server[0]", "w", "serve_lookup", "embedding"): Total(1, 1.0, 60),
    }
    monkeypatch.setattr(RunRecord, "totals", lambda _: totals)
    run = record(counted_iterations=5, batch_size=2)
    assert claims.bytes_per_example(run) == pytest.approx((1000 * 1.5 + 100) / 10)
    assert claims.bytes_per_example(run, ("lookup",)) == pytest.approx(10)
    with pytest.raises(AssertionError, match="background"):
        claims.bytes_per_example(record(round_bytes_by_effect={"exchange": 1.0}))


def test_the_knee_moves_with_servers_and_with_k() -> None:
    # S C k t / (m W) = 2 * 1e9 * 5 * 0.1 / (10 * 1e7) = 10; the bracket adds 2 W / (C k t) = 4 %
    assert claims.easgd_knee(2, 1e9, 5, 0.1, 10, 1e7) == pytest.approx(10 * 1.04)
    assert claims.easgd_knee(4, 1e9, 5, 0.1, 10, 1e7) == pytest.approx(20 * 1.04)
    assert claims.easgd_knee(2, 1e9, 10, 0.1, 10, 1e7) == pytest.approx(20 * 1.02)


def test_the_sync_gap_is_flat_and_then_grows_like_n_over_s() -> None:
    def gap(n: int, s: int) -> float:
        return claims.easgd_sync_gap(n, s, 1e9, 0.0, 0.1, 10, 1e7)

    assert gap(1, 2) == gap(2, 2) == pytest.approx(10 * 2 * 0.01 / 0.1)
    assert gap(8, 2) == pytest.approx(4 * gap(2, 2))
    assert gap(8, 4) == pytest.approx(gap(4, 2))


def claim(*checks: Any, **changes: Any) -> Any:
    words: dict[str, Any] = {"statement": "a is faster", "source": "nobody", "mark": "recalled"}
    words |= {"setting": "two runs", "hinges_on": "chance", "fitted": {}}
    variants = {"a": (), "b": ()}
    return claims.Claim(variants=variants, checks=checks, **{**words, **changes})


def judged(*checks: Any, **changes: Any) -> Any:
    """Of a, with 300 examples/s, and b, with 100; an override takes a hundred from either."""

    def run(name: str, *more: str) -> RunRecord:
        return record({"a": 300.0, "b": 150.0}[name] - 100.0 * len(more))

    return claims.judged("c", claim(*checks, **changes), run)


def test_the_first_check_decides() -> None:
    always, never = check(at_least=0.0), check(at_least=1e9)
    assert claims.conclusion(judged(always))[0] == "reproduced"
    said, why = claims.conclusion(judged(always, never))
    assert said == "partly"
    assert why.endswith("but not every further expectation is met")
    assert claims.conclusion(judged(never, always))[0] == "not reproduced"
    assert claims.conclusion(judged(always, check()))[0] == "reproduced"


def test_a_claim_says_what_it_leans_on() -> None:
    luck = {"x2": ("seed=2",)}
    skill: dict[str, tuple[str, ...]] = {"x2": ()}
    quality = check(near=1e9, quality="AUC falls.")
    found = judged(quality, sensitivity={"luck": luck, "skill": skill})
    (_, _, varied), _ = found.varied
    assert varied.figure == pytest.approx(200 / 50)
    said = "\n".join(claims.section(found))
    for words in (
        "a reconstruction",
        "No input was fitted",
        "hinges on chance",
        "Profile c: Two hosts.",
        "First figure 2×; with luck x2: 4× (not reproduced); skill x2: 2×",
        "Of these, luck moves it most.",
        "**Not reproduced**: 2× where",
        "is expected; AUC falls.",  # in the verdict's own line
        "not reproduced; AUC falls |",
        "Tolerance of 20.0 %: us.",
    ):
        assert words in said
    fitted = judged(check(at_least=0), fitted={"the clock": "as found"})
    assert "- Fitted inputs: the clock (as found)." in claims.section(fitted)
    assert claims.conclusion(fitted)[0] == "reproduced with fitted inputs"


def test_a_grid_is_every_combination() -> None:
    grid = {"batch": {"8": (), "32": ("x=1",)}, "hosts": {"1": (), "2": ("y=1",)}}
    found = judged(check(up_to=3.5), grid=grid)
    (checked,) = found.checks
    assert [tuple(at.values()) for at, _ in checked.points] == [
        ("8", "1"), ("8", "2"), ("32", "1"), ("32", "2"),
    ]  # fmt: skip
    assert [value for _, value in checked.points] == [2.0, 4.0, 4.0, -2.0]
    assert claims.conclusion(found)[1] == (
        "2 of 4 settings stated beforehand reach 3.5×; they range from −2× to 4×"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"of": ("three",)}, "no variant three"),
        ({"near": 2, "at_least": 1}, "exclude each other"),
        ({"at_least": 2, "mark": "recalled"}, "cannot be a target"),
        ({"law": "easgd_knee", "tolerance": "5 %", "tolerance_from": "us"}, "another measure"),
        # No tolerance is assumed, and none is nobody's.
        ({"near": 2, "tolerance": None}, "need a 'tolerance' and"),
        ({"near": 2, "tolerance_from": ""}, "need a 'tolerance' and"),
        ({"at_least": 2, "tolerance": "5 %"}, "only near and law have"),
        # "Up to" is no band around one chosen point.
        ({"up_to": 2}, "'up_to' and 'grid' need each other"),
        # Two formulas for the same bytes cannot disagree.
        ({"measure": "bytes", "mark": "derived", "at_least": 2}, "could not be missed"),
        # A density sets the compression.
        ({"measure": "value_compression", "at_least": 2}, "name it in 'follows_from'"),
        ({"follows_from": "training.steps"}, "training.steps is not listed under 'fitted'"),
    ],
)
def test_what_could_not_be_missed_is_refused(wrong: dict[str, Any], said: str) -> None:
    assert not claims.problems(claim(check(at_least=2)))
    assert any(said in problem for problem in claims.problems(claim(check(**wrong))))


def test_what_is_hidden_is_refused() -> None:
    common = ("cluster.hosts.default.cores=1000",)
    (said,) = claims.problems(claim(check(), common=common))
    assert "say under 'fitted' why cluster.hosts.default.cores is" in said
    varied = {"x": {"x2": ("seed=2",)}}
    grid = {"trainers": {"2": ("roles.trainers=2",)}}
    (said,) = claims.problems(claim(check(up_to=2), grid=grid, sensitivity=varied))
    assert "judged in a grid" in said


@pytest.fixture
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.usefixtures("_at_home")
def test_every_claim_of_ours_is_complete(path: Path, tmp_path: Path) -> None:
    _, claim, experiment = claims.read(path)
    assert claim.sensitivity or claim.grid, "each claim varies at least one input"
    file = tmp_path / path.name
    file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
    for overrides in claim.variants.values():
        own = load_points(file, [*claim.common, *overrides], schemas())[0]
        assert len(own.experiment.strategies) == 1
    chosen = [*claim.common, *claim.variants[claim.checks[0].of[0]]]
    first = load_points(file, chosen, schemas())[0]
    for varied in claim.sensitivity.values():
        for changes in varied.values():
            changed = load_points(file, [*chosen, *changes], schemas())[0]
            profiles = [
                load_cluster(e.experiment.cluster, sets=e.profile_sets) for e in (first, changed)
            ]
            assert changed.experiment != first.experiment or profiles[0] != profiles[1]
    # a profile without the interpreter lock is a fitted input
    costs = load_cluster(first.experiment.cluster).costs
    assert (costs.interpreter.value == 0) is ("cluster.costs.interpreter" in claim.fitted)


def test_what_a_claim_says_of_quality_is_what_was_measured() -> None:
    measured = (ROOT / "docs" / "explain" / "learning.md").read_text(encoding="utf-8")
    said = 0
    for path in FILES:
        for found in claims.read(path)[1].checks:
            if found.quality:
                (figure,) = re.findall(r"-0\.\d{4}", found.quality)
                assert figure in measured, f"{path.name}: {figure} is not in learning.md"
                assert "docs/explain/learning.md" in found.quality
                said += 1
    assert said


@pytest.mark.usefixtures("_at_home")
def test_the_hierarchical_claim_cuts_the_model(tmp_path: Path) -> None:
    _, claim, experiment = claims.read(ROOT / "benchmarks" / "claims" / "hierarchical.yaml")
    file = tmp_path / "e.yaml"
    file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
    owned, groups = {}, {}
    for name, overrides in claim.variants.items():
        own = load_points(file, [*claim.common, *overrides], schemas())[0]
        plan = build_plan(own.experiment, own.experiment.strategies[0])
        if isinstance(plan.net, TaggedNet):
            owned[name] = {plan.net.elements(host) for host in range(plan.net.hosts)}
            groups[name] = sum(g.name == "hosts" for g in plan.groups)
    cut = {name for name, elements in owned.items() if len(elements) > 1}
    assert cut == {"cut", "two-groups", "cut-batch-200"}
    assert set(owned) - cut == {"whole", "whole-batch-200"}
    assert groups["cut"] == 1
    assert groups["two-groups"] == 2
    assert claim.checks[0].of == ("cut",)


def test_the_pages_of_claims_hold_every_claim() -> None:
    def read(path: Path) -> str:
        text = path.read_text(encoding="utf-8")
        return " ".join(text.replace("\\", "").split())  # without what Markdown needs

    shown, page = read(claims.PAGE), read(claims.DETAILS)
    for mark, meaning in claims.MARKS.items():
        assert f"{mark}: {meaning}" in shown
    for path in FILES:
        _, claim, _ = claims.read(path)
        assert " ".join(claim.statement.split()) in shown
        assert " ".join(claim.statement.split()) in page
        for check in claim.checks:
            for words in (check.says, check.quality, check.tolerance_from):
                assert " ".join(words.split()) in page, "run benchmarks/claims.py"
        for name, how in claim.fitted.items():
            assert f"{name} ({' '.join(how.split())})" in page, "run benchmarks/claims.py"


def test_only_the_table_of_the_page_is_made() -> None:
    page = "head\n<!-- figures -->\nold\n<!-- end of figures -->\ntail\n"
    of = [judged(check(at_least=2))]
    made = claims.page(page, of)
    assert made.startswith("head\n<!-- figures -->\n\nFigures of ")
    assert made.endswith("\n<!-- end of figures -->\ntail\n")
    assert "old" not in made
    assert "## c\n" not in made
    assert "## c\n" in claims.details(of)
