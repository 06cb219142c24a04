"""The ledger of CPU time: windows cut out of samples, and what is left of the total."""

from __future__ import annotations

import pytest

from recsim_train.trace.ledger import Ledger, Sample, between

LOOP, SERVER = ("trainer", "runtime", "loop"), ("trainer", "requests", "server")


def test_a_window_is_cut_evenly_out_of_samples() -> None:
    samples = [
        Sample(0.0, 1.0, {LOOP: 0.5}, 10.0, 0.0),
        Sample(1.0, 2.0, {LOOP: 1.5}, 12.0, 0.0),
        Sample(2.0, 6.0, {LOOP: 3.5, SERVER: 2.0}, 16.0, 1.0),
    ]
    found = between(samples, 0.5, 1.5)
    assert found.time == 1.0
    assert found.total == pytest.approx(0.5 + 2.0)
    assert found.booked == pytest.approx({LOOP: 0.5 + 1.0, SERVER: 1.0})
    assert (found.busy, found.steal) == pytest.approx((1.0 + 2.0, 0.5))


def test_beyond_the_samples_nothing_is_known() -> None:
    samples = [Sample(0.0, 1.0, {LOOP: 0.0}), Sample(1.0, 2.0, {LOOP: 1.0})]
    assert between(samples, -5.0, 9.0)[1:3] == (1.0, {LOOP: 1.0})
    assert between(samples[:1], 0.0, 1.0)[1:3] == (0.0, {LOOP: 0.0})


def test_lines_and_remainder_make_the_total() -> None:
    other = ("trainer", "runtime", "server")
    ledger = Ledger.of(2.0, 4.0, {SERVER: 1.0, LOOP: 1.5, other: 0.5, ("x", "y", "z"): 0.0})
    assert [line.seconds for line in ledger.lines] == [1.0, 1.5, 0.5]
    assert ledger.remainder == pytest.approx(1.0)
    assert ledger.cores_busy == 2.0
    assert ledger.spent("runtime") == 2.0
    assert (ledger.spent("runtime", "trainer"), ledger.spent("runtime", "x")) == (2.0, 0.0)
    assert ledger.rows() == {("trainer", "requests"): 1.0, ("trainer", "runtime"): 2.0}
