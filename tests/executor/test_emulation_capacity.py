"""What emulated hosts carry: judged by rates that are reached, kept, and held against a layout."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from recsim_train.config.errors import UserError
from recsim_train.executor.emulation import capacity
from recsim_train.executor.emulation.capacity import (
    Capacity,
    check_carried,
    measured_here,
    said,
)
from recsim_train.executor.emulation.layout import EmulatedHost, EmulatedLayout, Link

MBIT = 1e6 / 8


def layout(count: int, mbit: float) -> EmulatedLayout:
    link = Link(mbit * MBIT, "fifo", 10_000)
    return EmulatedLayout(
        tuple(EmulatedHost(f"h{n}", IPv4Address("10.77.0.1") + n, 0, link) for n in range(count))
    )


def test_the_highest_rate_that_is_reached_while_cores_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[float] = []

    def streamed(pairs: int, rate: float) -> tuple[float, float]:
        tried.append(pairs * rate / MBIT)
        whole = pairs * rate
        if pairs == 1:
            return min(whole, 1000 * MBIT), 0.5
        return whole, 1.0 - whole / (1800 * MBIT)

    monkeypatch.setattr(capacity, "_streamed", streamed)
    assert capacity._most(1) == 1000 * MBIT  # 1,400 are not reached
    assert tried == pytest.approx([100, 200, 400, 700, 1000, 1400, 1400, 1400])
    assert capacity._most(8) == 1000 * MBIT  # at 1,400 less than a quarter of the cores is idle


def test_it_is_measured_once_and_kept_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ((r, 4e8, 3e8, 2e8) for r in (5e8, 6e8))
    found = [Capacity(one, False), Capacity(other, True)]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(capacity, "measure", lambda: found.pop(0))
    busy = [90.0, 0.0, 0.0, *[90.0] * 6]
    monkeypatch.setattr(capacity.psutil, "cpu_percent", lambda _: busy.pop(0))
    first = measured_here()
    assert first == Capacity(one, False)
    assert measured_here() == first
    (file,) = tmp_path.rglob("*.json")
    kept = json.loads(file.read_text())
    file.write_text(json.dumps(kept | {"of": {"machine": "another"}}))
    assert measured_here() == Capacity(other, True)
    file.write_text("no json")
    assert measured_here() is None  # the cores are busy: nothing is measured, nothing kept
    assert file.read_text() == "no json"


def test_links_that_could_carry_more_are_refused() -> None:
    here = Capacity((400 * MBIT, 300 * MBIT, 200 * MBIT, 100 * MBIT), False)
    for hosts, most in ((2, 200), (3, 100), (4, 75), (5, 40), (8, 25), (9, 11), (16, 6), (32, 3)):
        check_carried(layout(hosts, most), here)
        with pytest.raises(UserError, match=rf"^{hosts} links together would have"):
            check_carried(layout(hosts, 1.15 * most), here)
    with pytest.raises(UserError, match=r"a link would have 401 Mbit/s, .* carry 400 Mbit/s"):
        check_carried(layout(2, 401), here)
    assert list(said(here))[:2] == [
        "2 hosts (one link): up to 400 Mbit/s", "4 hosts: up to 300 Mbit/s",
    ]  # fmt: skip
