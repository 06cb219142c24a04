"""The reference work: fixed, short, on all cores, and not in the launcher."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from recsim_train.calibration import child, probe, speed
from recsim_train.config.errors import RunFailed
from recsim_train.config.measured import MachineSpeed
from tests.clock import LIMIT, by_the_clock, tried_anew


@pytest.mark.slow
@tried_anew()
def test_it_has_a_speed_for_each_part_and_is_soon_done() -> None:
    speed.measure_speed()  # the first has to wait for torch
    begin = time.monotonic()
    found = speed.measure_speed()
    took = time.monotonic() - begin
    for part in MachineSpeed.model_fields:
        assert 0.01 < getattr(found, part) < 100, part
    assert 0.01 < found.overall < 100
    with by_the_clock():
        assert took < 10


def test_the_work_is_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By count of slices, and a clock that each of them moves by as much as it takes at speed 1."""
    clock, done, order = [0.0], [], []

    def parts() -> dict[str, probe.Slice]:
        def slice_of(name: str) -> probe.Slice:
            def work(number: int) -> None:
                order.append(name)
                done.append(number)
                # every fourth one is slow: as often as in a run, whose mean shows it
                clock[0] += probe.SLICE[name] * (9 if number % 4 == 0 else 2)

            return work

        return {name: slice_of(name) for name in probe.SLICE}

    monkeypatch.setattr(probe, "_parts", parts)
    monkeypatch.setattr(probe.time, "thread_time", lambda: clock[0])
    reference = probe.ReferenceWork()
    assert done  # memory has been touched
    for _ in range(2):
        begin = len(done)
        found = reference.speeds(77)
        rounds = done[begin::4]
        assert rounds == list(range(rounds[0], rounds[0] + len(rounds)))
        counted = rounds[-77:]
        assert len(rounds) < 1.1 * len(counted)
        mean = sum(9 if number % 4 == 0 else 2 for number in counted) / 77
        assert found == pytest.approx(dict.fromkeys(MachineSpeed.model_fields, 1 / mean))
    names = list(probe.SLICE)
    assert order == names * (len(order) // len(names))
    assert speed.ROUNDS * sum(probe.SLICE.values()) == pytest.approx(0.8, rel=0.1)


def test_speeds_of_cores_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    class Core:
        def __init__(self, part: str, *_: object) -> None:
            assert part == "speed"
            self.number = len(heard)
            heard.append("made")

        def __enter__(self) -> Core:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def tell(self, message: object) -> None:
            assert heard.count("ready") == 3  # no core starts before all are ready
            assert message == {"rounds": 11}
            heard.append("go")

        def hear(self) -> object:
            if "go" not in heard:
                heard.append("ready")
                return "ready"
            assert heard.count("go") % 3 == 0  # all work before one is waited for
            return dict.fromkeys(MachineSpeed.model_fields, 1.0 + self.number)

    monkeypatch.setattr(child, "MeasuringProcess", Core)
    monkeypatch.setattr(speed, "cores", lambda: 3)
    assert speed.measure_speed(11).overall == pytest.approx(2.0)


def test_what_goes_wrong_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_LIMIT", 0.0)
    with pytest.raises(RunFailed, match="measuring speed did not end within 0 s"):
        speed.measure_speed()


def test_who_asks_for_it_needs_no_torch() -> None:
    script = "import sys; import recsim_train.calibration.speed; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], timeout=LIMIT, check=False).returncode == 0
    )
