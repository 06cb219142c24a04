"""The table of settings and the JSON Schemas say what the loader does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from recsim_train.config.cluster import ASSUMED_THREADS
from recsim_train.config.errors import UserError
from recsim_train.config.load import check_experiment, load_points
from recsim_train.config.problems import Mistakes
from recsim_train.config.schema import cluster_schema, experiment_schema, settings_table
from recsim_train.config.validate import plain
from recsim_train.config.yaml_source import parse_document, read_document
from recsim_train.strategy.registry import schemas

ROOT = Path(__file__).parents[2]
PROFILES = sorted(p for p in (ROOT / "cluster_profiles").glob("*.yaml") if p.stem != "local")
HEAD = "name: x\nmodel: tiny\nstrategy: flat_ps\n"


class TestSettings:
    def test_every_row_is_complete(self) -> None:
        for row in settings_table():
            assert row.name
            assert row.type
            assert row.default
            assert row.meaning.strip(), f"{row.name} has no docstring"

    def test_names_are_unique(self) -> None:
        names = [row.name for row in settings_table()]
        assert len(names) == len(set(names))

    def test_holds_the_settings_that_people_sweep(self) -> None:
        assert {row.name for row in settings_table()} >= {
            "roles.trainers",
            "roles.embedding_servers",
            "roles.dense_servers",
            "training.batch_size",
            "training.threads",
            "training.steps",
            "training.warmup_steps",
            "strategy",
            "data.path",
            "model.max_rows",
            "seed",
        }

    @pytest.mark.parametrize(
        "row",
        [
            r
            for r in settings_table()
            if r.default[0] not in "-t"
            and "[]" not in r.name
            and r.name != "model.name"
            and not r.name.startswith("sweep.")
        ]
        + [r for r in settings_table() if r.default == "true"],
        ids=lambda r: r.name,
    )
    def test_written_defaults_are_the_defaults(self, tmp_path: Path, row: Any) -> None:
        path = tmp_path / "e.yaml"
        path.write_text(HEAD, encoding="utf-8")
        plain = load_points(path, (), schemas())[0].experiment
        said = load_points(path, [f"{row.name}={row.default}"], schemas())[0].experiment
        assert said == plain

    def test_types_and_defaults_in_words(self) -> None:
        rows = {row.name: row for row in settings_table()}
        assert rows["execution.timeout"][1:3] == ("a duration such as '50 us'", "60 s")
        assert rows["simulation.precision"][1:3] == ("a share such as '5 %'", "0.5 %")
        assert rows["roles.trainers"][1:3] == ("an integer of at least 1 and at most 100000", "1")
        assert rows["training.dense_optimizer"][1:3] == ("one of 'sgd', 'adagrad'", "sgd")
        assert rows["data.path"][1:3] == ("text or a list of texts or null", "-")


FORMS = {
    "names": HEAD,
    "list of strategies": "name: x\nmodel: tiny\nstrategy: [flat_ps, {kind: flat_ps, every: 4}]\n",
    "strategy mapping": "name: x\nmodel: tiny\nstrategy: {kind: flat_ps, alpha: 0.2}\n",
    "preset with overrides": "name: x\nmodel: {preset: tiny, max_rows: 9}\nstrategy: allreduce\n",
    "tables of all forms": "name: x\nstrategy: flat_ps\nmodel: {embedding_dim: 4, bottom_mlp: [4], "
    "top_mlp: [1], tables: [3, {rows: 4, ids: 2, variable: true}]}\n",
    "equal tables": "name: x\nstrategy: flat_ps\nmodel: {preset: tiny, "
    "tables: {count: 3, rows: 7, ids: 2}}\n",
    "tables in short": "name: x\nstrategy: flat_ps\nmodel: {preset: tiny, tables: [50M, "
    "{count: 3, rows: 1.5k}, {name: t, num_embeddings: 7, embedding_dim: 8}]}\n",
    "quantities": HEAD + "execution: {timeout: 1.5 min}\nsimulation: {precision: 1 %}\n",
    "empty sections": HEAD + "roles:\ndata:\n",
    "grid alone": HEAD + "sweep: {roles.trainers: [1, 2], model.top_mlp: [[1], [4, 1]]}\n",
    "points alone": HEAD + "sweep: [{seed: 1}, {seed: 2, roles.trainers: 4}]\n",
    "sweep": HEAD + "sweep: {grid: {seed: [1, 2]}, points: [{training.steps: 9}]}\n",
    "no limit": HEAD + "data: {path: null, limit_rows: 5}\n",
    "several files": HEAD + "data: {path: [a.tsv, b.tsv], eval_path: c.tsv}\n",
    "columns": "name: x\nstrategy: flat_ps\nmodel: {embedding_dim: 4, bottom_mlp: [4], top_mlp: "
    "[1]}\ndata: {path: a.csv, label: y, columns: [{name: [a, b], type: numeric}, {name: c, type: "
    "categorical, num_buckets: 9}]}\n",
}
WRONG = {
    "unknown key": HEAD + "rolez: {}\n",
    "unknown strategy": "name: x\nmodel: tiny\nstrategy: nope\n",
    "unknown option": "name: x\nmodel: tiny\nstrategy: {kind: allreduce, every: 4}\n",
    "unknown preset": "name: x\nmodel: nope\nstrategy: flat_ps\n",
    "no unit": HEAD + "execution: {timeout: 5}\n",
    "no unit in text": HEAD + "execution: {timeout: '5'}\n",
    "wrong unit": HEAD + "execution: {timeout: 5 GB}\n",
    "zero trainers": HEAD + "roles: {trainers: 0}\n",
    "no strategy": "name: x\nmodel: tiny\n",
    "empty list": "name: x\nmodel: tiny\nstrategy: []\n",
    "explicit model without widths": "name: x\nstrategy: flat_ps\nmodel: {embedding_dim: 4}\n",
    "tables without rows": "name: x\nstrategy: flat_ps\nmodel: {preset: tiny, "
    "tables: [{ids: 3}]}\n",
    "tables of a strange unit": "name: x\nstrategy: flat_ps\nmodel: {preset: tiny, tables: [5T]}\n",
    "tables without count": "name: x\nstrategy: flat_ps\nmodel: {preset: tiny, tables: {}}\n",
    "option out of range": "name: x\nmodel: tiny\nstrategy: {kind: flat_ps, every: 0}\n",
}


@pytest.fixture(scope="module")
def experiments() -> Any:
    return experiment_schema(schemas())


def loads(text: str) -> bool:
    document = parse_document(text, "e.yaml", "an experiment")
    try:
        check_experiment(document, schemas(), Mistakes(document.marks, document.file))
    except UserError:
        return False
    return True


def fits(schema: Any, text: str) -> bool:
    data = parse_document(text, "e.yaml", "an experiment").data
    return bool(jsonschema.Draft202012Validator(schema).is_valid(data))


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_the_schema_takes_what_the_loader_takes(experiments: Any, text: str) -> None:
    assert loads(text)
    assert fits(experiments, text)


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_the_schema_refuses_what_the_loader_refuses(experiments: Any, text: str) -> None:
    assert not loads(text)
    assert not fits(experiments, text)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda p: p.name
)
def test_our_experiments_fit_the_schema(experiments: Any, path: Path) -> None:
    jsonschema.validate(read_document(path, "an experiment").data, experiments)


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.name)
def test_our_profiles_fit_the_schema(path: Path) -> None:
    jsonschema.validate(read_document(path, "a cluster profile").data, cluster_schema())


def test_schemas_are_valid_and_plain_json(experiments: Any) -> None:
    for schema in (experiments, cluster_schema()):
        jsonschema.Draft202012Validator.check_schema(schema)
        json.dumps(schema, allow_nan=False)


def test_settings_are_described_for_editors(experiments: Any) -> None:
    trainers = experiments["$defs"]["Roles"]["properties"]["trainers"]
    assert trainers["description"] == "Trainer processes."
    assert trainers["minimum"] == 1
    timeout = experiments["$defs"]["Execution"]["properties"]["timeout"]
    assert timeout["examples"] == ["50 us"]
    assert "default" not in timeout


def test_the_cluster_schema_knows_prices_and_roles() -> None:
    schema = cluster_schema()
    host = {"cores": 2, "memory": "1 GiB", "nic": "1 GB/s"}
    costs = dict.fromkeys(schema["$defs"]["Costs"]["properties"], "5 ns")
    costs["call"] = {"value": "5 us", "uncertainty": "1 %"}  # type: ignore[assignment]
    data: dict[str, Any] = {
        "name": "x",
        "hosts": {"default": host},
        "network": {"latency": "5 us"},
        "costs": costs,
        "threads": plain(ASSUMED_THREADS, digits=6),
    }
    jsonschema.validate(data, schema)
    for wrong in (
        data | {"costs": costs | {"call": "5"}},
        data | {"network": {"latency": 5}},
        data | {"hosts": {"somebody": host}},
        data | {"costs": {}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
