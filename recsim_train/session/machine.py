"""This machine, as far as memory goes."""

from __future__ import annotations

import os

import psutil

from recsim_train.config.cluster import Host


def this_machine() -> Host:
    """A host that is like this machine."""
    memory = psutil.virtual_memory().total
    host = {"cores": os.cpu_count() or 1, "memory": f"{memory} B", "nic": "1 GB/s"}
    return Host.model_validate(host)
