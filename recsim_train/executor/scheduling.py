"""How the system schedules a process's threads: gloo's and our own."""

from __future__ import annotations

import os
from contextlib import suppress


def batch_scheduling() -> bool:
    """Ask for SCHED_BATCH: gloo's I/O threads spin otherwise. False where that is refused."""
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (OSError, AttributeError):
        return False
    return True


def ordinary_scheduling() -> None:
    """For the threads that are started from now on: one that is woken by a message goes on at once
    instead of at the next tick. gloo's have been made, and stay with SCHED_BATCH."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
