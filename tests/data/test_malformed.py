"""Malformed lines: which column and text, what share is too much, and bytes of any kind."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model
from recsim_train.data import files
from recsim_train.data.criteo import CriteoText, TextLines
from recsim_train.data.files import same_rows
from recsim_train.data.source import Malformed
from recsim_train.data.stream import check_data, held_out, open_stream

NAMES = ("label", *["integer"] * 13, *["category"] * 26)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 39), st.text("0123456789abf.eE-nNxX\"' ", max_size=20))
def test_the_sample_names_the_first_wrong_column_and_its_text(
    tmp_path: Path,
    reference: Any,
    make_model: Callable[..., Model],
    make_line: Any,
    column: int,
    field: str,
) -> None:
    model = make_model((9,) * 26)
    fields = make_line().split("\t")
    fields[column] = field
    path = tmp_path / "x.txt"
    path.write_text("\t".join(fields) + "\n" + make_line() + "\n")
    wrong = reference.row("\t".join(fields).encode(), model)
    parser = CriteoText(model, str(path))
    parser.batch(TextLines(path).take(2))
    assert parser.malformed.rows == 2
    if not isinstance(wrong, str):
        assert not parser.malformed.samples
        return
    assert wrong == NAMES[column]
    line, said = parser.malformed.samples[wrong]
    escaped = field.replace('"', '\\"')
    assert line == 1
    assert said.startswith(f'column {column + 1}: "{escaped}"')
    assert ("written as a float" in said) == (
        field.lstrip("-")[:1].isdigit() and field.count(".") == 1 and _is_float(field)
    )


def _is_float(text: str) -> bool:
    try:
        return bool(float(text) or True) and text == text.strip()
    except ValueError:
        return False


def test_long_and_odd_fields_are_shown_in_part(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    for field, said in ((b"x" * 99, f'"{"x" * 40}..."'), (b"\xff\x00", '"\\ufffd\\u0000"')):
        fields = make_line().encode().split(b"\t")
        fields[3] = field
        path.write_bytes(b"\t".join(fields) + b"\n")
        message = rf"line 1 is one with an integer column that is no integer: column 4: {said}"
        with pytest.raises(RunFailed) as caught:
            list(CriteoText(make_model((9,)), str(path)).first(1, 1))
        assert message in str(caught.value)


def parsed(
    path: Path, model: Model, bad: int, rows: int, limit: float, batch: int = 500
) -> Malformed:
    """The first rows are bad, one of each batch."""
    good = path.read_text().splitlines()[0]
    wrong = good.replace("\t3\t", "\t1.0\t", 1)
    starts = set(range(0, bad * batch, batch))
    assert max(starts, default=0) < rows
    target = path.with_name("many.txt")
    target.write_text("".join(f"{wrong if n in starts else good}\n" for n in range(rows)))
    parser = CriteoText(model, str(target), limit)
    with closing(TextLines(target)) as lines:
        while chunks := lines.take(batch):
            parser.batch(chunks)
    parser.check()
    return parser.malformed


@pytest.mark.parametrize(
    ("bad", "rows", "limit", "read"),
    [
        (0, 600, 0.0, None),
        (1, 600, 0.0, 600),  # in the end, of however few
        (6, 5000, 0.0012, None),  # at most so many: a share that is just the limit is allowed
        (7, 5000, 0.0012, 5000),
        (24, 12_000, 0.002, None),
        (19, 9_999, 0.0018, 9_999),  # 19 of 9,999 are too many, but are looked at in the end only
        (20, 12_000, 0.0018, 10_000),
        (24, 12_000, 1.0, None),
    ],
)
def test_the_share_that_is_too_much(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_line: Any,
    bad: int,
    rows: int,
    limit: float,
    read: int | None,
) -> None:
    path = tmp_path / "x.txt"
    path.write_text(make_line() + "\n")
    if read is None:
        found = parsed(path, make_model((9,)), bad, rows, limit)
        assert (found.total, found.rows) == (bad, rows)
        return
    with pytest.raises(RunFailed) as caught:
        parsed(path, make_model((9,)), bad, rows, limit)
    said = str(caught.value)
    assert f"many.txt: {bad:,} of the {read:,} rows read so far are malformed (" in said
    assert f"data.malformed_limit is {100 * limit:g} %" in said
    assert 'line 1, column 2: "1.0", written as a float' in said


def test_readers_add_up() -> None:
    whole = Malformed()
    for line in (30, 4, 9):
        one = Malformed(rows=100)
        one.add("integer", [line], f"wrong in {line}".strip)
        whole.merge(one)
    assert (whole.rows, whole.total) == (300, 3)
    assert whole.samples["integer"][0] == 4  # the first in the file, whoever met it
    assert "(lines 4, 9, 30; line 4, wrong in 4)" in whole.describe()


@pytest.mark.parametrize("pack", [False, True])
def test_compressed_data_may_be_damaged(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any, pack: bool
) -> None:
    path = tmp_path / "x"
    text = ((make_line() + "\n") * 20 + "bad\n" * 20).encode()
    path.write_bytes(gzip.compress(text) if pack else text)
    for batch, message in (
        (10, "no well-formed Criteo row in a whole batch"),
        (40, "20 of the 40"),
    ):
        with pytest.raises(RunFailed, match=message) as caught:
            list(CriteoText(make_model((9,)), str(path), 0.1).first(40, batch))
        assert ("the compressed data may be damaged" in str(caught.value)) == pack


LIKELY = st.sampled_from(
    [
        b"PAR1",
        b"PK\x03\x04",
        b"\x1f\x8b",
        b"\x1f\x8b\x08\0\0\0\0\0\0\3",
        b"\xff\xfe",
        b"BZh9",
        b"\n",
    ]
)
LINE = b"\t".join([b"1", *[b"3"] * 13, *[b"1f"] * 26]) + b"\n"
SOME = st.one_of(
    st.binary(max_size=200), LIKELY, st.just(LINE), st.just(LINE * 30),
    st.just(LINE.replace(b"\t3", b"\t3.0", 1)), st.just(b"\t" * 39 + b"\n"), st.just(b"0,1\n" * 9),
)  # fmt: skip


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.lists(SOME, max_size=6).map(b"".join), st.booleans(), st.booleans(), st.integers(0, 5))
def test_no_bytes_are_more_than_one_sentence(
    tmp_path: Path,
    make_model: Callable[..., Model],
    content: bytes,
    packed: bool,
    cut: bool,
    held: int,
) -> None:
    """Whatever a file holds: it is refused, or read, or the reader says where it failed."""
    path = tmp_path / "x"
    content = gzip.compress(content) if packed else content
    path.write_bytes(content[: -len(content) // 3] if cut else content)
    model, data = make_model((9, 9)), Data(path=str(path), eval_rows=held)
    said, started, refused = "", False, False
    try:
        check_data(model, data)
        started = True
        with open_stream(
            model, data, batch_size=7, positions=(0,), total=1, iterations=9
        ) as stream:
            assert all(fed.batch.size == 7 for fed in stream)
            stream.check()
        list(held_out(model, data, 4))
    except (UserError, RunFailed) as error:
        said, refused = str(error), isinstance(error, UserError)
    if said:
        assert refused != started  # what can be known before is said before
        assert len(said.splitlines()) == 1
        assert str(path) in said


def test_long_files_are_compared_by_their_beginnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_COMPARED", 4000)
    monkeypatch.setattr(files, "_BLOCK", 1000)
    begin = bytes(range(250)) * 16
    for name, content in (
        ("one", begin + b"one"), ("two", begin + b"two!"), ("short", begin[:-1]),
        ("late", begin[:-1] + b"?" + b"one"), ("begin", begin),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    names = ["one", "two", "short", "late", "begin"]
    found = {
        pair
        for pair in itertools.combinations(names, 2)
        for left, right in [(str(tmp_path / pair[0]), str(tmp_path / pair[1]))]
        if same_rows(left, f"{right}.gz")
    }
    assert found == {("one", "two"), ("one", "begin"), ("two", "begin")}


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(2, 30),
    data=st.data(),
    batch=st.integers(1, 9),
    limit=st.one_of(st.none(), st.integers(1, 30)),
    total=st.integers(1, 3),
)
def test_rows_held_out_of_a_file_are_never_trained_on(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_line: Any,
    rows: int,
    data: Any,
    batch: int,
    limit: int | None,
    total: int,
) -> None:
    held = data.draw(st.integers(0, rows - 1))
    path = tmp_path / "x"
    path.write_text("".join(make_line(integer=str(n)) + "\n" for n in range(rows)))
    model, given = make_model((9,)), Data(path=str(path), eval_rows=held, limit_rows=limit)

    def numbers(batches: Any) -> set[int]:
        return {round(x) for b in batches for x in np.expm1(b.dense[:, 0]).tolist()}

    with open_stream(
        model, given, batch_size=batch, positions=range(total), total=total, iterations=30
    ) as stream:
        trained = numbers(fed.batch for fed in stream)
    judged = numbers(held_out(model, given, batch))
    assert judged == set(range(held))
    assert trained <= set(range(held, rows if limit is None else min(rows, held + limit)))
    assert trained
