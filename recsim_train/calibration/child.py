"""Measuring processes as the caller sees them: started, listened to, always ended.

A child gets JSON lines on standard input: a request, after which it says that it is ready, and
then messages, each of which it answers by a JSON line. It dies with its parent.
"""

from __future__ import annotations

import json
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from recsim_train.config.errors import RunFailed
from recsim_train.executor.process import forkserver

_KEPT_ERRORS = 2000
_ENDING = 60.0
"""Seconds that a process may take to end that is killed."""


class MeasuringProcess(AbstractContextManager["MeasuringProcess"]):
    """One measuring process, killed at the end of its context."""

    def __init__(
        self,
        part: str,
        request: dict[str, Any],
        limit: float,
        place: forkserver.NetworkPlace = forkserver.HERE,
    ) -> None:
        """Start it.

        ``part``: see `recsim_train.calibration.probe`; ``limit``: seconds that it may take, of each
        message that it is sent.
        """
        self.part = part
        self._limit = limit
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__()
        module = "recsim_train.calibration.probe"
        self._process = forkserver.start(module, [part], self._errors, place)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._listen, name=f"listen {part}", daemon=True).start()
        self.tell(request)

    def _listen(self) -> None:
        with self._process.stdout:
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def tell(self, message: dict[str, Any]) -> None:
        """Send one line."""
        self._deadline = time.monotonic() + self._limit
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def hear(self) -> Any:
        """The next answer. Raises RunFailed when it dies or takes too long."""
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
        return message["answer"]

    def _last_words(self) -> str:
        code = self._process.poll(max(1.0, self._deadline - time.monotonic()))
        if self._process.lost is not None:
            return self._process.lost
        self._errors.seek(0)
        text = self._errors.read()[-_KEPT_ERRORS:].decode(errors="replace").strip()
        return text.splitlines()[-1] if text else f"exit code {code}"

    def __exit__(self, *error: object) -> None:
        """End the process if it still runs."""
        self._process.send_signal(signal.SIGKILL)
        self._process.poll(_ENDING)
        self._process.stdin.close()
        self._errors.close()


@contextmanager
def side_by_side(
    part: str,
    requests: Sequence[dict[str, Any]],
    limit: float,
    places: Sequence[forkserver.NetworkPlace] = (),
) -> Iterator[list[MeasuringProcess]]:
    """A process of this part for each request, all of them ready. Raises RunFailed.

    ``places``: of each; none: all are here.
    """
    where = places or [forkserver.HERE] * len(requests)
    with ExitStack() as stack:
        children = [
            stack.enter_context(MeasuringProcess(part, request, limit, place))
            for request, place in zip(requests, where, strict=True)
        ]
        for child in children:
            child.hear()
        yield children


def answers(children: Sequence[MeasuringProcess], message: dict[str, Any]) -> list[Any]:
    """What each answers to a message that all are sent first. Raises RunFailed."""
    for child in children:
        child.tell(message)
    return [child.hear() for child in children]


def both_ends(
    part: str,
    store: Path,
    message: dict[str, Any],
    limit: float,
    places: Sequence[forkserver.NetworkPlace] = (),
) -> list[Any]:
    """What two processes of a part answer that measure each other; each is told its ``rank``, and
    both the new file by which they find each other."""
    requests = [{"rank": rank, "store": str(store)} for rank in range(2)]
    with side_by_side(part, requests, limit, places) as ends:
        return answers(ends, message)
