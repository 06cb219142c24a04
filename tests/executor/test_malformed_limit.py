"""`data.malformed_limit`: who reads too many malformed rows stops, whoever reads them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.commands import command

EXPERIMENT = """
name: small
model: {embedding_dim: 4, bottom_mlp: [8, 4], top_mlp: [8, 1], tables: {count: 26, rows: 99}}
data: {path: floats.tsv, eval_path: good.tsv, eval_rows: 500}
roles: {trainers: 2, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 128, threads: 1, steps: 100, warmup_steps: 2}
strategy: flat_ps
"""
ROWS = 15_000


def text(count: int, spoilt: float, seed: int) -> str:
    """Rows of which about a share is written as pandas writes columns with missing values."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        integers = [str(draw.randint(0, 9)) for _ in range(13)]
        if draw.random() < spoilt:
            integers[1] = "1.0"
        categories = [f"{draw.getrandbits(20):x}" for _ in range(26)]
        lines.append("\t".join([str(draw.randint(0, 1)), *integers, *categories]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("malformed")
    (folder / "small.yaml").write_text(EXPERIMENT)
    (folder / "good.tsv").write_text(text(ROWS, 0.0, 1))
    (folder / "floats.tsv").write_text(text(ROWS, 0.6, 2))
    (folder / "few.tsv").write_text(text(ROWS, 0.02, 3))
    return folder


def measured(folder: Path, out: str, *sets: str) -> tuple[CompletedProcess[str], Any]:
    """A run, with its manifest and its figures."""
    more = [word for text in sets for word in ("--set", text)]
    done = command("run", "small.yaml", "--out", out, *more, cwd=folder)
    assert "Traceback" not in done.stderr
    (run,) = (folder / out).iterdir()
    return done, [json.loads((run / f"{n}.json").read_text()) for n in ("manifest", "summary")]


@pytest.mark.parametrize(("out", "readers"), [("trainers", 0), ("readers", 1)])
def test_a_run_stops_in_the_middle_and_says_why(folder: Path, out: str, readers: int) -> None:
    done, (manifest, summary) = measured(folder, out, f"roles.readers={readers}")
    assert done.returncode == 1, done.stderr
    assert "reader[0] failed: " in done.stderr if readers else "trainer[" in done.stderr
    for said in (done.stderr, manifest["message"]):
        assert "floats.tsv: " in said
        assert " rows read so far are malformed (" in said
        assert "data.malformed_limit is 1 %" in said
        assert "that are no rows of the text's columns" in said
        assert ': column 3: "1.0", written as a float, as pandas does' in said
    assert manifest["status"] == "partial"
    # each of two readers stops at 10,000 of its rows, one for both at 10,000 of all
    assert 0 < summary["steps"] < (100 if not readers else 50)


def test_few_rows_are_looked_at_in_the_end_and_all_readers_together(folder: Path) -> None:
    sets = ["data.path=few.tsv", "training.steps=30"]
    done, (manifest, summary) = measured(folder, "few", *sets)
    assert done.returncode == 1, done.stderr
    assert "few.tsv: " in done.stderr
    rows = 2 * 128 * 32
    assert f" of the {rows:,} rows read so far are malformed" in done.stderr
    assert manifest["status"] == "partial"
    assert summary["steps"] == 30
    assert summary["facts"]["rows_read"] == rows
    done, (manifest, summary) = measured(folder, "allowed", *sets, "data.malformed_limit=3%")
    assert done.returncode == 0, done.stderr
    assert manifest["status"] == "complete"
    assert "malformed rows were replaced: " in done.stderr
    assert 'column 3: "1.0"' in summary["facts"]["malformed"]


def test_held_out_rows_obey_it_too(folder: Path) -> None:
    sets = ["data.path=good.tsv", "data.eval_path=floats.tsv", "training.steps=5"]
    done, (manifest, summary) = measured(folder, "held", *sets)
    assert done.returncode == 1, done.stderr
    assert "trainer[0] failed: floats.tsv: " in done.stderr
    assert " of the 500 rows read so far are malformed" in done.stderr
    assert (manifest["status"], summary["steps"]) == ("partial", 5)
    assert summary["auc"] is None


@pytest.mark.parametrize("batches", [10, 200])
def test_a_profile_of_the_data_obeys_it(folder: Path, batches: int) -> None:
    words = ["data", "describe", "small.yaml", "--batches", str(batches)]
    done = command(*words, cwd=folder)
    assert done.returncode == 1, done.stdout
    assert "failed: floats.tsv: " in done.stderr
    read = 1_280 if batches == 10 else 10_112  # the first whole batches that make 10,000 rows
    assert f" of the {read:,} rows read so far are malformed" in done.stderr
    done = command(*words, "--set", "data.malformed_limit=100%", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["malformed"] > 0


def test_a_prediction_that_counts_ids_in_the_file_obeys_it(folder: Path) -> None:
    """Distinct ids where workers pool, and a cache's replay."""
    profile = str(Path(__file__).parents[1] / "frozen-2core.yaml")
    for strategy in ("{kind: flat_ps, pooling: worker}", "scalefreectr"):
        done = command(
            "simulate", "small.yaml", "--cluster", profile, "--set", f"strategy={strategy}",
            "--set", "simulation.what_if_steps=0", cwd=folder,
        )  # fmt: skip
        assert done.returncode == 1, (strategy, done.stdout, done.stderr)
        assert "failed: floats.tsv: " in done.stderr, strategy
        assert "rows read so far are malformed" in done.stderr, strategy
