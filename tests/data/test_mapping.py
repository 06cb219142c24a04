"""Rows of a log as examples, against a slow reference that knows nothing of Arrow."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recsim_train.config.columns import Categorical, Column, Layout, Numeric, layout_of
from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.mapping import KINDS, Mapped, Mapper, Room
from recsim_train.data.stream import check_data, open_stream

WRONG = "wrong"


def mapped_by(mapper: Mapper, batch: pa.RecordBatch, first: int = 0) -> Mapped:
    """All rows of a batch, in two pieces."""
    room, half = Room(mapper, batch.num_rows), batch.num_rows // 2
    room.add(first, batch.slice(0, half))
    room.add(first + half, batch.slice(half))
    return room.taken()


def fnv(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def number_of(value: Any) -> int | str:
    """A whole number, or the text that an id is."""
    if isinstance(value, str):
        return re.sub(r"^(-?[0-9]+)\.0*$", r"\1", value)
    if isinstance(value, float) and (not value.is_integer() or abs(value) >= 2**53):
        return WRONG
    return int(value)


def id_of(value: Any, spec: Categorical) -> int | str:
    if is_missing(value):
        return 0
    found, buckets = number_of(value), spec.rows - 1
    if found == WRONG and not isinstance(value, str):
        return WRONG
    if spec.mapping == "hash":
        return fnv(str(found)) % buckets + 1
    if isinstance(found, str):
        if not re.fullmatch("-?[0-9]{1,18}", found):
            return WRONG
        found = int(found)
    if 0 <= found < buckets:
        return found + 1
    return WRONG if spec.strict else 0


def ids_of(value: Any, spec: Categorical) -> list[int] | str:
    if spec.separator is not None:
        value = None if is_missing(value) else value.split(spec.separator)
    found = [id_of(one, spec) for one in (value or [])[: spec.most] if not is_missing(one)]
    return WRONG if WRONG in found else [int(one) for one in found]


def feature_of(value: Any, spec: Numeric) -> float | str:
    if isinstance(value, str):
        value = value.strip()
    if is_missing(value) or (isinstance(value, str) and value.lower() == "nan"):
        value = spec.fill
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", value):
            return WRONG
        value = float(value)
    return math.log(max(float(value), 0.0) + 1.0) if spec.log else float(value)


def by_rows(batch: NumpyBatch, layout: Layout) -> list[list[Any]]:
    """Of each table, its ids row by row."""
    ids, lengths = iter(batch.ids.tolist()), iter(batch.lengths.tolist())
    found = [
        [[next(ids) for _ in range(next(lengths))] if spec.most else next(ids)
         for _ in range(batch.size)]
        for spec in layout.categorical
    ]  # fmt: skip
    assert next(ids, None) is next(lengths, None) is None
    return found


def check(layout: Layout, rows: list[dict[str, Any]], batch: pa.RecordBatch) -> Mapper:
    """Hold all rows against the reference."""
    mapper = Mapper(layout)
    mapped = mapped_by(mapper, batch, 1000)
    found = mapped.batch(mapper.bags)
    tables = by_rows(found, layout)
    assert mapped.origins.tolist() == list(range(1000, 1000 + len(rows)))
    for n, row in enumerate(rows):
        label = feature_of(row[layout.label], Numeric("", math.nan, False))
        features = [feature_of(row[spec.name], spec) for spec in layout.numeric]
        ids = [
            (ids_of if spec.most else id_of)(row[spec.name], spec) for spec in layout.categorical
        ]
        wrong = [label not in (0.0, 1.0), WRONG in features, WRONG in ids]
        kind = KINDS[1 + wrong.index(True)] if any(wrong) else None
        assert (KINDS[mapped.kinds[n] - 1] if mapped.kinds[n] else None) == kind, row
        if kind is None:
            assert found.labels[n] == label
            # the least positive number of 32 bits is 1.4e-45, and what is near to 1 is a multiple
            # of 2 ** -24: so much log1p's sum of 1 and a small number may be off
            for value, expected, spec in zip(found.dense[n], features, layout.numeric, strict=True):
                absolute = 2.0**-24 if spec.log else 1e-37
                assert value == pytest.approx(expected, rel=1e-6, abs=absolute)
            assert [table[n] for table in tables] == ids, row
        else:
            assert 1000 + n in mapper.said[kind]
    assert (found.dense.dtype, found.ids.dtype) == (np.float32, np.int64)
    return mapper


WHOLE = st.one_of(st.integers(-3, 12), st.integers(-(2**63), 2**63 - 1))
REAL = st.one_of(
    st.integers(-3, 12).map(float), st.floats(-(2.0**99), 2.0**99, width=32), st.just(math.nan),
    st.sampled_from([2.0**53, -(2.0**53), 2.0**60, 0.5, -0.0]),
)  # fmt: skip
WORD = st.one_of(
    st.text("ab0é-.", max_size=4),
    st.integers(-3, 12).map(str),
    st.sampled_from(
        ["7.0", "7.", "-0", "0.00", "007", "1e3", "9" * 18, "9" * 19, "12345678901234567890.0",
         ".0", "-", "-.0", " 7", "7 ", "nan", "Ω" * 40, "日本語", "a|b", "\0", "1.50"]
    ),
)  # fmt: skip
KINDS_OF_IDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), WHOLE),
    (pa.uint16(), st.integers(0, 2**16 - 1)),
    (pa.uint64(), st.one_of(st.integers(0, 12), st.integers(0, 2**64 - 1))),
    (pa.float32(), REAL),
    (pa.float64(), REAL),
    (pa.bool_(), st.booleans()),
    (pa.string(), WORD),
    (pa.large_string(), WORD),
    (pa.dictionary(pa.int8(), pa.string()), WORD),
    (pa.dictionary(pa.int32(), pa.int64()), WHOLE),
    (pa.null(), st.none()),
]
NUMBER_TEXT = st.one_of(
    st.integers(-3, 99).map(str), st.floats(-1e6, 1e6).map(str),
    st.sampled_from(["", "+5", " 5", "5 ", ".5", "5.", "1e3", "-1E-3", "nan", "NaN", "x", "0x1f",
                     "1,5", "--1", "1e", "inf", "\0", "9" * 30]),
)  # fmt: skip
KINDS_OF_NUMBERS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *[kind for kind in KINDS_OF_IDS if not (pa.types.is_string(kind[0]) or
      pa.types.is_large_string(kind[0]) or pa.types.is_dictionary(kind[0]))],
    (pa.decimal128(9, 2), st.decimals(-99, 99, places=2)),
    (pa.string(), NUMBER_TEXT),
    (pa.large_string(), NUMBER_TEXT),
    (pa.dictionary(pa.int8(), pa.string()), NUMBER_TEXT),
]  # fmt: skip


@st.composite
def columns(draw: st.DrawFn, kinds: Any, rows: int, wrap: Any = None) -> tuple[pa.Array, list[Any]]:
    """A column, cut out of a longer one as decoders give it, and its values."""
    kind, values = draw(st.sampled_from(kinds))
    values = st.none() | values
    if wrap is not None:
        kind, values = draw(st.sampled_from(wrap))(kind, values)
    given_ = draw(st.lists(values, min_size=rows + 3, max_size=rows + 3))
    array = pa.array(given_, kind)
    return array.slice(2, rows), array.slice(2, rows).to_pylist()


def specs(list_of: bool, separator: str | None = None) -> st.SearchStrategy[Categorical]:
    return st.builds(
        lambda buckets, mapping, most, strict: Categorical(
            "c", buckets + 1, mapping, most, separator, strict
        ),
        st.sampled_from([1, 2, 10, 1000, 2**33]),
        st.sampled_from(["hash", "buckets"]),
        st.integers(1, 4) if list_of else st.just(0),
        st.booleans(),
    )


ZEROS = Categorical("zeros", 2, "buckets")
"""Of a model's tables, of which there is one at least."""


def held(spec: Numeric | Categorical, array: pa.Array, values: list[Any]) -> None:
    numeric, categorical = ((spec,), ()) if isinstance(spec, Numeric) else ((), (spec,))
    layout = Layout("y", numeric, (*categorical, ZEROS))
    rows = [{"y": 1, spec.name: value, "zeros": 0} for value in values]
    same = [pa.array([value] * len(values), pa.int64()) for value in (1, 0)]
    check(layout, rows, pa.RecordBatch.from_arrays([*same, array], ["y", "zeros", spec.name]))


@settings(max_examples=120)
@given(columns(KINDS_OF_IDS, 6), specs(list_of=False))
def test_ids_of_any_type(column: tuple[pa.Array, list[Any]], spec: Categorical) -> None:
    held(spec, *column)


WRAPPED = [
    lambda kind, values: (pa.list_(kind), st.lists(values, max_size=6)),
    lambda kind, values: (pa.large_list(kind), st.lists(values, max_size=6)),
    lambda kind, values: (pa.list_(kind, 3), st.lists(values, min_size=3, max_size=3)),
    lambda kind, values: (pa.list_(kind), st.none() | st.lists(values, max_size=2)),
]


@settings(max_examples=120)
@given(columns(KINDS_OF_IDS[:-1], 5, WRAPPED), specs(list_of=True))
def test_lists_of_any_type(column: tuple[pa.Array, list[Any]], spec: Categorical) -> None:
    held(spec, *column)


LISTED = st.lists(WORD, max_size=6).map("|".join)


@settings(max_examples=60)
@given(
    columns([(pa.string(), LISTED), (pa.dictionary(pa.int8(), pa.string()), LISTED)], 5),
    specs(list_of=True, separator="|"),
)
def test_lists_in_text(column: tuple[pa.Array, list[Any]], spec: Categorical) -> None:
    held(spec, *column)


@settings(max_examples=120)
@given(
    columns(KINDS_OF_NUMBERS, 6),
    st.builds(Numeric, st.just("f"), st.sampled_from([0.0, -1.5, 9.0]), st.booleans()),
)
@example((pa.array(["+5", "5"]), ["+5", "5"]), Numeric("f", 0.0, False))
@example((pa.array([2**53 + 1, 2**62]), [2**53 + 1, 2**62]), Numeric("f", 0.0, True))
def test_features_of_any_type(column: tuple[pa.Array, list[Any]], spec: Numeric) -> None:
    held(spec, *column)


@settings(max_examples=60)
@given(columns([*KINDS_OF_IDS[:7], (pa.string(), st.sampled_from(["0", "1", "1.0", "", "2"]))], 6))
def test_labels_of_any_type(column: tuple[pa.Array, list[Any]]) -> None:
    array, values = column
    zeros = pa.array([0] * len(values))
    batch = pa.RecordBatch.from_arrays([array, zeros], ["y", "zeros"])
    check(Layout("y", (), (ZEROS,)), [{"y": value, "zeros": 0} for value in values], batch)


def test_numbers_that_are_none_are_malformed() -> None:
    for value in (math.inf, -math.inf, 1e39):
        layout = Layout("y", (Numeric("f", 0.0, False),), ())
        rows = {"y": [1, 1, 1], "f": [value, 2.0, 3e38]}
        assert mapped_by(Mapper(layout), pa.RecordBatch.from_pydict(rows)).kinds.tolist() == [
            3,
            0,
            0,
        ]
        rows = {"y": [1.0, 0.0, value], "f": [1, 2, 3]}
        assert mapped_by(Mapper(layout), pa.RecordBatch.from_pydict(rows)).kinds.tolist() == [
            0,
            0,
            2,
        ]


def test_the_hash_is_fnv_1a() -> None:
    """As its authors publish it: http://www.isthe.com/chongo/src/fnv/test_fnv.c"""
    for text, value in ("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), (
        "foobar", 0x85944171F73967E8,
    ):  # fmt: skip
        assert fnv(text) == value
    held(Categorical("c", 2**40, "hash"), pa.array(["a", "foobar"]), ["a", "foobar"])
    held(Categorical("c", 2**40, "hash"), pa.array([-(2**63), 0]), [-(2**63), 0])


COLUMNS = (
    Column(name=("age", "price"), type="numeric", fill_na=-1.0),
    Column(name=("user",), type="categorical", num_buckets=50),
    Column(name=("page", "city"), type="categorical", hash_bucket_size=1000),
    Column(name=("tags",), type="categorical", hash_bucket_size=100, max_len=3, separator=" "),
    Column(name=("vip",), type="categorical", hash_bucket_size=9),
)


def test_csv_and_parquet_of_one_frame_are_the_same_examples(tmp_path: Path) -> None:
    """As pandas writes them: whole numbers with gaps are 7.0 in CSV, and floats in Parquet."""
    draw = np.random.default_rng(1)
    n = 500
    frame = pd.DataFrame(
        {
            "click": draw.integers(0, 2, n),
            "age": draw.choice([np.nan, 20, 31, 47.5], n),
            "price": draw.integers(0, 10**6, n),
            "user": draw.choice([np.nan, *range(50)], n),
            "page": draw.choice([np.nan, *range(10**6, 10**6 + 40)], n),
            "city": draw.choice(["Köln", "St. Gallen", '"Q", x', "12", "", "  a"], n),
            "tags": draw.choice(["a b c d", "b", "", "7 7.0", "é é"], n),
            "vip": draw.choice([True, False], n),
        }
    )
    frame.to_parquet(tmp_path / "x.parquet", row_group_size=100)
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_csv(tmp_path / "semicolons.csv.gz", index=False, sep=";")
    frame.astype({"vip": "int8"}).to_csv(tmp_path / "numbers.csv", index=False)
    tables = tuple(
        Table(rows=rows, ids=ids, variable=ids > 1)
        for rows, ids in ((51, 1), (1001, 1), (1001, 1), (101, 3), (10, 1))
    )
    model = Model(embedding_dim=4, dense_features=2, bottom_mlp=(4,), top_mlp=(1,), tables=tables)

    def batch(name: str) -> NumpyBatch:
        path = str(tmp_path / name)
        data = Data(path=(path,), label="click", columns=COLUMNS, eval_rows=0, shuffle=False)
        check_data(model, data)
        stream = open_stream(
            model, data, batch_size=n, positions=(0,), total=1, iterations=1, seed=1
        )
        found = next(stream).batch
        assert stream.malformed.total == 0
        return found

    one = batch("x.parquet")
    expected = check_rows(frame)
    assert by_rows(one, layout_of("click", COLUMNS))[:4] == expected[:4]
    for name in ("numbers.csv", "x.csv", "semicolons.csv.gz"):
        other = batch(name)
        assert np.array_equal(one.labels, other.labels)
        np.testing.assert_allclose(one.dense, other.dense)
        tables_of = [by_rows(b, layout_of("click", COLUMNS)) for b in (one, other)]
        # of truth values CSV has the names, which are other text than Parquet's numbers
        assert (
            tables_of[0][: 5 if name == "numbers.csv" else 4]
            == (tables_of[1][: 5 if name == "numbers.csv" else 4])
        )
        assert np.array_equal(one.lengths, other.lengths)


def check_rows(frame: pd.DataFrame) -> list[list[Any]]:
    specs_ = layout_of("click", COLUMNS).categorical
    return [
        [(ids_of if spec.most else id_of)(value, spec) for value in frame[spec.name].tolist()]
        for spec in specs_
    ]


def one_column(spec: Categorical, values: list[Any]) -> tuple[Mapper, Any]:
    mapper = Mapper(Layout("y", (), (spec,)))
    batch = pa.RecordBatch.from_pydict({"y": [1] * len(values), "c": values})
    return mapper, mapped_by(mapper, batch)


def test_ids_outside_of_the_buckets() -> None:
    values = [0, 9, 10, -1, 10**12, None]
    strict = Categorical("c", 11, "buckets")
    _, mapped = one_column(strict, values)
    assert mapped.kinds.tolist() == [0, 0, 4, 4, 4, 0]
    for given_ in (values, [None if v is None else str(v) for v in values]):
        _, mapped = one_column(strict._replace(strict=False), given_)
        assert not mapped.kinds.any()
        assert mapped.batch([False]).ids.tolist() == [1, 10, 0, 0, 0, 0]


def test_the_value_that_is_wrong_is_said() -> None:
    spec = Categorical("c", 11, "buckets")
    mapper, _ = one_column(spec, ["3", "x" * 99, "-1"])
    assert mapper.said == {"id": {1: f"column 'c': \"{'x' * 59}...", 2: "column 'c': \"-1\""}}
    mapper, _ = one_column(spec._replace(most=2), [[1], [2, 77], [1, 2, 99]])
    assert mapper.said == {"id": {1: "column 'c': [2, 77]"}}  # the third id is not looked at


def test_tables_keep_their_order_between_lists(tmp_path: Path) -> None:
    layout = Layout(
        "y",
        (),
        (
            Categorical("a", 101, "buckets"),
            Categorical("b", 101, "buckets", 2),
            Categorical("c", 101, "buckets"),
            Categorical("d", 101, "buckets"),
            Categorical("e", 101, "buckets", 9),
        ),
    )
    rows = [
        {"y": n % 2, "a": n, "b": [n] * (n % 4), "c": 50 + n, "d": None, "e": list(range(n))}
        for n in range(8)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    (batch,) = pq.read_table(tmp_path / "x.parquet").to_batches()
    check(layout, rows, batch)


@pytest.mark.parametrize("chosen_rows", [[4, 0, 0, 5], [5, 4, 3, 2, 1, 0], []])
def test_rows_may_be_taken_in_any_order_and_joined(chosen_rows: list[int]) -> None:
    rows = np.array(chosen_rows, np.int64)
    layout = Layout("y", (), (Categorical("a", 101, "buckets"), Categorical("b", 101, "hash", 3)))
    given_ = [{"y": 1, "a": n, "b": [f"{n}{k}" for k in range(n % 4)]} for n in range(6)]
    mapper = Mapper(layout)
    mapped = mapped_by(mapper, pa.RecordBatch.from_pylist(given_))
    chosen = [given_[n] for n in rows.tolist()]
    found = by_rows(mapped.take(rows).batch(mapper.bags), layout)
    expected = [[(ids_of if s.most else id_of)(row[s.name], s) for row in chosen]
                for s in layout.categorical]  # fmt: skip
    assert found == expected
    twice = type(mapped).joined([mapped.take(rows), mapped])
    assert twice.origins.tolist() == [*rows.tolist(), *range(6)]
    both = by_rows(twice.batch(mapper.bags), layout)
    assert [table[: len(chosen)] for table in both] == expected
