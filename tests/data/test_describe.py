"""What `data describe` says of a log's columns: by a bounded sample, within the error that it
states."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data
from recsim_train.config.load import load_points
from recsim_train.data import sample as sample_module
from recsim_train.data.dealing import held_out_rows
from recsim_train.data.describe import Described, Description, _described, describe, distinct_of
from recsim_train.data.log import PIECE
from recsim_train.data.sample import PIECES, sample_of
from recsim_train.data.suggested import document, experiment, lines
from recsim_train.strategy.registry import schemas

N = 400
NUMBERS = np.arange(N)


def of_file(path: Path, label: str | None = None) -> Description:
    return describe([str(path)], sample_of([str(path)]), label)


def of_columns(folder: Path, **columns: Any) -> dict[str, Described]:
    """A log's columns by name, without its label."""
    pq.write_table(pa.table({"click": NUMBERS % 2, **columns}), folder / "log.parquet")
    return {one.name: one for one in of_file(folder / "log.parquet").columns}


def keys(one: Described) -> dict[str, Any]:
    """What is suggested of a column, without its name."""
    assert one.column["name"] == one.name
    return {k: v for k, v in one.column.items() if k != "name"}


def test_numbers_are_amounts_or_ids_by_type_name_and_how_many_there_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    found = of_columns(
        tmp_path,
        price=rng.random(N),
        counts=NUMBERS**2,
        below=NUMBERS - 300,
        mostly=[-1, *range(5_000, 5_000 + N - 1)],
        user_id=NUMBERS * 1_000,
        bid=NUMBERS + 5,
        item=[*(NUMBERS[:-1] % 150).astype(float), None],
        hour=NUMBERS % 24,
        hashes=rng.integers(0, 1 << 40, N),
        signed=rng.integers(-(1 << 62), 1 << 62, N),
        nanoseconds=NUMBERS + 1_700_000_000_000_000_000,
        flag=NUMBERS % 3 == 0,
    )
    assert keys(found["price"]) == {"type": "numeric"}
    assert keys(found["counts"]) == {"type": "numeric", "normalizer": "log1p"}
    assert keys(found["below"]) == {"type": "numeric"}
    assert keys(found["mostly"]) == {"type": "numeric", "normalizer": "log1p"}
    assert keys(found["user_id"]) == {"type": "categorical", "hash_bucket_size": 1_000}
    assert keys(found["bid"])["type"] == "numeric"
    by_number = {"type": "categorical", "out_of_range": "bucket"}
    assert keys(found["item"]) == {**by_number, "num_buckets": 150}
    assert keys(found["hour"]) == {**by_number, "num_buckets": 24}
    assert keys(found["hashes"]) == {"type": "categorical", "hash_bucket_size": 1_000}
    assert keys(found["signed"]) == keys(found["nanoseconds"]) == keys(found["hashes"])
    assert found["nanoseconds"].distinct["about"] == N
    assert keys(found["flag"]) == {**by_number, "num_buckets": 2}
    assert found["flag"].positives == pytest.approx(1 / 3, abs=0.01)


def test_text_and_lists_are_ids(tmp_path: Path) -> None:
    lengths = [100, *(n % 4 for n in range(N - 1))]
    found = of_columns(
        tmp_path,
        name=[f"n{n}" for n in range(N - 8)] + [None] * 8,
        country=pa.array(["DE", "FR"] * (N // 2)).dictionary_encode(),
        tags=[[f"t{t}" for t in range(length)] or None for length in lengths],
        bought=[list(range(n % 3)) for n in range(N)],
        genres=["a|b", "c"] * (N // 2),
        seen=["1 2 3", "4"] * (N // 2),
        title=["The long way", "1 2"] * (N // 2),
    )
    assert keys(found["name"]) == {"type": "categorical", "hash_bucket_size": 1_000}
    assert found["name"].missing == pytest.approx(8 / N)
    assert found["name"].distinct == dict.fromkeys(("about", "least", "most"), N - 8)
    assert keys(found["country"])["hash_bucket_size"] == 1_000
    # one list is far longer than all others: not all of it is taken
    assert keys(found["tags"])["max_len"] == 6
    assert keys(found["tags"])["mean_len"] == pytest.approx(1.51, abs=0.01)
    assert found["tags"].lengths is not None
    assert (found["tags"].lengths["usual"], found["tags"].lengths["most"]) == (3, 100)
    assert found["tags"].missing == pytest.approx(0.25, abs=0.01)
    assert keys(found["bought"]) == {
        "type": "categorical", "num_buckets": 2, "out_of_range": "bucket", "max_len": 2,
        "mean_len": 1.0,
    }  # fmt: skip
    assert keys(found["genres"])["separator"] == "|"
    assert keys(found["seen"])["separator"] == " "
    assert keys(found["seen"])["max_len"] == 3
    assert "separator" not in keys(found["title"])


def test_what_no_model_can_have_is_named_with_the_reason(tmp_path: Path) -> None:
    of_columns(
        tmp_path, constant=[7] * N, nothing=pa.nulls(N), empty=[""] * N,
        infinite=[math.inf, *range(N - 1)], vectors=[[0.5]] * N, low=NUMBERS - 1.5e4 / 7,
        amount=NUMBERS + 0.5, kept=NUMBERS % 50,
        **{"odd: {name} #": [{"x": 1}] * N, "when": pa.array(NUMBERS, pa.timestamp("ms"))},
    )  # fmt: skip
    description = of_file(tmp_path / "log.parquet")
    reasons = description.left_out
    assert reasons["constant"] == reasons["nothing"] == reasons["empty"]
    assert reasons["constant"] == "all values that were read are the same, or missing"
    assert reasons["infinite"] == reasons["low"] != reasons["vectors"]
    assert reasons["when"].startswith("is of type timestamp[ms]; expected")
    text = experiment(description, "mine")
    said = "\n".join(lines(description))
    names = {"constant", "nothing", "empty", "infinite", "vectors", "low", "when"}
    for name in [*names, '"odd: {name} #"']:
        assert f"# left out: {name}: " in text
        assert f"# left out: {name}: " in said
    assert document(description)["left_out"].keys() == {*names, "odd: {name} #"}
    (tmp_path / "mine.yaml").write_text(text)
    spec = load_points(tmp_path / "mine.yaml", (), schemas())[0].experiment
    assert [column.name for column in spec.data.columns] == [("amount",), ("kept",)]
    assert spec.data.eval_share == 0.05
    assert spec.data.eval_from == "end"
    assert [table.rows for table in spec.model.tables] == [51]


def test_the_label_is_the_one_named_or_one_named_like_one(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    columns = {"amount": NUMBERS + 0.5, "color": [f"c{n % 9}" for n in range(N)]}

    def label(given: str | None = None, **clicks: Any) -> str | None:
        pq.write_table(pa.table(columns | clicks), path)
        found = of_file(path, given).label
        return None if found is None else found.name

    bits = NUMBERS % 2
    assert label(Clicked=bits, bought=bits) == "Clicked"
    assert label(y=bits == 1, label=bits.astype(float)) == "label"
    assert label(target=NUMBERS % 3, y=bits) == "y"
    assert label("bought", click=bits, bought=bits) == "bought"
    assert label(bought=bits, liked=bits) is None
    (problem,) = of_file(path).problems
    assert "--label NAME" in problem
    assert problem.endswith("of 0 and 1 are 'bought', 'liked'")
    with pytest.raises(UserError, match="--label NAME"):
        experiment(of_file(path), "mine")
    with pytest.raises(
        UserError, match=r"'like' is no column of 0 and 1 alone; did you mean 'liked'\?"
    ):
        label("like", bought=bits, liked=bits)
    with pytest.raises(
        UserError, match="'amount' is no column of 0 and 1 alone; of 0 and 1 are 'bought'"
    ):
        label("amount", bought=bits)


def test_where_no_column_is_a_number_ids_of_few_values_are_one(tmp_path: Path) -> None:
    names = [f"n{n % 9}" for n in range(N)]
    found = of_columns(tmp_path, hour=NUMBERS % 24, day=NUMBERS % 7, name=names)
    kinds = {name: keys(one)["type"] for name, one in found.items()}
    assert kinds == {"hour": "categorical", "day": "numeric", "name": "categorical"}
    of_columns(tmp_path, name=names)
    (problem,) = of_file(tmp_path / "log.parquet").problems
    assert problem == "a model needs at least one feature, and no column can be numeric"


def test_columns_of_csv_are_what_their_text_is(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = (
        f"{n % 2},{n / 7:.3f},{n % 30}.0,u{n % 90},{n} {n + 1} {n + 2},,"
        f"{n % 9 or ''},{n % 200 or 'nan'},{10**19 + n * 10**16}"
        for n in range(N)
    )
    path.write_text(
        "\n".join(["click,price,hour,user,seen,none,few,many,device", *rows, "1,2"]) + "\n"
    )
    description = of_file(path)
    found = {one.name: one for one in description.columns}
    assert description.sample.malformed == 1
    assert (description.sample.parts_read, description.sample.rows) == (1, N + 1)
    assert description.label is not None
    assert keys(found["price"])["type"] == "numeric"
    assert keys(found["hour"])["num_buckets"] == 30
    assert keys(found["user"])["hash_bucket_size"] == 1_000
    assert keys(found["seen"])["separator"] == " "
    assert "none" in description.left_out
    assert keys(found["few"])["num_buckets"] == 9
    # nan is a missing number, but no missing id
    assert keys(found["many"])["type"] == "numeric"
    assert keys(found["device"]) == {"type": "categorical", "hash_bucket_size": 1_000}


def test_files_that_are_not_alike(tmp_path: Path) -> None:
    """A column that only some have is left out; numbers may be of several types, and missing."""
    common = {
        "click": NUMBERS % 2, "amount": NUMBERS, "user": [f"u{n}" for n in range(N)],
        "mixed": NUMBERS, "list": [[1, 2]] * N,
    }  # fmt: skip
    other = common | {
        "amount": NUMBERS / 2, "more": NUMBERS, "mixed": common["user"], "list": pa.nulls(N),
    }  # fmt: skip
    third = common | {"amount": pa.nulls(N), "list": [[3]] * N}
    pq.write_table(pa.table(common), tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    pq.write_table(pa.table(third), tmp_path / "c.parquet")
    description = of_file(tmp_path)
    found = {one.name: one for one in description.columns}
    assert description.left_out == {
        "mixed": "is of another type in some files", "more": "is not there once in each file",
    }  # fmt: skip
    assert found["list"].missing == pytest.approx(1 / 3)
    assert keys(found["list"])["max_len"] == 2
    assert found["amount"].missing == pytest.approx(1 / 3)
    assert keys(found["amount"])["type"] == "numeric"
    assert found["user"].distinct["about"] == N
    (tmp_path / "d.csv").write_text("click\n1\n")
    with pytest.raises(UserError, match=r"d.csv \(CSV\) are not of one format"):
        sample_of([str(tmp_path)])


def test_criteo_text_gets_tables_instead_of_columns(tmp_path: Path) -> None:
    rows = ("\t".join([str(n % 2), *[str(n % 9)] * 13, *[f"{n % 99:08x}"] * 26]) for n in range(N))
    (tmp_path / "day_0.txt").write_text("\n".join(rows) + "\n")
    description = of_file(tmp_path / "day_0.txt")
    assert description.sample.format == "Criteo text"
    (tmp_path / "mine.yaml").write_text(experiment(description, "mine"))
    spec = load_points(tmp_path / "mine.yaml", (), schemas())[0].experiment
    assert spec.data.columns == ()
    assert [table.rows for table in spec.model.tables] == [100] * 26


def test_a_bounded_part_of_many_row_groups_is_read(tmp_path: Path) -> None:
    rows = 2 * PIECE
    table = pa.table({"click": np.arange(rows) % 2, "user_id": np.arange(rows) % 1_000})
    for n in range(3):
        with pq.ParquetWriter(tmp_path / f"{n}.parquet", table.schema) as writer:
            for _ in range(40):
                writer.write_table(table)
    sample = sample_of([str(tmp_path)])
    assert (sample.parts, sample.parts_read) == (120, PIECES)
    read = PIECES * PIECE
    assert (sample.rows, sample.rows_read) == (120 * rows, read)
    assert f"{read:,} rows of {120 * rows:,}, {PIECES} of 120 row groups" in str(sample)
    (user,) = describe([str(tmp_path)], sample).columns
    assert user.distinct["least"] == 1_000
    assert user.distinct["least"] <= user.distinct["about"] <= user.distinct["most"]


def test_of_many_columns_fewer_rows_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({f"x{n}": NUMBERS for n in range(20)}), path, row_group_size=100)
    monkeypatch.setattr(sample_module, "CELLS", 20 * 3 * PIECE)
    found = sample_of([str(path)])
    assert (found.parts, found.parts_read, found.rows_read, found.rows) == (4, 3, 300, N)


def test_of_texts_the_beginnings_are_read_and_nothing_is_converted(tmp_path: Path) -> None:
    """How many rows there are follows from the bytes of what was read."""
    text = "click,amount\n" + "".join(f"{n % 2},{n / 8:09.2f}\n" for n in range(250_000))
    for n in range(PIECES // 2 + 3):
        (tmp_path / f"{n:02}.csv").write_text(text if n < 5 else text[: 1 << 10])
    sample = sample_of([str(tmp_path / "*.csv")])
    assert (sample.parts, sample.parts_read) == (PIECES // 2 + 3, PIECES // 2 + 3)
    assert 5 * 80_000 < sample.rows_read < 5 * 100_000
    assert sample.rows == pytest.approx(5 * 250_000, rel=0.02)
    assert not (tmp_path / ".recsim-train").exists()


def test_the_distinct_ids_of_all_rows_are_within_the_error_that_is_stated() -> None:
    """Hardly ever not where rows of an id lie together, as in a log that is sorted by user: the ids
    that were not seen may all lie in one piece."""
    rng = np.random.default_rng(5)
    above = {True: 0, False: 0}
    for number in range(400):
        different, rows = int(rng.integers(1, 3_000)), int(rng.integers(200, 4_000))
        popularity = np.arange(1, different + 1) ** -rng.uniform(0.0, 2.5)
        ids = rng.choice(different, rows, p=popularity / popularity.sum())
        together = number % 2 == 0
        pieces = np.array_split(np.sort(ids) if together else ids, 100)
        count = max(1, round(rng.uniform(0.05, 1.0) * 100)) if number % 10 else 100
        read = [pieces[n] for n in rng.permutation(100)[:count]]
        found = distinct_of(read, sum(map(len, read)) / rows)
        truth = len(np.unique(ids))
        assert found["least"] <= min(truth, found["about"])
        assert found["about"] <= found["most"]
        above[together] += truth > found["most"]
        if count == 100:
            assert set(found.values()) == {truth}
    assert above[False] == 0
    assert above[True] <= 4


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=60))
def test_a_column_that_was_read_whole_is_counted_exactly(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    texts = [None if value is None else str(value) for value in values]
    columns = {"item_id": pa.array(values, pa.int64()), "name": pa.array(texts, pa.utf8())}
    pq.write_table(pa.table(columns | {"both": [[t, "other"] for t in texts]}), path)
    whole = set(values) - {None}
    sample = sample_of([str(path)])
    for name, column in sample.columns.items():
        one = _described(name, column, sample)
        truth = len(whole) + (one.name == "both")
        assert set(one.distinct.values()) == {truth}
        if one.name != "both":
            assert one.missing == pytest.approx(values.count(None) / len(values))


def test_of_few_rows_one_is_held_out() -> None:
    """Of a suggested experiment 5 %: of three rows that is none, and there would be no loss."""
    of = {
        share: Data(eval_from="end").model_copy(update={"eval_share": share})
        for share in (0.05, 0.0)
    }
    assert held_out_rows(of[0.05], 3) == (2, 3)
    assert held_out_rows(of[0.05], 200) == (190, 200)
    assert held_out_rows(of[0.0], 3) == (3, 3)
