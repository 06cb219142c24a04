"""Who asks, and what they hear while something is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from recsim_train.trace.progress import Meter, unseen


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. The default hears nothing."""

    say: Callable[[str], object] = field(default=lambda sentence: None, repr=False)
    """Called with each sentence, as soon as it is true: what a prediction leaves out, what is
    measured first, what an interrupt has left."""
    progress: Callable[[str], AbstractContextManager[Meter]] = field(
        default=lambda title: nullcontext(unseen), repr=False
    )
    """Called with a title; gives a context in which a `Meter` is shown."""
    command: tuple[str, ...] = ()
    """The command line that asks, which run directories remember; empty: it was Python."""


NOBODY = Caller()
