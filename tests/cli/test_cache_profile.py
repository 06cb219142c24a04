"""Hit rates of a stream and a cache of a size: what `data describe` says can be used as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.commands import command

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")
EXPERIMENT = """
name: small
model: {embedding_dim: 8, bottom_mlp: [16, 8], top_mlp: [16, 1], tables: {count: 5, rows: 2000}}
data: {eval_rows: 0, synthetic: {rows: 8000}}
roles: {trainers: 2, embedding_servers: 1}
training: {batch_size: 32, steps: 20, warmup_steps: 20}
strategy: flat_ps
"""


def test_a_profiled_size_is_a_cache_of_about_that_hit_rate(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    profile = ["data", "describe", "small.yaml", "--set", "training.batch_size=64"]
    shown = command(*profile, "--batches", "40", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    found: Any = json.loads(command(*profile, "--batches", "40", "--json", cwd=tmp_path).stdout)
    rates = [(s["cache_rows"], s["hit_rate"]) for s in found["cache"]["sizes"]]
    sizes = {rows: rate for rows, rate in rates if rate is not None}
    assert len(sizes) > 2
    lines = re.findall(r"cache_rows ([\d,]+): ([\d.]+) %", shown.stdout)
    assert {int(rows.replace(",", "")): float(rate) for rows, rate in lines} == {
        rows: round(100 * rate, 1) for rows, rate in sizes.items()
    }
    # as the last line advises: the size over the number of trainers and a little more
    size, rate = sorted(sizes.items())[1]
    advised = re.search(r"--set '(strategy=\{.*?)N\}'", shown.stdout)
    assert advised is not None
    strategy = f"{advised[1]}{round(1.05 * size / 2)}}}"
    done = command(
        "simulate", "small.yaml", "--cluster", REFERENCE, "--set", strategy,
        "--set", "simulation.precision=0 %", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["runs"][0]["run_dir"])
    cache = json.loads((tmp_path / folder / "summary.json").read_text())["facts"]["cache"]
    assert abs(cache["hit_rate"] - rate) < 0.05


def test_a_cache_too_small_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    strategy = "strategy={kind: scalefreectr, cache_rows: 20}"
    for words in (["run"], ["simulate", "--cluster", REFERENCE]):
        done = command(words[0], "small.yaml", *words[1:], "--set", strategy, cwd=tmp_path)
        assert done.returncode == 2
        said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(said) == 1
        assert re.search(r"cache of 20 rows .* two steps: the first ones need \d+ rows", said[0])
        assert "Traceback" not in done.stderr
