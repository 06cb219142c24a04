"""The reference work before and after real runs: on idle cores, and never in the way of a
measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import recsim_train
from recsim_train.calibration import child, speed
from recsim_train.config.errors import RunFailed
from recsim_train.config.measured import MachineSpeed
from recsim_train.executor.process import launch
from recsim_train.results.rundir import read_run
from recsim_train.session.job import Caller
from recsim_train.trace.record import Outcome

ROOT = Path(__file__).parents[2]
SMALL = ["model=tiny", "data.path=null", "training.steps=60", "training.warmup_steps=5"]


def of(value: float) -> MachineSpeed:
    return MachineSpeed(products=value, gather=value, interpreter=value, loopback=value)


@pytest.fixture
def events(factory: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened, with a run that is made up and a machine that becomes slower."""
    found: list[str] = []

    def execute(plan: Any, progress: Any, **_: object) -> Outcome:
        found.append("run")
        for done in (2, 5, 64, 65):
            progress(done, 65)
        made: Outcome = factory.outcome(plan, world="real")
        return made

    def measure_speed() -> MachineSpeed:
        found.append("speed")
        return of(1.0 / len(found))

    monkeypatch.setattr(launch, "execute", execute)
    monkeypatch.setattr(speed, "measure_speed", measure_speed)
    return found


def measure(out: Path, caller: Caller | None = None) -> Any:
    study = recsim_train.load(ROOT / "experiments" / "quickstart.yaml", overrides=SMALL)
    return recsim_train.measure(study, out=out, **({"caller": caller} if caller else {}))


def test_a_run_lies_between_two_speeds(tmp_path: Path, events: list[str]) -> None:
    (run,) = measure(tmp_path)
    assert events == ["speed", "run", "speed"]
    kept = read_run(run.folder).facts.machine_speed
    assert kept is not None
    assert (kept.before, kept.after) == (of(1.0), of(1 / 3))
    assert kept.idle == pytest.approx(3**-0.5)


def test_nothing_reads_beside_a_run(
    tmp_path: Path, factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes with the reference work are gone while a run lasts."""
    alive, started = set[int](), list[str]()

    class Reading:
        def __init__(self, part: str, *_: object) -> None:
            started.append(part)

        def __enter__(self) -> Reading:
            alive.add(id(self))
            return self

        def __exit__(self, *error: object) -> None:
            alive.remove(id(self))

        def tell(self, message: object) -> None:
            pass

        def hear(self) -> dict[str, object]:
            return of(1.0).model_dump()

    def execute(plan: Any, **_: object) -> Outcome:
        assert not alive
        made: Outcome = factory.outcome(plan, world="real")
        return made

    monkeypatch.setattr(launch, "execute", execute)
    monkeypatch.setattr(child, "MeasuringProcess", Reading)
    monkeypatch.setattr(speed, "cores", lambda: 2)
    (run,) = measure(tmp_path)
    assert started == ["speed"] * 4  # on two cores, before and after
    kept = read_run(run.folder).facts.machine_speed
    assert kept is not None
    assert kept.idle == pytest.approx(1.0)


def test_a_run_that_fails_keeps_the_speed_before_it(
    tmp_path: Path, events: list[str], factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(plan: Any, **_: object) -> Outcome:
        raise launch.PartialRun("a server died", factory.outcome(plan, world="real", steps=50))

    monkeypatch.setattr(launch, "execute", execute)
    with pytest.raises(RunFailed, match="a server died"):
        measure(tmp_path)
    (folder,) = tmp_path.iterdir()
    kept = read_run(folder).facts.machine_speed
    assert kept is not None
    assert (kept.before, kept.after) == (of(1.0), None)
    assert kept.idle == pytest.approx(1.0)


def test_no_run_is_lost_because_the_speed_is_not_known(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> MachineSpeed:
        raise RunFailed("no process could be started")

    monkeypatch.setattr(speed, "measure_speed", fail)
    said: list[str] = []
    (run,) = measure(tmp_path, Caller(said.append))
    assert events == ["run"]
    record = read_run(run.folder)
    assert record.status == "complete"
    assert record.facts.machine_speed is not None
    assert record.facts.machine_speed.idle is None
    notes = [sentence for sentence in said if "no process could be started" in sentence]
    assert len(notes) == 2
    assert notes[0].startswith("note: how fast the machine is beside the run is not known: ")
