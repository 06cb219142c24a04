from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data import criteo
from recsim_train.data.criteo import CriteoText, TextLines
from recsim_train.data.source import Malformed, check_file
from recsim_train.data.stream import held_out, open_stream

INTEGERS = st.one_of(
    st.just(""), st.integers(-5, 5), st.integers(-(10**18) + 1, 10**18 - 1), st.integers(0, 10**9)
).map(str)
CATEGORIES = st.one_of(st.just(""), st.text("0123456789abcdefABCDEF", max_size=16))
# characters next to digits and letters in ASCII, control characters and high bytes
ODD = st.text("0123456789afAF/:@G`g-+. \x00\x10\x19\x7f\x80\xb0\xff\t\r", max_size=19)


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
    lines: list[bytes],
    last_feed: bool,
    rows: tuple[int, ...],
    features: int,
) -> None:
    model = make_model(rows, features)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\n".join(lines) + (b"\n" if last_feed or not lines[-1] else b""))
    wrong = [r if isinstance(r := reference.row(x, model), str) else None for x in lines]
    parser = CriteoText(model, str(path))
    pieces = TextLines(path).take(len(lines))
    assert sum(map(len, pieces)) == len(lines)
    if all(wrong):
        with pytest.raises(RunFailed, match="no well-formed Criteo row"):
            parser.batch(pieces)
        return
    batch = parser.batch(pieces)
    expected, _ = reference.batch(lines, model)
    assert batch.labels.tolist() == [row.label for row in expected]
    np.testing.assert_allclose(batch.dense, [row.dense for row in expected], rtol=1e-6)
    found = batch.ids.reshape(len(model.tables), -1).T
    assert found.tolist() == [row.ids for row in expected]
    assert batch.dense.dtype == np.float32
    counts = {kind: wrong.count(kind) for kind in set(wrong) if kind}
    assert parser.malformed.counts == counts
    for kind, numbers in parser.malformed.first_lines.items():
        assert numbers == [n for n, w in enumerate(wrong, 1) if w == kind][:5]


def test_every_single_byte_as_a_field(
    reference: Any, make_model: Callable[..., Model], tmp_path: Path, make_line: Any
) -> None:
    model = make_model((100,) * 26)
    fields = make_line().encode().split(b"\t")
    lines = []
    for byte in range(256):
        for place, text in ((0, b""), (3, b""), (3, b"-1"), (20, b""), (20, b"12"), (39, b"1")):
            changed = fields.copy()
            changed[place] = text + bytes([byte])
            lines += b"\t".join(changed).split(b"\n")
    path = tmp_path / "bytes.txt"
    path.write_bytes(b"\n".join(lines) + b"\n")
    expected, wrong = reference.batch(lines, model)
    parser = CriteoText(model, str(path))
    batch = parser.batch(TextLines(path).take(len(lines)))
    assert batch.labels.tolist() == [row.label for row in expected]
    assert batch.ids.reshape(26, -1).T.tolist() == [row.ids for row in expected]
    for kind in ("columns", "label", "integer", "category"):
        assert parser.malformed.counts[kind] == wrong.count(kind)


def test_small_blocks_give_the_same_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_model: Callable[..., Model],
    make_line: Any,
) -> None:
    model = make_model((50, 60))
    path = tmp_path / "x.txt"
    path.write_text("".join(make_line("01"[n % 2], str(n), f"{n:x}") + "\n" for n in range(40)))
    whole = [b.ids.tolist() for b in CriteoText(model, str(path)).first(40, 7)]
    monkeypatch.setattr(criteo, "BLOCK_BYTES", 301)
    assert [b.ids.tolist() for b in CriteoText(model, str(path)).first(40, 7)] == whole
    assert [len(part) for part in whole] == [14] * 5 + [10]


def test_gzip_of_several_members_reads_as_one(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
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
    (one,) = CriteoText(model, str(plain)).first(99, 99)
    (two,) = CriteoText(model, str(packed)).first(99, 99)
    assert np.array_equal(one.dense, two.dense)
    assert one.size == 6


def test_missing_values_and_hashing(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text(make_line("0", "", "") + "\n" + make_line("1", "-7", "0000000a") + "\n")
    (batch,) = CriteoText(make_model((1, 2, 6)), str(path)).first(10, 10)
    assert batch.ids.tolist() == [0, 0, 0, 1, 0, 1]
    assert not batch.dense.any()


def test_malformed_lines_are_replaced_and_reported(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    rows = [make_line(integer=str(n)) for n in range(6)]
    rows[1] = "1\t2"
    rows[2] = make_line("2")
    rows[5] = make_line(category="xyz")
    path = tmp_path / "x.txt"
    path.write_text("\n".join(rows) + "\n")
    parser = CriteoText(make_model((5,)), str(path))
    batch = parser.batch(TextLines(path).take(6))
    assert np.expm1(batch.dense[:, 0]).round().tolist() == [0, 3, 3, 3, 4, 0]
    assert parser.malformed.describe() == (
        "1 without 40 columns (line 2, 2 columns); 1 with a label other than 0 or 1 "
        '(line 3, column 1: "2"); 1 with a category that is no hexadecimal number '
        '(line 6, column 15: "xyz")'
    )


def test_malformed_counts_add_up() -> None:
    total = Malformed()
    assert total.describe() == "none"
    for start in (10, 0):
        other = Malformed()
        other.add("columns", range(start, start + 4), str)
        total.merge(other)
    assert total.counts == {"columns": 8}
    assert total.first_lines == {"columns": [0, 1, 2, 3, 10]}
    assert total.describe() == "8 without 40 columns (lines 0, 1, 2, 3, 10 ...; line 0, )"


def test_batch_without_a_good_row_fails_with_file_and_line(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 4 + "bad\n" * 4)
    data = Data(path=str(path), eval_rows=0)
    with open_stream(
        make_model((5,)), data, batch_size=4, positions=(0,), total=1, iterations=2
    ) as stream:
        next(stream)
        with pytest.raises(RunFailed, match=r"x\.txt: no well-formed .* lines 5 to 8 .*without 40"):
            next(stream)


def test_truncated_gzip_gives_its_rows_then_fails(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    rng = np.random.default_rng(1)
    text = "".join(make_line(category=f"{n:x}") + "\n" for n in rng.integers(0, 1 << 32, 3000))
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(text.encode())[:-3000])
    model, data = make_model((50,)), Data(path=str(path), eval_rows=10)
    check_file(model, str(path), 10)
    with (
        open_stream(model, data, batch_size=10, positions=(0,), total=1, iterations=400) as stream,
        pytest.raises(RunFailed, match=r"its gzip data ends in the middle .* after 2,\d\d\d rows"),
    ):
        for _ in stream:
            pass
    assert 2000 < stream.rows < 3000


def test_damaged_gzip_fails_in_one_sentence(tmp_path: Path, make_line: Any) -> None:
    packed = bytearray(gzip.compress((make_line() + "\n").encode() * 50))
    packed[-6] ^= 1
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    with pytest.raises(RunFailed, match="its gzip data is damaged"):
        TextLines(path).skip(100)


def test_failing_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 3)
    lines = TextLines(path)

    class Broken:
        def read1(self, size: int) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(lines, "_file", Broken())
    with pytest.raises(RunFailed, match=r"it cannot be read \(Input/output error\), after 0 rows"):
        lines.take(1)


def test_binary_file_without_line_feeds_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(3 << 20))
    with pytest.raises(RunFailed, match="line 1 is longer than 1,048,576 bytes"):
        TextLines(path).take(1)


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
        ("x.txt", b"2" + b"\t" * 39 + b"\n", "first lines are with a label other than 0 or 1"),
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
        check_file(make_model((5,)), str(path), 0)


def test_directory_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a directory"):
        TextLines(tmp_path)


def test_models_that_criteo_text_can_not_feed(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    several = make_model((5,)).model_copy(update={"tables": (Table(rows=5, ids=3),)})
    for model, what in (
        (make_model((5,) * 27), "27 tables"),
        (make_model((5,), 14), "14 dense features"),
        (several, "takes 3 ids per example"),
    ):
        with pytest.raises(UserError, match=what):
            CriteoText(model, "x.txt")


def test_file_of_held_out_rows_only(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 8)
    model = make_model((5,))
    for held in (8, 9):
        message = r"x.txt has 8 rows and data.eval_rows holds out the first"
        with pytest.raises(UserError, match=message):
            check_file(model, str(path), held)
        data = Data(path=str(path), eval_rows=held)
        stream = open_stream(model, data, batch_size=2, positions=(0,), total=1, iterations=2)
        with stream, pytest.raises(RunFailed, match=message):
            next(stream)
    check_file(model, str(path), 7)
    assert [b.size for b in held_out(model, Data(path=str(path), eval_rows=7), 3)] == [3, 3, 1]


def test_short_last_held_out_batch_of_malformed_rows_is_left_out(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    path.write_text((make_line() + "\n") * 4 + "bad\n" * 8)
    data = Data(path=str(path), eval_rows=5).model_copy(update={"malformed_limit": 0.2})
    assert [b.size for b in held_out(make_model((5,)), data, 4)] == [4]
    source = CriteoText(make_model((5,)), str(path), 0.2)
    assert [b.size for b in source.first(5, 4)] == [4]
    assert source.malformed.counts == {"columns": 1}
    with pytest.raises(RunFailed, match="no well-formed Criteo row"):
        list(CriteoText(make_model((5,)), str(path)).first(8, 4))
    empty = tmp_path / "empty.txt"
    empty.touch()
    with pytest.raises(RunFailed, match=r"empty\.txt has no rows"):
        list(CriteoText(make_model((5,)), str(empty)).first(8, 4))


@pytest.mark.parametrize(
    ("integer", "category", "kind"),
    [
        ("9" * 18, "f" * 16, None),
        ("-" + "9" * 18, "0" * 15 + "A", None),
        ("1234567890123", "123456789", None),
        ("1" * 19, "", "integer"),
        ("0" * 25, "", "integer"),
        ("1" * 60, "", "integer"),
        ("12345678x12345678", "", "integer"),
        ("1x3456781234567812", "", "integer"),
        ("--1", "", "integer"),
        ("", "0" * 17, "category"),
        ("", "f" * 60, "category"),
        ("", "g1234567", "category"),
        ("", "g12345678", "category"),
        ("", "0x1f", "category"),
    ],
)
def test_longest_fields(
    integer: str,
    category: str,
    kind: str | None,
    tmp_path: Path,
    reference: Any,
    make_model: Callable[..., Model],
    make_line: Any,
) -> None:
    model = make_model((2**40,) * 26)
    lines = [make_line("1", integer, category).encode(), make_line("0").encode()]
    path = tmp_path / "x.txt"
    path.write_bytes(b"\n".join(lines))
    parser = CriteoText(model, str(path))
    with closing(TextLines(path)) as source:
        batch = parser.batch(source.take(2))
    expected, wrong = reference.batch(lines, model)
    assert wrong[0] == kind
    assert parser.malformed.counts == ({} if kind is None else {kind: 1})
    np.testing.assert_allclose(batch.dense, [row.dense for row in expected], rtol=1e-6)
    assert batch.ids.reshape(26, 2).T.tolist() == [row.ids for row in expected]
