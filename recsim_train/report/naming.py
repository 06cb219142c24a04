"""What reports call what the code has names for: resources, effects, operations, lines of the
ledger. Readers know network cards and interpreter locks; our own names are shown to who asks."""

from __future__ import annotations

import re

from recsim_train.results.summary import OTHER
from recsim_train.trace import ledger

_RESOURCES = {
    "cores": "cores",
    "interpreter": "interpreter lock",
    "nic.tx": "network card, sending",
    "nic.rx": "network card, receiving",
    "thread": "parsing thread",
    "up": "uplink, outwards",
    "down": "uplink, inwards",
}
_PHRASES = (
    (r"NIC send of (\w+(?:\[\d+\])?)", r"the network card of \1, sending"),
    (r"NIC receive of (\w+(?:\[\d+\])?)", r"the network card of \1, receiving"),
    (r": NIC send", r": network card, sending"),
    (r": NIC receive", r": network card, receiving"),
    (r"\bNIC\b", "network card"),
    (r"(\d)%", r"\1 %"),
)
_INSTANCE = re.compile(r"\b(trainer|embedding_server|dense_server|reader)(?:\[(\d+)\])?")
_LINES = {
    ledger.RUNTIME: "between operations",
    ledger.ASKING: "making requests",
    ledger.REQUESTS: "serving requests",
    ledger.TRANSPORT: "sending and receiving",
    ledger.COLLECTIVES: "collective communication",
    ledger.READING: "making batches",
    ledger.SUPERVISION: "main thread",
    ledger.NOT_BOOKED: "not accounted for",
    "forward_backward": "forward and backward pass",
}


def instance(name: str) -> str:
    """A process or host: "embedding_server[1]" is embedding server 1."""
    return _INSTANCE.sub(lambda m: " ".join(filter(None, (m[1].replace("_", " "), m[2]))), name)


def loop(name: str) -> str:
    """A loop, or all that a server does: "trainer[0].worker[1]" is trainer 0, worker 1."""
    return re.sub(r"\[(\d+)\]", r" \1", instance(name)).replace(".", ", ")


def resource(name: str) -> str:
    """One that is used: "trainer[0].interpreter" is trainer 0's interpreter lock."""
    owner, _, part = name.partition(".")
    if part not in _RESOURCES:
        return name
    return f"{instance(owner)}: {_RESOURCES[part]}"


def phrase(said: str) -> str:
    """What binds, a class of resources, or a caveat, as predictions say it."""
    for ours, theirs in _PHRASES:
        said = re.sub(ours, theirs, said)
    return "loops on their own" if said == "loops" else instance(said)


def effect(name: str) -> str:
    """A part of an iteration: "all_reduce" is all-reduce."""
    if name == OTHER:
        return "the loop itself"
    return name.replace("_", "-") if name == "all_reduce" else name.replace("_", " ")


def line(name: str) -> str:
    """A line of one role: "trainer.forward_backward" is trainer: forward and backward pass."""
    role, _, what = name.rpartition(".")
    return ": ".join(filter(None, (role.replace("_", " "), work(what))))


def work(name: str) -> str:
    """An operation, or a line of the ledger of CPU time."""
    return _LINES.get(name, name.replace("_", " "))
