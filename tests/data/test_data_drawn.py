from __future__ import annotations

import numpy as np
import pytest

from recsim_train.config.experiment import Model, Synthetic, Table
from recsim_train.data import drawn
from recsim_train.data.batch import ids_by_table
from recsim_train.data.drawn import AskedTable, DrawnCounts, TablePart, expected_in_table
from recsim_train.data.generator import Generator

BATCH, FIRST, LENGTH = 40, 7, 100
"""Batches straddle the place where the stream begins anew."""

TABLES = (
    Table(rows=1),
    Table(rows=1, ids=3, variable=True),
    Table(rows=2),
    Table(rows=2048),
    Table(rows=2049, ids=5),
    Table(rows=90_000),
    Table(rows=400_000, ids=30, variable=True),
    Table(rows=10**9, ids=4),
    Table(rows=6 * 10**9, ids=2, variable=True),
)


def ranges(rows: int, cuts: int) -> tuple[TablePart, ...]:
    edges = sorted({rows * k // cuts for k in range(cuts + 1)} | {min(3, rows)})
    return tuple(TablePart(a, b) for a, b in zip(edges, edges[1:], strict=False))


def remainders(rows: int, step: int) -> tuple[TablePart, ...]:
    return tuple(TablePart(start, rows, step) for start in range(step))


def asked_of(
    table: Table, number: int, parts: tuple[TablePart, ...], seed: int = 1, zipf: float = 1.05
) -> AskedTable:
    stream = seed, zipf, BATCH, FIRST, LENGTH
    return AskedTable(number, table.rows, table.ids, table.variable, parts, *stream)


def counted(asked: AskedTable, pieces: int) -> list[list[list[int]]]:
    counts = DrawnCounts([asked])
    return np.concatenate([counts.piece(n)[0] for n in range(pieces)]).tolist()


def one_by_one(ids: list[int], parts: tuple[TablePart, ...]) -> list[list[int]]:
    inside = [[i for i in ids if i in range(p.start, p.stop, p.step)] for p in parts]
    return [[len(own), len(set(own))] for own in inside]


@pytest.mark.parametrize("zipf", [0.0, 0.6, 1.0, 1.05, 2.5])
def test_draws_are_counted_as_the_generators_batches(
    zipf: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=TABLES)
    synthetic = Synthetic(zipf=zipf, seed=11)
    generator = Generator(model, synthetic)
    batches = []
    for k in range(6):
        rows = [FIRST + number % LENGTH for number in range(k * BATCH, (k + 1) * BATCH)]
        batches.append(
            [ids.tolist() for ids in ids_by_table(model, generator.batch(np.array(rows)))]
        )
    for together in (1, 3):
        monkeypatch.setattr(drawn, "_TOGETHER", together * BATCH)
        for t, table in enumerate(TABLES):
            drawn._remembered.clear()
            for parts in (
                (TablePart(0, table.rows),),
                ranges(table.rows, 5),
                remainders(table.rows, 3),
            ):
                asked = asked_of(table, t, parts, synthetic.seed, zipf)
                expected = [one_by_one(batch[t], parts) for batch in batches]
                assert counted(asked, 6 // together) == expected, (table, parts)


def test_what_is_remembered_is_bounded_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(rows=5000, ids=3)
    tables = [asked_of(table, t, ranges(5000, 4)) for t in range(4)]
    monkeypatch.setattr(drawn, "_TOGETHER", BATCH)
    monkeypatch.setattr(drawn, "_remembered", type(drawn._remembered)())
    before = [counted(asked, 5) for asked in tables]
    assert len(drawn._remembered) == 20
    assert [counted(asked, 5) for asked in tables] == before
    monkeypatch.setattr(drawn, "_REMEMBERED", 3)
    drawn._remembered.clear()
    assert [counted(asked, 5) for asked in tables] == before
    assert len(drawn._remembered) == 3
    monkeypatch.setattr(drawn, "_REMEMBERED_BYTES", 8)
    drawn._remembered.clear()
    assert [counted(asked, 5) for asked in tables] == before
    assert not drawn._remembered


def test_what_another_plan_asks_of_the_same_tables_is_not_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asked_of(Table(rows=77, ids=3), 0, (TablePart(0, 77),))
    monkeypatch.setattr(drawn, "_remembered", type(drawn._remembered)())
    first = DrawnCounts([asked]).piece(0)
    monkeypatch.setattr(drawn, "_draw", None)
    assert DrawnCounts([asked]).piece(0)[0] is first[0]


@pytest.mark.parametrize("zipf", [0.0, 1.0, 1.05, 2.5])
def test_expected_counts_are_those_of_many_draws(zipf: float) -> None:
    """Of each part, within the scatter of what is drawn, by numpy's own means and deviations."""
    batch, batches = 200, 300
    tables = (
        Table(rows=1),
        Table(rows=30),
        Table(rows=900, ids=6, variable=True),
        Table(rows=70_000),
        Table(rows=40_000, ids=5),
        Table(rows=300_000, ids=3, variable=True),
    )
    model = Model(embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,), tables=tables)
    generator = Generator(model, Synthetic(zipf=zipf, seed=3))
    drawn_ids = [
        [ids.tolist() for ids in ids_by_table(model, generator.batch(np.arange(n, n + batch)))]
        for n in range(0, batch * batches, batch)
    ]
    for t, table in enumerate(tables):
        for parts in (
            (TablePart(0, table.rows),),
            ranges(table.rows, 4),
            remainders(table.rows, 3),
        ):
            asked = asked_of(table, t, parts, 3, zipf)._replace(batch=batch)
            found = np.array([one_by_one(ids[t], parts) for ids in drawn_ids])
            error = found.std(axis=0, ddof=1) / batches**0.5
            off = np.abs(expected_in_table(asked) - found.mean(axis=0))
            assert (off <= 4.5 * error + 1e-3 * found.mean(axis=0) + 0.02).all(), (table, parts)
