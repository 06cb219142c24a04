"""The look at a data file before anything starts."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data.stream import check_data

ROW = b"\t".join([b"1", *[b"5"] * 13, *[b"68fd1e64"] * 26]) + b"\n"
MODEL = Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=(Table(rows=9),))
EXPECTED = "Criteo text (label, 13 integer and 26 categorical columns, tab-separated)"


def check(path: Path) -> None:
    check_data(MODEL, Data(path=(str(path),), eval_rows=0))


def failure(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        check(path)
    return str(caught.value)


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.txt", ROW * 3),
        ("day_0", ROW.rstrip(b"\n")),
        ("crlf.txt", ROW.replace(b"\n", b"\r\n")),
        ("empty_fields.txt", b"0" + b"\t" * 39 + b"\n"),
        ("some_bad.txt", b"garbage\n" * 900 + ROW),
        ("day_0.gz", gzip.compress(ROW * 3, mtime=0)),
        ("packed_without_suffix", gzip.compress(ROW, mtime=0)),
        (
            "truncated.gz",
            gzip.compress(os.urandom(1000).hex().encode() + b"\n" + ROW * 9000)[:-400],
        ),
        ("long.txt", ROW * 20_000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_good_files(tmp_path: Path, name: str, content: bytes) -> None:
    check(put(tmp_path, name, content))


def test_no_path_is_nothing_to_check() -> None:
    check_data(MODEL, Data())


def test_absent(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert failure(path) == f"{path}: no such file; expected {EXPECTED}"


def test_evaluation_file_is_checked_too(tmp_path: Path) -> None:
    path = put(tmp_path, "train.txt", ROW)
    with pytest.raises(UserError, match=r"held_out\.txt: no such file"):
        check_data(MODEL, Data(path=(str(path),), eval_path=(f"{tmp_path}/held_out.txt",)))


def test_directory(tmp_path: Path) -> None:
    assert failure(tmp_path).startswith(f"{tmp_path}: the folder has no file *.parquet, *.parq, ")
    put(tmp_path, "train.txt", ROW * 3)
    check(tmp_path)
    (tmp_path / "more.txt").mkdir()
    assert failure(tmp_path).endswith(f"more.txt: is a directory; expected a file of {EXPECTED}")


def test_empty(tmp_path: Path) -> None:
    path = put(tmp_path, "x", b"")
    assert failure(path) == f"{path}: the file is empty; expected {EXPECTED}"


def test_empty_once_unpacked(tmp_path: Path) -> None:
    assert "holds no text once unpacked" in failure(put(tmp_path, "x.gz", gzip.compress(b"")))


def test_named_gzip(tmp_path: Path) -> None:
    path = put(tmp_path, "x.gz", ROW)
    assert failure(path) == f"{path}: the name ends in .gz, but the file is not gzip data"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_binary(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    path = put(tmp_path, "x", pack(b"\x15\0\0\0PAR1" * 100))
    assert failure(path) == f"{path}: a binary file; expected {EXPECTED}"


def test_damaged_gzip(tmp_path: Path) -> None:
    path = put(tmp_path, "x.gz", b"\x1f\x8b" + b"\xff" * 50)
    assert failure(path) == f"{path}: damaged gzip data; nothing of it can be unpacked"


def test_other_text(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", ROW.replace(b"\t", b",") * 20)
    assert failure(path) == (
        f"{path}: no line among the first 20 has 40 tab-separated columns (a CSV file, whose 40 "
        f"columns are separated by commas); expected {EXPECTED}"
    )


def test_only_the_beginning_counts(tmp_path: Path) -> None:
    path = put(tmp_path, "x", b"garbage\n" * 1000 + ROW)
    assert "among the first 1000 has 40 tab-separated columns" in failure(path)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    path = put(tmp_path, "x", ROW)
    monkeypatch.setattr(Path, "open", refuse)
    assert failure(path) == f"{path}: no permission to read the file"
