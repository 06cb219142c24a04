from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Model, Synthetic, Table
from recsim_train.data import draws
from recsim_train.data.draws import Zipf
from recsim_train.data.generated import write_generated
from recsim_train.data.generator import Generator, dense_values
from tests.clock import LIMIT


def auc(labels: NDArray[np.float32], scores: NDArray[np.float64]) -> float:
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    clicks = float(labels.sum())
    above = float(ranks[labels == 1].sum()) - clicks * (clicks + 1) / 2
    return above / (clicks * (len(labels) - clicks))


@settings(max_examples=40)
@given(st.integers(1, 5000), st.sampled_from((0.0, 0.5, 1.0, 1.05, 2.0, 4.0)))
def test_zipf_ranks_invert_the_exact_distribution(size: int, exponent: float) -> None:
    zipf = Zipf(size, exponent)
    masses = np.arange(1, size + 1, dtype=float) ** -exponent
    edges = np.cumsum(masses / masses.sum())
    uniforms = np.linspace(0, 1, 2001, endpoint=False)
    expected = np.searchsorted(edges, uniforms, side="right")
    # a point may fall on the other side of an edge by rounding, or by the tail's integral
    near = np.abs(edges[np.minimum(expected, size - 1)] - uniforms) < 1e-6
    near |= np.abs(edges[np.maximum(expected - 1, 0)] - uniforms) < 1e-6
    ranks = zipf.ranks(uniforms)
    assert np.array_equal(ranks[~near], expected[~near])
    assert np.abs(ranks - expected).max() <= max(1, size // 1000)
    assert ranks.min() >= 0
    assert ranks.max() < size


def test_zipf_of_a_huge_table_is_quick_and_in_range() -> None:
    zipf = Zipf(10**12, 1.05)
    ranks = zipf.ranks(np.array([0.0, 0.5, 1 - 2**-53]))
    assert ranks[0] == 0
    assert ranks[2] > 9 * 10**11
    assert ranks[2] < 10**12


@pytest.mark.parametrize(("size", "exponent"), [(50, 1.05), (5000, 1.0), (10**6, 1.05), (10**6, 0)])
def test_expected_distinct_ids(size: int, exponent: float) -> None:
    zipf = Zipf(size, exponent)
    seen = [
        len(np.unique(zipf.ranks(draws.uniform(draws.key(n), np.arange(3000))))) for n in range(20)
    ]
    assert draws.expected_distinct(size, exponent, 3000) == pytest.approx(np.mean(seen), rel=0.015)
    assert draws.expected_distinct(1, exponent, 5) == 1
    assert draws.expected_distinct(size, exponent, 0) == 0


def test_counter_numbers_are_uniform_and_independent_of_the_order() -> None:
    counters = np.arange(100_000)
    values = draws.uniform(draws.key(1, 2), counters)
    assert np.array_equal(values[::-1], draws.uniform(draws.key(1, 2), counters[::-1]))
    assert np.histogram(values, bins=10, range=(0, 1))[0] == pytest.approx(10_000, abs=450)
    other = draws.uniform(draws.key(2, 1), counters)
    assert abs(np.corrcoef(values, other)[0, 1]) < 0.015
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.015
    normal = draws.near_gaussian(draws.key(3), counters)
    assert (normal.mean(), normal.std()) == pytest.approx((0, 1), abs=0.015)


def test_rows_are_a_function_of_seed_and_number(make_model: Callable[..., Model]) -> None:
    model = make_model((30, 1000))
    one, two = Generator(model, Synthetic()), Generator(model, Synthetic())
    whole = one.batch(np.arange(100))
    part = two.batch(np.arange(40, 60))
    assert np.array_equal(whole.labels[40:60], part.labels)
    assert np.array_equal(whole.dense[40:60], part.dense)
    assert np.array_equal(whole.ids.reshape(2, -1)[:, 40:60], part.ids.reshape(2, -1))
    other = Generator(model, Synthetic(seed=8)).batch(np.arange(100))
    assert not np.array_equal(whole.ids, other.ids)


@pytest.mark.parametrize("rate", [0.03, 0.25, 0.6])
def test_teacher_keeps_the_click_rate_and_can_be_predicted(
    rate: float, make_model: Callable[..., Model]
) -> None:
    model = make_model((20, 3000, 10**6, 500, 7))
    generator = Generator(model, Synthetic(click_rate=rate))
    rows = np.arange(40_000)
    labels = generator.batch(rows).labels
    assert labels.mean() == pytest.approx(rate, rel=0.06)
    examples = generator.examples(rows)
    odds = generator._teacher.log_odds(dense_values(examples.counts).astype(float), examples.bags)
    assert 0.80 < auc(labels, odds) < 0.88


@pytest.mark.parametrize("tables", [(1,), (1, 1), (40,)])
def test_teacher_works_for_models_with_few_tables(
    tables: tuple[int, ...], make_model: Callable[..., Model]
) -> None:
    generator = Generator(make_model(tables), Synthetic())
    batch = generator.batch(np.arange(4000))
    assert batch.labels.mean() == pytest.approx(0.25, abs=0.04)
    assert batch.ids.size == 4000 * len(tables)


def test_labels_can_be_learned_from_ids_and_from_dense_features(
    make_model: Callable[..., Model],
) -> None:
    model = make_model((100, 1000, 50_000, 40))
    generator = Generator(model, Synthetic())
    train, test = generator.batch(np.arange(50_000)), generator.batch(np.arange(50_000, 60_000))
    scores = np.zeros(10_000)
    for t, table in enumerate(model.tables):
        seen, clicks = (
            np.bincount(train.ids.reshape(4, -1)[t], weights=weights, minlength=table.rows)
            for weights in (None, train.labels)
        )
        smoothed = (clicks + 10 * 0.25) / (seen + 10)
        scores += np.log(smoothed / (1 - smoothed))[test.ids.reshape(4, -1)[t]]
    assert auc(test.labels, scores) > 0.65
    weights = np.linalg.lstsq(train.dense - train.dense.mean(0), train.labels, rcond=None)[0]
    assert auc(test.labels, test.dense @ weights) > 0.65


def test_popular_ids_lie_anywhere_in_the_table(make_model: Callable[..., Model]) -> None:
    ids = Generator(make_model((100_000,)), Synthetic()).batch(np.arange(20_000)).ids
    values, times = np.unique(ids, return_counts=True)
    hottest = np.sort(values[np.argsort(times)[::-1][:20]])
    assert times.max() > 1000
    assert np.diff(hottest).max() < 25_000
    assert (ids == 0).mean() == pytest.approx(0.03, abs=0.005)
    assert ids.max() < 100_000


def test_bags_of_several_ids() -> None:
    model = Model(
        embedding_dim=4,
        bottom_mlp=(4,),
        top_mlp=(1,),
        tables=(
            Table(rows=5000, ids=3),
            Table(rows=50, ids=4, variable=True),
            Table(rows=9),
            Table(rows=9, variable=True),
        ),
    )
    batch = Generator(model, Synthetic()).batch(np.arange(1000))
    lengths = batch.lengths.reshape(2, 1000)
    assert np.bincount(lengths[0], minlength=5)[1:].min() > 180
    assert np.bincount(lengths[0])[0] == 0
    assert (lengths[1] == 1).all()
    assert batch.ids.size == 3000 + lengths[0].sum() + 2000
    part = Generator(model, Synthetic()).batch(np.arange(10, 20))
    assert np.array_equal(part.ids[:30], batch.ids[30:60])
    start = 3000 + lengths[0][:10].sum()
    assert np.array_equal(
        part.ids[30 : 30 + lengths[0][10:20].sum()], batch.ids[start:][: lengths[0][10:20].sum()]
    )
    assert part.lengths.tolist() == [*lengths[0][10:20], *[1] * 10]


def test_written_text_looks_like_criteo(tmp_path: Path, make_model: Callable[..., Model]) -> None:
    path = tmp_path / "deep" / "day_0"
    seen: list[tuple[int, int]] = []
    write_generated(
        path, make_model((1000,) * 4, 5), Synthetic(), 5000, lambda n, of: seen.append((n, of))
    )
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    assert len(lines) == 5000
    assert {len(line) for line in lines} == {40}
    assert {len(text) for line in lines for text in line[14:]} == {0, 8}
    empty = sum(text == "" for line in lines for text in line[1:6]) / 25_000
    assert empty == pytest.approx(0.1, abs=0.01)
    assert any(line[2].startswith("-") for line in lines)
    assert seen[-1] == (5000, 5000)
    assert [p.name for p in path.parent.iterdir()] == ["day_0"]


def test_compressed_text_is_the_same_text_and_reproducible(
    tmp_path: Path, make_model: Callable[..., Model]
) -> None:
    model = make_model((10, 100))
    paths = [tmp_path / name for name in ("a.txt", "b.txt.gz", "c.gz")]
    for path in paths:
        write_generated(path, model, Synthetic(), 100)
    assert gzip.decompress(paths[1].read_bytes()) == paths[0].read_bytes()
    assert paths[1].read_bytes() == paths[2].read_bytes()


def test_same_category_has_the_same_text_for_any_cap(
    tmp_path: Path, make_model: Callable[..., Model], make_criteo: Any, every_row: Any
) -> None:
    path = tmp_path / "x.txt"
    write_generated(path, make_model((5000, 300)), Synthetic(), 2000)
    (whole,) = every_row(make_criteo(path, make_model((5000, 300))))
    (capped,) = every_row(make_criteo(path, make_model((100, 100))))
    pairs = set(zip(whole.ids.tolist()[:2000], capped.ids.tolist()[:2000], strict=True))
    assert len(pairs) == len(set(whole.ids.tolist()[:2000]))
    assert capped.ids.max() == 99


@pytest.mark.parametrize("name", ["x.txt", "x.parquet"])
def test_full_disk_leaves_nothing(tmp_path: Path, name: str) -> None:
    script = """
        import resource, sys
        from recsim_train.config.errors import RunFailed
        from recsim_train.config.experiment import Model, Synthetic, Table
        from recsim_train.data.generated import write_generated
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        model = Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=(Table(rows=9),))
        try:
            write_generated(sys.argv[1], model, Synthetic(), 60_000)
        except RunFailed as error:
            print(error)
    """
    path = tmp_path / name
    path.write_text("before")
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert found.stdout.startswith(f"{path} could not be written (")
    assert found.stdout.endswith("File too large); nothing was left\n")
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert path.read_text() == "before"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1_000_000


@pytest.mark.parametrize("name", ["x.gz", "x.parquet"])
def test_interrupted_writing_leaves_nothing(
    tmp_path: Path, make_model: Callable[..., Model], name: str
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_generated(tmp_path / name, make_model((9,)), Synthetic(), 9000, interrupt)
    assert not list(tmp_path.iterdir())


def test_two_that_write_one_file_at_once_leave_it_whole_whatever_their_numbers_are(
    tmp_path: Path, make_model: Callable[..., Model]
) -> None:
    """In containers of their own both may be process 1, on a file system without locks."""
    path, model = tmp_path / "x.tsv", make_model((9, 9))
    write_generated(tmp_path / "alone.tsv", model, Synthetic(), 900)
    others = [lambda: write_generated(path, model, Synthetic(), 900)]

    def another_writes_too(done: int, rows: int) -> None:
        if others:
            others.pop()()

    write_generated(path, model, Synthetic(), 900, another_writes_too)
    assert path.read_bytes() == (tmp_path / "alone.tsv").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone.tsv", "x.tsv"]


def test_models_that_text_can_not_hold(tmp_path: Path, make_model: Callable[..., Model]) -> None:
    with pytest.raises(UserError, match="27 tables"):
        write_generated(tmp_path / "x", make_model((9,) * 27), Synthetic(), 10)
    with pytest.raises(UserError, match="more than 2\\^32 rows"):
        write_generated(tmp_path / "x", make_model((2**33,)), Synthetic(), 10)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunFailed, match="could not be written"):
        write_generated(blocked / "x", make_model((9,)), Synthetic(), 10)
