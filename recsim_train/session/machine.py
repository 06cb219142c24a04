"""This machine, as far as memory goes."""

from __future__ import annotations

from recsim_train.config.cluster import Host
from recsim_train.results.environment import cores, memory


def this_machine() -> Host:
    """A host with what this process may use of this machine."""
    host = {"cores": cores(), "memory": f"{memory()} B", "nic": "1 GB/s"}
    return Host.model_validate(host)
