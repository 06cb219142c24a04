"""Presets, and the ways to write a model and strategies."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsim_train.config.experiment import Experiment, Model, Table
from recsim_train.config.load import load_points
from recsim_train.config.presets import PRESETS, describe_presets
from recsim_train.strategy.registry import create, schemas

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))


def load(folder: Path, model: str, strategy: str = "flat_ps") -> Experiment:
    path = folder / "e.yaml"
    path.write_text(f"name: x\nmodel: {model}\nstrategy: {strategy}\n", encoding="utf-8")
    return load_points(path, (), schemas())[0].experiment


def read(folder: Path, model: str) -> Model:
    return load(folder, model).model


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.name)
def test_our_own_experiments_load(path: Path) -> None:
    load_points(path, (), schemas())[0]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_sound(tmp_path: Path, name: str) -> None:
    model = read(tmp_path, name)
    assert model.name == name
    assert model.bottom_mlp[-1:] == ((model.embedding_dim,) if model.kind == "dlrm" else ())
    assert model.top_mlp[-1] == 1
    assert any(line.startswith(f"{name}: ") for line in describe_presets())


def test_presets_hold_the_published_figures() -> None:
    names = "criteo-kaggle", "criteo-tb-10m", "mlperf"
    kaggle, terabyte, mlperf = (PRESETS[name].shape for name in names)
    rows = [[table.rows for table in model.tables] for model in (kaggle, terabyte, mlperf)]
    assert list(map(len, rows)) == [26, 26, 26]
    assert sum(rows[0]) == 33_762_577
    assert max(rows[1]) == 10_000_000
    assert max(rows[2]) == 40_000_000
    assert sum(table.ids for table in mlperf.tables) == 214
    assert (kaggle.embedding_dim, kaggle.bottom_mlp, kaggle.top_mlp) == (
        16,
        (512, 256, 64, 16),
        (512, 256, 1),
    )
    synthetic = PRESETS["synthetic"].shape
    assert [(table.rows, table.ids) for table in synthetic.tables] == [(1_000_000, 100)] * 8


def test_cap(tmp_path: Path) -> None:
    model = read(tmp_path, "{preset: criteo-kaggle, max_rows: 100_000}")
    capped = [min(table.rows, 100_000) for table in PRESETS["criteo-kaggle"].shape.tables]
    assert [table.rows for table in model.tables] == capped


def test_last_width_follows_the_dimension(tmp_path: Path) -> None:
    assert read(tmp_path, "{preset: tiny, embedding_dim: 4}").bottom_mlp == (16, 4)
    assert read(tmp_path, "{preset: deepfm, embedding_dim: 4}").bottom_mlp == ()
    both = read(tmp_path, "{preset: tiny, embedding_dim: 4, bottom_mlp: [7, 4]}")
    assert both.bottom_mlp == (7, 4)


def test_explicit(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        "{embedding_dim: 4, bottom_mlp: [8, 4], top_mlp: [1], tables: [10, {rows: 5, ids: 3}]}",
    )
    assert model.name == "custom"
    assert model.tables == (Table(rows=10), Table(rows=5, ids=3))


def test_equal_tables(tmp_path: Path) -> None:
    model = read(
        tmp_path,
        "{preset: tiny, tables: {count: 5, rows: 1e3, ids: 2, variable: true}, max_rows: 9}",
    )
    assert model.tables == (Table(rows=9, ids=2, variable=True),) * 5


def test_options_are_only_what_differs_from_the_defaults(tmp_path: Path) -> None:
    written = "{kind: flat_ps, alpha: 0.5, every: 4, mode: easgd}"
    (choice,) = load(tmp_path, "tiny", written).strategies
    assert choice.options == {"mode": "easgd", "every": 4}
    assert create(choice) is not None


def test_whole_numbers_become_numbers_where_those_are_due(tmp_path: Path) -> None:
    (choice,) = load(tmp_path, "tiny", "{kind: flat_ps, mode: easgd, alpha: 1}").strategies
    assert choice.options["alpha"] == 1.0
    assert isinstance(choice.options["alpha"], float)


def test_empty_sections_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    text = "name: x\nmodel: tiny\nstrategy: flat_ps\nroles:\ntraining:\ndata:\n  synthetic:\n"
    path.write_text(text)
    loaded = load_points(path, (), schemas())[0]
    assert loaded.experiment.roles.trainers == 1
    assert loaded.path == path
