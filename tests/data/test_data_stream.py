from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsim_train.config.errors import UserError
from recsim_train.config.experiment import Data, Model, Synthetic, Table
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.profile import profile_stream
from recsim_train.data.stream import check_data, held_out, open_stream
from recsim_train.data.text import write_criteo


def numbers(batch: NumpyBatch) -> list[int]:
    """The rows' numbers, which the file below has as its first integer."""
    found: list[int] = np.expm1(batch.dense[:, 0].astype(float)).round().astype(int).tolist()
    return found


def same(left: NumpyBatch, right: NumpyBatch) -> bool:
    parts = ("labels", "dense", "ids", "lengths")
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in parts)


@pytest.fixture
def numbered(tmp_path: Path, make_line: Any) -> Callable[[int], str]:
    def write(rows: int) -> str:
        path = tmp_path / f"{rows}.txt"
        path.write_text("".join(make_line(integer=str(n)) + "\n" for n in range(rows)))
        return str(path)

    return write


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
    rows: int,
    held: int,
    limit: int | None,
    batch: int,
    total: int,
    chosen: int,
) -> None:
    data = Data(path=numbered(rows), eval_rows=held, limit_rows=limit)
    positions = [p for p in range(total) if chosen >> p & 1]
    epoch = list(range(held, rows))[:limit]
    with open_stream(
        make_model((9,)),
        data,
        batch_size=batch,
        positions=positions[::-1],
        total=total,
        iterations=6,
    ) as stream:
        order = []
        for fed in stream:
            order.append((fed.iteration, fed.position))
            first = (fed.iteration * total + fed.position) * batch
            expected = [epoch[n % len(epoch)] for n in range(first, first + batch)]
            assert numbers(fed.batch) == expected
    assert order == [(k, p) for k in range(6) for p in positions]
    assert stream.rows == len(order) * batch
    if order:
        last = (order[-1][0] * total + order[-1][1] + 1) * batch - 1
        assert stream.epochs == last // len(epoch) + 1


def test_generator_and_its_file_feed_the_same_stream(
    tmp_path: Path, make_model: Callable[..., Model]
) -> None:
    model = make_model((1, 2, 40, 3000, 5_000_000), 9)
    synthetic = Synthetic(rows=300, seed=3)
    path = tmp_path / "x.txt"
    write_criteo(path, model, synthetic, synthetic.rows)
    direct = Data(synthetic=synthetic, eval_rows=20, limit_rows=250)
    file = direct.model_copy(update={"path": str(path)})

    def batches(data: Data) -> list[NumpyBatch]:
        with open_stream(
            model, data, batch_size=64, positions=(0, 2), total=3, iterations=4
        ) as stream:
            return [fed.batch for fed in stream]

    assert all(map(same, batches(direct), batches(file)))
    assert all(map(same, held_out(model, direct, 8), held_out(model, file, 8)))
    # two dense columns or ten would be a different file of the same stream
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
        with open_stream(
            model,
            data,
            batch_size=batch,
            positions=positions,
            total=total,
            iterations=9,
            ids_only=ids_only,
        ) as stream:
            return [fed.batch for fed in stream], stream.epochs

    (whole, epochs), (ids, epochs_of_ids) = feed(False), feed(True)
    assert epochs == epochs_of_ids
    assert [b.size for b in whole] == [b.size for b in ids]
    for left, right in zip(whole, ids, strict=True):
        assert np.array_equal(left.ids, right.ids)
        assert np.array_equal(left.lengths, right.lengths)
        assert left.dense.shape == right.dense.shape
        assert right.dense.any() == (len(positions) < total)  # spared only where all loops read


def test_held_out_file(numbered: Callable[[int], str], make_model: Callable[..., Model]) -> None:
    data = Data(path=numbered(10), eval_path=numbered(7), eval_rows=5)
    model = make_model((9,))
    assert [numbers(b) for b in held_out(model, data, 3)] == [[0, 1, 2], [3, 4]]
    longer = data.model_copy(update={"eval_rows": 100})
    assert [len(numbers(b)) for b in held_out(model, longer, 4)] == [4, 3]
    with open_stream(model, data, batch_size=4, positions=(0,), total=1, iterations=1) as stream:
        assert numbers(next(stream).batch) == [0, 1, 2, 3]
    assert not list(held_out(model, data.model_copy(update={"eval_rows": 0}), 3))


def test_malformed_lines_of_other_loops_are_not_looked_at(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.txt"
    good = make_line() + "\n"
    path.write_text(good * 4 + "bad\n" * 4 + good * 3 + "bad\n")
    data = Data(path=str(path), eval_rows=0)
    with open_stream(
        make_model((9,)), data, batch_size=4, positions=(0, 2), total=3, iterations=2
    ) as stream:
        for _ in stream:
            pass
        assert stream.malformed.counts == {"columns": 2}
        assert stream.malformed.first_lines == {"columns": [12]}
        assert stream.epochs == 2


def test_generator_needs_more_rows_than_are_held_out(make_model: Callable[..., Model]) -> None:
    data = Data(synthetic=Synthetic(rows=100), eval_rows=100)
    model = make_model((9,))
    attempts: Iterable[Callable[[], object]] = (
        lambda: check_data(model, data),
        lambda: open_stream(model, data, batch_size=2, positions=(0,), total=1, iterations=1),
        lambda: next(held_out(model, data, 3)),
    )
    for attempt in attempts:
        with pytest.raises(UserError, match=r"data.synthetic.rows = 100 rows and data.eval_rows"):
            attempt()


def test_check_data_looks_at_both_files(
    numbered: Callable[[int], str], make_model: Callable[..., Model], tmp_path: Path
) -> None:
    model = make_model((9,))
    check_data(model, Data(path=numbered(5), eval_path=numbered(6), eval_rows=100))
    absent = str(tmp_path / "absent.txt")
    for data in (Data(path=absent), Data(path=numbered(5), eval_path=absent)):
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
            )


def test_profile_describes_ids(make_model: Callable[..., Model]) -> None:
    model = make_model((1, 1000, 10**7))
    found: Any = profile_stream(model, Data(synthetic=Synthetic(zipf=1.2)), 500, 6)
    one, small, large = found["tables"]
    assert (one["unique_per_batch"], one["ids_per_batch"], one["reused"]) == (1, 500, 1.0)
    assert small["unique_per_batch"] < large["unique_per_batch"] < 500
    assert small["reused"] > large["reused"] > 0
    assert small["zipf"] == pytest.approx(1.2, abs=0.25)
    assert found["unique_per_batch"] == sum(t["unique_per_batch"] for t in found["tables"])
    assert found["malformed"] == 0


def test_memory_does_not_grow_with_the_file(
    tmp_path: Path, make_model: Callable[..., Model], make_line: Any
) -> None:
    path = tmp_path / "x.gz"
    text = (make_line() + "\n").encode() * 100_000
    path.write_bytes(gzip.compress(text, 1))
    data = Data(path=str(path), eval_rows=60_000)
    tracemalloc.start()
    try:
        with open_stream(
            make_model((9,)), data, batch_size=100, positions=(3,), total=4, iterations=150
        ) as stream:
            assert sum(fed.batch.size for fed in stream) == 15_000
            assert stream.epochs == 2
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(text) > 26_000_000
    assert peak < 10_000_000
