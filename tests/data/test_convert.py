"""Text, and Parquet files of large row groups, made into what trains: once, whole, in bounded
memory."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_train.config.columns import Column
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data import convert as module
from recsim_train.data import text as text_module
from recsim_train.data.convert import (
    check_space,
    convert_text,
    has_large_groups,
    is_fresh,
    rewrite,
    target_of,
    write_rows,
)
from recsim_train.data.input import to_convert
from recsim_train.data.stream import open_stream
from recsim_train.data.text import csv_text, text_rows
from tests.clock import LIMIT

MODEL = Model(
    embedding_dim=4, dense_features=1, bottom_mlp=(4,), top_mlp=(1,), tables=(Table(rows=101),)
)
COLUMNS = (
    Column(name=("n",), type="numeric"),
    Column(name=("c",), type="categorical", num_buckets=100),
)


def csv_of(numbers: Any) -> str:
    return "y,n,c\n" + "".join(f"{n % 2},{n},{n % 100}\n" for n in numbers)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(csv_of(range(100)))
    return path


def data_of(path: Path | str, **more: Any) -> Data:
    return Data(path=(str(path),), label="y", columns=COLUMNS, eval_rows=0, shuffle=False, **more)


def rows_of(data: Data, rows: int) -> list[int]:
    stream = open_stream(
        MODEL, data, batch_size=rows, positions=(0,), total=1, iterations=1, seed=1
    )
    found: list[int] = next(stream).batch.dense[:, 0].astype(int).tolist()
    return found


def converted(path: Path, folder: str | None = None) -> Path:
    target = target_of(str(path), folder)
    convert_text(csv_text(str(path)), target)
    return target


def test_a_conversion_stands_beside_its_text_and_is_read_instead(log: Path) -> None:
    target = log.parent / ".recsim-train" / "log.csv.parquet"
    assert target_of(str(log), None) == target
    assert not is_fresh(str(log), target)
    ((name, text, place),) = to_convert(data_of(log))
    assert (name, place) == (str(log), target)
    assert text is not None
    assert rows_of(data_of(log), 100) == list(range(100))
    assert converted(log) == target
    assert is_fresh(str(log), target)
    assert not list(to_convert(data_of(log)))
    assert rows_of(data_of(log), 100) == list(range(100))
    # it is indeed what is read
    state = log.stat()
    pq_rows = pq.read_table(target)
    write_rows(
        target, pq_rows.schema, iter(pq_rows.slice(7, 5).to_batches()),
        module.FileState.of(str(log)),
    )  # fmt: skip
    assert log.stat() == state
    assert rows_of(data_of(log), 5) == [7, 8, 9, 10, 11]


def longer(path: Path) -> None:
    with path.open("a") as file:
        file.write("1,5,5\n")


def other_in_the_end(path: Path) -> None:
    """Of one size, and as old to the nanosecond."""
    before = path.stat()
    text = path.read_text()
    path.write_text(f"{text[:-2]}1\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def newer(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("change", [longer, other_in_the_end, newer])
def test_a_conversion_of_a_text_that_has_changed_is_stale(
    log: Path, change: Callable[[Path], None]
) -> None:
    target = converted(log)
    change(log)
    assert not is_fresh(str(log), target)
    assert [path for path, _, _ in to_convert(data_of(log))] == [str(log)]
    converted(log)
    assert is_fresh(str(log), target)


@pytest.mark.parametrize("kept", [0, 4, 200, -1, -4, -9])
def test_a_half_written_conversion_is_never_taken(log: Path, kept: int) -> None:
    target = converted(log)
    target.write_bytes(target.read_bytes()[:kept])
    assert not is_fresh(str(log), target)
    assert rows_of(data_of(log), 100) == list(range(100))  # of the text itself
    assert len(list(to_convert(data_of(log)))) == 1


def test_a_file_that_says_no_origin_is_none(log: Path) -> None:
    target = target_of(str(log), None)
    target.parent.mkdir()
    for metadata in (None, {"recsim_train.origin": "{}"}, {"recsim_train.origin": "[1, 2]"}):
        table = pa.table({"y": [1]})
        pq.write_table(table.replace_schema_metadata(metadata), target)
        assert not is_fresh(str(log), target)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RunFailed])
def test_whatever_ends_a_conversion_leaves_nothing(log: Path, error: type[BaseException]) -> None:
    target = target_of(str(log), None)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [1] * 99})
        assert len(list(target.parent.iterdir())) == 1  # under a name of its own
        raise error

    with pytest.raises(error):
        write_rows(target, pa.schema([("n", pa.int64())]), rows())
    assert list(target.parent.iterdir()) == []


def test_a_text_that_changes_while_it_is_converted(log: Path) -> None:
    def append(done: int, size: int) -> None:
        longer(log)

    target = target_of(str(log), None)
    with pytest.raises(RunFailed, match=r"log\.csv has changed while it was converted"):
        convert_text(csv_text(str(log)), target, append)
    assert not target.exists()


def test_two_that_convert_at_once_leave_it_whole(log: Path) -> None:
    target = target_of(str(log), None)
    others = [lambda: converted(log)]

    def another(done: int, size: int) -> None:
        if others:
            others.pop()()

    convert_text(csv_text(str(log)), target, another)
    assert is_fresh(str(log), target)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_progress_ends_with_all_bytes(log: Path) -> None:
    packed = log.with_name("log.csv.gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for path in (log, packed):
        seen: list[tuple[int, int]] = []
        convert_text(csv_text(str(path)), log.parent / "x", lambda *at: seen.append(at))  # noqa: B023
        assert seen[-1] == (path.stat().st_size,) * 2
        assert seen == sorted(seen)


def test_a_folder_for_all_conversions(tmp_path: Path) -> None:
    folder = tmp_path / "fast disk"
    paths = [tmp_path / name / "log.csv" for name in "ab"]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        path.write_text(csv_of(range(10 * number, 10 * number + 10)))
        path.parent.chmod(0o555)  # as it may be where the data are
        converted(path, str(folder))
    assert len(list(folder.iterdir())) == 2  # two files of one name do not meet
    for number, path in enumerate(paths):
        data = data_of(path, converted=str(folder))
        assert not list(to_convert(data))
        assert rows_of(data, 10) == list(range(10 * number, 10 * number + 10))
        path.parent.chmod(0o755)


def test_groups_are_of_one_size_and_rows_in_order(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP", 15_000)
    log.write_text(csv_of(range(50_000)))
    target = converted(log)
    found = pq.read_metadata(target)
    sizes = [found.row_group(n).num_rows for n in range(found.num_row_groups)]
    assert sizes == [15_000] * 3 + [5_000]
    assert pq.read_table(target)["n"].to_pylist() == list(map(str, range(50_000)))


def test_malformed_lines_keep_their_numbers_wherever_blocks_end(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = csv_of(range(60)).splitlines()
    for n in (1, 2, 17, 18, 19, 40, 60):
        lines[n] = "no row"
    log.write_text("\n".join(lines))
    expected = [None if n + 1 not in (1, 2, 17, 18, 19, 40, 60) else "1 column, not 3"
                for n in range(60)]  # fmt: skip
    for block in (40, 64, 100, 1000):
        monkeypatch.setattr(text_module, "BLOCK", block)
        batches = list(text_rows(csv_text(str(log))))
        assert [m for b in batches for m in b.column("__malformed").to_pylist()] == expected


def test_too_little_space_is_said_before(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of(str(log), None)
    check_space(str(log), target)
    usage = shutil.disk_usage(log.parent)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=9))
    with pytest.raises(UserError, match=r"needs up to .* 0\.0 GB are free; data\.converted names"):
        check_space(str(log), target)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Parquet file of one row group, which is too large."""
    monkeypatch.setattr(module, "MOST_GROUP", 1 << 18)
    monkeypatch.setattr(module, "GROUP", 15_000)
    path, n = tmp_path / "large.parquet", np.arange(40_000)
    table = pa.table({"y": n % 2, "n": n, "c": n % 100, "tags": [[1, 2], []] * 20_000})
    pq.write_table(table, path, row_group_size=40_000)
    assert has_large_groups(pq.read_metadata(path))
    return path


def test_large_row_groups_are_written_anew(large: Path) -> None:
    ((path, text, target),) = to_convert(data_of(large))
    assert (path, text) == (str(large), None)
    seen: list[tuple[int, int]] = []
    rewrite(path, target, lambda *at: seen.append(at))
    assert seen[-1] == (40_000, 40_000)
    assert is_fresh(path, target)
    assert not list(to_convert(data_of(large)))
    found = pq.read_metadata(target)
    assert [found.row_group(n).num_rows for n in range(3)] == [15_000, 15_000, 10_000]
    assert pq.read_table(target).equals(pq.read_table(large))
    assert rows_of(data_of(large), 40_000) == list(range(40_000))
    newer(large)
    assert not is_fresh(path, target)


def test_small_row_groups_are_left_alone(large: Path) -> None:
    small = large.with_name("small.parquet")
    pq.write_table(pq.read_table(large), small, row_group_size=1000)
    assert not list(to_convert(data_of(small)))


def test_held_out_files_are_converted_too(log: Path) -> None:
    other = log.with_name("other.csv")
    other.write_text(csv_of(range(5)))
    for held, paths in ((3, [log, other]), (0, [log])):
        data = data_of(log, eval_path=(str(other),)).model_copy(update={"eval_rows": held})
        assert [path for path, _, _ in to_convert(data)] == list(map(str, paths))


SCRIPT = """
    import resource, sys
    from pathlib import Path
    from recsim_train.data.convert import convert_text
    from recsim_train.data.text import csv_text
    rows = convert_text(csv_text(sys.argv[1]), Path(sys.argv[2]))
    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peaks(folder: Path, texts: Iterator[Path]) -> list[int]:
    """Bytes that a process had at most when it converted each."""
    found = []
    for path in texts:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), str(path), str(folder / "out")],
            capture_output=True, text=True, timeout=LIMIT, check=True,
        )  # fmt: skip
        found.append(int(done.stdout.split()[1]))
    return found


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    some = "".join(f"{n % 2},{n},{n * 7919 % 99999999:08}\n" for n in range(120_000)).encode()

    def texts() -> Iterator[Path]:
        for times in (1, 8):
            path = tmp_path / f"{times}.csv"
            with path.open("wb") as file:
                file.write(b"y,n,c\n")
                for _ in range(times):
                    file.write(some)
            assert path.stat().st_size > times * 2_000_000
            yield path

    few, many = peaks(tmp_path, texts())
    assert many < 1.1 * few
