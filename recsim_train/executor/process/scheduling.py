"""How the system schedules a process's threads: gloo's and our own."""

from __future__ import annotations

import os


def batch_scheduling() -> bool:
    """Ask for SCHED_BATCH: gloo's I/O threads spin otherwise. False where that is refused."""
    return _ask_for("SCHED_BATCH")


def ordinary_scheduling() -> bool:
    """For the threads that are started from now on: one that is woken by a message goes on at once
    instead of at the next tick. gloo's have been made, and stay with SCHED_BATCH."""
    return _ask_for("SCHED_OTHER")


def _ask_for(policy: str) -> bool:
    try:
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
    except (OSError, AttributeError):
        return False
    return True
