"""Compiled steps on rows against the rule, written out id by id in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.executor.net import rows as steps
from tests.clock import LIMIT

LR = 0.3
MIX = 0x9E3779B97F4A7C15
NONE = np.zeros(0, np.int64)
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def by_rule(
    optimizer: str, rows: Any, state: Any, places: list[int], lines: list[int], gradient: Any
) -> None:
    """The sum of a row's gradients is its one gradient; row-wise Adagrad keeps one number a row."""
    sums: dict[int, Any] = {}
    for place, line in zip(places, lines, strict=True):
        sums[place] = sums.get(place, 0.0) + gradient[line]
    for place, total in sums.items():
        scale = 1.0
        if optimizer == "adagrad":
            state[place] += np.mean(total**2)
            scale = 1.0 / (np.sqrt(state[place]) + 1e-8)
        rows[place] -= LR * scale * total


def step(
    optimizer: str, rows: Any, state: Any, places: list[int], bags: list[int] | None, gradient: Any
) -> None:
    where = np.array(places, np.int64), NONE if bags is None else np.array(bags, np.int64)
    if optimizer == "sgd":
        steps.sgd(rows, *where, gradient, LR)
    else:
        steps.adagrad(rows, state, *where, gradient, LR)


def agree(
    optimizer: str, dtype: str, size: int, batches: list[tuple[list[int], list[int] | None]]
) -> None:
    """Some steps in a row on ``size`` rows of five numbers; bags None: a gradient for each id."""
    draw = np.random.default_rng(len(batches))
    rows = draw.normal(size=(size, 5)).astype(dtype)
    state = draw.random(size).astype(dtype)
    wanted, moments = rows.astype(np.float64), state.astype(np.float64)
    for places, bags in batches:
        lines = list(range(len(places))) if bags is None else bags
        gradient = draw.normal(size=(max(lines, default=0) + 1, 5)).astype(dtype)
        by_rule(optimizer, wanted, moments, places, lines, gradient.astype(np.float64))
        step(optimizer, rows, state, places, bags, gradient)
    np.testing.assert_allclose(rows, wanted, rtol=0, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(state, moments, rtol=TOLERANCE[dtype], atol=0)


@st.composite
def batches(draw: st.DrawFn, rows: int) -> tuple[list[int], list[int] | None]:
    """Few ids or many, with duplicates; each its own gradient, or several in a bag."""
    places = draw(st.lists(st.integers(0, rows - 1), max_size=40))
    if draw(st.booleans()):
        return places, None
    bags = draw(st.lists(st.integers(0, 7), min_size=len(places), max_size=len(places)))
    return places, sorted(bags)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_are_the_rule_whatever_comes_twice(optimizer: str, dtype: str) -> None:
    @settings(max_examples=60)
    @given(st.lists(batches(rows=9), max_size=4))
    def whatever(drawn: list[tuple[list[int], list[int] | None]]) -> None:
        agree(optimizer, dtype, 9, drawn)

    whatever()


def slot(place: int, bits: int) -> int:
    """Where the hash table of 2^bits slots looks for a row first."""
    return (place * MIX % 2**64) >> (64 - bits)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_meet_in_one_slot_are_told_apart(dtype: str) -> None:
    """Eight rows, all meant for the last slot of a table of 32, so that they go on to its begin."""
    size = 200_000
    crowd = [place for place in range(size) if slot(place, 5) == 31][-8:]
    assert len(crowd) == 8
    assert min(crowd) > 100_000
    agree("adagrad", dtype, size, [([*crowd, *reversed(crowd)], None), (crowd[:3] * 5, None)])


def test_many_ids_of_a_large_table() -> None:
    draw = np.random.default_rng(3)
    for size in (300, 1_000_000):
        places = draw.integers(0, size, 20_000).tolist()
        agree("adagrad", "float64", size, [(places, None), (places[:1], None)])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("place", [-1, 4, 2**40])
def test_a_place_that_is_no_row_is_an_error(optimizer: str, place: int) -> None:
    rows = np.zeros((4, 2))
    with pytest.raises(IndexError, match="names no row"):
        step(optimizer, rows, np.zeros(4), [place], None, np.ones((1, 2)))
    assert not rows.any()


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_threads_on_rows_of_their_own_do_as_one_after_the_other(optimizer: str) -> None:
    threads, size, times = 4, 50, 30
    draw = np.random.default_rng(5)
    start = draw.normal(size=(threads * size, 8)).astype(np.float32)
    work = [
        [
            (draw.integers(n * size, (n + 1) * size, 400), draw.normal(size=(400, 8)))
            for _ in range(times)
        ]
        for n in range(threads)
    ]

    def run(rows: Any, state: Any, n: int) -> None:
        for places, gradient in work[n]:
            step(optimizer, rows, state, places.tolist(), None, gradient.astype(np.float32))

    alone, together = ((start.copy(), np.zeros(len(start), np.float32)) for _ in range(2))
    for n in range(threads):
        run(*alone, n)
    crew = [threading.Thread(target=run, args=(*together, n)) for n in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(60)
    for found, wanted in zip(together, alone, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not np.array_equal(alone[0], start)


def test_steps_need_no_folder_to_be_kept_in(tmp_path: Path) -> None:
    """Where nothing can be written each process compiles for itself."""
    script = (
        "import numpy as np; from recsim_train.executor.net import rows; rows.warm(); "
        "print(rows.sgd.stats.cache_path, rows.sgd.signatures != [])"
    )
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": "/dev/null/nowhere",
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=False,
        env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("None True\n", "")
