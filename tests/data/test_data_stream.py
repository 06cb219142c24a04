from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Model, Synthetic, Table
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.generated import write_generated
from recsim_train.data.profile import profile_stream
from recsim_train.data.stream import check_data, held_out, open_stream
from recsim_train.data.text import CRITEO


def same(left: NumpyBatch, right: NumpyBatch) -> bool:
    parts = ("labels", "ids", "lengths")
    return bool(np.allclose(left.dense, right.dense, rtol=1e-6)) and all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in parts
    )


@pytest.fixture
def numbered(tmp_path: Path, make_line: Any) -> Callable[[int], str]:
    def write(rows: int) -> str:
        path = tmp_path / f"{rows}.txt"
        path.write_text("".join(make_line(integer=str(n)) + "\n" for n in range(rows)))
        return str(path)

    return write


def rows_dealt(epoch: list[int], total: int, position: int) -> Iterator[int]:
    """The endless rows of one loop out of ``total``, of one row group that is not shuffled."""
    parts = [epoch[len(epoch) * n // total : len(epoch) * (n + 1) // total] for n in range(total)]
    parts = [part for part in parts if part]
    for place in count(position, total):
        yield from parts[place % len(parts)]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(3, 30),
    held=st.integers(0, 2),
    limit=st.one_of(st.none(), st.integers(1, 40)),
    batch=st.integers(1, 12),
    total=st.integers(1, 4),
    chosen=st.integers(1, 15),
)
def test_each_loop_gets_its_own_batches_of_the_endless_stream(
    numbered: Callable[[int], str],
    make_model: Callable[..., Model],
    numbers: Any,
    rows: int,
    held: int,
    limit: int | None,
    batch: int,
    total: int,
    chosen: int,
) -> None:
    data = Data(path=(numbered(rows),), eval_rows=held, limit_rows=limit, shuffle=False)
    positions = [p for p in range(total) if chosen >> p & 1]
    epoch = list(range(held, rows))[:limit]
    expected = {p: rows_dealt(epoch, total, p) for p in positions}
    stream = open_stream(
        make_model((9,)),
        data,
        batch_size=batch,
        positions=positions[::-1],
        total=total,
        iterations=6,
        seed=1,
    )
    order = []
    for fed in stream:
        order.append((fed.iteration, fed.position))
        assert numbers(fed.batch) == list(islice(expected[fed.position], batch))
    assert order == [(k, p) for k in range(6) for p in positions]
    assert stream.rows == len(order) * batch


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    rows=st.integers(1, 24),
    groups=st.integers(2, 9),
    total=st.integers(1, 4),
    seed=st.integers(0, 3),
    batch=st.integers(1, 12),
)
def test_every_row_is_trained_on_once_an_epoch(
    tmp_path: Path,
    make_model: Callable[..., Model],
    numbers: Any,
    rows: int,
    groups: int,
    total: int,
    seed: int,
    batch: int,
) -> None:
    """Of batches, and not only by the rule: no window mixes two epochs."""
    path = tmp_path / "x.parquet"
    column = {name: np.zeros(rows, np.int64) for name in CRITEO}
    pq.write_table(pa.table({**column, "I1": range(rows)}), path, row_group_size=groups)
    data, size = Data(path=(str(path),), eval_rows=0), min(groups, rows)
    stream = open_stream(
        make_model((9,)),
        data,
        batch_size=batch,
        positions=range(total),
        total=total,
        iterations=3 * rows // batch + 3,
        seed=seed,
    )
    fed: dict[int, list[int]] = {p: [] for p in range(total)}
    for one in stream:
        fed[one.position] += numbers(one.batch)
    epochs = stream.epochs
    units = -(-rows // size)
    if total == 1:
        whole = [sorted(fed[0][n : n + rows]) for n in range(0, 3 * rows, rows)]
        assert whole == [list(range(rows))] * 3
        assert epochs == -(-(3 * rows // batch + 3) * batch // rows)
    elif units % total == 0 and rows % size == 0:  # all loops have equally many rows of an epoch
        share = rows // total
        for begin in range(0, 2 * share, share):
            epoch = [n for p in range(total) for n in fed[p][begin : begin + share]]
            assert sorted(epoch) == list(range(rows))


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz", ".parquet"])
def test_a_file_of_the_generator_s_rows_feeds_the_same_rows(
    tmp_path: Path, make_model: Callable[..., Model], convert: Any, ending: str
) -> None:
    """In the order of the file, without shuffling, to one loop the very same batches."""
    model = make_model((1, 2, 40, 3000, 5_000_000), 9)
    synthetic = Synthetic(rows=300, seed=3)
    path = tmp_path / f"x{ending}"
    write_generated(path, model, synthetic, synthetic.rows)
    direct = Data(synthetic=synthetic, eval_rows=20, limit_rows=250, shuffle=False)
    file = direct.model_copy(update={"path": (str(path),)})

    def batches(data: Data) -> list[NumpyBatch]:
        stream = open_stream(
            model, data, batch_size=64, positions=(0,), total=1, iterations=9, seed=1
        )
        return [*held_out(model, data, 8), *(fed.batch for fed in stream)]

    expected, unconverted = batches(direct), batches(file)
    convert(file)
    assert list(map(same, expected, unconverted)) == [True] * 12
    assert list(map(same, expected, batches(file))) == [True] * 12
    assert sum(b.size for b in held_out(model, file, 8)) == 20


@pytest.mark.parametrize("positions", [(0,), (0, 1), (1,)])
@pytest.mark.parametrize("batch", [5, 64, 3000])
def test_ids_alone_are_those_of_the_whole_batches(positions: tuple[int, ...], batch: int) -> None:
    tables = (
        Table(rows=5000, ids=3),
        Table(rows=50, ids=4, variable=True),
        Table(rows=9),
        Table(rows=9, variable=True),
    )
    model = Model(embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(1,), tables=tables)
    data = Data(synthetic=Synthetic(rows=700, seed=3), eval_rows=20)  # several epochs
    total = max(positions) + 1

    def feed(ids_only: bool) -> tuple[list[NumpyBatch], int]:
        stream = open_stream(
            model,
            data,
            batch_size=batch,
            positions=positions,
            total=total,
            iterations=9,
            seed=1,
            ids_only=ids_only,
        )
        return [fed.batch for fed in stream], stream.epochs

    (whole, epochs), (ids, epochs_of_ids) = feed(False), feed(True)
    assert epochs == epochs_of_ids
    assert [b.size for b in whole] == [b.size for b in ids]
    for left, right in zip(whole, ids, strict=True):
        assert np.array_equal(left.ids, right.ids)
        assert np.array_equal(left.lengths, right.lengths)
        assert left.dense.shape == right.dense.shape
        assert right.dense.any() == (len(positions) < total)  # spared only where all loops read


def test_held_out_file(
    numbered: Callable[[int], str], make_model: Callable[..., Model], numbers: Any
) -> None:
    data = Data(path=(numbered(10),), eval_path=(numbered(7),), eval_rows=5, shuffle=False)
    model = make_model((9,))
    assert [numbers(b) for b in held_out(model, data, 3)] == [[0, 1, 2], [3, 4]]
    longer = data.model_copy(update={"eval_rows": 100})
    assert [len(numbers(b)) for b in held_out(model, longer, 4)] == [4, 3]
    end = data.model_copy(update={"eval_from": "end"})
    assert [numbers(b) for b in held_out(model, end, 3)] == [[2, 3, 4], [5, 6]]
    for held in (data, end):  # all rows of the other file are trained on
        stream = open_stream(
            model, held, batch_size=10, positions=(0,), total=1, iterations=1, seed=1
        )
        assert numbers(next(stream).batch) == list(range(10))
    assert not list(held_out(model, data.model_copy(update={"eval_rows": 0}), 3))


def test_malformed_lines_of_other_loops_are_not_looked_at(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    good = make_line() + "\n"
    path.write_text(good * 4 + "bad\n" * 4 + good * 3 + "bad\n")
    data = Data(path=(str(path),), eval_rows=0, shuffle=False)
    stream = open_stream(
        make_model((9,)), data, batch_size=4, positions=(0, 2), total=3, iterations=2, seed=1
    )
    for _ in stream:
        pass
    assert stream.malformed.counts == {"mark": 2}
    assert stream.malformed.first == {"mark": [(11, f"{path}, line 12: 1 column, not 40")]}
    assert stream.epochs == 2


def test_generator_needs_more_rows_than_are_held_out(make_model: Callable[..., Model]) -> None:
    data = Data(synthetic=Synthetic(rows=100), eval_rows=100)
    model = make_model((9,))
    attempts: Iterable[Callable[[], object]] = (
        lambda: check_data(model, data),
        lambda: open_stream(
            model, data, batch_size=2, positions=(0,), total=1, iterations=1, seed=1
        ),
        lambda: next(held_out(model, data, 3)),
    )
    for attempt in attempts:
        with pytest.raises(UserError, match=r"\(data.synthetic.rows\) has 100 rows, all of which"):
            attempt()


def test_check_data_looks_at_both_files(
    numbered: Callable[[int], str], make_model: Callable[..., Model], tmp_path: Path
) -> None:
    model = make_model((9,))
    check_data(model, Data(path=(numbered(5),), eval_path=(numbered(6),), eval_rows=100))
    absent = (str(tmp_path / "absent.txt"),)
    for data in (Data(path=absent), Data(path=(numbered(5),), eval_path=absent)):
        with pytest.raises(UserError, match=r"absent.txt: no such file"):
            check_data(model, data)


def test_positions_must_be_places_of_the_stream(make_model: Callable[..., Model]) -> None:
    for positions in ((2,), (-1,), (0, 0)):
        with pytest.raises(ValueError, match="distinct places"):
            open_stream(
                make_model((9,)),
                Data(),
                batch_size=2,
                positions=positions,
                total=2,
                iterations=1,
                seed=1,
            )


def test_profile_describes_ids(make_model: Callable[..., Model]) -> None:
    model = make_model((1, 1000, 10**7))
    found: Any = profile_stream(model, Data(synthetic=Synthetic(zipf=1.2)), 500, 6)
    one, small, large = found["tables"]
    assert (one["unique_per_batch"], one["ids_per_batch"], one["unique_seen"]) == (1, 500, 1)
    assert small["unique_per_batch"] < large["unique_per_batch"] < 500
    assert small["zipf"] == pytest.approx(1.2, abs=0.25)
    assert found["unique_per_batch"] == sum(t["unique_per_batch"] for t in found["tables"])
    assert found["malformed"] == 0


def test_memory_does_not_grow_with_the_file(tmp_path: Path, make_model: Any) -> None:
    """Of the buffers of Arrow, which hold what is decoded; a window of rows is what it comes to."""
    path, model = tmp_path / "x.parquet", make_model((9,) * 26)
    write_generated(path, model, Synthetic(rows=120_000), 120_000)
    data = Data(path=(str(path),), eval_rows=60_000)
    before = pa.total_allocated_bytes()
    peak = 0
    stream = open_stream(
        model, data, batch_size=100, positions=(3,), total=4, iterations=300, seed=1
    )
    for _ in stream:
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert stream.rows == 30_000
    assert stream.epochs > 1
    assert peak < 10_000_000 < 60_000 * 40 * 8
