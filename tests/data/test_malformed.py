"""Malformed lines: which column and text, what share is too much, and bytes of any kind."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model
from recsim_train.data import files
from recsim_train.data.files import same_rows
from recsim_train.data.malformed import Malformed
from recsim_train.data.stream import check_data, held_out, open_stream


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 39), st.text("0123456789abf.eE-nNxX\"' ", max_size=20))
def test_the_sample_names_the_first_wrong_column_and_its_text(
    tmp_path: Path,
    reference: Any,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
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
    maker = make_criteo(path, model)
    every_row(maker)
    assert maker.malformed.rows == 2
    if not isinstance(wrong, str):
        assert not maker.malformed.counts
        return
    assert maker.malformed.counts == {"mark": 1}
    ((line, said),) = maker.malformed.first["mark"]
    escaped = field.replace('"', '\\"')
    assert line == 0
    assert said.startswith(f'{path}, line 1: column {column + 1}: "{escaped}"')
    assert ("written as a float" in said) == (
        field.lstrip("-")[:1].isdigit() and field.count(".") == 1 and _is_float(field)
    )


def _is_float(text: str) -> bool:
    try:
        return bool(float(text) or True) and text == text.strip()
    except ValueError:
        return False


def test_long_and_odd_fields_are_shown_in_part(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
) -> None:
    path = tmp_path / "x.txt"
    for field, said in ((b"x" * 99, f'"{"x" * 40}..."'), (b"\xff\x00", '"\\u00ff\\u0000"')):
        fields = make_line().encode().split(b"\t")
        fields[3] = field
        path.write_bytes(b"\t".join(fields) + b"\n")
        with pytest.raises(RunFailed) as caught:
            every_row(make_criteo(path, make_model((9,))))
        assert str(caught.value).endswith(f"({path}, line 1: column 4: {said})")


@pytest.fixture
def read(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_criteo: Any,
    every_row: Any,
    make_line: Any,
) -> Callable[..., Malformed]:
    """What is met in a file whose first rows are bad, one of each batch."""

    def read_(bad: int, rows: int, limit: float, batch: int = 500) -> Malformed:
        good = make_line()
        wrong = good.replace("\t3\t", "\t1.0\t", 1)
        starts = set(range(0, bad * batch, batch))
        assert max(starts, default=0) < rows
        target = tmp_path / "many.txt"
        target.write_text("".join(f"{wrong if n in starts else good}\n" for n in range(rows)))
        maker = make_criteo(target, make_model((9,)), limit)
        every_row(maker, batch)
        found: Malformed = maker.malformed
        return found

    return read_


@pytest.mark.parametrize(
    ("bad", "rows", "limit", "looked_at"),
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
    read: Callable[..., Malformed], bad: int, rows: int, limit: float, looked_at: int | None
) -> None:
    if looked_at is None:
        found = read(bad, rows, limit)
        assert (found.total, found.rows) == (bad, rows)
        return
    with pytest.raises(RunFailed) as caught:
        read(bad, rows, limit)
    said = str(caught.value)
    assert f"many.txt: {bad:,} of the {looked_at:,} rows read so far are malformed (" in said
    assert f"data.malformed_limit is {100 * limit:g} %" in said
    assert 'many.txt, line 1: column 2: "1.0", written as a float' in said


def test_readers_add_up() -> None:
    whole = Malformed()
    assert whole.describe() == "none"
    for row in (30, 4, 9):
        one = Malformed(rows=100)
        one.add("id", 1, [(row, f"x, row {row}: wrong")])
        whole.merge(one)
    assert (whole.rows, whole.total) == (300, 3)
    assert whole.describe() == (  # in the order of the files, whoever met them
        "3 with an id that cannot be one (x, row 4: wrong; x, row 9: wrong; x, row 30: wrong)"
    )


def test_of_many_the_first_five_are_named() -> None:
    total = Malformed()
    for start in (10, 0):
        other = Malformed()
        other.add("label", 4, [(row, str(row)) for row in range(start, start + 4)])
        total.merge(other)
    assert total.counts == {"label": 8}
    assert total.describe() == "8 with a label other than 0 or 1 (0; 1; 2; 3; 10; ...)"


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


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(st.lists(SOME, max_size=6).map(b"".join), st.booleans(), st.booleans(), st.integers(0, 5))
def test_no_bytes_are_more_than_one_sentence(
    tmp_path: Path,
    make_model: Callable[..., Model],
    convert: Callable[[Data], None],
    content: bytes,
    packed: bool,
    cut: bool,
    held: int,
) -> None:
    """Whatever a file holds: it is refused, or read, or the reader says where it failed."""
    path = tmp_path / "x"
    content = gzip.compress(content) if packed else content
    path.write_bytes(content[: -len(content) // 3] if cut else content)
    model, data = make_model((9, 9)), Data(path=(str(path),), eval_rows=held)
    said, started, refused = "", False, False
    try:
        check_data(model, data)
        started = True
        convert(data)
        stream = open_stream(
            model, data, batch_size=7, positions=(0,), total=1, iterations=9, seed=held
        )
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


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(2, 30),
    data=st.data(),
    batch=st.integers(1, 9),
    limit=st.one_of(st.none(), st.integers(1, 30)),
    total=st.integers(1, 3),
    shuffle=st.booleans(),
    at_end=st.booleans(),
    as_share=st.booleans(),
)
def test_rows_held_out_of_a_file_are_never_trained_on(
    tmp_path: Path,
    make_model: Callable[..., Model],
    make_line: Any,
    numbers: Any,
    rows: int,
    data: Any,
    batch: int,
    limit: int | None,
    total: int,
    shuffle: bool,
    at_end: bool,
    as_share: bool,
) -> None:
    held = data.draw(st.integers(0, rows - 1))
    path = tmp_path / "x"
    path.write_text("".join(make_line(integer=str(n)) + "\n" for n in range(rows)))
    share = {"eval_share": f"{100 * held / rows!r} %"} if as_share else {"eval_rows": held}
    model, given = (
        make_model((9,)),
        Data(
            path=(str(path),),
            limit_rows=limit,
            shuffle=shuffle,
            eval_from="end" if at_end else "start",
            **share,
        ),
    )
    stream = open_stream(
        model, given, batch_size=batch, positions=range(total), total=total, iterations=12, seed=7
    )
    trained = {n for fed in stream for n in numbers(fed.batch)}
    judged = [n for held_batch in held_out(model, given, batch) for n in numbers(held_batch)]
    first = 0 if at_end else held
    last = min(first + (limit or rows), rows - held if at_end else rows)
    assert judged == list(range(rows - held, rows) if at_end else range(held))
    assert trained <= set(range(first, last))
    if 12 * batch * total >= last - first + total:  # one epoch of each loop, at least
        assert trained == set(range(first, last))
