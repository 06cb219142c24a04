"""Formats of data files: what holds of each of them, also of one that is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Synthetic
from recsim_train.config.formats import FORMATS, source_of
from recsim_train.data.source import reader_of
from recsim_train.data.stream import check_data, held_out, open_stream
from tests.commands import answer

ROOT = Path(__file__).parents[2]
SYNTHETIC = Synthetic(rows=300, seed=3)
EXPERIMENT = """
name: small
model: {embedding_dim: 4, bottom_mlp: [8, 4], top_mlp: [8, 1], tables: {count: 6, rows: 99}}
data: {eval_rows: 50, synthetic: {rows: 600}, generate: true}
roles: {trainers: 1, embedding_servers: 1, dense_servers: 1}
training: {batch_size: 16, threads: 1, steps: 20, warmup_steps: 2}
simulation: {what_if_steps: 0}
strategy: flat_ps
"""


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_file_holds_what_the_generator_feeds(
    source: str, tmp_path: Path, make_model: Any
) -> None:
    model, path = (
        make_model((1, 2, 40, 3000, 5_000_000), 9),
        f"{tmp_path}/x{FORMATS[source].ending}",
    )
    reader_of(source).write(path, model, SYNTHETIC, SYNTHETIC.rows)
    assert source_of(path) == source
    direct = Data(synthetic=SYNTHETIC, eval_rows=20, limit_rows=250)
    file = direct.model_copy(update={"path": path})
    check_data(model, file)

    def batches(data: Data) -> list[Any]:
        with open_stream(
            model, data, batch_size=64, positions=(0, 2), total=3, iterations=4
        ) as stream:
            return [*held_out(model, data, 8), *(fed.batch for fed in stream)]

    for left, right in zip(batches(direct), batches(file), strict=True):
        for part in ("labels", "dense", "ids", "lengths"):
            assert np.array_equal(getattr(left, part), getattr(right, part)), part


@pytest.mark.parametrize("content", [b"", b"\0\1\2" * 999, b"<html>Sign in</html>\n", None])
def test_what_is_none_of_it_is_refused_in_one_sentence(
    source: str, content: bytes | None, tmp_path: Path, make_model: Any
) -> None:
    path = tmp_path / f"x{FORMATS[source].ending}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"x[^\n]*; expected [^\n]*$"):
        check_data(make_model((9,)), Data(path=str(path)))


@pytest.mark.slow
def test_it_is_predicted_and_run(source: str, tmp_path: Path) -> None:
    path = f"made{FORMATS[source].ending}"
    text = EXPERIMENT.replace("eval_rows", f"path: {path}, eval_rows")
    (tmp_path / "small.yaml").write_text(text)
    profile = ROOT / "tests" / "frozen-2core.yaml"
    for words in (("simulate", "--cluster", profile), ("run",)):
        runs = answer(words[0], "small.yaml", *words[1:], cwd=tmp_path)
        assert "Traceback" not in str(runs)
        [run] = runs["runs"]
        assert run["status"] == "complete", run
    assert (tmp_path / path).exists()
