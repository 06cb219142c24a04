"""Programs that benchmarks/executor.py starts, and what other environments say of themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_NOT_PASSED_ON = {"PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RANK", "WORLD_SIZE"}


class PieceError(Exception):
    """A piece that could not be run, in one sentence."""


def output(
    command: Sequence[str],
    folder: Path,
    threads: int | None,
    more: Mapping[str, str] | None = None,
    timeout: float = 300.0,
) -> str:
    """What a program prints that works in ``folder``; it and its descendants are gone afterwards.

    ``threads``: of OpenMP, that is of torch's operations; None leaves it to the program. Raises
    PieceError.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_PASSED_ON}
    environment |= more or {}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    name = " ".join(Path(word).name for word in command[:4])
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise PieceError(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        said, complaint = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise PieceError(f"{name} took more than {timeout:g} s") from None
    finally:
        if process.poll() is None:
            _end(process)
    if process.returncode:
        last = (complaint.strip().splitlines() or ["it says nothing"])[-1]
        raise PieceError(f"{name} failed with exit code {process.returncode}: {last}")
    return said


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


def version(python: str, package: str) -> str | None:
    """Of a package in another environment; None where it is not there."""
    program = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    return _said([python, "-c", program, package])


def commit(folder: Path) -> str:
    return _said(["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]) or "unknown commit"


def _said(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
