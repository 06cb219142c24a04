"""``--set key=value``."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.experiment import Experiment, StrategyChoice
from recsim_train.config.load import Loaded, load_points
from recsim_train.config.problems import ConfigErrors
from recsim_train.config.profiles import load_cluster
from recsim_train.config.sets import parse_value
from recsim_train.strategy.registry import schemas

PLAIN = "name: x\nmodel: tiny\nstrategy: flat_ps\ndata: {path: own.tsv, generate: true}\nroles:\n"
LISTED = "name: x\nmodel: tiny\nstrategy: [flat_ps, allreduce, {kind: flat_ps, mode: easgd}]\n"


def load(folder: Path, text: str, *sets: str) -> Loaded:
    path = folder / "e.yaml"
    path.write_text(text, encoding="utf-8")
    return load_points(path, sets, schemas())[0]


def change(folder: Path, *sets: str, text: str = PLAIN) -> Experiment:
    return load(folder, text, *sets).experiment


def failure(folder: Path, *sets: str, text: str = PLAIN) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load(folder, text, *sets)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        ("1e3", 1000),
        ("true", True),
        ("", None),
        ("5 %", "5 %"),
        ("[flat_ps, allreduce]", ["flat_ps", "allreduce"]),
        ("{kind: flat_ps, every: 4}", {"kind": "flat_ps", "every": 4}),
        ("'4'", "4"),
        ("/data/day_0", "/data/day_0"),
        ("/data/a b #1.tsv", "/data/a b #1.tsv"),
        ("a: b", "a: b"),
        ("- a", "- a"),
        ("@x", "@x"),
        ("*x", "*x"),
        ("!x", "!x"),
        ("#x", "#x"),
        ("a=b", "a=b"),
        (" 4 ", 4),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_value(text, "--set x") == value


def test_sets_win_over_the_file_and_later_ones_over_earlier_ones(tmp_path: Path) -> None:
    spec = change(tmp_path, "roles.trainers=4", "seed=3", "seed=5", "training.dense_lr=1e-2")
    assert (spec.roles.trainers, spec.seed, spec.training.dense_lr) == (4, 5, 0.01)


def test_raw_is_the_data_after_the_changes(tmp_path: Path) -> None:
    raw = load(tmp_path, PLAIN, "roles.trainers=4", "strategy.every=2").raw
    assert raw["roles"] == {"trainers": 4}
    assert raw["strategy"] == {"kind": "flat_ps", "every": 2}


class TestStrategy:
    def test_name(self, tmp_path: Path) -> None:
        chosen = change(tmp_path, "strategy=allreduce").strategies
        assert chosen == (StrategyChoice(kind="allreduce"),)

    def test_list(self, tmp_path: Path) -> None:
        chosen = change(tmp_path, "strategy=[flat_ps, {kind: flat_ps, every: 4}]").strategies
        assert [c.options for c in chosen] == [{}, {"every": 4}]

    def test_option_of_a_plain_name(self, tmp_path: Path) -> None:
        chosen = change(tmp_path, "strategy.mode=easgd", "strategy.every=5").strategies
        assert chosen == (StrategyChoice(kind="flat_ps", options={"mode": "easgd", "every": 5}),)

    def test_option_after_a_new_name(self, tmp_path: Path) -> None:
        chosen = change(tmp_path, "strategy=allreduce", "strategy.pooling=worker").strategies
        assert chosen == (StrategyChoice(kind="allreduce", options={"pooling": "worker"}),)

    def test_option_for_every_entry_that_has_it(self, tmp_path: Path) -> None:
        chosen = change(tmp_path, "strategy.every=7", text=LISTED).strategies
        assert [c.options.get("every") for c in chosen] == [7, None, 7]

    def test_option_that_all_have(self, tmp_path: Path) -> None:
        chosen = change(tmp_path, "strategy.pooling=worker", text=LISTED).strategies
        assert [c.options["pooling"] for c in chosen] == ["worker"] * 3

    def test_option_that_none_has(self, tmp_path: Path) -> None:
        message = failure(tmp_path, "strategy.evry=7", text=LISTED)
        assert message.startswith(
            "--set strategy.evry=7: strategy.evry: no strategy of the list has an option 'evry'; "
            "did you mean 'every'?"
        )

    def test_one_entry_by_its_position(self, tmp_path: Path) -> None:
        chosen = change(tmp_path, "strategy.0.every=7", text=LISTED).strategies
        assert [c.options.get("every") for c in chosen] == [7, None, None]

    def test_kind_of_a_list(self, tmp_path: Path) -> None:
        message = failure(tmp_path, "strategy.kind=allreduce", text=LISTED)
        assert "strategy is a list here: write strategy=NAME" in message

    def test_wrong_value_is_shown_as_the_argument(self, tmp_path: Path) -> None:
        assert failure(tmp_path, "strategy.every=0").startswith(
            "--set strategy.every=0: strategy.every: expected an integer of at least 1, got 0\n1 "
        )


class TestModel:
    def test_cap_of_a_preset_name(self, tmp_path: Path) -> None:
        model = change(tmp_path, "model.max_rows=100").model
        assert model.name == "tiny"
        assert [table.rows for table in model.tables] == [100, 100, 50, 7]

    def test_other_preset(self, tmp_path: Path) -> None:
        assert len(change(tmp_path, "model=criteo-kaggle").model.tables) == 26

    def test_override(self, tmp_path: Path) -> None:
        model = change(tmp_path, "model.embedding_dim=4", "model.top_mlp=[3, 1]").model
        assert (model.embedding_dim, model.bottom_mlp, model.top_mlp) == (4, (16, 4), (3, 1))


class TestData:
    def test_path_must_exist(self, tmp_path: Path) -> None:
        data = change(tmp_path, "data.path=/data/day_0").data
        assert (data.path, data.generate) == (("/data/day_0",), False)

    @pytest.mark.parametrize("order", [1, -1])
    def test_unless_generate_is_set_too(self, tmp_path: Path, order: int) -> None:
        sets = ["data.path=/data/day_0", "data.generate=true"][::order]
        assert change(tmp_path, *sets).data.generate

    def test_own_path_is_still_generated(self, tmp_path: Path) -> None:
        assert change(tmp_path, "data.eval_rows=5").data.generate

    def test_no_path(self, tmp_path: Path) -> None:
        data = change(tmp_path, "data.path=null").data
        assert (data.path, data.generate) == (None, False)


@pytest.mark.parametrize(
    ("argument", "fragment"),
    [
        ("roles.trainers", "--set roles.trainers: expected key=value, such as roles.trainers=4"),
        ("=4", "--set =4: expected key=value"),
        ("roles..trainers=4", "expected key=value"),
        ("roles.trainers=0", "--set roles.trainers=0: roles.trainers: expected an integer of at"),
        ("roles.trainer=4", "roles.trainer: unknown key in roles; did you mean 'trainers'?"),
        ("rolez.trainers=4", "--set rolez.trainers=4: rolez: unknown key; did you mean 'roles'?"),
        ("trainers=4", "--set trainers=4: trainers: unknown key; did you mean 'roles.trainers'?"),
        ("seed.x=4", "--set seed.x=4: seed: expected an integer of at least 0, got a mapping"),
        ("name.x=4", "--set name.x=4: name: name is a single value and has no 'x'"),
        ("strategy=[flat_ps", "--set strategy=[flat_ps: not valid YAML: the text ends inside"),
        ("strategy=[!x y]", "tags such as '!x' are not allowed"),
        ("strategy={kind: nope}", "--set strategy={kind: nope}: strategy.kind: unknown strategy"),
        ("model=nope", "--set model=nope: model: unknown model preset 'nope'"),
        ("strategy={kind: flat_ps, evry: 1}", "strategy.evry: unknown key; did you mean 'every'?"),
        (
            "strategy={kind: allreduce, prefetch: 1}",
            "strategy.prefetch: unknown key; known: pooling, compression, kind",
        ),
        (
            "strategy={kind: des, prefetch: 1}",
            "strategy.prefetch: unknown key; known: partition, top, kind",
        ),
        (
            "execution.timeout=5",
            "--set execution.timeout=5: execution.timeout: expected a duration",
        ),
    ],
)
def test_bad_arguments(tmp_path: Path, argument: str, fragment: str) -> None:
    message = failure(tmp_path, argument)
    assert fragment in message
    assert message.endswith("\n1 problem in --set")
    assert "^" not in message


def test_position_beyond_a_list(tmp_path: Path) -> None:
    text = "name: x\nmodel: {preset: tiny, tables: [{rows: 3}, {rows: 4}]}\nstrategy: flat_ps\n"
    assert change(tmp_path, "model.tables.1.rows=9", text=text).model.tables[1].rows == 9
    for position in ("2", "x"):
        message = failure(tmp_path, f"model.tables.{position}.rows=9", text=text)
        assert "model.tables is a list of 2: expected a position in it" in message


def test_a_good_value_repairs_a_bad_file(tmp_path: Path) -> None:
    text = "name: x\nmodel: tiny\nstrategy: flat_ps\nroles: {trainers: 0}\n"
    assert change(tmp_path, "roles.trainers=2", text=text).roles.trainers == 2
    assert change(tmp_path, "roles={trainers: 3}", text=text).roles.trainers == 3


def test_mistakes_are_counted_where_they_were_written(tmp_path: Path) -> None:
    text = "name: x\nmodel: tiny\nstrategy: flat_ps\nroles: {trainers: 0}\n"
    path = tmp_path / "e.yaml"
    path.write_text(text)
    sets = ["training.steps=many", "seed=-1"]
    with pytest.raises(ConfigErrors) as error:
        load_points(path, sets, schemas())[0]
    assert str(error.value).endswith(f"\n3 problems in {path}")
    path.write_text(text.replace("0", "1"))
    with pytest.raises(ConfigErrors) as error:
        load_points(path, sets, schemas())[0]
    assert str(error.value).endswith("\n2 problems in --set")
    profile = Path(__file__).parents[1] / "frozen-2core.yaml"
    with pytest.raises(ConfigErrors) as error:
        load_cluster(str(profile), sets=["cluster.hosts.default.nic=25"])
    assert "frozen-2core.yaml" not in str(error.value)
