"""Fitting prices: known prices come back, uncertainties mean something, nonsense is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.calibration.fit import Observation, fit

PRIORS = {"call": 1e-6, "flop": 2e-11, "byte": 5e-11, "row": 2e-8}


def observations(
    prices: dict[str, float], noise: float, seed: int, count: int = 40
) -> list[Observation]:
    draw = np.random.default_rng(seed)
    made = []
    for index in range(count):
        work = {
            "call": float(draw.integers(5, 300)),
            "flop": float(10 ** draw.uniform(4, 9)),
            "byte": float(10 ** draw.uniform(3, 8)),
        }
        if index % 2:
            work["row"] = float(10 ** draw.uniform(1, 5))
        seconds = sum(prices[name] * units for name, units in work.items())
        factor = math.exp(noise * draw.standard_normal())
        made.append(Observation("rows" if index % 2 else "plain", work, seconds * factor))
    return made


scales = st.floats(0.2, 5.0)


@settings(max_examples=15)
@given(st.fixed_dictionaries(dict.fromkeys(PRIORS, scales)), st.integers(0, 1000))
def test_known_prices_come_back(factors: dict[str, float], seed: int) -> None:
    prices = {name: PRIORS[name] * factor for name, factor in factors.items()}
    found = fit(observations(prices, 0.0, seed), PRIORS)
    for name, value in prices.items():
        assert found.prices[name].value == pytest.approx(value, rel=0.05)
        assert found.prices[name].uncertainty < 0.2
    assert max(found.residuals.values()) < 0.01
    assert found.held_out < 0.02


def test_noise_shows_in_uncertainty_and_residuals() -> None:
    prices = {name: 1.5 * prior for name, prior in PRIORS.items()}
    quiet = fit(observations(prices, 0.02, 3), PRIORS)
    loud = fit(observations(prices, 0.3, 3), PRIORS)
    assert quiet.residuals["plain"] < 0.05 < loud.residuals["plain"]
    assert sum(p.uncertainty for p in loud.prices.values()) > 3 * sum(
        p.uncertainty for p in quiet.prices.values()
    )
    assert quiet.held_out < loud.held_out


def test_errors_are_about_as_large_as_the_uncertainty_says() -> None:
    inside = 0
    for seed in range(20):
        prices = {name: 2.0 * prior for name, prior in PRIORS.items()}
        found = fit(observations(prices, 0.1, seed), PRIORS).prices
        for name, value in prices.items():
            error = abs(found[name].value / value - 1)
            inside += error < 2.5 * found[name].uncertainty
    assert inside >= 0.8 * 20 * len(PRIORS)


def test_one_disturbed_timing_moves_little() -> None:
    prices = {name: 1.5 * prior for name, prior in PRIORS.items()}
    seen = observations(prices, 0.01, 5)
    spoiled = seen[0]
    seen[0] = Observation(spoiled.group, spoiled.work, 20 * spoiled.seconds)
    found = fit(seen, PRIORS).prices
    for name, value in prices.items():
        assert found[name].value == pytest.approx(value, rel=0.05)


def test_no_price_vanishes_and_one_at_the_limit_is_unknown() -> None:
    seen = [
        Observation("a", {"call": 10.0, "byte": 1e6}, 1e-5),
        Observation("a", {"call": 10.0, "byte": 1e3}, 1e-4),
    ]
    found = fit(seen, PRIORS).prices
    assert found["byte"].value == pytest.approx(PRIORS["byte"] / 20)
    assert found["byte"].uncertainty >= 1.0


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(6, 20))
def test_few_and_noisy_timings_leave_every_price_physical(seed: int, count: int) -> None:
    found = fit(observations(PRIORS, 0.5, seed, count), PRIORS).prices
    for name, price in found.items():
        assert price.value >= PRIORS[name] / 20.001
        assert price.uncertainty > 0.0


def test_what_nobody_measured_has_no_price() -> None:
    found = fit([Observation("a", {"call": 10.0}, 1e-5)], PRIORS)
    assert set(found.prices) == {"call"}
    assert math.isnan(found.held_out)


def test_the_prior_decides_only_between_what_can_not_be_told_apart() -> None:
    same = [Observation("a", {"call": n, "row": n}, n * 3e-6) for n in (1.0, 10.0, 100.0)]
    found = fit(same, {"call": 1e-6, "row": 2e-6}).prices
    assert found["call"].value + found["row"].value == pytest.approx(3e-6, rel=0.01)
    assert found["row"].value == pytest.approx(2e-6, rel=0.05)


def test_weights_favour_a_group() -> None:
    seen = [Observation("a", {"call": 1.0}, 1e-6), Observation("b", {"call": 1.0}, 1.2e-6)]
    even = fit(seen, PRIORS).prices["call"].value
    assert fit(seen, PRIORS, weights={"b": 50.0}).prices["call"].value > even
    assert fit(seen, PRIORS, weights={"a": 50.0}).prices["call"].value < even


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        ([], "no observations"),
        ([Observation("a", {"call": 1.0}, 0.0)], "took 0.0 seconds"),
        ([Observation("a", {"call": 1.0}, math.nan)], "took nan seconds"),
        ([Observation("a", {"water": 1.0}, 1.0)], "no prior for water"),
    ],
)
def test_nonsense_is_refused(seen: list[Observation], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        fit(seen, PRIORS)


def test_planted_residuals_come_back_by_group() -> None:
    """What a fit says of settings that were kept out of it is what was planted there."""
    prices = {name: 1.5 * prior for name, prior in PRIORS.items()}
    draw = np.random.default_rng(9)
    planted = {"plain": 0.05, "rows": 0.25}
    seen = [
        Observation(o.group, o.work, o.seconds * math.exp(planted[o.group] * draw.normal()))
        for o in observations(prices, 0.0, 4, count=240)
    ]
    errors = fit(seen, PRIORS).errors
    for group, residual in planted.items():
        assert errors[group] == pytest.approx(residual, rel=0.2)
    assert fit(seen[:1], PRIORS).errors == {}


def test_scatter_makes_no_price_too_low() -> None:
    """Observations that scatter by 30 % either way are priced in their middle."""
    prices = {name: 1.5 * prior for name, prior in PRIORS.items()}
    off = []
    for seed in range(12):
        seen = observations(prices, 0.3, seed, count=80)
        found = fit(seen, PRIORS)
        off += [math.log(found.prices[name].value / value) for name, value in prices.items()]
        assert abs(found.bias["plain"]) < 0.15
    assert abs(sum(off) / len(off)) < 0.05
