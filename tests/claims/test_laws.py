"""The derived formulas, against numbers worked out by hand and against each other."""

from __future__ import annotations

import pytest

from recsim_train.workload import laws


def test_a_ring_sends_almost_twice_its_vector() -> None:
    assert laws.ring_factor(2) == 1
    assert laws.ring_factor(4) == 1.5


@pytest.mark.parametrize(
    ("kind", "first", "outputs"),
    [
        ("deepfm", 400, 16 + 1 + 400),
        ("deepfm", 600, 16 + 1 + 26 * 16),  # the vectors themselves are narrower
        ("wide_deep", 32, 1 + 32),
    ],
)
def test_what_des_reduces_per_example(kind: str, first: int, outputs: int) -> None:
    assert laws.des_outputs(kind, 16, 26, first) == outputs


def test_a_net_without_a_formula_is_refused() -> None:
    with pytest.raises(ValueError, match="dlrm"):
        laws.des_outputs("dlrm", 16, 26, 400)


def test_both_send_the_same_at_the_crossover() -> None:
    unique, width, batch, outputs = 12_000.0, 17.0, 100, 51
    n = laws.des_crossover(unique, width, batch, outputs)
    assert n == pytest.approx(12_000 * 19 / 5100)
    for trainers, fewer in ((int(n), True), (int(n) + 1, False)):
        rows = laws.row_server_bytes(trainers, unique, width)
        assert (laws.des_bytes(trainers, batch, outputs) < rows) is fewer


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
