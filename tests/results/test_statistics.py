from __future__ import annotations

import csv
import math
import random
import statistics
from pathlib import Path

import pytest

from recsim_train.calibration.fit import NOISE
from recsim_train.results.statistics import (
    Distribution,
    distribution,
    half_width,
    kendall_tau,
    staleness,
    sync_gaps,
    t_quantile,
    throughput,
    window_count,
    window_rates,
)
from recsim_train.trace.record import Iteration
from tests.at_work import rate_at_work


def process(durations: list[float], loop: str = "trainer[0].worker[0]") -> list[Iteration]:
    out, now = [], 0.0
    for k, d in enumerate(durations):
        out.append(Iteration(loop, k, now, now + d))
        now += d
    return out


def test_a_constant_process_has_its_rate_and_no_spread() -> None:
    got = throughput(process([0.5] * 110), warmup=10, steps=100, batch_size=32)
    assert got.seconds == pytest.approx(50.0)
    assert got.examples == 3200
    assert got.examples_per_second == pytest.approx(64.0)
    assert got.ci95 is not None
    assert got.ci95[0] == pytest.approx(64.0, rel=1e-9)
    assert got.ci95[1] == pytest.approx(64.0, rel=1e-9)


def test_warm_up_and_what_comes_after_are_not_counted() -> None:
    slow_ends = process([9.0] * 5 + [0.1] * 40 + [9.0] * 5)
    got = throughput(slow_ends, warmup=5, steps=40, batch_size=10)
    assert got.examples_per_second == pytest.approx(100.0)


def test_loops_add_up_while_all_of_them_are_at_work() -> None:
    """The end of a run, at which only the slow ones work, says nothing of how fast it was."""
    both = process([1.0] * 20, "trainer[0].worker[0]") + process([2.0] * 20, "trainer[1].worker[0]")
    got = throughput(both, warmup=0, steps=20, batch_size=1)
    assert got.examples_per_second == pytest.approx(1.5)
    assert (got.examples, got.seconds) == (40, pytest.approx(40.0))


@pytest.mark.parametrize("slow", [1.5, 2.0, 2.9, 3.0, 3.1, 3.5, 5.0])
def test_long_warm_up_of_slow_loops_does_not_change_the_rate(slow: float) -> None:
    """Wherever the slow one's warm-up ends, and though it lasts as long as all of the fast one's
    iterations (from 3.4 on), to whose last half it is at work, too."""
    both = process([1.0] * 34, "trainer[0].worker[0]") + process(
        [slow] * 34, "trainer[1].worker[0]"
    )
    got = throughput(both, warmup=10, steps=24, batch_size=1)
    assert got.examples_per_second == pytest.approx(1.0 + 1.0 / slow)
    assert got.examples == 48


def test_who_begins_late_is_waited_for() -> None:
    early = process([1.0] * 40, "trainer[0].worker[0]")
    late = [Iteration("trainer[1].worker[0]", k, 35.0 + 2 * k, 37.0 + 2 * k) for k in range(40)]
    got = throughput(early + late, warmup=10, steps=30, batch_size=1)
    assert got.examples_per_second == pytest.approx(1.5)  # from 35 to 40


def test_loops_that_are_never_at_work_together_add_up_over_all() -> None:
    early = process([1.0] * 4, "trainer[0].worker[0]")
    late = [Iteration("trainer[1].worker[0]", k, 6.0 + k, 7.0 + k) for k in range(4)]
    got = throughput(early + late, warmup=0, steps=4, batch_size=1)
    assert got.examples_per_second == pytest.approx(8 / 10)


@pytest.mark.parametrize("steps", [20, 80, 640])
def test_a_short_run_says_what_a_long_one_does(steps: int) -> None:
    """Loops of one rate that drift apart, as clients of one server do."""
    generator = random.Random(3)
    rates = []
    for _ in range(20):
        loops = (
            process([generator.uniform(0.5, 1.5) for _ in range(steps + 10)], f"trainer[{n}]")
            for n in range(8)
        )
        every = [iteration for loop in loops for iteration in loop]
        rates.append(throughput(every, warmup=10, steps=steps, batch_size=1).examples_per_second)
    assert statistics.fmean(rate for rate in rates if rate) == pytest.approx(8.0, rel=0.03)


def test_the_interval_covers_the_truth_about_19_times_in_20() -> None:
    """Exponential durations of mean 1 s, so the long-run rate is 1/s."""
    generator = random.Random(5)
    hits = 0
    for _ in range(300):
        durations = [generator.expovariate(1.0) for _ in range(400)]
        got = throughput(process(durations), warmup=0, steps=400, batch_size=1)
        assert got.ci95 is not None
        hits += got.ci95[0] <= 1.0 <= got.ci95[1]
    assert 0.88 < hits / 300 < 0.99


def test_window_rates_share_out_an_iteration_by_time() -> None:
    # 3 s over windows of 2 s: two thirds in the first, one third in the second
    rates = window_rates([Iteration("l", 0, 0.0, 3.0), Iteration("l", 1, 3.0, 4.0)], 0.0, 4.0, 2, 6)
    assert rates == pytest.approx([6 * (2 / 3) / 2, 6 * (1 / 3 + 1) / 2])


def test_window_rates_average_to_the_overall_rate() -> None:
    generator = random.Random(1)
    runs = process([generator.uniform(0.1, 5.0) for _ in range(57)])
    end = runs[-1].end
    rates = window_rates(runs, 0.0, end, 13, 8)
    assert math.fsum(rates) / 13 == pytest.approx(57 * 8 / end)


def test_an_interrupted_run_counts_what_was_done() -> None:
    got = throughput(process([1.0] * 30), warmup=10, steps=100, batch_size=4)
    assert (got.examples, got.seconds) == (80, pytest.approx(20.0))


def test_nothing_counted_gives_no_figure() -> None:
    got = throughput(process([1.0] * 3), warmup=10, steps=5, batch_size=4)
    assert (got.examples_per_second, got.ci95, got.seconds) == (None, None, 0.0)


def test_one_iteration_gives_a_rate_without_interval() -> None:
    got = throughput(process([2.0]), warmup=0, steps=1, batch_size=4)
    assert got.examples_per_second == pytest.approx(2.0)
    assert got.ci95 is None


@pytest.mark.parametrize(("per_loop", "windows"), [(1, 1), (2, 2), (7, 2), (40, 10), (5000, 20)])
def test_window_count(per_loop: int, windows: int) -> None:
    assert window_count(per_loop) == windows


def test_t_interval_of_a_known_sample() -> None:
    # mean 3, s = sqrt(2.5), n = 5, t(4) = 2.776
    assert half_width([1, 2, 3, 4, 5]) == pytest.approx(2.776 * math.sqrt(2.5 / 5), rel=1e-4)


def test_t_quantile_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for degrees in (1, 2, 5, 12, 19, 30, 31, 60, 200):
        assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=3e-3)
    with pytest.raises(ValueError, match="degree of freedom"):
        t_quantile(0)


def test_kendall_tau() -> None:
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert kendall_tau([1, 2, 3], [30, 20, 10]) == pytest.approx(-1.0)
    assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert kendall_tau([1], [1]) is None
    assert kendall_tau([1, 1], [1, 2]) is None


def test_sync_gaps_count_the_iterations_of_all_threads() -> None:
    both = process([1.0] * 12, "trainer[0].worker[0]") + process([2.0] * 6, "trainer[0].worker[1]")
    # ends: 1 2 2 3 4 4 5 6 6 ... ; one at the very end of a sync belongs to the gap before it
    ends = [i.end for i in both]
    assert sync_gaps(ends, [6.0, 0.5, 3.0]) == [4, 5]
    assert sync_gaps(ends, [3.0]) == []
    assert sync_gaps([], [1.0, 2.0, 3.0]) == [0, 0]


def test_staleness_is_what_others_ended_meanwhile() -> None:
    fast = process([1.0] * 6, "trainer[0].worker[0]")
    slow = [Iteration("trainer[1].worker[0]", 0, 0.5, 3.5), Iteration("x", 0, 3.5, 6.0)]
    # slow saw the ends at 1, 2, 3; x those at 4 and 5, and 6 is its own end
    assert staleness([*fast, *slow]) == [0, 0, 0, 1, 0, 0, 3, 2]
    in_step = process([1.0] * 5, "a") + process([1.0] * 5, "b") + process([1.0] * 5, "c")
    assert staleness(in_step) == [0] * 15


def test_staleness_against_its_definition() -> None:
    generator = random.Random(7)
    loops = [
        process([generator.choice([0.5, 1.0, 1.7]) for _ in range(20)], f"l{n}") for n in range(4)
    ]
    everything = [i for loop in loops for i in loop]
    wanted = [
        sum(o.loop != i.loop and i.start < o.end < i.end for o in everything) for i in everything
    ]
    assert staleness(everything) == wanted
    assert max(wanted) > 3


def test_distribution_has_values_that_occurred() -> None:
    assert distribution([]) is None
    assert distribution([7]) == Distribution(1, 7.0, 7, 7, 7)
    assert distribution([*range(1, 101)][::-1]) == Distribution(100, 50.5, 50, 95, 100)


def test_quantiles_are_the_smallest_that_so_many_do_not_exceed() -> None:
    found = distribution([1, 2, 3, 4, 5, 6, 7])
    assert found is not None
    assert (found.p50, found.p95) == (4, 7)


def test_the_least_error_that_is_claimed_is_less_than_that_of_repeats() -> None:
    """The median of the validations' medians of half the range of a setting's repeats."""
    medians = []
    root = Path(__file__).parents[2]
    for path in sorted(root.glob("benchmarks/results/fidelity*/validation.csv")):
        with path.open(encoding="utf-8") as file:
            spreads = [float(r["spread"]) for r in csv.DictReader(file) if r["spread"]]
        medians.append(statistics.median(spreads))
    assert len(medians) > 5
    assert 0.012 < min(medians) < max(medians) < 0.0545  # as the constant's comment has it
    assert statistics.median(medians) > NOISE


@pytest.mark.parametrize("seed", range(60))
def test_the_rate_is_that_by_hand_whoever_is_late_or_warms_up_slowly(seed: int) -> None:
    draw = random.Random(seed)
    done = []
    for loop in range(draw.randint(1, 4)):
        now = draw.random() * draw.choice([0, 1, 30])
        for number in range(12):
            slow = draw.choice([1, 1, 20]) if number < 2 else 1
            end = now + slow * draw.uniform(0.1, 1.0)
            done.append(Iteration(f"loop {loop}", number, now, end))
            now = end
    found = throughput(done, warmup=2, steps=10, batch_size=7).examples_per_second
    assert found == pytest.approx(rate_at_work(done, 2, 7), rel=1e-9)
