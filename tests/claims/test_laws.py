"""The derived formulas, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from recsim_train.workload import laws


def test_a_ring_sends_almost_twice_its_vector() -> None:
    assert laws.ring_factor(2) == 1
    assert laws.ring_factor(4) == 1.5


def test_the_knee_moves_with_servers_and_with_k() -> None:
    # S C k t / (m W) = 2 * 1e9 * 5 * 0.1 / (10 * 1e7) = 10; the bracket adds 2 W / (C k t) = 4 %
    assert laws.easgd_knee(2, 1e9, 5, 0.1, 10, 1e7) == pytest.approx(10 * 1.04)
    assert laws.easgd_knee(4, 1e9, 5, 0.1, 10, 1e7) == pytest.approx(20 * 1.04)
    assert laws.easgd_knee(2, 1e9, 10, 0.1, 10, 1e7) == pytest.approx(20 * 1.02)


def test_the_sync_gap_is_flat_and_then_grows_like_n_over_s() -> None:
    def gap(n: int, s: int) -> float:
        return laws.easgd_sync_gap(n, s, 1e9, 0.0, 0.1, 10, 1e7)

    assert gap(1, 2) == gap(2, 2) == pytest.approx(10 * 2 * 0.01 / 0.1)
    assert gap(8, 2) == pytest.approx(4 * gap(2, 2))
    assert gap(8, 4) == pytest.approx(gap(4, 2))
