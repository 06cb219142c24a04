"""How the machine's speed moved since a calibration, by readings on idle cores alone."""

from __future__ import annotations

import ast
import inspect
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from recsim_train.config.measured import MachineSpeed, MachineSpeeds
from recsim_train.results import undisturbed
from recsim_train.results.undisturbed import Moved, drift_of, moved
from recsim_train.trace.facts import Facts


def speed(factor: float) -> MachineSpeed:
    """The parts differ; the whole is ``factor``."""
    return MachineSpeed(products=2 * factor, gather=factor / 2, interpreter=factor, loopback=factor)


def between(before: float, after: float) -> MachineSpeeds:
    return MachineSpeeds(before=speed(before), after=speed(after))


def test_the_whole_is_the_geometric_mean_of_the_parts() -> None:
    found = MachineSpeed(products=1.0, gather=16.0, interpreter=1.0, loopback=1.0)
    assert found.overall == pytest.approx(2.0)
    assert between(0.5, 2.0).idle == pytest.approx(1.0)
    assert between(0.5, 2.0).change == pytest.approx(3.0)
    assert MachineSpeeds(before=speed(0.5)).idle == pytest.approx(0.5)
    assert MachineSpeeds(before=speed(0.5)).change is None
    assert MachineSpeeds(before=speed(0.5)).error is None
    assert MachineSpeeds().idle is None
    # half the distance of two readings is the standard error of their mean: log(2.25) / 2
    assert between(0.8, 1.8).error == pytest.approx(0.405465108)
    with pytest.raises(ValidationError):
        MachineSpeed(products=0.0, gather=1.0, interpreter=1.0, loopback=1.0)
    # a calibration's readings between its parts count as those before and after it
    many = MachineSpeeds(before=speed(1.0), between=(speed(8.0),), after=speed(1.0))
    assert many.idle == pytest.approx(2.0)
    assert many.error == pytest.approx(math.log(8.0) / 3)
    assert many.change == pytest.approx(0.0)


def test_how_far_the_machine_moved_is_worked_out_by_hand() -> None:
    """Calibration at 2 on the mean, its ends 2 / 1.1 and 2 x 1.1; runs at 1.8, 2.2 and 2.0."""
    calibration = between(2 / 1.1, 2 * 1.1)
    found = moved(calibration, [between(1.8, 1.8), between(2.42, 2.0), between(1.6, 2.5)])
    assert found is not None
    # ratios 0.9, 1.1, 1: log -0.105361, 0.095310, 0; their mean -0.003350, deviation 0.100377
    assert found.change == pytest.approx(-0.003345, abs=1e-6)
    # 0.100377 / sqrt(3) = 0.057953 of the runs, log(1.1) = 0.095310 of the calibration
    assert found.error == pytest.approx(0.996655 * 0.111547, abs=1e-6)
    assert found.runs == 3
    # one run: its own two readings tell its error, log(2.5 / 1.6) / 2 = 0.223144
    alone = moved(calibration, [None, between(1.6, 2.5), MachineSpeeds()])
    assert alone is not None
    assert (alone.change, alone.runs) == (pytest.approx(0.0), 1)
    assert alone.error == pytest.approx(0.242645, abs=1e-6)
    once = moved(calibration, [MachineSpeeds(before=speed(1.0))])
    assert once == Moved(pytest.approx(-0.5), None, 1, 1)
    for nothing in (
        moved(None, [between(1.0, 1.0)]),
        moved(MachineSpeeds(), [between(1.0, 1.0)]),
        moved(calibration, []),
        moved(calibration, [None, MachineSpeeds()]),
    ):
        assert nothing is None


@pytest.mark.parametrize(
    ("change", "far"), [(0.049, False), (0.051, True), (-0.049, False), (-0.051, True)]
)
def test_more_than_five_per_cent_is_far(change: float, far: bool) -> None:
    assert Moved(change, None, 1).far is far


def test_no_prediction_and_no_measurement_enters_it() -> None:
    """Speeds are read from what the reference work left, of which the simulator knows nothing."""
    package = Path(undisturbed.__file__).parents[1]
    assert "examples_per_second" not in inspect.getsource(undisturbed)
    for room in ("sim", "workload", "placement", "strategy"):
        for path in (package / room).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            names |= {node.name for node in nodes if isinstance(node, ast.alias)}
            assert not {"machine_speed", "MachineSpeed", "MachineSpeeds"} & names, path


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
    told = {"machine": machine, "machine_speed": between(1, 1)}
    profile = factory.cluster(calibration=there.model_copy(update=told))
    simulated = factory.write(tmp_path, plan, "simulated", profile=profile)
    outcome = factory.outcome(plan, world="real")
    outcome.facts = Facts(machine_speed=between(0.8, 0.8))
    real = factory.write(
        tmp_path, plan, "real", found=outcome, surroundings=factory.environment(**surroundings)
    )
    found = drift_of(simulated, real)
    assert (found.since and found.since.change) == (since and pytest.approx(since))
    assert found.named is named
    assert found.steady is False
    assert found.run == between(0.8, 0.8)


def test_older_profiles_and_runs_say_nothing_of_it(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    simulated, real = (factory.write(tmp_path, plan, world) for world in ("simulated", "real"))
    assert "machine_speed" not in (real.path / "summary.json").read_text()
    found = drift_of(simulated, real)
    assert (found.calibration, found.run, found.since) == (None,) * 3
    simulated.manifest["cluster"]["calibration"].pop("machine_speed")  # as older ones were written
    assert drift_of(simulated, real) == found
    simulated.manifest["cluster"] = None
    assert drift_of(simulated, real).calibration is None
