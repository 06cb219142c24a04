"""What a person hears while something is made, on standard error: sentences, and progress, which is
a line that moves on a terminal, elsewhere plain lines, one at each stage and one a minute."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, TextIO, cast

from recsim_train.config.errors import harmless
from recsim_train.trace.progress import Meter, about

if TYPE_CHECKING:
    from rich.console import Console

_EVERY, _LOOK = 60.0, 1.0
"""Seconds between two lines, at most, where something is told so often; between two looks whether
it is time for one."""
_SURE = 2.0
"""Seconds after which a pace says something."""


class Heard:
    """A stream for messages that nobody need hear: where it is closed or full, or its reader has
    gone, they are lost, and no work ends for that."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.flush()

    def isatty(self) -> bool:
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise ValueError("a closed stream has no number")
        return self._stream.fileno()


HEARD = [0.0]
"""When something was said the last time."""


def say(text: str) -> None:
    """A message to the person: standard error, so that --json stays one document."""
    HEARD[0] = time.monotonic()
    print(harmless(text), file=Heard(sys.stderr), flush=True)


class _Pace:
    """How long the rest takes, at the pace of all that has been done of it. Where nothing more is
    done meanwhile, what is left falls, and is no longer said once it is over."""

    _begin = _first = _done = _total = _moved = 0.0

    def left(self, done: float, total: float) -> str:
        """In words; empty: not known yet."""
        now = time.monotonic()
        if total != self._total or done < self._done:  # something else is counted from now on
            self._begin, self._first, self._total = now, done, total
        if done != self._done:
            self._done, self._moved = done, now
        taken, moved = self._moved - self._begin, done - self._first
        if taken < _SURE or moved <= 0.0:
            return ""
        left = (total - done) * taken / moved - (now - self._moved)
        return f"{about(left)} left" if left > 0.0 else ""


@contextmanager
def progress_bar(title: str) -> Iterator[Meter]:
    """A meter with a title, of which nothing stays on a terminal."""
    from rich.console import Console

    console = Console(file=cast("IO[str]", Heard(sys.stderr)))
    with _bar(harmless(title), console) if console.is_terminal else _lines(title) as meter:
        yield meter


@contextmanager
def _bar(title: str, console: Console) -> Iterator[Meter]:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    pace = _Pace()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[said]}", markup=False, table_column=Column()),  # folded, not cut
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, said="")

        def meter(done: float, total: float, stage: str = "", so_far: str = "") -> None:
            said = ", ".join(filter(None, (pace.left(done, total), so_far)))
            moved = total if done > 0.0 else None  # before that nothing says how long it takes
            bar.update(task, completed=done, total=moved, description=stage or title, said=said)

        yield meter


@contextmanager
def _lines(title: str) -> Iterator[Meter]:
    """Also while nobody calls the meter, which may be for minutes."""
    pace, ended = _Pace(), threading.Event()
    now = 0.0, 0.0, "", ""

    def tell() -> None:
        done, total, stage, so_far = now
        share = f"{done / total:.0%}".replace("%", " %") if done > 0.0 else ""
        said = ", ".join(filter(None, (stage, share, pace.left(done, total), so_far)))
        say(f"{title}: {said or '0 %'}")

    def meter(done: float, total: float, stage: str = "", so_far: str = "") -> None:
        nonlocal now
        before, now = now, (done, total, stage or now[2], so_far)
        pace.left(done, total)
        if before[2] != now[2] or time.monotonic() - HEARD[0] >= _EVERY:
            tell()

    def watch() -> None:
        while not ended.wait(_LOOK):
            if time.monotonic() - HEARD[0] >= _EVERY:
                tell()

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield meter
    finally:
        ended.set()
        watcher.join()
