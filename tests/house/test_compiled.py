"""Compiled code is kept in files; whatever becomes of these, functions work and are kept again."""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest

from recsim_train.compiled import kept

SOURCE = """
def total(numbers):
    s = 0.0
    for n in numbers:
        s += n
    return s{more}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setitem(sys.modules, "own", numba)  # see `called`
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python's own goes by length and time
    (tmp_path / "own.py").write_text(SOURCE.format(more=""))
    return tmp_path


def called(folder: Path) -> tuple[float, int]:
    """What the function returns, by a compiler that knows files only; and whether one was used."""
    spec = importlib.util.spec_from_file_location("own", folder / "own.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # by which numba finds it where nobody holds any more what it had compiled
    sys.modules["own"] = module
    spec.loader.exec_module(module)
    made: Any = kept(module.total)
    result = float(made((1.0, 2.0, 3.5)))
    return result, sum(made.stats.cache_hits.values())


def files(folder: Path, ending: str) -> list[Path]:
    return sorted((folder / "kept").rglob(f"*{ending}"))


def zeros(path: Path) -> None:
    """As after a crash of the machine: the length is written, the content is not."""
    content = path.read_bytes()
    third = len(content) // 3
    path.write_bytes(content[:third] + bytes(third) + content[2 * third :])


def cut(share: float, less: int = 0) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(path.stat().st_size * share) - less)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": cut(0.0), "cut at half": cut(0.5), "one byte short": cut(1.0, less=1), "zeros": zeros,
    "text": lambda path: path.write_text("hello"),
    "no pickle": lambda path: path.write_bytes(os.urandom(3000)),
}  # fmt: skip


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_replaced(folder: Path, ending: str, damage: str) -> None:
    assert called(folder) == (6.5, 0)
    assert called(folder) == (6.5, 1)
    (file,) = files(folder, ending)
    DAMAGES[damage](file)
    assert called(folder)[0] == 6.5
    assert called(folder) == (6.5, 1)


def test_a_bit_of_machine_code_that_has_flipped_is_noticed(folder: Path) -> None:
    called(folder)
    (file,) = files(folder, ".nbc")
    content = bytearray(file.read_bytes())
    place = content.index(b"\x7fELF") + 400
    content[place] ^= 4
    file.write_bytes(bytes(content))
    assert called(folder) == (6.5, 0)
    assert called(folder) == (6.5, 1)


def test_code_of_another_source_is_not_used(folder: Path) -> None:
    """The index was written for the present source, and then the process was killed."""
    called(folder)
    (old,) = files(folder, ".nbc")
    stale = old.read_bytes()
    (folder / "own.py").write_text(SOURCE.format(more=" + 100.0"))
    assert called(folder) == (106.5, 0)
    old.write_bytes(stale)
    assert called(folder)[0] == 106.5


def test_code_is_made_anew_where_a_file_beside_it_has_changed(folder: Path) -> None:
    """What a function calls may stand there, and is part of its machine code."""
    beside = folder / "beside.py"
    beside.write_text("one = 1.0\n")
    assert called(folder) == (6.5, 0)
    assert called(folder) == (6.5, 1)
    beside.write_text("one = 10.0\n")
    assert called(folder) == (6.5, 0)
    assert called(folder) == (6.5, 1)


def test_contents_count_where_length_and_time_are_alike(folder: Path) -> None:
    """As of two versions of a package whose build gives every file one time."""
    source = folder / "own.py"
    for more, first in ((" + 100.0", 106.5), (" + 200.0", 206.5)):
        source.write_text(SOURCE.format(more=more))
        os.utime(source, (1e9, 1e9))
        assert called(folder) == (first, 0)
        assert called(folder) == (first, 1)


def test_a_missing_file_and_one_that_is_a_folder(folder: Path) -> None:
    called(folder)
    for ending in (".nbc", ".nbi"):
        (file,) = files(folder, ending)
        file.unlink()
        assert called(folder) == (6.5, 0)
        assert called(folder) == (6.5, 1)
    for ending in (".nbc", ".nbi"):
        (file,) = files(folder, ending)
        file.unlink()
        file.mkdir()
        assert called(folder) == (6.5, 0)


def test_a_disk_that_takes_nothing(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        assert called(folder) == (6.5, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [path for path in (folder / "kept").rglob("*") if path.is_file()]
    assert called(folder) == (6.5, 0)
    assert called(folder) == (6.5, 1)


@pytest.mark.parametrize("place", ["/dev/null/kept", "/proc/kept"])
def test_a_place_that_cannot_be_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", place)
    assert called(folder)[0] == 6.5
