"""Parts of strategies in the YAML: forms, errors, overrides, resolved form, schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from recsim_train.config.dump import comparison_key, dump_yaml, resolved
from recsim_train.config.experiment import StrategyChoice
from recsim_train.config.load import Loaded, load_points
from recsim_train.config.options import parts_of
from recsim_train.config.problems import ConfigErrors
from recsim_train.config.schema import experiment_schema
from recsim_train.strategy.compression import DCT, NoCompression
from recsim_train.strategy.options import flat, rows
from recsim_train.strategy.registry import create, schemas

HEAD = "name: x\nmodel: tiny\nstrategy: "


def load(folder: Path, strategy: str, *sets: str) -> Loaded:
    path = folder / "e.yaml"
    path.write_text(HEAD + strategy + "\n", encoding="utf-8")
    return load_points(path, sets, schemas())[0]


def options(folder: Path, strategy: str, *sets: str) -> Any:
    (choice,) = load(folder, strategy, *sets).experiment.strategies
    return choice.options


def failure(folder: Path, strategy: str, *sets: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load(folder, strategy, *sets)
    return str(caught.value)


DCT_5 = {"compression": {"kind": "dct", "density": "5 %"}}


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("{kind: flat_ps, compression: none}", {}),
        ("{kind: flat_ps, compression: {kind: none}}", {}),
        ("{kind: flat_ps, compression: dct}", {"compression": {"kind": "dct"}}),
        ("{kind: flat_ps, compression: {kind: dct}}", {"compression": {"kind": "dct"}}),
        (
            "{kind: flat_ps, compression: {kind: dct, density: 1 %, refresh: 1_000}}",
            {"compression": {"kind": "dct"}},
        ),
        ("{kind: flat_ps, compression: {density: 5.0%, kind: dct, mode: dp}}", DCT_5),
    ],
)
def test_forms(tmp_path: Path, strategy: str, wanted: dict[str, Any]) -> None:
    assert options(tmp_path, strategy) == wanted


FORM = "{kind: flat_ps, compression: "
BAD = {
    "unknown part": (
        FORM + "dtc}",
        "3:40: strategy.compression: unknown compression 'dtc'; did you mean 'dct'? Known: none, ",
    ),
    "unknown kind": (FORM + "{kind: zip}}", "3:47: strategy.compression.kind: unknown compression"),
    "no kind": (
        FORM + "{density: 1 %}}",
        "strategy.compression: missing 'kind', the compression's name (known: none, dct)",
    ),
    "another type": (
        FORM + "3}",
        "strategy.compression: expected one of 'none', 'dct', or a mapping with 'kind' and "
        "options, got 3",
    ),
    "nothing": (FORM + "}", "or a mapping with 'kind' and options, got nothing"),
    "unknown option": (
        FORM + "{kind: dct, densty: 1 %}}",
        "3:52: strategy.compression.densty: unknown key; did you mean 'density'?",
    ),
    "option of a part that has none": (
        FORM + "{kind: none, density: 1 %}}",
        "strategy.compression.density: unknown key; known: kind",
    ),
    "share without per cent": (
        FORM + "{kind: dct, density: 0.01}}",
        "3:61: strategy.compression.density: expected a share with its unit, such as '5 %': 0.01 "
        "has no unit",
    ),
    "share above all": (
        FORM + "{kind: dct, density: 101 %}}",
        "expected a share of at most 100 %, got '101 %'",
    ),
    "share of nothing": (FORM + "{kind: dct, mp_density: 0 %}}", "expected a share above 0"),
    "share below all": (
        FORM + "{kind: dct, mp_density: 0.0001 %}}",
        "expected a share of at least 0.001 %, got '0.0001 %'",
    ),
    "choice": (
        FORM + "{kind: dct, mode: bth}}",
        "expected one of 'dp', 'mp', 'both', got 'bth'; did you mean 'both'?",
    ),
}


@pytest.mark.parametrize(("strategy", "fragment"), BAD.values(), ids=BAD)
def test_bad_parts_are_explained(tmp_path: Path, strategy: str, fragment: str) -> None:
    message = failure(tmp_path, strategy)
    assert fragment in message
    assert message.endswith(f"1 problem in {tmp_path / 'e.yaml'}")


def test_all_problems_of_a_part_at_once(tmp_path: Path) -> None:
    text = "{kind: flat_ps, every: 0, compression: {kind: dct, refresh: 0, density: 2}}"
    message = failure(tmp_path, text)
    assert message.endswith(f"3 problems in {tmp_path / 'e.yaml'}")


@pytest.mark.parametrize(
    ("strategy", "sets"),
    [
        ("flat_ps", ["strategy.compression=dct", "strategy.compression.density=5 %"]),
        (FORM + "dct}", ["strategy.compression.density=5 %"]),
        (FORM + "{kind: dct, density: 2 %}}", ["strategy.compression.density=5 %"]),
        ("flat_ps", ["strategy.compression={kind: dct, density: 5 %}"]),
        ("flat_ps", ["strategy.compression.kind=dct", "strategy.compression.density=5 %"]),
    ],
)
def test_overrides(tmp_path: Path, strategy: str, sets: list[str]) -> None:
    assert options(tmp_path, strategy, *sets) == DCT_5


def test_overrides_reach_the_entries_of_a_list_that_have_the_option(tmp_path: Path) -> None:
    listed = f"[flat_ps, {FORM}dct}}}}, {{kind: allreduce, compression: {{kind: dct, mode: mp}}}}]"
    listed = listed.replace("dct}}", "dct}")
    found = load(tmp_path, listed, "strategy.compression.density=5 %").experiment.strategies
    assert [flat(c.options).get("compression.density") for c in found] == [None, "5 %", "5 %"]
    found = load(tmp_path, listed, "strategy.1.compression.density=5 %").experiment.strategies
    assert [flat(c.options).get("compression.density") for c in found] == [None, "5 %", None]
    message = failure(tmp_path, listed, "strategy.compression.densty=5 %")
    assert "no strategy of the list has an option 'compression.densty'; did you mean" in message


def test_a_wrong_override_is_shown_as_the_argument(tmp_path: Path) -> None:
    argument = "strategy.compression.density=5"
    message = failure(tmp_path, FORM + "dct}", argument)
    assert message.startswith(f"--set {argument}: strategy.compression.density: expected a share")


def test_resolved_reads_back_and_identity_counts_the_part(tmp_path: Path) -> None:
    plain = load(tmp_path, "flat_ps").experiment
    spec = load(tmp_path, FORM + "{kind: dct, density: 0.3 %}}").experiment
    data = json.loads(json.dumps(resolved(spec)))
    assert data["strategy"] == [
        {"kind": "flat_ps", "compression": {"kind": "dct", "density": "0.3 %"}}
    ]
    path = tmp_path / "again.yaml"
    path.write_text(dump_yaml(data), encoding="utf-8")
    assert load_points(path, (), schemas())[0].experiment == spec
    keys = {comparison_key(s, s.strategies[0]) for s in (plain, spec)}
    assert len(keys) == 2


def test_the_schema_takes_and_refuses_what_the_loader_does(tmp_path: Path) -> None:
    schema = experiment_schema(schemas())
    for text in ("none", "dct", "{kind: dct, density: 5 %, mode: both}"):
        jsonschema.validate(load(tmp_path, f"{FORM}{text}}}").raw, schema)
    good = {"name": "x", "model": "tiny"}
    for wrong in (
        "dtc",
        {"density": "1 %"},
        {"kind": "dct", "density": 0.01},
        {"kind": "none", "refresh": 1},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(
                {**good, "strategy": {"kind": "flat_ps", "compression": wrong}}, schema
            )


@pytest.mark.parametrize("kind", ["none", "auto"])
def test_a_part_that_a_strategy_cannot_use_is_no_choice_of_it(tmp_path: Path, kind: str) -> None:
    algorithm = schemas()["shadowsync"].model_fields["algorithm"]
    assert list(parts_of(algorithm)) == ["easgd", "ma", "bmuf"]
    text = failure(tmp_path, f"{{kind: shadowsync, algorithm: {kind}}}")
    assert f"unknown algorithm {kind!r}" in text
    assert "easgd, ma, bmuf" in text
    assert options(tmp_path, f"{{kind: hierarchical, outer: {kind}}}") == (
        {"outer": {"kind": kind}} if kind == "none" else {}
    )


def test_what_parts_have_in_common_is_one_row() -> None:
    listed = [name for name, _, _ in rows(schemas()["hierarchical"])]
    assert len(listed) == len(set(listed))
    (means,) = [m for n, _, m in rows(schemas()["hierarchical"]) if n == "outer.alpha"]
    assert means == (
        "easgd: share of the way towards the central copy; "
        "ma, bmuf: share of the way towards the mean"
    )


def test_create_makes_the_part(tmp_path: Path) -> None:
    (choice,) = load(
        tmp_path, FORM + "{kind: dct, density: 5 %, refresh: 7}}"
    ).experiment.strategies
    made = vars(create(choice))["compression"]
    assert made == DCT(density=0.05, refresh=7)
    plain = create(StrategyChoice(kind="flat_ps"))
    assert vars(plain)["compression"] == NoCompression()
    numbers = StrategyChoice(
        kind="flat_ps", options={"compression": {"kind": "dct", "density": 0.05}}
    )
    assert vars(create(numbers))["compression"] == DCT(density=0.05)
