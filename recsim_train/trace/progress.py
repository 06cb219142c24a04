"""How far something is that takes a while, for whoever waits for it."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Called now and then with how far it is."""

    def __call__(self, done: float, total: float, stage: str = "", so_far: str = "") -> None:
        """``done`` of ``total``, in any unit that time goes by.

        ``stage``: what is being done, in a few words; empty: as the title says. ``so_far``: what is
        known of the result.
        """


def unseen(done: float, total: float, stage: str = "", so_far: str = "") -> None:
    """The meter that nobody looks at."""


def about(seconds: float) -> str:
    """A duration that is not known well: "about 40 s"."""
    if seconds < 1.0:
        return "less than a second"
    if seconds < 10.0:
        return f"about {seconds:.0f} s"
    if seconds < 90.0:
        return f"about {5 * round(seconds / 5)} s"
    if seconds < 5970.0:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


def between(low: float, high: float) -> str:
    """The same of a range: "about 5 s to about 2 min"."""
    first, last = about(low), about(high)
    return first if first == last else f"{first} to {last}"
