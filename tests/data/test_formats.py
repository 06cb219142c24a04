"""What of files holds whatever they are: Criteo text, CSV, Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.columns import Column
from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data
from recsim_train.data.stream import check_data
from tests.commands import answer

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
name: small
model: {embedding_dim: 4, bottom_mlp: [8, 4], top_mlp: [8, 1], tables: {count: 6, rows: 99}}
data: {eval_rows: 50, synthetic: {rows: 600}, generate: true}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 16, threads: 1, steps: 20, warmup_steps: 2}
simulation: {what_if_steps: 0}
strategy: flat_ps
"""
COLUMNS = (
    Column(name=("n",), type="numeric"),
    Column(name=("c",), type="categorical", hash_bucket_size=8),
)


@pytest.mark.parametrize("columns", [(), COLUMNS], ids=["Criteo", "columns"])
@pytest.mark.parametrize(
    "content", [b"", b"\0\1\2" * 999, b"<html>Sign in</html>\n", b"PK\x03\x04\0\0\xff", None]
)
def test_what_is_none_of_it_is_refused_in_one_sentence(
    columns: tuple[Column, ...], content: bytes | None, tmp_path: Path, make_model: Any
) -> None:
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    data = Data(path=(str(path),), columns=columns, label="y" if columns else None)
    with pytest.raises(UserError, match=r"x[^\n]*; expected [^\n]*$"):
        check_data(make_model((9,)), data)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".tsv", ".parquet"])
def test_what_the_generator_wrote_is_predicted_and_run(ending: str, tmp_path: Path) -> None:
    path = f"made{ending}"
    text = EXPERIMENT.replace("eval_rows", f"path: {path}, eval_rows")
    (tmp_path / "small.yaml").write_text(text)
    profile = ROOT / "tests" / "frozen-2core.yaml"
    for words in (("simulate", "--cluster", profile), ("run",)):
        runs = answer(words[0], "small.yaml", *words[1:], cwd=tmp_path)
        assert "Traceback" not in str(runs)
        [run] = runs["runs"]
        assert run["status"] == "complete", run
    assert (tmp_path / path).exists()
