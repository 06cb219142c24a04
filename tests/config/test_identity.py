"""What pairs a prediction with a measurement, and the resolved configuration."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recsim_train.config.dump import comparison_key, dump_yaml, resolved
from recsim_train.config.experiment import Experiment
from recsim_train.config.load import load_points
from recsim_train.strategy.registry import schemas

TEXT = """
name: x
model: {preset: tiny, max_rows: 500}
strategy: [{kind: flat_ps, every: 4, alpha: 0.25, mode: easgd}, allreduce]
data: {path: a/b.tsv, generate: true, eval_rows: 10, limit_rows: 900}
roles: {trainers: 2, dense_servers: 1}
placement: {split_rows_above: 1.5}
simulation: {precision: 0.3 %}
execution: {timeout: 90 s}
"""


def load(folder: Path, *sets: str, text: str = TEXT) -> Experiment:
    path = folder / "e.yaml"
    path.write_text(text, encoding="utf-8")
    return load_points(path, sets, schemas())[0].experiment


def key(spec: Experiment, position: int = 0) -> str:
    return comparison_key(spec, spec.strategies[position])


def test_form_and_stability(tmp_path: Path) -> None:
    first = key(load(tmp_path))
    assert re.fullmatch("[0-9a-f]{12}", first)
    assert first == key(load(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        "seed=9",
        "name=other",
        "model.name=other",
        "cluster=other",
        "simulation.precision=1 %",
        "simulation.stragglers=false",
        "execution.timeout=5 s",
        "data.path=/elsewhere/b.tsv",
        "data.generate=false",
        "data.synthetic.seed=4",
    ],
)
def test_what_does_not_count(tmp_path: Path, change: str) -> None:
    assert key(load(tmp_path, change)) == key(load(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        "model.max_rows=400",
        "model.dtype=float64",
        "data.path=a/c.tsv",
        "data.path=null",
        "data.limit_rows=5",
        "roles.trainers=3",
        "roles.readers=1",
        "training.batch_size=3",
        "training.threads=2",
        "training.steps=3",
        "strategy.every=5",
        "placement.cost=bytes",
        "execution.shared_memory=false",
        "execution.wire=float16",
        "execution.wire=bfloat16",
        "strategy.prefetch=1",
    ],
)
def test_what_counts(tmp_path: Path, change: str) -> None:
    assert key(load(tmp_path, change)) != key(load(tmp_path))


def test_strategies_differ(tmp_path: Path) -> None:
    spec = load(tmp_path)
    assert key(spec, 0) != key(spec, 1)


def test_the_generator_counts_where_it_feeds(tmp_path: Path) -> None:
    one = load(tmp_path, "data.path=null", "data.synthetic.zipf=1.2")
    other = load(tmp_path, "data.path=null", "data.synthetic.zipf=1.3")
    assert key(one) != key(other)


def test_two_ways_to_write_the_same_are_one(tmp_path: Path) -> None:
    short = load(tmp_path, "model=tiny", "strategy=flat_ps")
    long = load(
        tmp_path,
        "strategy={kind: flat_ps, every: 1, mode: downpour}",
        "model={embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], "
        "tables: [{rows: 1000}, 200, 50, 7]}",
    )
    assert key(short) == key(long)


def test_resolved_is_an_experiment_again(tmp_path: Path) -> None:
    spec = load(tmp_path)
    data = json.loads(json.dumps(resolved(spec), allow_nan=False))
    assert data["training"]["batch_size"] == 256
    assert data["execution"]["timeout"] == "90 s"
    assert data["strategy"][0] == {"kind": "flat_ps", "mode": "easgd", "every": 4, "alpha": 0.25}
    assert load(tmp_path, text=dump_yaml(data)) == spec
