"""Who asks, and what they hear while something is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


@contextmanager
def _unseen(_: str) -> Iterator[Progress]:
    yield lambda done, total: None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. The default hears nothing."""

    say: Callable[[str], object] = field(default=lambda sentence: None, repr=False)
    """Called with each sentence, as soon as it is true: what a prediction leaves out, what is
    measured first, what an interrupt has left."""
    progress: Callable[[str], AbstractContextManager[Progress]] = field(default=_unseen, repr=False)
    """Called with a title; gives a context in which a `Progress` is shown."""
    command: tuple[str, ...] = ()
    """The command line that asks, which run directories remember; empty: it was Python."""


NOBODY = Caller()
