"""Criteo text, converted and mapped, against a slow reader of its lines."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model, Table
from recsim_train.config.formats import unfit
from recsim_train.data import text as text_module
from recsim_train.data.convert import convert_text
from recsim_train.data.malformed import Malformed
from recsim_train.data.stream import check_data, held_out, open_stream
from recsim_train.data.text import criteo_text, text_rows

INTEGERS = st.one_of(
    st.just(""), st.integers(-5, 5), st.integers(-(10**18) + 1, 10**18 - 1), st.integers(0, 10**9)
).map(str)
CATEGORIES = st.one_of(st.just(""), st.text("0123456789abcdefABCDEF", max_size=16))
# characters next to digits and letters in ASCII, control characters and high bytes
ODD = st.text("0123456789afAF/:@G`g-+. x\x00\x10\x19\x7f\x80\xb0\xff\t\r", max_size=19)


@st.composite
def criteo_lines(draw: st.DrawFn) -> bytes:
    """Mostly well-formed lines; some with one odd field, one field less or more, or noise."""
    fields = [
        draw(st.sampled_from("01")),
        *(draw(INTEGERS) for _ in range(13)),
        *draw(st.lists(CATEGORIES, min_size=26, max_size=26)),
    ]
    spoilt = draw(st.integers(0, 5))
    if spoilt == 1:
        fields[draw(st.integers(0, 39))] = draw(ODD)
    elif spoilt == 2:
        fields = fields[: draw(st.integers(0, 39))]
    elif spoilt == 3:
        fields += [""] * draw(st.integers(1, 41))
    ending = draw(st.sampled_from(("", "", "\r")))
    return ("\t".join(fields) + ending).encode("latin-1")


def lacks(malformed: Malformed) -> dict[int, str]:
    """What is wrong, by line, of the malformed rows that are named."""
    named: dict[int, str] = {}
    for some in malformed.first.values():
        for row, where in some:
            place, said = where.split(": ", 1)
            assert place.endswith(f", line {row + 1:,}")
            named[row + 1] = said
    return named


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.lists(criteo_lines(), min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from(((1, 2, 3, 1000, 2**33), (7,) * 26)),
    st.integers(1, 13),
)
def test_parser_agrees_with_the_reference(
    tmp_path: Path,
    reference: Any,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    lines: list[bytes],
    last_feed: bool,
    rows: tuple[int, ...],
    features: int,
) -> None:
    model = make_model(rows, features)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\n".join(lines) + (b"\n" if last_feed or not lines[-1] else b""))
    lines = path.read_bytes().splitlines()  # at carriage returns, too
    wrong = [r if isinstance(r := reference.row(x, model), str) else None for x in lines]
    maker = make_criteo(path, model)
    assert maker.log.rows == len(lines)
    if all(wrong):
        with pytest.raises(RunFailed, match="no well-formed row in a whole batch"):
            every_row(maker)
    else:
        (batch,) = every_row(maker)
        expected, _ = reference.batch(lines, model)
        assert batch.labels.tolist() == [row.label for row in expected]
        np.testing.assert_allclose(batch.dense, [row.dense for row in expected], rtol=1e-6)
        found = batch.ids.reshape(len(model.tables), -1).T
        assert found.tolist() == [row.ids for row in expected]
        assert batch.dense.dtype == np.float32
    assert maker.malformed.total == sum(map(bool, wrong))
    named = lacks(maker.malformed)
    assert list(named) == [n for n, lack in enumerate(wrong, 1) if lack][:5]
    for line, said in named.items():
        assert said.startswith(str(wrong[line - 1]))


def test_every_single_byte_as_a_field(
    reference: Any,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    tmp_path: Path,
    make_line: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recsim_train.data.log_stream.FIRST", 10**4)
    monkeypatch.setattr("recsim_train.data.malformed.FIRST", 10**4)
    monkeypatch.setattr("recsim_train.data.mapping.SAID", 10**4)
    model = make_model((100,) * 26)
    fields = make_line().encode().split(b"\t")
    text = b""
    for byte in range(256):
        for place, more in ((0, b""), (3, b""), (3, b"-1"), (20, b""), (20, b"12"), (39, b"1")):
            changed = fields.copy()
            changed[place] = more + bytes([byte])
            text += b"\t".join(changed) + b"\n"
    path = tmp_path / "bytes.txt"
    path.write_bytes(text)
    lines = text.splitlines()
    expected, wrong = reference.batch(lines, model)
    maker = make_criteo(path, model)
    (batch,) = every_row(maker)
    assert batch.labels.tolist() == [row.label for row in expected]
    assert batch.ids.reshape(26, -1).T.tolist() == [row.ids for row in expected]
    named = lacks(maker.malformed)
    assert sorted(named) == [n for n, lack in enumerate(wrong, 1) if lack]
    for line, said in named.items():
        assert said.startswith(str(wrong[line - 1])), lines[line - 1]


@pytest.mark.parametrize("block", [301, 520, 4096])
def test_small_blocks_give_the_same_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
    block: int,
) -> None:
    model = make_model((50, 60))
    path = tmp_path / "x.txt"
    lines = [make_line("01"[n % 2], str(n), f"{n:x}") for n in range(40)]
    for n in (0, 7, 8, 9, 30, 39):
        lines[n] = "no\tsuch line"
    path.write_text("\n".join(lines))
    whole = make_criteo(path, model)
    batches = [b.ids.tolist() for b in every_row(whole, 7)]
    monkeypatch.setattr(text_module, "BLOCK", block)
    again = make_criteo(path, model)
    assert [b.ids.tolist() for b in every_row(again, 7)] == batches
    assert [len(part) for part in batches] == [14] * 5 + [10]
    assert list(lacks(whole.malformed)) == list(lacks(again.malformed)) == [1, 8, 9, 10, 31]


def test_gzip_of_several_members_reads_as_one(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
) -> None:
    text = [make_line(integer=str(n)) + "\n" for n in range(6)]
    plain, packed = tmp_path / "x.txt", tmp_path / "x.txt.gz"
    plain.write_text("".join(text))
    # a member may end in the middle of a line
    joined = "".join(text)
    packed.write_bytes(
        b"".join(gzip.compress(joined[i : i + 200].encode()) for i in range(0, 900, 200))
        + gzip.compress(joined[1000:].encode())
    )
    model = make_model((9,))
    (one,) = every_row(make_criteo(plain, model))
    (two,) = every_row(make_criteo(packed, model))
    assert np.array_equal(one.dense, two.dense)
    assert one.size == 6


def test_lines_may_end_in_carriage_returns(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
) -> None:
    model, batches = make_model((90,) * 26), []
    for end in ("\n", "\r\n"):
        path = tmp_path / f"{len(end)}.txt"
        path.write_bytes("".join(make_line("1", str(n), f"{n:x}") + end for n in range(9)).encode())
        batches += every_row(make_criteo(path, model))
    assert np.array_equal(batches[0].ids, batches[1].ids)
    assert batches[1].ids.reshape(26, 9)[25].tolist() == [n + 1 for n in range(9)]


def test_missing_values_and_hashing(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
) -> None:
    path = tmp_path / "x.txt"
    path.write_text(make_line("0", "", "") + "\n" + make_line("1", "-7", "0000000a") + "\n")
    (batch,) = every_row(make_criteo(path, make_model((1, 2, 6))))
    assert batch.ids.tolist() == [0, 0, 0, 1, 0, 1]
    assert not batch.dense.any()


def test_malformed_lines_are_replaced_and_reported(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
) -> None:
    rows = [make_line(integer=str(n)) for n in range(6)]
    rows[1] = "1\t2"
    rows[2] = make_line("2")
    rows[5] = make_line(category="xyz")
    path = tmp_path / "x.txt"
    path.write_text("\n".join(rows) + "\n")
    maker = make_criteo(path, make_model((5,)))
    (batch,) = every_row(maker)
    assert np.expm1(batch.dense[:, 0]).round().tolist() == [0, 3, 3, 3, 4, 0]
    assert maker.malformed.describe() == (
        f"3 that are no rows of the text's columns ({path}, line 2: 2 columns, not 40; {path}, "
        f'line 3: column 1: "2"; {path}, line 6: column 15: "xyz")'
    )


def test_batch_without_a_good_row_fails_with_file_and_line(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 4 + "bad\n" * 4)
    data = Data(path=(str(path),), eval_rows=0, shuffle=False)
    stream = open_stream(
        make_model((5,)), data, batch_size=4, positions=(0,), total=1, iterations=2, seed=1
    )
    next(stream)
    with pytest.raises(
        RunFailed, match=r"x\.txt: no well-formed row in a whole batch: 4 .*, line 5: 1 column"
    ):
        next(stream)


def test_truncated_gzip_gives_its_rows_then_fails(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    rng = np.random.default_rng(1)
    text = "".join(make_line(category=f"{n:x}") + "\n" for n in rng.integers(0, 1 << 32, 3000))
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(text.encode())[:-3000])
    check_data(make_model((50,)), Data(path=(str(path),), eval_rows=10))
    batches = text_rows(criteo_text(str(path)))
    rows = next(batches).num_rows
    with pytest.raises(RunFailed) as caught:
        next(batches)
    assert 2000 < rows < 3000
    assert str(caught.value) == (
        f"{path}: its gzip data ends in the middle (truncated file), after {rows:,} rows"
    )
    with pytest.raises(RunFailed, match="ends in the middle"):
        convert_text(criteo_text(str(path)), tmp_path / "x.parquet")
    assert [one.name for one in tmp_path.iterdir()] == ["x.gz"]


def test_damaged_gzip_fails_in_one_sentence(tmp_path: Path, make_line: Any) -> None:
    packed = bytearray(gzip.compress((make_line() + "\n").encode() * 50))
    packed[-6] ^= 1
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    with pytest.raises(RunFailed, match=r"its gzip data is damaged \(.*\), after 50 rows"):
        convert_text(criteo_text(str(path)), tmp_path / "x.parquet")


def test_failing_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 3)

    class Broken:
        closed, given = False, False

        def tell(self) -> int:
            return 0

        def read1(self, size: int) -> bytes:
            if self.given:
                raise OSError(5, "Input/output error")
            self.given = True
            return path.read_bytes()[:-9]

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(text_module, "open_bytes", lambda _: Broken())
    with pytest.raises(RunFailed, match=r"it cannot be read \(Input/output error\), after 2 rows"):
        list(text_rows(criteo_text(str(path))))


def test_file_without_line_feeds_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"x" * (3 << 20))
    with pytest.raises(RunFailed, match="a line from 1 on is longer than 1,048,576 bytes"):
        list(text_rows(criteo_text(str(path))))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent", None, "no such file"),
        ("empty.txt", b"", "the file is empty"),
        ("x.gz", b"plain text\n", "the name ends in .gz, but the file is not gzip data"),
        ("x.bin", bytes(range(256)) * 40, "a binary file"),
        (
            "x.csv",
            b"label,I1,I2\n1,2,3\n",
            "no line among the first 2 has 40 tab-separated columns",
        ),
        ("x.txt", b"2" + b"\t" * 39 + b"\n", r'is well-formed \(line 1, column 1: "2"\); expected'),
    ],
)
def test_unusable_files_are_user_errors(
    name: str,
    content: bytes | None,
    message: str,
    tmp_path: Path,
    make_model: Callable[..., Model],
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        check_data(make_model((5,)), Data(path=(str(path),), eval_rows=0))


def test_models_that_criteo_text_can_not_feed(make_model: Callable[..., Model]) -> None:
    several = make_model((5,)).model_copy(update={"tables": (Table(rows=5, ids=3),)})
    for model, what in (
        (make_model((5,) * 27), "27 tables"),
        (make_model((5,), 14), "14 dense features"),
        (several, "takes 3 ids per example"),
    ):
        ((_, why),) = unfit(model)
        assert what in why
    assert not list(unfit(make_model((5,) * 26)))


def test_file_of_held_out_rows_only(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 8)
    model = make_model((5,))
    for held in (8, 9):
        data = Data(path=(str(path),), eval_rows=held)
        message = r"x.txt has 8 rows, all of which are held out .*: none is left to train on"
        with pytest.raises(UserError, match=message):
            check_data(model, data)
        with pytest.raises(UserError, match=message):
            open_stream(model, data, batch_size=2, positions=(0,), total=1, iterations=2, seed=1)
    data = Data(path=(str(path),), eval_rows=7)
    check_data(model, data)
    assert [b.size for b in held_out(model, data, 3)] == [3, 3, 1]


def test_short_last_held_out_batch_of_malformed_rows_is_left_out(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_criteo: Any,
    make_line: Any,
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 4 + "bad\n" * 8)
    model = make_model((5,))
    data = Data(path=(str(path),), eval_rows=5).model_copy(update={"malformed_limit": 0.2})
    assert [b.size for b in held_out(model, data, 4)] == [4]
    with pytest.raises(RunFailed, match="no well-formed row"):
        list(make_criteo(path, model).in_order(0, 12, 4))


@pytest.mark.parametrize(
    ("integer", "category", "column"),
    [
        ("9" * 18, "f" * 16, None),
        ("-" + "9" * 18, "0" * 15 + "A", None),
        ("1234567890123", "123456789", None),
        ("1" * 19, "", 2),
        ("0" * 25, "", 2),
        ("1" * 60, "", 2),
        ("0x12", "", 2),
        ("12345678x12345678", "", 2),
        ("1x3456781234567812", "", 2),
        ("--1", "", 2),
        ("", "0" * 17, 15),
        ("", "f" * 60, 15),
        ("", "g1234567", 15),
        ("", "g12345678", 15),
        ("", "0x1f", 15),
    ],
)
def test_longest_fields(
    integer: str,
    category: str,
    column: int | None,
    tmp_path: Path,
    reference: Any,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
) -> None:
    model = make_model((2**40,) * 26)
    lines = [make_line("1", integer, category).encode(), make_line("0").encode()]
    path = tmp_path / "x.txt"
    path.write_bytes(b"\n".join(lines))
    maker = make_criteo(path, model)
    (batch,) = every_row(maker)
    expected, wrong = reference.batch(lines, model)
    assert wrong[0] == (None if column is None else f'column {column}: "')
    assert maker.malformed.total == (column is not None)
    np.testing.assert_allclose(batch.dense, [row.dense for row in expected], rtol=1e-6)
    assert batch.ids.reshape(26, 2).T.tolist() == [row.ids for row in expected]
