"""The error net of drift: one formula, of speeds alone."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recsim_train.config.speed import MachineSpeed, MachineSpeeds
from recsim_train.results import drift
from recsim_train.results.drift import drift_of, net_error, net_error_of
from recsim_train.trace.facts import Facts

POSITIVE = st.floats(0.01, 100.0)


def speed(factor: float) -> MachineSpeed:
    """The parts differ; the whole is ``factor``."""
    return MachineSpeed(products=2 * factor, gather=factor / 2, interpreter=factor, loopback=factor)


def test_a_machine_that_is_slower_beside_the_run_explains_a_prediction_that_is_too_fast() -> None:
    # 100 examples/s at full speed are 80 at four fifths of it: nothing is left of the error
    assert net_error(100, 80, 0.8, 1.0) == pytest.approx(0.0)
    assert net_error(110, 80, 0.8, 1.0) == pytest.approx(0.1)
    assert net_error(100, 125, 1.5, 1.2) == pytest.approx(0.0)


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_the_formula(predicted: float, measured: float, run: float, calibration: float) -> None:
    raw = predicted / measured - 1
    net = net_error(predicted, measured, run, calibration)
    assert net == pytest.approx(predicted / measured * (run / calibration) - 1)
    # only the ratio of the speeds matters, and where they are equal nothing is corrected
    assert net_error(predicted, measured, 3 * run, 3 * calibration) == pytest.approx(net)
    assert net_error(predicted, measured, run, run) == pytest.approx(raw)


@pytest.mark.parametrize("speeds", [(None, 1.0), (1.0, None), (None, None), (0.0, 1.0), (1.0, 0.0)])
def test_without_a_speed_there_is_no_net_error(speeds: tuple[float | None, float | None]) -> None:
    assert net_error(100, 80, *speeds) is None


def test_each_repeat_is_corrected_by_its_own_speed() -> None:
    repeats = [(50.0, 0.5), (100.0, 1.0), (70.0, 0.7)]
    assert net_error_of(repeats, 110, 1.0) == pytest.approx(0.1)
    assert net_error_of([*repeats, (100.0, None)], 110, 1.0) is None
    # of an even number the middle is that of the raw error: no drift, no difference
    assert net_error_of([(90.0, 1.0), (110.0, 1.0)], 120, 1.0) == pytest.approx(120 / 100 - 1)


def test_no_prediction_enters_the_correction() -> None:
    """The factor is that of the speeds, whatever is predicted; and speeds are read from what the
    reference work left, of which the simulator knows nothing."""
    factors = {
        round((net_error(p, 80.0, 0.9, 1.1) + 1) / (p / 80.0), 12)  # type: ignore[operator]
        for p in (1.0, 80.0, 1e6)
    }
    assert factors == {round(0.9 / 1.1, 12)}
    assert list(inspect.signature(net_error).parameters) == [
        "predicted", "measured", "speed_at_run", "speed_at_calibration",
    ]  # fmt: skip
    package = Path(drift.__file__).parents[1]
    assert "examples_per_second" not in inspect.getsource(drift)
    for room in ("sim", "workload", "placement", "strategy"):
        for path in (package / room).rglob("*.py"):
            names = {
                node.attr if isinstance(node, ast.Attribute) else getattr(node, "module", "")
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Attribute | ast.ImportFrom)
            }
            assert not {"machine_speed", "recsim_train.config.speed"} & names, path


def test_the_whole_is_the_geometric_mean_of_the_parts() -> None:
    found = MachineSpeed(products=1.0, gather=16.0, interpreter=1.0, loopback=1.0)
    assert found.overall == pytest.approx(2.0)
    assert MachineSpeeds(before=speed(0.5), after=speed(2.0)).beside == pytest.approx(1.0)
    assert MachineSpeeds(before=speed(0.5), after=speed(2.0)).change == pytest.approx(3.0)
    assert MachineSpeeds(before=speed(0.5)).beside == pytest.approx(0.5)
    assert MachineSpeeds(before=speed(0.5)).change is None
    assert MachineSpeeds().beside is None
    # prices are means, and so is their speed: a slow moment counts as often as it came
    ends = {"before": speed(1.0), "after": speed(1.1)}
    # what is read meanwhile says more than what is read before and after
    meanwhile = MachineSpeeds(**ends, between=(speed(0.5), speed(2.0)))
    assert meanwhile.beside == pytest.approx(1.0)
    assert meanwhile.readings == 2
    before_and_after = MachineSpeeds(**ends)
    assert meanwhile.beside_as(meanwhile) == pytest.approx(1.0)
    assert meanwhile.beside_as(before_and_after) == before_and_after.beside
    assert before_and_after.beside_as(meanwhile) is None
    with pytest.raises(ValidationError):
        MachineSpeed(products=0.0, gather=1.0, interpreter=1.0, loopback=1.0)


@pytest.mark.parametrize(
    ("machine", "surroundings", "since", "named"),
    [
        ("Testium 9000, 4 cores", {}, -0.2, True),
        ("X 1, 4 cores", {}, None, True),  # another machine's speed says nothing of this one
        ("", {}, -0.2, False),
        ("Testium 9000, 4 cores", {"machine": ""}, -0.2, False),
    ],
)
def test_speeds_are_those_of_the_predictions_profile(
    tmp_path: Path,
    factory: Any,
    machine: str,
    surroundings: dict[str, str],
    since: float | None,
    named: bool,
) -> None:
    plan, there = factory.plan(), factory.cluster().calibration
    told = {"machine": machine, "machine_speed": MachineSpeeds(before=speed(1), after=speed(1))}
    profile = factory.cluster(calibration=there.model_copy(update=told))
    simulated = factory.write(tmp_path, plan, "simulated", profile=profile)
    outcome = factory.outcome(plan, world="real")
    outcome.facts = Facts(machine_speed=MachineSpeeds(before=speed(0.8), after=speed(0.8)))
    real = factory.write(
        tmp_path, plan, "real", found=outcome, surroundings=factory.environment(**surroundings)
    )
    found = drift_of(simulated, real)
    assert found.since == (since if since is None else pytest.approx(since))
    assert found.named is named
    assert found.during == pytest.approx(0.0)
    assert found.at_run == pytest.approx(0.8)


def test_older_profiles_and_runs_say_nothing_of_it(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    simulated, real = (factory.write(tmp_path, plan, world) for world in ("simulated", "real"))
    assert "machine_speed" not in (real.path / "summary.json").read_text()
    found = drift_of(simulated, real)
    assert (found.at_calibration, found.at_run, found.during, found.since) == (None,) * 4
    simulated.manifest["cluster"]["calibration"].pop("machine_speed")  # as older ones were written
    assert drift_of(simulated, real) == found
    simulated.manifest["cluster"] = None
    assert drift_of(simulated, real).at_calibration is None
