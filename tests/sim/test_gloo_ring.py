"""The reference for ring all-reduces, held to gloo itself and to closed forms."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recsim_train.sim.messages.gloo_group import segments_of, unhidden
from tests.sim.gloo_ring import SEGMENT_BYTES, Ring

FAR = 20.0
"""Milliseconds one way between racks, none within one."""

# (ranks, "fill" or "spread" over two racks, bytes): milliseconds by rank that gloo itself took, the
# least of five, torch 2.13 (`benchmarks/gloo_latency.py`, which delays every packet)
MEASURED = {
    (4, "fill", 8): [41.8, 83.7, 62.9, 62.6],
    (4, "fill", 4000): [227.1, 247.9, 227.0, 247.7],
    (8, "fill", 8): [42.3, 85.2, 84.8, 84.1, 63.8, 63.5, 62.9, 62.7],
    (8, "fill", 4000): [565.0, 523.6, 544.0, 585.2, 565.0, 524.1, 544.1, 585.7],
    (8, "spread", 8): [166.3, 311.0, 290.4, 269.7, 248.9, 228.1, 207.5, 186.9],
    (8, "spread", 4000): [583.6, 582.7, 582.7, 584.3, 583.8, 584.0, 583.4, 583.2],
}


def racks(ranks: int, arrange: str) -> Callable[[int, int], float]:
    of = [r * 2 // ranks if arrange == "fill" else r % 2 for r in range(ranks)]
    return lambda one, other: FAR * (of[one] != of[other])


@pytest.mark.parametrize("case", MEASURED, ids=str)
def test_each_rank_ends_when_gloos_does(case: tuple[int, str, int]) -> None:
    """What is on top of the delays is the work of eight processes on two cores, up to a
    millisecond a message."""
    ranks, arrange, size = case
    ends = Ring(ranks, size, racks(ranks, arrange), number=8 if size == 8 else 4).ends()
    for modelled, measured in zip(ends, MEASURED[case], strict=True):
        assert modelled <= measured <= 1.07 * modelled


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_one_distance_between_all(ranks: int) -> None:
    """A notice and a segment in each of 2 (n - 1) steps; of a single number the notices but the
    first are there before it."""
    ends = Ring(ranks, 4000, lambda one, other: 1.0).ends()
    assert ends == pytest.approx([4 * (ranks - 1)] * ranks)
    assert max(Ring(ranks, 8, lambda one, other: 1.0, number=8).ends()) == 2 * (ranks - 1) + 1


@pytest.mark.parametrize("size", [4 * 240, 48 * SEGMENT_BYTES])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_where_bytes_alone_take_time(ranks: int, size: int) -> None:
    ends = Ring(ranks, size, lambda one, other: 0.0, rate=1e6).ends()
    assert max(ends) == pytest.approx(2 * (ranks - 1) / ranks * size / 1e6)


def test_long_links_hold_two_segments() -> None:
    """A large vector pays two latencies for every two segments, which are of 1 MiB at most."""
    size, link = 64 * SEGMENT_BYTES, 10.0
    ends = Ring(2, size, lambda one, other: link, rate=1e12).ends()
    segments_of_a_rank = 64 // 2
    assert max(ends) == pytest.approx(2 * segments_of_a_rank / 2 * 2 * link, rel=1e-3)


@pytest.mark.parametrize("arrange", ["", "fill", "spread"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
def test_the_simulator_s_closed_form_is_what_happens(ranks: int, arrange: str) -> None:
    """Of some numbers to 64 MiB, on links of 40 Mbit/s to 24 Gbit/s and 10 us to 20 ms."""
    of = [0] * ranks
    if arrange:
        of = [r * 2 // ranks if arrange == "fill" else r % 2 for r in range(ranks)]
    for size in (40 * ranks, 40_000, 400_000, 4_000_000, 64 << 20):
        for near, far in ((1e-5, 1e-4), (1e-4, 1e-3), (1e-4, 2e-2)):
            for rate in (5e6, 125e6, 3e9):
                apart = far if arrange else 0.0

                def seconds(one: int, other: int, near: float = near, far: float = apart) -> float:
                    return near + far * (of[one] != of[other])

                whole = max(Ring(ranks, size, seconds, rate=rate).ends())
                sent = 2 * (ranks - 1) / ranks * size / rate
                latency = unhidden(segments_of(size, ranks), 2 * (near + apart), sent)
                found = sent + latency
                assert found == pytest.approx(whole, rel=0.01)
