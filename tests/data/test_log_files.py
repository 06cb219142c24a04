"""Files of a log that are not as one wishes: each is read right, or refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.columns import Column
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data.dealing import BatchStream
from recsim_train.data.input import files_of
from recsim_train.data.stream import check_data, held_out, open_stream

MODEL = Model(
    embedding_dim=4, dense_features=1, bottom_mlp=(4,), top_mlp=(1,), tables=(Table(rows=101),)
)
COLUMNS = (
    Column(name=("n",), type="numeric"),
    Column(name=("c",), type="categorical", num_buckets=100),
)


def log(*paths: Path | str, **more: Any) -> Data:
    """Rows in the files' order, none of which is held out."""
    settings_ = {"label": "y", "columns": COLUMNS, "eval_rows": 0, "shuffle": False, **more}
    return Data(path=tuple(map(str, paths)), **settings_)


def frame(first: int, rows: int) -> dict[str, Any]:
    numbers = range(first, first + rows)
    return {"y": [n % 2 for n in numbers], "n": list(numbers), "c": [n % 100 for n in numbers]}


def put(path: Path, first: int = 0, rows: int = 10, group: int = 4, **columns: Any) -> Path:
    pq.write_table(pa.table({**frame(first, rows), **columns}), path, row_group_size=group)
    return path


def fed(data: Data, batch_size: int, batches: int = 1) -> BatchStream:
    check_data(MODEL, data)
    return open_stream(
        MODEL, data, batch_size=batch_size, positions=(0,), total=1, iterations=batches, seed=1
    )


def rows_of(data: Data, rows: int) -> list[int]:
    """Their numbers; ids and labels go with them."""
    stream = fed(data, rows)
    batch = next(stream).batch
    assert not stream.malformed.total
    numbers: list[int] = batch.dense[:, 0].astype(int).tolist()
    assert batch.ids.tolist() == [n % 100 + 1 for n in numbers]
    assert batch.labels.tolist() == [n % 2 for n in numbers]
    return numbers


def refusal(data: Data) -> str:
    with pytest.raises(UserError) as caught:
        check_data(MODEL, data)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    return said


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.floats(0.0, 1.0, exclude_max=True))
def test_a_parquet_file_that_was_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    path = put(tmp_path / "x.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    said = refusal(log(path))
    assert said.startswith(str(path))
    assert "is no whole Parquet file" in said or share < 0.1


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=40))
def test_damage_anywhere_is_said_in_one_sentence_if_it_is_found(
    tmp_path: Path, place: int, noise: bytes
) -> None:
    path = put(tmp_path / "x.parquet", rows=200, group=50)
    whole = bytearray(path.read_bytes())
    place %= len(whole)
    whole[place : place + len(noise)] = noise
    path.write_bytes(whole)
    said = [str(path)]
    try:
        stream = fed(log(path), 200)
        next(stream)
    except (UserError, RunFailed) as error:
        said = str(error).splitlines()
    assert len(said) == 1
    assert str(path) in said[0]


def test_damage_within_a_row_group_is_found_when_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table(frame(0, 60_000))
    pq.write_table(table, path, row_group_size=30_000, use_dictionary=False)
    start = pq.read_metadata(path).row_group(1).column(1).data_page_offset
    whole = bytearray(path.read_bytes())
    whole[start : start + 64] = b"\xff" * 64
    path.write_bytes(whole)
    stream = fed(log(path), 1000, 60)
    assert next(stream).batch.size == 1000
    with pytest.raises(RunFailed, match=r"x\.parquet: cannot be read on in row group 1 \("):
        list(stream)


def test_row_groups_without_rows_are_passed_over(tmp_path: Path) -> None:
    path, table = tmp_path / "x.parquet", pa.table(frame(0, 9))
    with pq.ParquetWriter(path, table.schema) as writer:
        for begin, rows in ((0, 0), (0, 4), (4, 0), (4, 0), (4, 5), (9, 0)):
            writer.write_table(table.slice(begin, rows))
    assert pq.read_metadata(path).num_row_groups == 6
    assert rows_of(log(path), 9) == list(range(9))


def test_files_without_rows(tmp_path: Path) -> None:
    empty = put(tmp_path / "a.parquet", rows=0)
    full = put(tmp_path / "b.parquet", rows=5)
    assert rows_of(log(empty, full), 5) == list(range(5))
    assert refusal(log(empty)) == f"{empty} has no rows"


@pytest.mark.parametrize("group", [1, 100])
def test_files_of_one_row(tmp_path: Path, group: int) -> None:
    files = [put(tmp_path / f"{n:03}.parquet", first=n, rows=1, group=group) for n in range(100)]
    assert rows_of(log(tmp_path), 100) == list(range(100))
    assert rows_of(log(*files[::-1]), 200) == list(range(100))[::-1] * 2
    shuffled = rows_of(log(tmp_path, shuffle=True), 100)
    assert sorted(shuffled) == list(range(100)) != shuffled


def test_one_row_alone_is_a_log(tmp_path: Path) -> None:
    assert rows_of(log(put(tmp_path / "x.parquet", first=7, rows=1)), 3) == [7, 7, 7]


def test_no_click_at_all_is_no_reason_to_stop(tmp_path: Path) -> None:
    path = put(tmp_path / "x.parquet", y=[0] * 10)
    stream = fed(log(path), 10)
    assert not next(stream).batch.labels.any()
    assert not stream.malformed.total


def test_a_column_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = put(tmp_path / "x.parquet")
    column = Column(name=("clicsk",), type="numeric")
    pq.write_table(pa.table({**frame(0, 5), "clicks": [1] * 5}), path)
    said = refusal(log(path, columns=(*COLUMNS, column)))
    assert said == f"{path}: has no column 'clicsk'; did you mean 'clicks'?"
    said = refusal(log(path, label="purchase"))
    assert said == f"{path}: has no column 'purchase'; it has y, n, c, clicks"


def test_the_file_whose_schema_differs_is_named(tmp_path: Path) -> None:
    good = [put(tmp_path / f"{n}.parquet") for n in range(3)]
    lacking = tmp_path / "lacking.parquet"
    pq.write_table(pa.table(frame(0, 5)).drop_columns(["c"]), lacking)
    assert refusal(log(*good, lacking)).startswith(f"{lacking}: has no column 'c'")
    other = put(tmp_path / "other.parquet", rows=2, c=[{"a": 1}, {"a": 2}])
    said = refusal(log(good[0], other, good[1]))
    assert said == (
        f"{other}: column 'c' is of type struct<a: int64>; expected whole numbers or text"
    )


def test_other_orders_and_types_of_columns_are_the_same_log(tmp_path: Path) -> None:
    whole = pa.table(frame(0, 40))
    types: list[pa.Schema] = [
        whole.schema,
        pa.schema([("y", pa.bool_()), ("n", pa.float32()), ("c", pa.string())]),
        pa.schema([("y", pa.string()), ("n", pa.string()), ("c", pa.uint8())]),
        pa.schema([("y", pa.float64()), ("n", pa.decimal128(21, 2)), ("c", pa.float64())]),
    ]
    for number, schema in enumerate(types):
        part = whole.slice(10 * number, 10)
        arrays = [part.column(name).cast(schema.field(name).type) for name in schema.names]
        table = pa.table(arrays, schema=schema).select(["c", "y", "n"] if number % 2 else [0, 1, 2])
        pq.write_table(table, tmp_path / f"{number}.parquet")
    assert rows_of(log(tmp_path), 40) == list(range(40))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_two_columns_of_one_name(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    table = pa.table([[1, 0], [5, 6], [1, 2], [3, 4]], names=["y", "n", "c", "c"])
    if ending == "csv":
        path.write_text("y,n,c,c\n1,5,1,3\n0,6,2,4\n")
    else:
        pq.write_table(table, path)
    assert refusal(log(path)) == f"{path}: has 2 columns 'c'"
    columns = (COLUMNS[0], Column(name=("y2",), type="categorical", num_buckets=9))
    if ending == "csv":
        path.write_text("y,n,y2,x,x\n1,5,1,,3\n0,6,2,4,\n")
    else:
        pq.write_table(pa.table([*table.columns, [7, 8]], ["y", "n", "y2", "x", "x"]), path)
    stream = fed(log(path, columns=columns), 2)
    assert next(stream).batch.ids.tolist() == [2, 3]


def test_dictionaries_are_their_values(tmp_path: Path) -> None:
    path, columns = tmp_path / "x.parquet", (
        COLUMNS[0],
        Column(name=("c",), type="categorical", hash_bucket_size=100),
    )  # fmt: skip
    words = pd.Series(["b", "a", None, "b", "c"] * 2)
    batches = []
    for series in (words, words.astype("category")):
        pd.DataFrame({**frame(0, 10), "c": series}).to_parquet(path, row_group_size=4)
        stream = fed(log(path, columns=columns), 10)
        batches.append(next(stream).batch.ids.tolist())
    assert batches[0] == batches[1]
    assert batches[0][2] == 0
    assert len(set(batches[0])) == 4


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([("a", pa.int64())]), {"a": 1}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (pa.timestamp("us"), 0),
        (pa.date32(), 0),
        (pa.time64("us"), 0),
        (pa.list_(pa.int64()), [1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["y", "n", "c"])
def test_types_that_are_no_values_are_refused_by_name(
    tmp_path: Path, kind: pa.DataType, value: Any, name: str
) -> None:
    path = put(tmp_path / "x.parquet", rows=3, **{name: pa.array([value] * 3, kind)})
    said = refusal(log(path))
    assert said.startswith(f"{path}: column '{name}' is of type ")
    assert "; expected " in said


def test_lists_and_single_values_are_told_apart(tmp_path: Path) -> None:
    lists = Column(name=("c",), type="categorical", num_buckets=100, max_len=2)
    inner = pa.array([[{"a": 1}]] * 3)
    path = put(tmp_path / "x.parquet", rows=3)
    assert "expected lists of whole" in refusal(log(path, columns=(COLUMNS[0], lists)))
    put(path, rows=3, c=inner)
    assert "expected lists of whole" in refusal(log(path, columns=(COLUMNS[0], lists)))
    put(path, rows=3, c=[[1], [2, 3], []])
    assert "by max_len" in refusal(log(path))
    put(path, rows=3, c=["1", "2 3", ""])
    assert "give the separator" in refusal(log(path, columns=(COLUMNS[0], lists)))


@pytest.mark.parametrize("change", ["rewritten", "removed", "emptied"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, change: str) -> None:
    path = put(tmp_path / "x.parquet", rows=40_000, group=20_000)
    stream = fed(log(path), 100, 500)
    next(stream)
    if change == "rewritten":
        put(path, rows=39_000, group=20_000)
    elif change == "removed":
        path.unlink()
    else:
        path.write_bytes(b"")
    said = r"has changed since it was opened" if change != "removed" else "No such file"
    with pytest.raises(RunFailed, match=rf"x\.parquet.*{said}"):
        list(stream)


def test_a_hundred_files(tmp_path: Path) -> None:
    for n in range(100):
        put(tmp_path / f"part-{n:05}.parquet", first=30 * n, rows=30, group=17)
    assert rows_of(log(tmp_path), 3000) == list(range(3000))
    assert rows_of(log(f"{tmp_path}/part-*[02468].parquet"), 1500) == [
        n for n in range(3000) if n // 30 % 2 == 0
    ]
    data = log(tmp_path, eval_rows=1234, eval_from="end")
    judged = [n for b in held_out(MODEL, data, 100) for n in b.dense[:, 0].astype(int).tolist()]
    assert judged == list(range(1766, 3000))
    assert rows_of(data, 1766) == list(range(1766))


def test_names_of_files(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "10.parquet", "9.parquet", "_x.parquet", ".y.parquet"):
        put(tmp_path / name)
    (tmp_path / "sub.parquet").mkdir()
    (tmp_path / "notes.txt~").touch()

    def names(*paths: str) -> list[str]:
        return [os.path.relpath(path, tmp_path) for path in files_of(paths)]

    whole = ["10.parquet", "9.parquet", "a.parquet", "b.parquet"]
    assert names(f"{tmp_path}/[0-9ab]*.parquet") == whole
    assert names(f"{tmp_path}/a.parquet", f"{tmp_path}/9*") == ["a.parquet", "9.parquet"]
    assert names(f"{tmp_path}/b.parquet", f"{tmp_path}/a.parquet") == ["b.parquet", "a.parquet"]
    (tmp_path / "link.parquet").symlink_to("a.parquet")
    for twice in (("a.parquet", "a.parquet"), ("a.parquet", "link.parquet"), ("a*", "a.parquet")):
        with pytest.raises(UserError, match=r"is named twice in data\.path"):
            names(*(f"{tmp_path}/{name}" for name in twice))
    with pytest.raises(UserError, match="no file has a name like this"):
        names(f"{tmp_path}/*.csv")
    with pytest.raises(UserError, match=r"the folder has no file \*\.parquet"):
        names(f"{tmp_path}/sub.parquet")


def test_names_of_columns_may_be_any(tmp_path: Path) -> None:
    names = ["user.id", "größe", "a b", "user", "__index_level_0__", "", "x,y"]
    columns = (
        COLUMNS[0],
        *(Column(name=(name,), type="categorical", num_buckets=9) for name in names),
    )
    values = {name: [n] * 3 for n, name in enumerate(names)}
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({**frame(0, 3), **values}), path)
    pd.DataFrame({**frame(0, 3), **values}).to_csv(tmp_path / "x.csv", index=False)
    for name in ("x.parquet", "x.csv"):
        stream = fed(log(tmp_path / name, columns=columns), 3)
        ids = next(stream).batch.ids.reshape(len(names), 3)
        assert ids[:, 0].tolist() == [n + 1 for n in range(len(names))]


def test_text_and_parquet_may_be_mixed(tmp_path: Path, convert: Callable[[Data], None]) -> None:
    first = put(tmp_path / "a.parquet", rows=5)
    second, third = tmp_path / "b.csv", put(tmp_path / "c.parquet", first=8, rows=5)
    second.write_text("c,y,more,n\n5,1,x,5\nno row\n6,0,x,6\n7,1,,7\n")
    data = log(first, second, third)
    for _ in range(2):
        stream = fed(data, 14)
        batch = next(stream).batch
        assert batch.dense[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11, 12]
        said = stream.malformed.describe()
        assert f"({second}, line 3: 1 column, not 4)" in said
        convert(data)


CSV: dict[str, tuple[str | bytes, list[int] | str]] = {
    "as pandas writes it": ("y,n,c\n1,1.0,1.0\n0,,\n", [1, 0]),
    "carriage returns": ("y,n,c\r\n1,1,1\r\n0,2,2\r\n", [1, 2]),
    "old Macintosh": ("y,n,c\r1,1,1\r0,2,2\r", [1, 2]),
    "no last line feed": ("y,n,c\n1,1,1\n0,2,2", [1, 2]),
    "empty lines at the end": ("y,n,c\n1,1,1\n0,2,2\n\r\n\n", [1, 2]),
    "mark of UTF-8": (b"\xef\xbb\xbfy,n,c\n1,1,1\n0,2,2\n", [1, 2]),
    "Latin-1": ("y,n,c,ö\n1,1,1,é\n0,2,2,ü\n".encode("latin-1"), [1, 2]),
    "quoted": ('"y","n","c"\n"1","1","1"\n"0","2","2"\n', [1, 2]),
    "tabs": ("y\tn\tc\n1\t1\t1\n0\t2\t2\n", [1, 2]),
    "bars": ("y|n|c\n1|1|1\n0|2|2\n", [1, 2]),
    "commas in quotes": ('y,n,c,x\n1,1,1,"a,b"\n0,2,2,"c ""d"""\n', [1, 2]),
    "header alone": ("y,n,c\n", "x has no rows"),
    "header without a line feed": ("y,n,c", "x has no rows"),
    "no header": ("1,1,1\n0,2,2\n", "x: has no column 'y'; it has 1, 1, 1"),
    "near": ("Y,n,c\n1,1,1\n", "x: has no column 'y'; did you mean 'Y'?"),
    "lists": ("y,n,c\n1,1,[1]\n0,2,[2]\n", "no well-formed row"),
    "prose": ("Dear reader\nthis is no log\n", "x: has no column 'y'; it has Dear reader"),
    "a line without an end": ("y" * 2_000_000, "is no header of CSV"),
}


@pytest.mark.parametrize("name", CSV)
def test_csv_is_read_right_or_refused(
    tmp_path: Path, name: str, convert: Callable[[Data], None]
) -> None:
    content, expected = CSV[name]
    path = tmp_path / "x"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(expected, str):
        said = refusal(log(path))
        assert expected in said
        assert len(said) < 1000
        return
    for _ in range(2):
        stream = fed(log(path), len(expected))
        batch = next(stream).batch
        assert batch.dense[:, 0].tolist() == expected
        assert batch.ids.tolist() == [n + 1 if n else 0 for n in expected]
        assert not stream.malformed.total
        convert(log(path))


def test_rows_of_another_width_are_malformed_and_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    lines = ["y,n,c", *(f"{n % 2},{n},{n}" for n in range(20))]
    lines[5] += ",more"
    lines[9] = "1,2"
    lines[12] = "0,x,3"
    lines[14] = "2,3,3"
    lines[16] = "1,3,100"
    lines[18] = "1,3,1.5"
    path.write_text("\n".join(lines) + "\n")
    stream = fed(log(path), 20)
    batch = next(stream).batch
    assert batch.dense[:, 0].tolist() == [
        0, 1, 2, 3, 5, 5, 6, 7, 9, 9, 10, 12, 12, 14, 14, 16, 16, 18, 18, 19,
    ]  # fmt: skip
    assert stream.malformed.counts == {"mark": 2, "number": 1, "label": 1, "id": 2}
    said = stream.malformed.describe()
    for part in (
        f"({path}, line 6: 4 columns, not 3; {path}, line 10: 2 columns, not 3)",
        f"({path}, line 13: column 'n': \"x\")",
        f"({path}, line 15: column 'y': \"2\")",
        f"({path}, line 17: column 'c': \"100\"; {path}, line 19: column 'c': \"1.5\")",
    ):
        assert part in said


def test_rows_of_parquet_are_named_by_group_and_row(tmp_path: Path) -> None:
    path = put(tmp_path / "x.parquet", c=[0, 1, 2, 3, 4, -5, 6, 7, 8, 9])
    stream = fed(log(path), 10)
    next(stream)
    assert f"({path}, row group 1, row 1: column 'c': -5)" in stream.malformed.describe()


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    group=st.integers(1, 8),
    held=st.integers(0, 30),
    at_end=st.booleans(),
    total=st.integers(1, 3),
)
def test_held_out_rows_of_several_files_are_never_trained_on(
    tmp_path: Path, sizes: list[int], group: int, held: int, at_end: bool, total: int
) -> None:
    files = []
    for n, size in enumerate(sizes):
        files.append(put(tmp_path / f"{n}.parquet", sum(sizes[:n]), size, group))
    rows = sum(sizes)
    data = log(*files, eval_rows=held, eval_from="end" if at_end else "start", shuffle=True)
    if held >= rows:
        assert ("all of which are held out" if rows else "has no rows") in refusal(data)
        return
    expected = set(range(rows - held) if at_end else range(held, rows))
    trained: set[int] = set()
    stream = open_stream(
        MODEL, data, batch_size=rows, positions=range(total), total=total, iterations=2, seed=held
    )
    for one in stream:
        trained |= set(np.round(one.batch.dense[:, 0]).astype(int).tolist())
    assert trained == expected


@st.composite
def written(draw: st.DrawFn) -> list[tuple[int, dict[str, Any]]]:
    """Files: how many rows each has, and how it is written."""
    ways = st.fixed_dictionaries(
        {
            "row_group_size": st.integers(1, 30),
            "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]),
            "use_dictionary": st.booleans(),
            "write_statistics": st.booleans(),
            "data_page_size": st.sampled_from([1, 64, 1 << 20]),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
            "store_schema": st.booleans(),
        }
    )
    return draw(st.lists(st.tuples(st.integers(0, 40), ways), min_size=1, max_size=4))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(files=written(), number=st.sampled_from([pa.int8(), pa.int64(), pa.float32(), pa.utf8()]))
def test_the_same_rows_are_read_however_they_were_written(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[int, dict[str, Any]]],
    number: pa.DataType,
) -> None:
    folder, first = tmp_path_factory.mktemp("log"), 0
    for place, (rows, way) in enumerate(files):
        columns = frame(first, rows)
        numbers = pa.array([n % 100 for n in columns["n"]]).cast(number)
        table = pa.table({**columns, "c": numbers, "n": pa.array(columns["n"], pa.int64())})
        pq.write_table(table, folder / f"{place}.parquet", **way)
        first += rows
    if not first:
        assert "no rows" in refusal(log(folder))
    else:
        assert rows_of(log(folder), first) == list(range(first))
