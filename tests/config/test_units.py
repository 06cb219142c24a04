"""Quantities with units."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.config.units import (
    DURATION,
    DURATIONS,
    RATE,
    RATES,
    SHARE,
    SHARES,
    SIZE,
    SIZES,
    Quantity,
    parse_money,
    parse_quantity,
    suggest_unit,
)


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("25 Gbit/s", RATES, 25e9 / 8),
        ("25 GB/s", RATES, 25e9),
        ("25 GiB/s", RATES, 25 * 2**30),
        ("50 us", DURATIONS, 50e-6),
        ("50 \u00b5s", DURATIONS, 50e-6),
        ("50 \u03bcs", DURATIONS, 50e-6),
        ("4 MiB", SIZES, 4 * 2**20),
        ("4MB", SIZES, 4e6),
        ("1_000 kB", SIZES, 1e6),
        ("1.5e3 B", SIZES, 1500),
        ("5 %", SHARES, 0.05),
    ],
)
def test_reads(text: str, units: dict[str, float], value: float) -> None:
    assert parse_quantity(text, units, "a quantity", "1 x") == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("unit", "units", "meant"),
    [
        ("Gbps", RATES, "Gbit/s"),
        ("GBps", RATES, "GB/s"),
        ("Gb/s", RATES, "Gbit/s"),
        ("gbit/s", RATES, "Gbit/s"),
        ("Gbits/s", RATES, "Gbit/s"),
        ("mib", SIZES, "MiB"),
        ("GIB", SIZES, "GiB"),
        ("bytes", SIZES, "B"),
        ("seconds", DURATIONS, "s"),
        ("usec", DURATIONS, "us"),
        ("percent", SHARES, "%"),
        ("parsecs", RATES, None),
    ],
)
def test_suggests(unit: str, units: dict[str, float], meant: str | None) -> None:
    assert suggest_unit(unit, units) == meant


@pytest.mark.parametrize(
    ("value", "quantity", "text"),
    [
        (13.2e-9, DURATION, "13.2 ns"),
        (60.0, DURATION, "60 s"),
        (0.0, DURATION, "0 s"),
        (3.4e-13, DURATION, "0.34 ps"),
        (25e9 / 8, RATE, "25 Gbit/s"),
        (24 * 2.0**30, SIZE, "24 GiB"),
        (0.015, SHARE, "1.5 %"),
        (0.0, SHARE, "0 %"),
        (1.23456789e-6, DURATION, "1.23457 us"),
    ],
)
def test_writes(value: float, quantity: Quantity, text: str) -> None:
    assert quantity.format(value) == text


KINDS = [(SIZE, SIZES), (RATE, RATES), (DURATION, DURATIONS), (SHARE, SHARES)]


@given(st.sampled_from(KINDS), st.floats(1e-18, 1e18))
def test_six_digits_survive(kind: tuple[Quantity, dict[str, float]], value: float) -> None:
    quantity, units = kind
    back = parse_quantity(quantity.format(value), units, quantity.what, quantity.example)
    assert math.isclose(back, value, rel_tol=5.1e-6)
    exact = parse_quantity(quantity.format_exact(value), units, quantity.what, quantity.example)
    assert math.isclose(exact, value, rel_tol=4e-16)


@pytest.mark.parametrize(
    ("text", "per_hour"),
    [
        ("50 USD/h", 50.0),
        ("50USD / hour", 50.0),
        ("0.5k USD/h", 500.0),
        ("36k USD/month", 36_000 / 730),
        ("24 USD/day", 1.0),
        ("8_760 USD/year", 1.0),
        ("1.2M USD/year", 1.2e6 / 8760),
    ],
)
def test_money_is_an_amount_a_currency_and_a_time(text: str, per_hour: float) -> None:
    assert parse_money(text, "USD") == pytest.approx(per_hour, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "50", "36k", "50k/h", "2M/h", "3000 month", "100 year", "50 EUR/h", "500 ct/h", "500ct/h",
        "50 %", "$50/h", "50 USD", "50 kUSD/h", "50 USD/week", "0 USD/h", "-5 USD/h", "1e999 USD/h",
        "50__0 USD/h", "cheap", "", 50, None,
    ],
)  # fmt: skip
def test_money_of_no_or_another_unit_is_refused_with_the_form(text: object) -> None:
    with pytest.raises(ValueError, match=r"such as '50 USD/h' or '36k USD/month' \(730 h\)"):
        parse_money(text, "USD")


def test_a_short_form_is_no_part_of_a_currency() -> None:
    assert parse_money("50kr/h", "kr") == 50.0
    assert parse_money("50k kr/h", "kr") == 50_000.0
    with pytest.raises(ValueError, match="nothing is converted"):
        parse_money("50 kr/h", "r")


@pytest.mark.parametrize("text", ["1__0 us", "10_ us", "1_0_ us"])
def test_underscores_stand_between_digits(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        DURATION.read(text)
