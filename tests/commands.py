"""``recsim-train WORDS``, as tests of what it answers give it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from tests.clock import LIMIT

ROOT = Path(__file__).parents[1]
SIMULATE = [
    "simulate", ROOT / "experiments/quickstart.yaml",
    "--cluster", ROOT / "tests/frozen-2core.yaml",
    "--set", "model=tiny", "--set", "data.path=null", "--set", "training.steps=20",
]  # fmt: skip
"""A short prediction."""


def command(
    *words: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it said, and its exit code. ``env``: more variables.

    It runs in this process: Python's imports, and the process that all others of a run are forked
    from, are shared by a worker's tests. `started` is for what that would hide.
    """
    from recsim_train.cli.main import app

    call = [str(word) for word in words]
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    around = {"NO_COLOR": "1", "COLUMNS": "200", **(env or {})}
    with (
        chdir(cwd),
        mock.patch.dict(os.environ, around),
        mock.patch.multiple(sys, argv=["recsim-train", *call], stdout=out, stderr=errors),
    ):
        try:
            app(call, standalone_mode=True)
            code: object = 0
        except SystemExit as end:
            code = end.code
    said = (stream.buffer.getvalue().decode() for stream in (out, errors))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(
        call, code if isinstance(code, int) else int(bool(code)), *said
    )


def started(
    *words: str | Path, cwd: Path, env: dict[str, str] | None = None, timeout: float = LIMIT
) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    around = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "recsim_train", *map(str, words)],
        cwd=cwd, env=around, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def answer(*words: str | Path, cwd: Path, code: int = 0, own: bool = False) -> Any:
    """What it said with ``--json``. ``own``: in a process of its own."""
    done = (started if own else command)(*words, "--json", cwd=cwd)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def codes_of(agents: Sequence[subprocess.Popen[Any]], seconds: float) -> list[int]:
    """Exit codes of processes that each lead a session of their own. None is left, nor what it has
    started, even where one does not end in time."""
    try:
        return [one.wait(seconds) for one in agents]
    finally:
        for one in agents:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(seconds)
