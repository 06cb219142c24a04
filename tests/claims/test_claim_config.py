"""The claim section: what it takes, what it refuses, and that it leaves the experiment alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from recsim_train.config.claim import Claim
from recsim_train.config.dump import comparison_key, plain
from recsim_train.config.load import Loaded, load_cluster, load_experiment
from recsim_train.config.problems import ConfigErrors
from recsim_train.config.schema import experiment_schema
from recsim_train.config.validate import parse
from recsim_train.config.yaml_source import parse_document
from recsim_train.placement.build import build_plan
from recsim_train.placement.program import TaggedNet
from recsim_train.strategy.registry import schemas

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")
FILES = sorted((ROOT / "experiments" / "claims").glob("*.yaml"))

TEXT = """
name: x
model: tiny
strategy: flat_ps
claim:
  statement: more is more
  source: nobody
  mark: ours
  setting: tiny
  hinges_on: nothing
  fitted: {strategy.compression.density: from the claim}
  variants: {one: [roles.trainers=1], two: [roles.trainers=2]}
  checks:
    - {says: two over one, measure: eps, form: ratio, of: [two], over: [one], at_least: 2}
"""
CHECK = "{says: two over one, measure: eps, form: ratio, of: [two], over: [one], at_least: 2}"
DENSER = "{says: s, measure: value_compression, of: [two], at_least: 2"
GRID = "  grid: {trainers: {'2': [roles.trainers=2]}}\n"
UP_TO = CHECK.replace("at_least: 2", "up_to: 2")


def load(folder: Path, text: str, *sets: str) -> Loaded:
    path = folder / "e.yaml"
    path.write_text(text, encoding="utf-8")
    return load_experiment(path, sets, schemas())


def failure(folder: Path, check: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load(folder, TEXT.replace(CHECK, check))
    return str(caught.value)


def test_the_claim_is_no_part_of_what_is_run(tmp_path: Path) -> None:
    with_claim = load(tmp_path, TEXT)
    without = load(tmp_path, TEXT.partition("claim:")[0])
    assert with_claim.experiment == without.experiment
    (choice,) = with_claim.experiment.strategies
    assert comparison_key(with_claim.experiment, choice) == comparison_key(
        without.experiment, choice
    )
    assert without.claim is None
    assert with_claim.claim is not None
    assert with_claim.claim.variants == {"one": ("roles.trainers=1",), "two": ("roles.trainers=2",)}


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (CHECK.replace("[two]", "[three]"), "no variant 'three'; there are: one, two"),
        (CHECK.replace(", over: [one]", ""), "'over' needs as many variants as 'of'"),
        (CHECK.replace("form: ratio", "form: value"), "compares with no other variant"),
        (CHECK.replace("at_least: 2", "near: 2, at_least: 1"), "exclude each other"),
        (CHECK.replace("at_least: 2", "at_least: 2, mark: recalled"), "it cannot be a target"),
        (CHECK.replace("at_least: 2", "law: easgd_knee"), "is about measure eps and form knee"),
        (CHECK.replace("at_least: 2", "near: 2, tolerance: 0.2"), "0.2 has no unit"),
        # No tolerance is assumed, and none is nobody's.
        (CHECK.replace("at_least: 2", "near: 2"), "need a 'tolerance' and 'tolerance_from'"),
        (CHECK.replace("at_least: 2", "near: 2, tolerance: 5 %"), "need a 'tolerance' and"),
        (CHECK.replace("at_least: 2", "near: 2, tolerance_from: us"), "need a 'tolerance' and"),
        (CHECK.replace("at_least: 2", "at_least: 2, tolerance: 5 %"), "only near and law have"),
        # "Up to" is no band around one chosen point.
        (UP_TO, "is judged in the claim's 'grid' of settings"),
        (UP_TO.replace("up_to: 2", "up_to: 2, tolerance: 20 %"), "only near and law have"),
        # Two formulas for the same bytes cannot disagree.
        (CHECK.replace("eps", "bytes").replace("at_least: 2", "law: easgd_knee"), "not fail"),
        (CHECK.replace("eps", "bytes").replace("at_least", "mark: derived, at_least"), "not fail"),
        # A density sets the compression.
        (DENSER + "}", "compression is set by an input: name it in 'follows_from'"),
        (DENSER + ", follows_from: training.steps}", "training.steps is not listed under 'fitted'"),
        (CHECK.replace("measure: eps", "measure: speed"), "expected one of 'eps'"),
        (CHECK.replace("at_least: 2", "nearly: 2"), "did you mean 'near'"),
        (
            "{says: s, measure: eps, form: exponent, of: [one, two]}",
            "needs 'along', the setting that differs",
        ),
        (
            "{says: s, measure: eps, form: exponent, of: [one], along: roles.trainers}",
            "needs at least two variants",
        ),
        (CHECK.replace("of: [two], over: [one]", "of: [two, one], over: [one, two]"), "one pair"),
    ],
)
def test_what_does_not_fit_is_said_at_its_place(tmp_path: Path, check: str, said: str) -> None:
    message = failure(tmp_path, check)
    assert said in message
    assert "claim.checks[0]" in message


def refusal(folder: Path, *changes: tuple[str, str]) -> str:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(ConfigErrors) as caught:
        load(folder, text)
    return str(caught.value)


def test_what_was_fitted_has_to_be_said(tmp_path: Path) -> None:
    fitted = "  fitted: {strategy.compression.density: from the claim}\n"
    assert "claim.fitted: missing" in refusal(tmp_path, (fitted, ""))
    common = "  common: ['cluster.hosts.default.cores=1000']\n"
    message = refusal(tmp_path, (fitted, fitted + common))
    assert "the profile is changed for this claim" in message
    assert "cluster.hosts.default.cores" in message


def test_a_grid_belongs_to_up_to(tmp_path: Path) -> None:
    head = "  checks:\n"
    assert "what a grid is for" in refusal(tmp_path, (head, GRID + head))
    varied = "  sensitivity: [{input: x, changes: {x2: [seed=2]}}]\n"
    message = refusal(tmp_path, (head, varied + GRID + head), (CHECK, UP_TO))
    assert "judged in a grid: add the input to that" in message
    text = TEXT.replace(head, GRID + head).replace(CHECK, UP_TO)
    claim = load(tmp_path, text).claim
    assert claim is not None
    assert claim.grid == {"trainers": {"2": ("roles.trainers=2",)}}


def test_a_profile_is_changed_by_the_same_kind_of_override(tmp_path: Path) -> None:
    sets = ("cluster.hosts.default.nic=1 Gbit/s", "roles.trainers=3")
    loaded = load(tmp_path, TEXT, *sets)
    assert loaded.experiment.roles.trainers == 3
    assert [item.key for item in loaded.profile_sets] == ["cluster.hosts.default.nic"]
    before, after = load_cluster(REFERENCE), load_cluster(REFERENCE, sets=loaded.profile_sets)
    assert after.hosts["default"].nic == 1e9 / 8
    assert after.hosts["default"].cores == before.hosts["default"].cores
    assert after.costs == before.costs


def test_an_unknown_key_of_the_profile_is_refused() -> None:
    with pytest.raises(ConfigErrors, match="did you mean 'nic'"):
        load_cluster(REFERENCE, sets=["cluster.hosts.default.nik=1 Gbit/s"])


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_claim_of_ours_is_complete(path: Path) -> None:
    loaded = load_experiment(path, [], schemas())
    claim = loaded.claim
    assert claim is not None
    assert claim.sensitivity or claim.grid, "each claim varies at least one input"
    assert parse(Claim, plain(claim, digits=None)) == claim
    for overrides in claim.variants.values():
        own = load_experiment(path, [*claim.common, *overrides], schemas())
        assert len(own.experiment.strategies) == 1
    chosen = [*claim.common, *claim.variants[claim.checks[0].of[0]]]
    first = load_experiment(path, chosen, schemas())
    for varied in claim.sensitivity:
        for changes in varied.changes.values():
            changed = load_experiment(path, [*chosen, *changes], schemas())
            profiles = [
                load_cluster(e.experiment.cluster, path, e.profile_sets) for e in (first, changed)
            ]
            assert changed.experiment != first.experiment or profiles[0] != profiles[1]
    document = parse_document(path.read_text(encoding="utf-8"), str(path), "an experiment")
    jsonschema.validate(json.loads(json.dumps(document.data)), experiment_schema(schemas()))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_profile_without_the_interpreter_lock_is_a_fitted_input(path: Path) -> None:
    loaded = load_experiment(path, [], schemas())
    assert loaded.claim is not None
    costs = load_cluster(loaded.experiment.cluster, path).costs
    assert (costs.interpreter.value == 0) is ("cluster.costs.interpreter" in loaded.claim.fitted)


def test_what_a_claim_says_of_quality_is_what_was_measured() -> None:
    measured = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    said = 0
    for path in FILES:
        claim = load_experiment(path, [], schemas()).claim
        assert claim is not None
        for check in claim.checks:
            if check.quality:
                (figure,) = re.findall(r"-0\.\d{4}", check.quality)
                assert figure in measured, f"{path.name}: {figure} is not in docs/quality.md"
                said += 1
    assert said


def test_the_hierarchical_claim_cuts_the_model() -> None:
    path = ROOT / "experiments" / "claims" / "hierarchical.yaml"
    claim = load_experiment(path, [], schemas()).claim
    assert claim is not None
    owned, groups = {}, {}
    for name, overrides in claim.variants.items():
        own = load_experiment(path, [*claim.common, *overrides], schemas())
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


def test_the_page_of_claims_holds_every_claim() -> None:
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    page = " ".join(text.replace("\\", "").split())  # without what Markdown needs
    for path in FILES:
        claim = load_experiment(path, [], schemas()).claim
        assert claim is not None
        assert " ".join(claim.statement.split()) in page
        for check in claim.checks:
            for words in (check.says, check.quality, check.tolerance_from):
                assert " ".join(words.split()) in page, "run docs/make_claims.py"
        for name, how in claim.fitted.items():
            assert f"{name} ({' '.join(how.split())})" in page, "run docs/make_claims.py"
