"""From files of a log to a prediction and a measurement, by `data describe` and without an edit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.commands import answer, command
from tests.house.test_layering import modules_after

ROOT = Path(__file__).parents[2]
REFERENCE = str(ROOT / "tests" / "frozen-2core.yaml")


def rows_of_a_shop(rows: int, *, flat: bool, seed: int) -> pa.Table:
    """Rows with missing values and names; ``flat``: without what CSV cannot have."""
    rng = np.random.default_rng(seed)
    users = rng.zipf(1.3, rows) % 900
    columns = {
        "clicked": pa.array((users % 3 == 0).astype(np.int64)),
        "user id": pa.array([f"u{user}" for user in users], mask=rng.random(rows) < 0.1),
        "ad_id": pa.array(rng.integers(0, 200, rows), mask=rng.random(rows) < 0.1),
        "price": pa.array(rng.lognormal(2.0, 2.0, rows).round(2), mask=rng.random(rows) < 0.1),
        "mobile": pa.array(rng.random(rows) < 0.5),
        "genres": pa.array(["|".join(f"g{g}" for g in range(user % 4)) for user in users]),
        "same": pa.array(["x"] * rows),
    }
    if not flat:
        bought = [None if user % 5 == 0 else list(range(user % 4)) for user in users]
        columns |= {"bought": pa.array(bought), "at": pa.array(users, pa.timestamp("s"))}
    return pa.table(columns)


def test_described_logs_are_predicted_measured_and_reported(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(rows_of_a_shop(2_700, flat=True, seed=1), tmp_path / "shop.csv")
    (tmp_path / "shop").mkdir()
    for n in range(3):
        table = rows_of_a_shop(900, flat=False, seed=n)
        pq.write_table(table, tmp_path / "shop" / f"{n}.parquet", row_group_size=300)
    for path, name, left_out in ("shop", "parts", ["same", "at"]), ("shop.csv", "flat", ["same"]):
        written = f"{name}.yaml"
        found = answer("data", "describe", path, "-o", written, cwd=tmp_path)
        assert found["label"]["name"] == "clicked"
        assert found["rows"] == found["rows_read"] == 2_700
        kinds = {one["name"]: one["column"]["type"] for one in found["columns"]}
        assert kinds.pop("bought", "categorical") == "categorical"
        assert kinds == {
            "user id": "categorical", "ad_id": "categorical", "price": "numeric",
            "mobile": "categorical", "genres": "categorical",
        }  # fmt: skip
        assert list(found["left_out"]) == left_out
        text = (tmp_path / written).read_text()
        assert all(f"# left out: {column}: " in text for column in left_out)

        quick = "--set", "simulation.what_if_steps=0"
        cluster = "--cluster", REFERENCE
        predicted = answer("simulate", written, *cluster, *quick, cwd=tmp_path)["runs"][0]
        measured = answer("run", written, cwd=tmp_path)["runs"][0]
        assert measured["steps"] == 200
        assert measured["auc"] > 0.7, "a third of the users click always, the others never"
        assert abs(predicted["bytes_sent"] / measured["bytes_sent"] - 1) < 0.05
    report = answer("report", "runs", "--out", "report", cwd=tmp_path)
    assert len(report["comparisons"]) == 2


def test_what_is_told_of_a_log(tmp_path: Path) -> None:
    pq.write_table(rows_of_a_shop(300, flat=False, seed=1), tmp_path / "log.parquet")
    done = command("data", "describe", "*.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, label, _, *columns = done.stdout.splitlines()
    assert first == "300 rows of 300, 1 of 1 row groups"
    assert label.startswith("label: clicked   # int64, 0 % missing, 2 distinct, ")
    names = [line.strip().split(",")[0] for line in columns[:6]]
    assert names == [
        "- {name: user id", "- {name: ad_id", "- {name: price", "- {name: mobile",
        "- {name: genres", "- {name: bought",
    ]  # fmt: skip
    assert "type: numeric, normalizer: log1p}   # double, " in columns[2]
    assert [line.split(": ")[1] for line in columns[6:]] == ["same", "at"]


def test_what_cannot_be_described_is_one_sentence(tmp_path: Path) -> None:
    pq.write_table(rows_of_a_shop(300, flat=False, seed=1), tmp_path / "log.parquet")
    pq.write_table(pa.table({"bought": [0, 1], "price": [0.5, 1]}), tmp_path / "bare.parquet")
    pq.write_table(pa.table({"deep": [{"a": 1}]}), tmp_path / "deep.parquet")
    (tmp_path / "empty.csv").write_text("click,price\n")
    (tmp_path / "mine.yaml").write_text("")
    for words, said in (
        (["log.parquet", "-o", "mine.yaml"], "mine.yaml exists already; --force overwrites it"),
        (["log.parquet", "--label", "price"], "'price' is no column of 0 and 1 alone"),
        (["log.parquet", "--batches", "3"], "--batches and --set are of experiments"),
        (["bare.parquet", "-o", "new.yaml"], "with --label NAME; of 0 and 1 are 'bought'"),
        (["deep.parquet"], "no column can be read: deep is of type struct<a: int64>"),
        (["none.parquet"], "no such file"),
        (["empty.csv"], "empty.csv"),
        (["log.parquet", "mine.yaml"], "an experiment is described alone"),
    ):
        done = command("data", "describe", *words, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert said in error
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.yaml").exists()
    done = command("data", "describe", "bare.parquet", cwd=tmp_path)
    assert done.returncode == 0
    assert "note: no experiment can be suggested yet: " in done.stderr


def test_describing_needs_no_torch(tmp_path: Path) -> None:
    pq.write_table(rows_of_a_shop(50, flat=False, seed=1), tmp_path / "log.parquet")
    words = ["recsim-train", "data", "describe", str(tmp_path), "-o", str(tmp_path / "mine.yaml")]
    loaded = modules_after(
        "import contextlib, io, sys\n"
        f"sys.argv = {json.dumps(words)}\n"
        "from recsim_train.cli.main import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()"
    )
    assert (tmp_path / "mine.yaml").exists()
    assert not {"torch", "simpy"} & loaded
