from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.modules import loaded

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started by `nohup` or in the background: still ignored here, but by a handler, which unlike
    # SIG_IGN is not inherited, so that Ctrl-C can be tested.
    signal.signal(signal.SIGINT, lambda *_: None)

# Tests start Python hundreds of times, three workers read all of them: where the shell asks it to
# keep nothing that it has compiled, each compiles all modules anew (0.2 s, 8 s of CPU).
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long an example takes says what else the machine does.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def factory() -> ModuleType:
    """Plans, outcomes and run directories."""
    return loaded(Path(__file__).parent / "results" / "run_factory.py")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts ``recsim-train`` with words of a command line, or another program with ``program``.

    It leads a process group of its own. Whatever happens, it and its descendants are ended after
    the test.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, cwd: Path, program: tuple[str, ...] = (), **environment: str) -> Any:
        process = subprocess.Popen(
            [*(program or (sys.executable, "-m", "recsim_train")), *words],
            cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment}, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        family = []
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for child in family:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
