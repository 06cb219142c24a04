"""Pauses of Python's search for garbage in cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """For work that makes many objects and no cycles.

    What it makes is kept, or freed by its reference count. Each look for cycles would go through
    all that is kept: a fifth of the time of a prediction for a thousand trainers.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def earlier_objects_skipped() -> Iterator[None]:
    """For work whose cycles are garbage soon, after much has been made that is kept.

    Python goes on looking for cycles, but not among what there was before.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
