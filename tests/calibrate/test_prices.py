"""From reports of measuring processes to prices."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsim_train.calibration import grid, load_probe, programs
from recsim_train.calibration import runs as runs_of_own
from recsim_train.calibration.fit import Estimate, Observation
from recsim_train.calibration.grid import MEETING_BYTES
from recsim_train.calibration.own import steps, unit
from recsim_train.calibration.own.rounds import deviation
from recsim_train.calibration.own_runs import OwnRun
from recsim_train.calibration.prices import (
    CALLS,
    KERNEL_PRIORS,
    MEETING_PRIORS,
    READ_PRIORS,
    WIRE_PRIORS,
    Crowd,
    Prices,
    contention,
    cooling,
    describe,
    fit_kernels,
    fit_reading,
    fit_wire,
    from_repeats,
    handover,
    loopback_of,
    run_observations,
    waits_of,
    wire_observations,
)
from recsim_train.calibration.programs import Talked
from recsim_train.config.cluster import Cooling, Costs
from recsim_train.executor.net import kernels
from recsim_train.executor.operations import KERNELS
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan
from recsim_train.placement.transport import reading_of
from recsim_train.trace.ledger import Ledger
from recsim_train.workload import operations


def kernel_report(prices: Mapping[str, float]) -> list[Observation]:
    """What an ideal machine with these prices would show of the grid, at sizes like its data's."""
    found = []
    for planned in unit.plans(quick=False):
        spec, embedding = planned.plan.experiment, planned.plan.embedding
        assert embedding is not None
        pooling = embedding.service.pooling
        ids = planned.plan.examples * sum(table.ids for table in spec.model.tables)
        for name, asked in planned.cells:
            if name.endswith({"server": "_rows", "worker": "_pooled"}[pooling]):
                continue
            scope = replace(asked, pooling=pooling, ids=ids, unique=0.6 * ids)
            if not name.startswith(("threshold", "sparsify", "densify")):
                scope = replace(scope, tables=len(spec.model.tables))
            work = operations.cost(name, scope)
            took = sum(prices[price] * units for price, units in work.items())
            found.append(Observation(operations.OPS[name].fit, work, took))
    return found


def test_the_grid_tells_all_kernel_prices_apart() -> None:
    """Prices far from the priors come back from the real grid and the real counts."""
    prices = {
        name: prior * (0.4, 2.5)[index % 2]
        for index, (name, prior) in enumerate(KERNEL_PRIORS.items())
    }
    found = fit_kernels(kernel_report(prices)).prices
    assert set(found) == set(KERNEL_PRIORS)
    for name, value in prices.items():
        assert found[name].value == pytest.approx(value, rel=0.1), name


def test_every_counted_price_exists_and_is_measured() -> None:
    waits = {"collective_step", "reduced_wait", "exchanged_wait"}
    direct = {"handover", *CALLS, *waits}
    measured = {*KERNEL_PRIORS, *WIRE_PRIORS, *READ_PRIORS, *MEETING_PRIORS, *direct}
    assert measured == set(Costs.model_fields)


def test_kernels_show_every_price_that_is_fitted_to_them() -> None:
    counted = {price for seen in kernel_report(KERNEL_PRIORS) for price in seen.work}
    assert counted == set(KERNEL_PRIORS)


def test_the_grid_is_not_the_quickstart() -> None:
    for setting in grid.GRID:
        assert not (setting.tables == 26 and setting.dim == 16)
    low, high = grid.ranges(grid.GRID)["training.batch_size"]
    assert low <= 32
    assert high >= 2048


WAITS = 1.9e-10, 2e-10, 2.1e-10
KNOWN = {"call": 1e-6, "interpreter": 3e-7, "effect": 5e-6, "read_row": 1e-6}


def known() -> Prices:
    prices = Prices()
    prices.add({name: Estimate(value, 0.05) for name, value in KNOWN.items()})
    return prices


def crowd_of(value: float) -> Crowd:
    """A crowd whose threads take turns with the lock, which a waiter takes ``value`` seconds to
    find free."""
    held = alone = 0.0
    for calls, leaving in ((600, 40), (90, 10)):
        own, rest, wait = leaving * 3e-7, calls * 1e-6, leaving * value
        held += own + 1 / (1 / rest + 1 / wait)
        alone += own + rest
    work = {"call": 600.0, "interpreter": 40.0}, {"call": 90.0, "interpreter": 10.0}
    return Crowd(1 / alone, 1 / held, work)


@pytest.mark.parametrize("value", [2.5e-5, 6e-5, 2e-4])
def test_threads_that_queue_for_the_lock_tell_how_long_it_is_held(value: float) -> None:
    found = handover([crowd_of(value)], cores=8, contention=1.0, prices=known())
    assert found.value == pytest.approx(value, rel=0.01)
    # whatever a call costs: what counts is the share of the lock
    dearer = crowd_of(value)
    dearer = Crowd(dearer.alone / 3, dearer.together / 3, dearer.work)
    assert handover([dearer], cores=8, contention=1.0, prices=known()) == found


def test_a_step_of_the_lock_is_what_its_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    counted: list[str] = []

    def spied(name: str, call: Any) -> Any:
        def spy(*given: Any, **named: Any) -> Any:
            called.append(name)
            return call(*given, **named)

        return spy

    for module, names in (
        (steps, ("route_ids", "assemble_rows", "route_gradient")),
        (kernels, ("lookup_pooled", "forward_backward", "update_pooled")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, spied(name, getattr(module, name)))
    monkeypatch.setitem(KERNELS, "apply", spied("apply", KERNELS["apply"]))
    real = operations.cost
    monkeypatch.setattr(
        load_probe, "cost", lambda name, scope: (counted.append(name), real(name, scope))[1]
    )
    step, work = load_probe.steps_of(*grid.CROWDED[0])
    called.clear()
    step()
    assert called == counted
    assert len(called) == len(work) == 7
    assert sum(w.get("gemm_flop", 0.0) for w in work) > 0.0


def test_threads_that_run_freely_do_not_wait_for_the_lock() -> None:
    queue = crowd_of(5e-5)
    free = Crowd(queue.alone, 1.98 * queue.alone, queue.work)
    none = Estimate(0.0, 1.0, "limit")
    assert handover([free], cores=8, contention=1.0, prices=known()) == none
    assert handover([queue], cores=1, contention=1.0, prices=known()) == none
    found = handover([free, queue, free], cores=8, contention=1.0, prices=known())
    assert found.value == pytest.approx(5e-5, rel=0.01)


def test_slow_shared_cores_are_not_taken_for_the_lock() -> None:
    work = {"call": 588.0, "interpreter": 40.0}  # 600 us, of which 12 are the interpreter's
    slow = Crowd(1e3, 1.5e3, (work,))
    held = 600e-6 / 1.5 - 12e-6
    value = 1 / (1 / held - 1 / 588e-6) / 40
    found = handover([slow], cores=8, contention=1.0, prices=known())
    assert found.value == pytest.approx(value, rel=0.01)
    assert handover([slow], cores=8, contention=0.75, prices=known()).value == 0.0


def read_plans(tmp_path: Path) -> list[Plan]:
    """All that calibration reads, in runs of two trainers."""
    planned = [*runs_of_own.readings(quick=False), *runs_of_own.TALKS]
    with programs.known():
        runs = [runs_of_own.experiment(run, 2, tmp_path) for run in planned]
        return [build_plan(run, run.strategies[0]) for run in runs]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_rows_and_ids_cost_what_is_left_after_the_calls_of_their_batch(
    factor: float, tmp_path: Path
) -> None:
    """Prices far from their magnitudes come back from the runs that calibration makes."""
    planted = {
        name: prior * (factor, 1.0 / factor)[index % 2]
        for index, (name, prior) in enumerate(READ_PRIORS.items())
    }
    prices = KNOWN | planted
    measured = []
    for plan in read_plans(tmp_path):
        scope = reading_of(plan, None)
        work = {**operations.cost("reading", scope), "feed_batch": scope.batches}
        spent = sum(prices[name] * units for name, units in work.items())
        measured.append(Observation(scope.source, work, spent))
    found = fit_reading(measured, known()).prices
    assert set(found) == set(planted)
    for name, value in planted.items():
        assert found[name].value == pytest.approx(value, rel=0.1), name


def test_what_a_batch_took_is_without_those_that_were_made_before(tmp_path: Path) -> None:
    plan = read_plans(tmp_path)[0]
    assert plan.experiment.training.steps == 150
    # five are made together once a queue for one batch is empty; half of them are left
    ledger = Ledger.of(9.0, 8.0, {("trainer", "reading", "reader"): 2 * 147 * 1e-3})
    seen = programs.read_in(OwnRun(plan, 1.0, ledger))
    assert seen.seconds == pytest.approx(1e-3)
    assert seen.group == "reading"
    assert seen.work["synthesize_row"] == 192
    assert seen.work["synthesize_id"] > 6 * 192


def test_messages_of_runs_outweigh_bare_round_trips() -> None:
    def end() -> dict[str, Any]:
        return {"talks": [talk(3, size, 1.0, 3 * 40e-6 + size * 2e-10) for size in (128, 1 << 20)]}

    prices = {"message": 80e-6, "gloo_message": 110e-6, "wire_byte": 4e-10, "shared_byte": 1e-10}
    works = [
        {"message": 12, "gloo_message": fed, "wire_byte": size, "shared_byte": shared}
        for size in (1 << 16, 1 << 23)
        for shared, fed in ((0, 0.0), (1 << 23, 0.0), (1 << 23, 7.2))
    ]
    law = Cooling.model_construct(exponent=0.25, bytes=1e7)

    def took(work: dict[str, float], moved: float) -> float:
        dearer = (moved / 1e7) ** 0.25
        return sum(prices[n] * u * (dearer if "message" in n else 1) for n, u in work.items())

    runs = [Talked(work, took(work, moved), {}, moved) for work in works for moved in (1e6, 1e8)]
    seen = [*wire_observations([end(), end()]), *run_observations(runs, law)]
    found = fit_wire(seen).prices
    assert found["gloo_message"].value == pytest.approx(110e-6, rel=0.15)
    assert found["message"].value == pytest.approx(80e-6, rel=0.15)
    assert found["wire_byte"].value == pytest.approx(4e-10, rel=0.15)
    assert found["shared_byte"].value == pytest.approx(1e-10, rel=0.15)


def test_spread_counts_what_makes_others_wait() -> None:
    draw = random.Random(9)
    steps = [draw.gauss(1.0, 0.05) for _ in range(5000)]
    assert deviation(steps) == pytest.approx(0.05, rel=0.05)
    # both halves are as even as the whole was: the machine became slower meanwhile
    slower = [t * (1.0 if k < 2500 else 1.5) for k, t in enumerate(steps)]
    assert deviation(slower) == pytest.approx(0.05, rel=0.1)
    # a hundredth of the steps takes twice as long: those add 0.01 each way
    rare = [1.0 + (k % 100 == 50) for k in range(5000)]
    assert deviation(rare) == pytest.approx(0.02 * math.sqrt(math.pi) / 2, rel=0.03)
    assert deviation([1.0]) == deviation([]) == 0.0


def asked(moved: float, effect: float, request: float, *, usual: bool = True) -> Talked:
    calls = {"effect": effect, "asking": effect / 2, "row_request": 2 * request}
    if moved < 5e7:  # not every run asks both kinds of servers
        calls["request"] = request
    return Talked({}, 1.0, calls, moved, usual)


def test_what_effects_and_requests_cost_grows_with_what_steps_move() -> None:
    """Planted: (bytes / 10 MB) ** 0.2, of effects with 10 % noise; other ways do not count."""
    draw = random.Random(5)

    def run(moved: float) -> Talked:
        factor = (moved / 1e7) ** 0.2
        return asked(moved, 60e-6 * factor * math.exp(draw.gauss(0.0, 0.1)), 90e-6 * factor)

    runs = [run(10.0 ** (6.0 + 2.0 * k / 59)) for k in range(60)]
    prices, law = cooling([*runs, asked(1e6, 1.0, 1.0, usual=False)])
    assert law.exponent == pytest.approx(0.2, abs=0.02)
    assert law.bytes == pytest.approx(1e7, rel=0.01)
    assert prices["effect"].value == pytest.approx(60e-6, rel=0.05)
    assert prices["effect"].uncertainty == pytest.approx(0.1, rel=0.3)
    assert prices["request"].value == pytest.approx(90e-6, rel=0.01)
    assert prices["request"].uncertainty < 0.02
    assert prices["asking"].value == pytest.approx(30e-6, rel=0.05)
    assert prices["row_request"].value == pytest.approx(180e-6, rel=0.01)


def test_what_does_not_grow_has_no_exponent() -> None:
    shrinks = [asked(moved, 60e-6 / k, 90e-6) for k, moved in enumerate((1e6, 1e7, 1e8), 1)]
    assert cooling(shrinks)[1].exponent == 0.0
    prices, law = cooling([asked(1e6, 60e-6, 90e-6)])
    assert (law.exponent, prices["effect"].uncertainty) == (0.0, 1.0)


def talk(messages: int, size: int, wall: float, cpu: float) -> dict[str, float]:
    return {"messages": messages, "bytes": size, "wall": wall, "cpu": cpu}


def test_wire_prices_and_rates() -> None:
    message, byte, latency, rate = 20e-6, 3e-10, 15e-6, 2e9

    def end() -> dict[str, Any]:
        talks = [talk(2, 120, 4 * message + 2 * latency, 2 * message + 120 * byte)]
        for size in (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24):
            wall = 6 * message + 2 * latency + 2 * size / rate
            talks.append(talk(3, 2 * size, wall, 3 * message + 2 * size * byte))
        return {
            "talks": talks,
            "streams": [1.8e9, 2.5e9],
            "meetings": {
                "least": [2 * (latency + step) for step in (8e-6, 9e-6, 90e-6)],
                "reduce": [2 * (latency + 9e-6) + wait * MEETING_BYTES for wait in WAITS],
                "exchange": [2 * (latency + 9e-6) + 3 * wait * MEETING_BYTES for wait in WAITS],
            },
        }

    ends = [end(), end()]
    found = fit_wire(wire_observations(ends)).prices
    assert found["message"].value == pytest.approx(message, rel=0.02)
    assert found["wire_byte"].value == pytest.approx(byte, rel=0.02)
    wire = loopback_of(ends, message)
    waits = waits_of(ends, wire.latency)
    assert wire.latency == pytest.approx(latency)
    assert wire.connection_cap == pytest.approx(rate, rel=0.01)
    assert wire.nic == pytest.approx(2.5e9)
    assert waits["collective_step"].value == pytest.approx(9e-6)
    assert waits["reduced_wait"].value == pytest.approx(2e-10)
    assert waits["exchanged_wait"].value == pytest.approx(6e-10)
    assert {wait.basis for wait in waits.values()} == {"once"}


def test_two_ends_of_one_exchange_are_no_repeat() -> None:
    def end(wait: float) -> dict[str, Any]:
        talks = [talk(2, 120, 1.1e-4, 4e-5), talk(3, 1 << 20, 1e-3, 1e-3)]
        return {
            "talks": talks,
            "streams": [1e9, 1e9],
            "meetings": {"least": [wait], "reduce": [1e-3], "exchange": [1e-3]},
        }

    ends = [end(2.6e-4), end(2.8e-4)]
    step = waits_of(ends, loopback_of(ends, message=2e-5).latency)["collective_step"]
    assert step.value == pytest.approx(1.35e-4 - 1.5e-5, rel=1e-3)
    assert step.uncertainty == 1.0
    assert step.basis == "once"


@pytest.mark.parametrize("crowds", [1, 3])
def test_two_threads_that_do_less_than_one_say_that_it_is_held_for_long(crowds: int) -> None:
    queue = crowd_of(5e-5)
    slow = Crowd(queue.alone, 0.9 * queue.alone, queue.work)
    found = handover([slow] * crowds, cores=8, contention=1.0, prices=known())
    assert found == Estimate(5e-4, 1.0, "limit")
    hardly = Crowd(queue.alone, 1.005 * queue.alone, queue.work)
    assert handover([hardly] * 2, cores=8, contention=1.0, prices=known()) == found
    # but where others do more, these tell
    found = handover([slow, queue, slow], cores=8, contention=1.0, prices=known())
    assert found.value == pytest.approx(5e-5, rel=0.01)


def test_threads_that_do_better_than_their_own_work_would_let_them_do_not_wait() -> None:
    work = {"call": 600.0, "interpreter": 4000.0}  # two thirds of it are the interpreter's
    crowds = [Crowd(1e3, rate, (work,)) for rate in (1600.0, 1610.0)]
    found = handover(crowds, cores=8, contention=1.0, prices=known())
    assert found == Estimate(0.0, 1.0, "limit")


def test_repeats_say_that_they_are_repeats() -> None:
    assert from_repeats([1.0, 1.1, 0.9]).basis == "repeats"
    assert from_repeats([1.0]) == Estimate(1.0, 1.0, "once")
    assert from_repeats([0.0, 0.0, 0.0]) == Estimate(0.0, 1.0, "limit")


def test_latency_is_never_negative() -> None:
    end = {
        "talks": [talk(2, 120, 1e-4, 1e-4), talk(3, 1 << 20, 1e-3, 1e-3)],
        "streams": [1e9, 1e9],
        "meetings": {"least": [-2e-6], "reduce": [-3e-6], "exchange": [-3e-6]},
    }
    wire = loopback_of([end, end], message=5e-5)
    waits = waits_of([end, end], wire.latency)
    assert wire.latency == 0.0
    assert set(waits.values()) == {Estimate(0.0, 1.0, "limit")}


def test_contention_is_the_speed_of_a_crowded_core() -> None:
    assert contention([100.0, 102.0], [91.0, 91.0]) == pytest.approx(91 / 101)
    assert contention([100.0], [120.0]) == 1.0


def test_uncertainty_stays_within_what_a_profile_holds() -> None:
    prices = Prices()
    prices.add({"call": Estimate(1.0, 30.0), "effect": Estimate(1.0, 0.0)})
    assert prices.estimates["call"].uncertainty == 1.0
    assert prices.estimates["effect"].uncertainty == 0.02
    assert from_repeats([1.0, 1.1, 0.9]).value == 1.0
    assert from_repeats([1.0]).uncertainty == 1.0


def test_residuals_are_described_by_group() -> None:
    found = fit_kernels(kernel_report(dict(KERNEL_PRIORS)))
    text = describe(found)
    assert set(text) == {
        "client", "lookup", "update", "forward_backward", "deduplicate", "dense", "cut nets",
        "held out",
    }  # fmt: skip
    assert text["forward_backward"].startswith("median error 0%")
