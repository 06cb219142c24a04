"""The reference work: fixed, short, on all cores, and not in the launcher."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from recsim_train.calibration import reference_work, speed
from recsim_train.config.errors import RunFailed
from recsim_train.config.speed import MachineSpeed


@pytest.mark.slow
def test_it_has_a_speed_for_each_part_and_is_soon_done() -> None:
    speed.measure_speed()  # the first has to wait for torch
    begin = time.monotonic()
    found = speed.measure_speed()
    assert time.monotonic() - begin < 10
    for part in MachineSpeed.model_fields:
        assert 0.01 < getattr(found, part) < 100, part
    assert 0.01 < found.overall < 100


def test_the_work_is_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By count of slices, and a clock that each of them moves by as much as it takes at speed 1."""
    clock, done, order = [0.0], [], []

    def parts(_: object) -> dict[str, reference_work.Slice]:
        def slice_of(name: str) -> reference_work.Slice:
            def work(number: int) -> None:
                order.append(name)
                done.append(number)
                # every fourth one is slow: as often as in a run, whose mean shows it
                clock[0] += reference_work.SLICE[name] * (9 if number % 4 == 0 else 2)

            return work

        return {name: slice_of(name) for name in reference_work.SLICE}

    monkeypatch.setattr(reference_work, "_parts", parts)
    monkeypatch.setattr(reference_work.time, "thread_time", lambda: clock[0])
    with ExitStack() as stack:
        reference = reference_work.ReferenceWork(stack)
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
    names = list(reference_work.SLICE)
    assert order == names * (len(order) // len(names))
    assert speed.ROUNDS * sum(reference_work.SLICE.values()) == pytest.approx(0.8, rel=0.1)


def test_speeds_of_cores_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    class Core:
        def __init__(self, part: str, request: object, limit: float) -> None:
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

        def hear(self) -> dict[str, object]:
            if "go" not in heard:
                heard.append("ready")
                return {"tick": True}
            assert heard.count("go") % 3 == 0  # all work before one is waited for
            return {"speeds": dict.fromkeys(MachineSpeed.model_fields, 1.0 + self.number)}

    monkeypatch.setattr(speed, "MeasuringProcess", Core)
    monkeypatch.setattr(speed, "cores", lambda: 3)
    assert speed.measure_speed(11).overall == pytest.approx(2.0)


class Rounds:
    """A process that has done these rounds: (when, speed of each part)."""

    def __init__(self, *rounds: tuple[float, float], gap: float = speed.GAP) -> None:
        self.done, self.gap = list(rounds), gap

    def __call__(self, part: str, request: object, limit: float) -> Rounds:
        assert (part, request) == ("watch", {"gap": self.gap})
        return self

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def hear(self) -> dict[str, object]:
        return {"tick": True}

    def heard(self) -> list[dict[str, object]]:
        said: list[dict[str, object]] = [
            {"at": at, "took": 0.01, "speeds": dict.fromkeys(MachineSpeed.model_fields, value)}
            for at, value in self.done
        ]
        self.done.clear()
        return [{"tick": True}, *said, {"error": "it was killed"}]


def test_a_watch_tells_of_the_rounds_since_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds((1.0, 9.0), (2.0, 0.5), (3.0, 1.0), (4.0, 9.0))
    monkeypatch.setattr(speed, "MeasuringProcess", rounds)
    with speed.Watch() as watch:
        found = watch.read(1.5, 3.5)
        assert found is not None
        # equal work at half the speed takes twice as long: 2 + 1 instead of 1 + 1
        assert found.overall == pytest.approx(2 / 3, abs=1e-4)
        assert watch.read() is None
        rounds.done.append((5.0, 2.0))
        assert (watch.read() or found).overall == pytest.approx(2.0)
        # a run of which progress told little: the nearest round, if it is not far
        rounds.done += [(11.0, 9.0), (12.4, 0.5), (14.0, 9.0)]
        assert (watch.read(12.6, 12.9) or found).overall == pytest.approx(0.5)
        rounds.done += [(11.0, 9.0), (14.0, 9.0)]
        assert watch.read(12.1, 12.9) is None
        rounds.done += [(11.0, 9.0)]
        assert watch.read(float("inf"), 12.0) is None


def test_a_machine_twice_as_fast_is_twice_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MeasuringProcess", Rounds((1.0, 0.5), gap=speed.SHORT_GAP))
    with speed.against(0.25) as faster:
        assert faster() == pytest.approx(2.0)
        assert faster() == 1.0  # nothing was seen since
    monkeypatch.setattr(speed, "MeasuringProcess", None)  # is not asked
    with speed.against(None) as faster:
        assert faster() == 1.0


def test_a_window_is_the_counted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[tuple[int, int]] = []
    for begin, end, seen in (
        (2.0, 5.0, [(0, 50), (4, 50), (11, 50), (30, 50), (50, 50), (50, 50)]),
        (1.0, 2.0, [(0, 50), (50, 50)]),  # told of nothing between
        (1.0, 3.0, [(20, 50), (30, 50), (50, 50)]),
    ):
        clock = iter((1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
        monkeypatch.setattr(speed.time, "monotonic", lambda clock=clock: next(clock))
        window = speed.Window(lambda *told: passed.append(told), 10)
        for done, total in seen:
            window(done, total)
        assert (window.begin, window.end) == (begin, end)
        assert passed[-len(seen) :] == seen


@pytest.mark.slow
def test_rounds_go_on_beside_other_work_on_all_cores() -> None:
    with speed.Watch() as watch:
        time.sleep(8 * speed.GAP)
        found, share = watch.read(), watch.share
        assert found is not None
        assert 0.01 < found.overall < 100
        assert 0.0 < share < 0.2
        time.sleep(4 * speed.GAP)
        assert watch.read(end=time.monotonic() - 60) is None


def test_what_goes_wrong_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_LIMIT", 0.0)
    with pytest.raises(RunFailed, match="measuring speed did not end within 0 s"):
        speed.measure_speed()


def test_who_asks_for_it_needs_no_torch() -> None:
    script = "import sys; import recsim_train.calibration.speed; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
