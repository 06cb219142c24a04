"""What is heard while something is made: the prediction first, and how long the rest takes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from recsim_train.cli import progress
from recsim_train.config.errors import RunFailed
from recsim_train.evaluate import prediction
from recsim_train.sim import ready
from recsim_train.sim.fluid import core
from recsim_train.trace.progress import about, between
from tests.commands import SIMULATE, command


def place(lines: list[str], pattern: str) -> int:
    (found,) = [n for n, line in enumerate(lines) if re.search(pattern, line)]
    return found


def test_bound_then_prediction_then_what_would_change_it(tmp_path: Path) -> None:
    done = command(*SIMULATE, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (figures,) = json.loads(done.stdout)["runs"]  # and nothing else
    lines = done.stderr.splitlines()
    bound = place(lines, r"^simulating flat_ps: takes .*; at a glance at most about \S+ examples/s")
    predicted = place(lines, r"^predicted flat_ps: \S+ examples/s, bound by ")
    asking = place(lines, r"^simulating flat_ps: asking what would change it")
    assert bound < predicted < asking
    assert figures["facts"]["elasticities"]


def test_the_prediction_is_heard_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RunFailed("asked")

    monkeypatch.setattr(prediction, "elasticities", fails)
    done = command(*SIMULATE, cwd=tmp_path)
    assert done.returncode == 1
    assert place(done.stderr.splitlines(), "^predicted flat_ps: ") >= 0


def test_compiling_is_said_where_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(ready, "is_kept", asked.append)
    done = command(*SIMULATE, "--set", "simulation.what_if_steps=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert asked == [core.run]
    assert "simulating flat_ps: compiling the solver, once\n" in done.stderr
    monkeypatch.undo()
    done = command(*SIMULATE, "--set", "simulation.what_if_steps=0", cwd=tmp_path)
    assert "compiling" not in done.stderr  # this process has it


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The present second, to be set."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_at_each_stage_and_one_a_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.progress_bar("making") as meter:
        for second in range(200):
            clock[0] = 100.0 + second
            meter(second, 200, "one" if second < 150 else "two", f"{second} so far")
    assert capsys.readouterr().err.splitlines() == [
        "making: one, 0 so far",
        "making: one, 30 %, about 2 min left, 60 so far",
        "making: one, 60 %, about 80 s left, 120 so far",
        "making: two, 75 %, about 50 s left, 150 so far",
    ]


def test_a_line_a_minute_while_nothing_is_done(
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A design of minutes; by a clock that runs faster than the looks."""
    monkeypatch.setattr(progress, "_LOOK", 0.01)
    progress.say("begins")
    with progress.progress_bar("simulating 10 designs") as meter:
        meter(0, 10)
        clock[0] += 30
        meter(5, 10)
        said = ""
        for _ in range(6):
            clock[0] += 10
            for _ in range(200):  # until the watcher has looked
                progress.time.sleep(0.005)
                said += capsys.readouterr().err
                if clock[0] < 160 or said.count("\n") > 1:
                    break
        clock[0] += 61
        for _ in range(200):
            progress.time.sleep(0.005)
            if "\n" in (more := capsys.readouterr().err):
                break
    assert said.splitlines() == ["begins", "simulating 10 designs: 50 %"]
    assert more.splitlines() == ["simulating 10 designs: 50 %"]  # whose time left is over


def test_what_comes_after_silence_is_told_at_once(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Stages of less than a minute are silent each, and not together."""
    progress.say("begins")
    for stage in range(4):
        with progress.progress_bar(f"stage {stage}") as meter:
            for second in range(25):
                clock[0] = 100.0 + 25 * stage + second
                meter(second, 25)
    assert capsys.readouterr().err.splitlines() == ["begins", "stage 2: 40 %, about 15 s left"]


def test_what_is_left_falls_while_nothing_is_done(clock: list[float]) -> None:
    pace = progress._Pace()
    pace.left(0, 10)
    clock[0] += 30
    said = []
    for _ in range(5):
        said.append(pace.left(5, 10))
        clock[0] += 8
    assert said == ["about 30 s left", "about 20 s left", "about 15 s left", "about 6 s left", ""]


def test_what_is_done_soon_is_not_told_of(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.progress_bar("making") as meter:
        for second in range(50):
            clock[0] = 100.0 + second
            meter(second, 50)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_shows_whole_figures(clock: list[float], width: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    with progress._bar("running flat_ps", console) as meter:
        meter(0, 4000, "training")
        clock[0] += 20
        meter(400, 4000, "training", "1,234,567 examples/s, loss 0.5123")
    shown = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", screen.getvalue()).split())
    for figure in ("training", "about 3 min left", "1,234,567", "examples/s", "0.5123"):
        assert figure in shown
    assert "…" not in shown


def test_another_total_has_a_pace_of_its_own(clock: list[float]) -> None:
    pace = progress._Pace()
    assert pace.left(0, 10) == ""
    clock[0] += 5
    assert pace.left(5, 10) == "about 5 s left"
    assert pace.left(0, 40) == ""
    clock[0] += 10
    assert pace.left(10, 40) == "about 30 s left"
    assert pace.left(40, 40) == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "less than a second"), (3.2, "about 3 s"), (42.0, "about 40 s"),
        (130.0, "about 2 min"), (5399.0, "about 90 min"), (9000.0, "about 2.5 h"),
    ],
)  # fmt: skip
def test_durations_are_as_fine_as_they_are_known(seconds: float, words: str) -> None:
    assert about(seconds) == words
    assert between(seconds, seconds * 1.001) == words
    assert between(0.1, seconds).startswith("less than a second")
