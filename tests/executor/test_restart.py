"""A run whose process is killed begins again at its last checkpoint, and says what it lost."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from recsim_train.checkpoints.manifest import MANIFEST, steps_of
from recsim_train.config.errors import RunFailed
from recsim_train.results.rundir import read_run
from recsim_train.session.making import RunMaker
from tests.clock import LIMIT
from tests.executor.test_resume import losses, measured

LONG = ("training.steps=400", "checkpoint.every=100 steps", "recovery.policy=restart")


@pytest.fixture(autouse=True)
def no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast the machine is beside a run takes longer than these runs."""
    monkeypatch.setattr(RunMaker, "_speed", lambda _: None)


class Killer(threading.Thread):
    """Kills a role of a run of this process once it has made a checkpoint; ``each`` time anew."""

    def __init__(self, folder: Path, role: str, *, each: bool = False) -> None:
        super().__init__(daemon=True)
        self._folder, self._role, self._each = folder, role, each
        self.killed: list[int] = []
        self.start()

    def run(self) -> None:
        end = time.monotonic() + 2 * LIMIT
        while time.monotonic() < end and (self._each or not self.killed):
            found = self._folder.glob(f"*-checkpoints/*/{MANIFEST}")
            if self._each or any(found):
                for process in psutil.Process().children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        words = process.cmdline()
                        if self._role in words and process.pid not in self.killed:
                            process.kill()
                            self.killed.append(process.pid)
            time.sleep(0.02)


def test_a_killed_run_begins_again_at_its_last_checkpoint(tmp_path: Path) -> None:
    killer = Killer(tmp_path / "killed", "trainer[1]")
    run = measured(tmp_path / "killed", *LONG)
    assert len(killer.killed) == 1
    found = read_run(run.folder).facts
    began = found.resumed_at
    assert began is not None
    assert began % 100 == 0 < began
    known = found.reliability
    assert known is not None
    assert (known.policy, known.failures) == ("restart", 1)
    assert known.lost_examples >= 0
    assert known.standstill_seconds > 0.1  # processes were started again
    assert known.goodput is not None
    assert run.examples_per_second is not None
    # over the time of both lives, of which the second one's speed knows nothing
    assert 0 < known.goodput < run.examples_per_second
    whole = measured(tmp_path / "whole", *LONG)
    assert read_run(whole.folder).facts.reliability is None
    again = losses(run)
    assert again.eq(losses(whole).loc[again.index]).all()
    assert steps_of(next((tmp_path / "killed").glob("*-checkpoints")))


def test_a_run_that_makes_no_checkpoint_any_more_is_given_up(tmp_path: Path) -> None:
    killer = Killer(tmp_path / "killed", "embedding_server[0]", each=True)
    with pytest.raises(RunFailed, match=r"embedding_server\[0\] was killed by signal 9"):
        measured(tmp_path / "killed", *LONG, "checkpoint.every=1 h")
    killed, killer._each = len(killer.killed), False
    assert killed == 3
