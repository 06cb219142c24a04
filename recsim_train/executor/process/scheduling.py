"""How the system schedules a process's threads: gloo's and our own."""

from __future__ import annotations

import os


def schedule(policy: str) -> bool:
    """Ask for it, for the calling thread and those that it starts from now on. False where that is
    refused.

    SCHED_BATCH is for gloo's I/O threads, which spin otherwise. SCHED_OTHER, once they have been
    made, is for our own: one that is woken by a message goes on at once instead of at the next
    tick.
    """
    try:
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
    except (OSError, AttributeError):
        return False
    return True
