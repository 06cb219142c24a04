"""Numbers as people read them; one place, so that terminal, page and figures agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from recsim_train.results.statistics import Distribution
from recsim_train.results.summary import Synchronisation

NONE = "–"
_NO_TIME = 1e-12
"""Seconds: less is what rounding leaves of nothing."""


def rate(value: float | None) -> str:
    """Examples per second: 21300 -> "21.3k"."""
    if value is None:
        return NONE
    return _in_units(value, {"G": 1e9, "M": 1e6, "k": 1e3}) or _digits(value)


def _in_units(value: float, units: Mapping[str, float], least: float = 0.9995) -> str:
    """In the largest unit of which ``value`` has one, when it is rounded; empty: in none."""
    fitting = (unit for unit, size in units.items() if abs(value) >= size * least)
    unit = next(fitting, "")
    return f"{_digits(value / units[unit])}{unit}" if unit else ""


def _digits(value: float) -> str:
    """Three significant digits without an exponent."""
    if value == 0:
        return "0"
    value = float(f"{value:.3g}")  # first, so that 0.9999 has the digits of 1
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(places, 6)}f}"


def tick(value: float) -> str:
    """A rate on an axis: "25k" rather than "25.0k"."""
    head, unit = rate(value), ""
    if head[-1].isalpha():
        head, unit = head[:-1], head[-1]
    return (head.rstrip("0").rstrip(".") if "." in head else head) + unit


def seconds(value: float | None) -> str:
    """A duration with a fitting unit: 0.0031 -> "3.10 ms"."""
    if value is None:
        return NONE
    if abs(value) < _NO_TIME:
        return "0 s"
    return _in_units(value, {" s": 1.0, " ms": 1e-3, " µs": 1e-6}) or f"{_digits(value * 1e9)} ns"


def duration(value: float) -> str:
    """A long time: 14500 -> "4.03 h"."""
    return _in_units(value, {" days": 86400.0, " h": 3600.0, " min": 60.0}, least=2.0) or seconds(
        value
    )


def size(value: float | None) -> str:
    """Bytes with a binary unit: 2048 -> "2.00 KiB"."""
    if value is None:
        return NONE
    units = {" TiB": 2.0**40, " GiB": 2.0**30, " MiB": 2.0**20, " KiB": 2.0**10}
    return _in_units(value, units, least=1.0) or f"{value:.0f} B"


def exact(value: float | None) -> str:
    """A count with thousands separators; a mean that is not whole keeps two places."""
    if value is None:
        return NONE
    whole = abs(value - round(value)) < 5e-7 * max(1, abs(value))
    return f"{value:,.0f}" if whole else f"{value:,.2f}"


def percent(value: float | None, *, signed: bool = False) -> str:
    """A share: 0.0763 -> "7.6 %"."""
    if value is None:
        return NONE
    hundredths = value * 100
    places = 0 if abs(hundredths) >= 99.5 else 1
    return f"{hundredths:{'+' if signed else ''}.{places}f} %".replace("-", "−")


def small_percent(value: float) -> str:
    """A share of which no digit may be lost: 0.00042 -> "0.042 %"."""
    return f"{_digits(value * 100)} %"


def rated(eps: float | None, interval: Sequence[float | None] | None, unit: str = "") -> str:
    """Measured examples per second with half of their interval, as a share: "21.3k ± 1.5 %"."""
    low, high = interval or (None, None)
    if not eps or low is None or high is None:
        return f"{rate(eps)}{unit}"
    return f"{rate(eps)}{unit} ± {percent((high - low) / 2 / eps)}"


def between(interval: Sequence[float] | None) -> str:
    """The ends of an interval of rates: "30.7k to 39.3k"."""
    return NONE if interval is None else f"{rate(interval[0])} to {rate(interval[1])}"


def predicted(eps: float | None, interval: Sequence[float] | None) -> str:
    """Examples per second with the ends of their 90 % interval: "35.0k (30.7k to 39.3k)"."""
    return rate(eps) if interval is None else f"{rate(eps)} ({between(interval)})"


def money(amount: float, currency: str) -> str:
    """An amount with three digits, and no less than a hundredth: "1,234 USD", "0.02 USD"."""
    if amount >= 1000:
        return f"{float(f'{amount:.3g}'):,.0f} {currency}"
    return f"{_digits(amount) if amount >= 0.01 else f'{amount:.2g}'} {currency}"


def number(value: float | None, places: int = 3) -> str:
    """A plain figure such as an AUC."""
    return NONE if value is None else f"{value:.{places}f}".replace("-", "−")


def sync_gap(found: Synchronisation) -> str:
    """Mean iterations between two syncs of a trainer: of all its threads, and of one."""
    gap, each = found.sync_gap, found.sync_gap_per_thread
    return f"{_digits(gap.mean)} ({_digits(each)} per thread)" if gap and each else NONE


def spread(counts: Distribution | None) -> str:
    """A distribution of counts in short: mean, median, 95th percentile, largest."""
    if counts is None:
        return NONE
    return (
        f"{_digits(counts.mean)} (median {counts.p50}, 95 % up to {counts.p95}, "
        f"at most {counts.largest})"
    )


def staleness(found: Synchronisation) -> str:
    """Mean staleness, where trainers synchronise now and then."""
    return _digits(found.staleness.mean) if found.sync_gap and found.staleness else NONE
