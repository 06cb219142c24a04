"""Sweeps: which points a file and its overrides ask for, and what is wrong with them."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.load import Loaded, load_points
from recsim_train.config.problems import ConfigErrors, Mark
from recsim_train.config.profiles import load_cluster
from recsim_train.config.sets import Assignment
from recsim_train.config.sweep import Dimension, expand
from recsim_train.strategy.registry import schemas

REFERENCE = Path(__file__).parents[2] / "tests" / "frozen-2core.yaml"
PLAIN = "name: x\nmodel: tiny\nstrategy: flat_ps\n"


def points(folder: Path, text: str, *sets: str) -> list[Loaded]:
    path = folder / "e.yaml"
    path.write_text(PLAIN + text, encoding="utf-8")
    return load_points(path, sets, schemas())


def failure(folder: Path, text: str, *sets: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        points(folder, text, *sets)
    return str(caught.value)


def values(loaded: list[Loaded]) -> list[dict[str, object]]:
    return [one.point.values for one in loaded]


@given(st.lists(st.integers(1, 4), min_size=0, max_size=4))
def test_every_combination_once(lengths: list[int]) -> None:
    mark = Mark("x")
    dimensions = [
        Dimension(tuple((Assignment(f"k{d}", v, mark),) for v in range(n)), True)
        for d, n in enumerate(lengths)
    ]
    found = [tuple(p.values.values()) for p in expand(dimensions)]
    assert len(found) == prod(lengths)
    assert found == sorted(set(found))  # the last one's values follow each other


def test_grid_together_and_points_are_combined(tmp_path: Path) -> None:
    text = """\
sweep:
  grid: {training.threads: [1, 2]}
  together: {roles.trainers: [2, 4], roles.embedding_servers: [1, 3]}
  points: [{training.batch_size: 64}, {training.batch_size: 128, seed: 5}]
"""
    found = points(tmp_path, text)
    assert len(found) == 8
    spec = found[-1].experiment
    assert (spec.training.threads, spec.roles.trainers, spec.roles.embedding_servers) == (2, 4, 3)
    assert (spec.training.batch_size, spec.seed) == (128, 5)
    assert found[-2].experiment.seed == 1  # a point changes nothing for the next one
    assert spec.sweep is None
    assert found[0].sweep is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sweep: {seed: [1, 2]}\n", [{"seed": 1}, {"seed": 2}]),
        ("sweep: [{seed: 1}, {seed: 2}]\n", [{"seed": 1}, {"seed": 2}]),
        ("sweep: {grid: {seed: [1]}, keep_runs: true}\n", [{"seed": 1}]),
    ],
)
def test_short_forms(tmp_path: Path, text: str, expected: object) -> None:
    assert values(points(tmp_path, text)) == expected


def test_lists_on_the_command_line(tmp_path: Path) -> None:
    found = points(tmp_path, "", "roles.trainers=[1, 2]", "seed=[3, 4, 5]", "training.steps=7")
    assert len(found) == 6
    assert values(found)[1] == {"roles.trainers": 1, "seed": 4}
    assert {one.experiment.training.steps for one in found} == {7}


def test_settings_that_take_lists_stay_as_they_are(tmp_path: Path) -> None:
    (one,) = points(tmp_path, "", "model.top_mlp=[8, 1]")
    assert one.experiment.model.top_mlp == (8, 1)
    assert one.sweep is None
    (one,) = points(tmp_path, "", "strategy=[flat_ps, allreduce]")
    assert [s.kind for s in one.experiment.strategies] == ["flat_ps", "allreduce"]
    assert one.sweep is None
    (one,) = points(tmp_path, "", "model.tables=[100, 200]")
    assert [t.rows for t in one.experiment.model.tables] == [100, 200]
    found = points(tmp_path, "", "model.top_mlp=[[8, 1], [16, 1]]")
    assert [one.experiment.model.top_mlp for one in found] == [(8, 1), (16, 1)]
    found = points(tmp_path, "", "model.preset=[tiny, criteo-kaggle]")
    assert [len(one.experiment.model.tables) for one in found] == [4, 26]


def test_strategies_are_one_more_axis_and_options_go_to_those_that_have_them(
    tmp_path: Path,
) -> None:
    text = "sweep: {strategy: [flat_ps, allreduce], strategy.every: [1, 4]}\n"
    found = points(tmp_path, text)
    assert values(found) == [{"strategy.every": 1}, {"strategy.every": 4}]
    assert [s.options for s in found[1].experiment.strategies] == [{"every": 4}, {}]


def test_an_override_takes_an_axis_place(tmp_path: Path) -> None:
    text = "sweep: {seed: [1, 2], roles.trainers: [1, 2, 4]}\n"
    found = points(tmp_path, text, "roles.trainers=3")
    assert values(found) == [{"seed": 1}, {"seed": 2}]
    assert found[0].experiment.roles.trainers == 3
    assert values(points(tmp_path, text, "roles.trainers=[8]", "seed=9")) == [{"roles.trainers": 8}]
    assert points(tmp_path, text, "roles.trainers=3", "seed=9")[0].sweep is None


def test_an_override_of_the_section_around_an_axis_comes_first(tmp_path: Path) -> None:
    text = "sweep: {roles.trainers: [1, 2]}\n"
    found = points(tmp_path, text, "roles={trainers: 7, readers: 1}")
    roles = [one.experiment.roles for one in found]
    assert [(r.trainers, r.readers) for r in roles] == [(1, 1), (2, 1)]


def test_profile_settings(tmp_path: Path) -> None:
    text = f"cluster: {REFERENCE}\nsweep: {{cluster.hosts.default.nic: [1 Gbit/s, 8 Gbit/s]}}\n"
    found = points(tmp_path, text)
    nics = [
        load_cluster(one.experiment.cluster, one.path, one.profile_sets).hosts["default"].nic
        for one in found
    ]
    assert nics == [1e9 / 8, 8e9 / 8]


def test_the_first_point_is_the_experiment(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("name: x\nmodel: tiny\nsweep: {strategy: [allreduce, flat_ps], seed: [4, 5]}\n")
    loaded = load_points(path, (), schemas())[0]
    assert loaded.experiment.seed == 4
    assert loaded.sweep is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sweep: {roles.trainers: [1, 0]}\n", "4:29: roles.trainers: expected an integer of at"),
        ("sweep: {roles.trainer: [1]}\n", "4:25: roles.trainer: unknown key in roles; did you"),
        ("sweep: {seed: []}\n", "4:15: sweep.grid.seed: expected at least one value"),
        ("sweep: {seed: 4}\n", "4:15: sweep.grid.seed: expected a list, got 4"),
        ("sweep: {}\n", "grid, together and points are all empty"),
        ("sweep: 4\n", "expected a mapping of settings to lists, or a list of points, got 4"),
        ("sweep: [4]\n", "4:9: sweep.points[0]: expected a mapping, got 4"),
        (
            "sweep: {together: {seed: [1, 2], roles.trainers: [1]}}\n",
            "expected 2 values, as many as seed",
        ),
        ("sweep: {grid: {seed: [1]}, points: [{seed: 2}]}\n", "seed: swept twice"),
        ("sweep: {name: [a, b]}\n", "name cannot be swept"),
        (
            "sweep: {grids: {seed: [1]}, together: {}}\n",
            "sweep.grids: unknown key; did you mean 'g",
        ),
        ("sweep: {strategy: [flat_ps, flat]}\n", "unknown strategy 'flat'"),
        ("sweep: {model.embedding_dim: [8, 3]}\nmodel2: 1\n", "model2: unknown key"),
    ],
)
def test_what_is_wrong_has_its_line(tmp_path: Path, text: str, expected: str) -> None:
    said = failure(tmp_path, text)
    assert expected in said
    assert "e.yaml:" in said


def test_a_problem_elsewhere_names_the_point(tmp_path: Path) -> None:
    text = "data: {eval_rows: 100}\nsweep: {seed: [1, 2], data.synthetic.rows: [50, 500]}\n"
    said = failure(tmp_path, text)
    assert "e.yaml:5:45: data.synthetic.rows: must exceed data.eval_rows (100)" in said
    said = failure(tmp_path, "data: {synthetic: {rows: 100}}\n", "data.eval_rows=[10, 200]")
    assert "(where data.eval_rows=200)" in said
    assert "1 problem in" in said


def test_what_the_points_set_can_not_be_overridden(tmp_path: Path) -> None:
    said = failure(tmp_path, "sweep: [{seed: 1}, {seed: 2}]\n", "seed=3")
    assert "--set seed=3: seed: the sweep's points or together set it too" in said
