"""What binds a prediction, as a typed value; `recsim_train.report.naming` says it in words."""

from __future__ import annotations

from dataclasses import dataclass

NAMES = {
    "cores": "cores of {}",
    "interpreter": "interpreter lock of {}",
    "nic.tx": "NIC send of {}",
    "nic.rx": "NIC receive of {}",
    "loopback.tx": "loopback of {}, sending",
    "loopback.rx": "loopback of {}, receiving",
    "thread": "parsing thread of {}",
    "up": "uplink out of {}",
    "down": "uplink into {}",
}
"""By the part of a process, host or rack that a resource is: its name, with whose it is."""
CLASS_PARTS = {
    "cores": "cores",
    "interpreter": "interpreter lock",
    "nic.tx": "NIC send",
    "nic.rx": "NIC receive",
    "loopback.tx": "loopback, sending",
    "loopback.rx": "loopback, receiving",
    "thread": "parsing thread",
    "up": "uplink",
    "down": "downlink",
}
"""The same of a class of resources."""
LINKS = ("nic.tx", "nic.rx", "up", "down")
"""Those parts that bytes go through."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What limits a prediction."""

    what: str = ""
    """The part of a resource that is saturated, one of `NAMES`. Else where most of a training
    loop's iteration goes: own_compute (its own computation), readers (waiting for them), compute
    (in loops and servers), queueing (for what others use), transfer (bytes on their way), latency,
    waiting (for other loops); or unknown. Empty: only an earlier version's words are known."""
    resource: str = ""
    """The busiest of those that training waits for, such as "dense_server[0].nic.rx"."""
    busy: float = 0.0
    """How busy it is, 0..1."""
    share: float | None = None
    """Of an iteration, that it takes; None: a resource is saturated, or it is not known."""
    others_busier: bool = False
    """Whether resources that training does not wait for are busier."""
    said: str = ""
    """An earlier version's words."""


def name_of(resource: str) -> str:
    """A resource in words."""
    owner, _, part = resource.partition(".")
    return NAMES.get(part, "{}").format("the machine" if owner == "machine" else owner)


def class_of(resource: str) -> str:
    """A resource's class: "trainer[3].nic.tx" is of "trainer: NIC send"."""
    owner, _, part = resource.partition(".")
    return f"{owner.partition('[')[0].replace('_', ' ')}: {CLASS_PARTS[part]}"


CLASSES = {
    class_of(f"{role}.{part}"): (role, part)
    for role in ("trainer", "embedding_server", "dense_server", "reader", "machine", "rack")
    for part in NAMES
}
"""Whose resources a class is of, and which of their parts."""
