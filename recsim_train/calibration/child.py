"""Measuring processes as the caller sees them: started, listened to, always ended.

A child gets one JSON line on standard input, answers in JSON lines, and dies with its parent.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from recsim_train.config.errors import RunFailed

_KEPT_ERRORS = 2000


class MeasuringProcess:
    """One measuring process."""

    def __init__(self, part: str, request: dict[str, Any], limit: float) -> None:
        """Start it.

        ``part``: see `recsim_train.calibration.probe`; ``limit``: seconds that it may take.
        """
        self.part = part
        self._deadline = time.monotonic() + limit
        self._limit = limit
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "recsim_train.calibration.probe", part, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "OMP_NUM_THREADS": "1",
                "MKL_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "PYTHONUNBUFFERED": "1",
            },
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._listen, name=f"listen {part}", daemon=True).start()
        self.tell(request)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def tell(self, message: dict[str, Any]) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next message. Raises RunFailed when it dies or takes too long."""
        try:
            line = self._lines.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except queue.Empty:
            raise RunFailed(
                f"calibration: measuring {self.part} did not end within {self._limit:.0f} s; "
                "is the machine busy with something else?"
            ) from None
        if line is None:
            raise RunFailed(f"calibration: measuring {self.part} failed: {self._last_words()}")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise RunFailed(f"calibration: measuring {self.part} failed: {message['error']}")
        return message

    def result(self, tick: Callable[[], None] | None = None) -> dict[str, Any]:
        """Messages until the result; ``tick`` is called for each sign of progress."""
        while True:
            message = self.hear()
            if "result" in message:
                result: dict[str, Any] = message["result"]
                return result
            if tick is not None:
                tick()

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        text = self._errors.read()[-_KEPT_ERRORS:].decode(errors="replace").strip()
        return text.splitlines()[-1] if text else f"exit code {self._process.returncode}"

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
