"""How operations scale over threads, from synthetic timings whose law is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recsim_train.calibration.prices import KERNEL_PRIORS
from recsim_train.calibration.threads import fit_threads
from recsim_train.config.cluster import ASSUMED_THREADS, THREAD_CLASSES
from recsim_train.workload.threads import by_class

KNOWN = {
    "products": (0.03, 0.01),
    "pairs": (0.1, 0.02),
    "streams": (0.3, 0.2),
    "rows": (0.15, 0.05),
}


def timings(
    known: dict[str, tuple[float, float]], threads: int, speed: float, noise: float, seed: int = 3
) -> list[dict[str, Any]]:
    """Operations that are mostly of one class each, as a machine with this law would show them."""
    chance = np.random.default_rng(seed)
    found = []
    mostly = ("gemm_flop", "dot_flop", "stream_byte", "gather_byte", "gather_row", "unique_id")
    for number in range(48):
        work = {
            name: chance.uniform(0.0, 0.2) * 1e-2 / prior for name, prior in KERNEL_PRIORS.items()
        }
        main = mostly[number % len(mostly)]
        work[main] = 2e-2 / KERNEL_PRIORS[main]
        one = sum(units * KERNEL_PRIORS[name] for name, units in work.items())
        wall = spent = one
        for group, part in by_class(work, KERNEL_PRIORS).items():
            serial, overhead = known[group]
            wall -= part * (1.0 - serial) * (1.0 - 1.0 / (threads * speed))
            spent += part * ((1.0 - serial) * (1.0 / speed - 1.0) + overhead * (threads - 1))
        a, b = np.exp(noise * chance.standard_normal(2))
        found.append({"work": work, "one": [one, one], "many": [wall * a, spent * b]})
    return found


@pytest.mark.parametrize(("threads", "speed"), [(2, 1.0), (2, 0.8), (20, 0.9)])
def test_a_known_law_comes_back(threads: int, speed: float) -> None:
    found, said = fit_threads(timings(KNOWN, threads, speed, 0.0), KERNEL_PRIORS, threads, speed)
    assert found.measured == threads
    assert f"on {threads} threads" in said
    for group, (serial, overhead) in KNOWN.items():
        law = found.of(group)
        assert law.serial == pytest.approx(serial, abs=0.01), group
        assert 0.0 <= law.overhead == pytest.approx(overhead, abs=0.01), group
        assert law.basis == "fit"
        assert law.uncertainty <= 0.5


def test_noise_shows_in_the_uncertainty() -> None:
    quiet, _ = fit_threads(timings(KNOWN, 8, 1.0, 0.002), KERNEL_PRIORS, 8, 1.0)
    loud, said = fit_threads(timings(KNOWN, 8, 1.0, 0.2), KERNEL_PRIORS, 8, 1.0)
    for group in ("products", "rows", "streams"):
        assert quiet.of(group).uncertainty < loud.of(group).uncertainty
    assert "median error 0%" not in said


def test_shares_stay_within_what_is_possible() -> None:
    """Timings that are faster than linear, or slower than one thread."""
    for change in (0.1, 3.0):
        timed = timings(KNOWN, 4, 1.0, 0.0)
        for entry in timed:
            entry["many"] = [change * entry["one"][0], change * entry["one"][1]]
        found, _ = fit_threads(timed, KERNEL_PRIORS, 4, 1.0)
        for group in THREAD_CLASSES:
            law = found.of(group)
            assert 0.0 < law.serial <= 1.0
            assert 0.0 <= law.overhead <= law.serial
            assert 0.0 < law.uncertainty <= 1.0
        bases = {found.of(group).basis for group in THREAD_CLASSES}
        assert bases == ({"limit"} if change < 1.0 else {"fit"})


def test_what_no_operation_shows_stays_as_assumed() -> None:
    timed = timings(KNOWN, 4, 1.0, 0.0)
    for entry in timed:
        for name in ("gather_row", "gather_byte", "index_element"):
            del entry["work"][name]
    found, _ = fit_threads(timed, KERNEL_PRIORS, 4, 1.0)
    assert found.rows == ASSUMED_THREADS.rows
    assert found.wake == ASSUMED_THREADS.wake
    assert found.rows.basis == found.wake.basis == "magnitude"


def test_the_shortest_operations_do_not_count() -> None:
    timed = timings(KNOWN, 4, 1.0, 0.0)
    short = [{"work": {"gemm_flop": 1e5}, "one": [1e-6, 1e-6], "many": [9e-6, 9e-6]}] * 50
    assert fit_threads(timed + short, KERNEL_PRIORS, 4, 1.0) == fit_threads(
        timed, KERNEL_PRIORS, 4, 1.0
    )
    with pytest.raises(ValueError, match="long enough"):
        fit_threads(short, KERNEL_PRIORS, 4, 1.0)


# ------------------------------------------------------------------ what waking takes


def with_wakes(
    known: tuple[float, float, float], threads: int, speed: float, noise: float, seed: int = 3
) -> list[dict[str, Any]]:
    """`timings` of operations of 50 us to 20 ms, of which half of the work is divided, in some
    operators each of which wakes the pool: (wall, caller, pool) seconds."""
    chance = np.random.default_rng(seed)
    wall, caller, pool = known
    found = []
    for number, entry in enumerate(timings(KNOWN, threads, speed, 0.0, seed)):
        small = float(10.0 ** chance.uniform(-2.6, 0.0))
        work = {name: small * units for name, units in entry["work"].items()}
        half = {name: units / 2 for name, units in work.items()}
        one = sum(units * KERNEL_PRIORS[name] for name, units in work.items())
        wakes = int(chance.integers(1, 30))
        took, spent = one + wakes * wall, one + wakes * (caller + pool * (threads - 1))
        own = one + wakes * caller
        for group, part in by_class(half, KERNEL_PRIORS).items():
            serial, overhead = KNOWN[group]
            shorter = part * (1.0 - serial) * (1.0 - 1.0 / (threads * speed))
            took, own = took - shorter, own - shorter
            spent += part * ((1.0 - serial) * (1.0 / speed - 1.0) + overhead * (threads - 1))
        a, b = np.exp(noise * chance.standard_normal(2))
        found.append(
            {
                "work": work, "divided": half, "wakes": wakes, "check": number % 3 == 0,
                "one": [one, one, one], "many": [took * a, spent * b, own * a],
            }
        )  # fmt: skip
    return found


@pytest.mark.parametrize(("threads", "speed"), [(2, 1.0), (2, 0.8), (20, 0.9)])
def test_what_waking_takes_comes_back(threads: int, speed: float) -> None:
    wall, caller, pool = 70e-6, 20e-6, 12e-6
    timed = with_wakes((wall, caller, pool), threads, speed, 0.0)
    found, said = fit_threads(timed, KERNEL_PRIORS, threads, speed)
    assert found.wake.wall == pytest.approx(wall, rel=0.02)
    assert found.wake.caller == pytest.approx(caller, rel=0.05)
    assert found.wake.pool == pytest.approx(pool, rel=0.05)
    assert found.wake.basis == "fit"
    assert found.wake.uncertainty <= 0.1
    for group, (serial, _) in KNOWN.items():
        assert found.of(group).serial == pytest.approx(serial, abs=0.05), group
    assert "median error 0% of the wall time" in said
    assert "median error 0% on 16 kept out of the fit" in said
    assert "waking them takes 70 us" in said


def test_noise_shows_in_what_waking_takes() -> None:
    quiet, loud = (
        fit_threads(with_wakes((7e-5, 2e-5, 1e-5), 2, 1.0, noise), KERNEL_PRIORS, 2, 1.0)[0].wake
        for noise in (0.005, 0.2)
    )
    assert quiet.uncertainty < loud.uncertainty
    assert quiet.wall == pytest.approx(7e-5, rel=0.1)
    assert loud.wall == pytest.approx(7e-5, rel=0.5)


def test_what_is_kept_out_does_not_move_the_law() -> None:
    timed = with_wakes((7e-5, 2e-5, 1e-5), 4, 1.0, 0.02)
    law, said = fit_threads(timed, KERNEL_PRIORS, 4, 1.0)
    for entry in timed:
        if entry["check"]:
            entry["many"] = [3 * part for part in entry["many"]]
    other, worse = fit_threads(timed, KERNEL_PRIORS, 4, 1.0)
    assert other == law
    assert worse != said
    assert fit_threads([e for e in timed if not e["check"]], KERNEL_PRIORS, 4, 1.0)[0] == law


def test_threads_that_wake_at_once_are_a_limit() -> None:
    found, _ = fit_threads(with_wakes((0.0, 0.0, 0.0), 4, 1.0, 0.0), KERNEL_PRIORS, 4, 1.0)
    assert found.wake.wall <= 1e-6
    assert found.wake.caller <= found.wake.wall
    assert found.wake.pool <= found.wake.wall
    assert found.wake.uncertainty > 0.5
