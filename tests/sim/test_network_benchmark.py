"""benchmarks/network.py gives the numbers of a small reference of its own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.clock import LIMIT
from tests.modules import loaded

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "network.py"


@pytest.fixture(scope="module")
def network() -> ModuleType:
    return loaded(SCRIPT)


def star_rates(flows: list[tuple[str, str]], bandwidth: float) -> list[float]:
    """Max-min fair rates where every flow uses two links of one bandwidth."""
    rates: dict[int, float] = {}
    while len(rates) < len(flows):
        offers = {}
        for link in {link for flow in flows for link in flow}:
            inside = [n for n, flow in enumerate(flows) if link in flow]
            rising = [n for n in inside if n not in rates]
            if rising:
                given = sum(rates[n] for n in inside if n in rates)
                offers[link] = (bandwidth - given) / len(rising)
        lowest = min(offers.values())
        tight = {link for link, offer in offers.items() if offer <= lowest * (1 + 1e-12)}
        rates |= {n: lowest for n, flow in enumerate(flows) if n not in rates and tight & set(flow)}
    return [rates[n] for n in range(len(flows))]


def expected(
    *,
    trainers: int,
    servers: int,
    iterations: int,
    jitter: float = 0.0,
    skew: float = 0.0,
    barrier: bool = False,
    seed: int = 1,
    bytes: float = 40e6,
    bandwidth: float = 3.125e9,
    latency: float = 25e-6,
    compute: float = 0.1,
) -> float:
    """Seconds that all trainers need: from event to event, everything worked out anew."""
    weights = [1 + skew * p / max(1, servers - 1) for p in range(servers)]
    sizes = [round(bytes * w / sum(weights)) for w in weights]
    now, last = 0.0, 4 * iterations
    phase = [0] * trainers  # 4k: before pull k; then pulling, computing, before push, pushing
    timers = dict.fromkeys(range(trainers), 2 * latency)
    flows: dict[tuple[int, int], float] = {}
    waiting: set[int] = set()
    while any(p < last for p in phase):
        ends = [
            (f"t{i}.rx", f"s{p}.tx") if phase[i] % 4 == 0 else (f"t{i}.tx", f"s{p}.rx")
            for i, p in flows
        ]
        rates = dict(zip(flows, star_rates(ends, bandwidth), strict=True))
        dues = {key: now + left / rates[key] for key, left in flows.items()}
        then = min([*timers.values(), *dues.values()])
        over = then * (1 + 1e-13)
        for key in list(flows):
            flows[key] -= rates[key] * (then - now)
            if dues[key] <= over:
                del flows[key]
                i = key[0]
                if not any(i == other for other, _ in flows):
                    if phase[i] % 4 == 0:
                        stream = random.Random((seed << 40) ^ (i << 20) ^ (phase[i] // 4))
                        factor = 1 + stream.uniform(-jitter, jitter)
                        timers[i] = then + compute * factor
                        phase[i] += 1
                    else:
                        phase[i] += 2
                        if barrier:
                            waiting.add(i)
                        elif phase[i] < last:
                            timers[i] = then + 2 * latency
        if len(waiting) == trainers:
            waiting.clear()
            if phase[0] < last:
                timers |= dict.fromkeys(range(trainers), then + 2 * latency)
        for i in [i for i, due in timers.items() if due <= over]:
            if phase[i] % 4 == 1:
                phase[i] += 1
                timers[i] = then + 2 * latency
            else:
                del timers[i]
                flows |= {(i, p): float(size) for p, size in enumerate(sizes)}
        now = then
    return now


CASES = [
    {"trainers": 1, "servers": 1, "iterations": 2},
    {"trainers": 5, "servers": 2, "iterations": 3},
    {"trainers": 6, "servers": 3, "iterations": 4, "jitter": 0.1},
    {"trainers": 6, "servers": 3, "iterations": 4, "jitter": 0.1, "barrier": True},
    {"trainers": 6, "servers": 4, "iterations": 4, "jitter": 0.1, "skew": 1.0, "seed": 5},
    {"trainers": 4, "servers": 3, "iterations": 3, "skew": 2.5, "barrier": True},
    {"trainers": 8, "servers": 3, "iterations": 3, "jitter": 0.5, "skew": 0.3, "compute": 0.01},
    {"trainers": 3, "servers": 9, "iterations": 2, "jitter": 0.2, "bytes": 1e6, "latency": 1e-3},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_simulated_seconds_are_exact(network: ModuleType, case: dict[str, Any]) -> None:
    found = network.simulate(network.Settings(**case))
    assert found["simulated_seconds"] == pytest.approx(expected(**case), rel=1e-9)
    flows = 2 * case["trainers"] * case["servers"] * case["iterations"]
    assert found["flows"] == found["flows_started"] == flows


def test_flows_start_as_predictions_start_them(
    network: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published goes through `Engine.activity`, once a flow, as `simulate` does."""
    engine = network.Engine
    started: list[float] = []
    activity = engine.activity

    def counted(self: Any, kind: Any, work: float, delay: float = 0.0) -> Any:
        started.append(work)
        return activity(self, kind, work, delay)

    monkeypatch.setattr(engine, "activity", counted)
    settings = network.Settings(3, 4, 5)
    network.simulate(settings)
    computations = 3 * 5
    assert len(started) == computations + 2 * 3 * 4 * 5


def test_cases_are_compared_with_a_peer_by_turns(
    network: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "CASES", {"A": network.Settings(3, 2, 2, jitter=0.1)})
    # in the place of SimGrid, which is not everywhere
    monkeypatch.setattr(network, "build_simgrid", lambda folder: folder / "network")
    monkeypatch.setattr(network, "run_simgrid", lambda _, settings: network.simulate(settings))
    (row,) = table = network.compared("A", 3, simgrid=True)
    for way in ("predictions", "simgrid"):
        wanted = expected(trainers=3, servers=2, iterations=2, jitter=0.1)
        assert row[f"{way}_simulated_seconds"] == pytest.approx(wanted, rel=1e-9)
        low, high = row[f"{way}_cpu_seconds_range"]
        assert low <= row[f"{way}_cpu_seconds"] <= high
    assert row["predictions_cpu_seconds_over_predictions"] == 1.0
    head, _, line = network.markdown(table).splitlines()
    assert head == "| Case | predictions | simgrid |"
    assert line.startswith("| A | ")
    (alone,) = network.compared("A", 1, simgrid=False)
    assert not [name for name in alone if name.startswith("simgrid")]


def test_lock_step_by_hand(network: ModuleType) -> None:
    found = network.simulate(network.Settings(100, 20, 50))
    one = 100 * (40e6 / 20) / 3.125e9 + 50e-6
    assert found["simulated_seconds"] == pytest.approx(50 * (2 * one + 0.1), rel=1e-12)
    assert found["simulated_seconds"] == pytest.approx(11.405, rel=1e-9)


def test_command_prints_one_document() -> None:
    words = [sys.executable, str(SCRIPT), "--trainers", "3", "--servers", "2", "--iterations", "2"]
    words += ["--jitter", "0.1", "--seed", "1", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=True)
    found = json.loads(done.stdout)
    wanted = expected(trainers=3, servers=2, iterations=2, jitter=0.1)
    assert found["simulated_seconds"] == pytest.approx(wanted, rel=1e-9)
    names = {"simulated_seconds", "wall_seconds", "cpu_seconds", "flows", "flows_per_second"}
    assert names | {"peak_rss_mib", "compile_seconds"} <= set(found)
