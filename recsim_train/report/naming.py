"""What reports call what the code has names for: resources, effects, operations, lines of the
ledger. Readers know network cards and interpreter locks; our own names are shown to who asks. And
the glossary: ``words.md``, of which a report shows what it uses, and the manual all."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import replace
from importlib import resources

from recsim_train.results.summary import OTHER
from recsim_train.trace import ledger
from recsim_train.trace.binding import NAMES, Binding, name_of

_RESOURCES = {
    "cores": "cores",
    "interpreter": "interpreter lock",
    "nic.tx": "network card, sending",
    "nic.rx": "network card, receiving",
    "loopback.tx": "loopback, sending",
    "loopback.rx": "loopback, receiving",
    "thread": "parsing thread",
    "up": "uplink, outwards",
    "down": "uplink, inwards",
}
_SERIAL = {
    "own_compute": "computation in each training loop",
    "compute": "computation in loops and servers",
    "readers": "waiting for readers",
    "queueing": "queueing for what others use",
    "transfer": "bytes on their way",
    "waiting": "waiting for other loops",
    "latency": "latency",
    "unknown": "nothing known",
}
"""What binds where no resource is saturated, by `Binding.what`."""
_PHRASES = (
    (r"NIC send of (\w+(?:\[[\d-]+\])?)", r"the network card of \1, sending"),
    (r"NIC receive of (\w+(?:\[[\d-]+\])?)", r"the network card of \1, receiving"),
    (r": NIC send", r": network card, sending"),
    (r": NIC receive", r": network card, receiving"),
    (r"\bNIC\b", "network card"),
    (r"(\d)%", r"\1 %"),
)
_INSTANCE = re.compile(r"\b(trainer|embedding_server|dense_server|reader)(?:\[([\d-]+)\])?")
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

_PRICES = {
    "call": "a call of a tensor operator",
    "interpreter": "a call out of Python",
    "handover": "waking up for the interpreter lock",
    "gemm_flop": "a flop of matrix products",
    "dot_product": "a dot product of the interaction",
    "dot_flop": "a flop of the interaction",
    "index_element": "picking an element by its index",
    "stream_byte": "a byte of element-wise work",
    "gather_row": "reading an embedding row",
    "gather_byte": "a byte of embedding rows read",
    "scatter_row": "updating an embedding row",
    "scatter_byte": "a byte of embedding rows updated",
    "unique_id": "an id to de-duplicate",
    "hashed_id": "an id to find in an update",
    "read_row": "reading a row of a file",
    "read_number": "reading a number of a file",
    "read_id": "reading an id of a file",
    "read_text": "hashing an id of a file",
    "synthesize_row": "generating an example",
    "synthesize_id": "generating an id",
    "feed_batch": "handing a batch to its loop",
    "effect": "a step of a loop's own code",
    "asking": "making requests",
    "request": "serving a dense request",
    "row_request": "serving an embedding request",
    "message": "a message over TCP",
    "wire_byte": "a byte over TCP",
    "shared_byte": "a byte through shared memory",
    "gloo_message": "a message over gloo",
    "collective_message": "a message of a collective",
    "reduced_byte": "a byte of an all-reduce",
    "exchanged_byte": "a byte of an all-gather or all-to-all",
    "collective_step": "a step of a collective",
    "reduced_wait": "waiting for a byte of an all-reduce",
    "exchanged_wait": "waiting for a byte of an all-gather or all-to-all",
}
"""By the name in ``costs`` of a profile."""


def price(name: str) -> str:
    """What a price is of: "row_request" is that of serving an embedding request."""
    return _PRICES.get(name, name)


def instance(name: str) -> str:
    """A process or host: "embedding_server[1]" is embedding server 1, and the host "trainer[4-7]"
    that of trainers 4-7."""

    def said(match: re.Match[str]) -> str:
        role, which = match[1].replace("_", " "), match[2] or ""
        return " ".join(filter(None, (role + "s" * ("-" in which), which)))

    return _INSTANCE.sub(said, name)


def loop(name: str) -> str:
    """A loop, or all that a server does: "trainer[0].worker[1]" is trainer 0, worker 1."""
    return re.sub(r"\[(\d+)\]", r" \1", instance(name)).replace(".", ", ")


def resource(name: str) -> str:
    """One that is used: "trainer[0].interpreter" is trainer 0's interpreter lock."""
    owner, _, part = name.partition(".")
    return f"{instance(owner)}: {_RESOURCES[part]}" if part in _RESOURCES else name


def bottleneck(binding: Binding | None) -> str | None:
    """What binds, as calls and documents say it, with our own names; None: of a measurement."""
    if binding is None or binding.said:
        return binding.said if binding else None
    if binding.what in NAMES:
        return name_of(binding.resource)
    share = "" if binding.share is None else f" ({binding.share:.0%} of an iteration)"
    which = "of those that training waits for, the" if binding.others_busier else "the"
    return (
        f"{_SERIAL.get(binding.what)}{share}: no resource is saturated; {which} busiest, "
        f"{name_of(binding.resource)}, is {binding.busy:.0%} busy"
    )


def binds(binding: Binding | None, *, numbered: bool = True) -> str:
    """The same in few words: "the network card of dense server 1, receiving", or of any of several
    equal processes, not ``numbered``."""
    known = typed(binding)
    saturated = known.what in NAMES
    what = name_of(known.resource) if saturated else _SERIAL.get(known.what, known.said)
    return phrase(what if numbered else re.sub(r"\[\d+\]", "", what))


def typed(binding: Binding | None) -> Binding:
    """What is known of it: of an earlier version's what its words begin with."""
    known, owner = binding or Binding("unknown"), r"(?:the )?([^\s,]+)"
    read = (
        replace(known, what=what, resource=f"{''.join(named.groups())}.{what}")
        for what, words in (NAMES | _SERIAL).items()
        if (named := re.match(words.format(owner), known.said))
    )
    return next(read, known)


def class_words(name: str) -> str:
    """A class of resources, by its key, as what is known beforehand says it."""
    return "the work of a loop by itself" if name == "loops" else name


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


REPORTS, ITERATION, CODE = (
    "Words of reports", "What an iteration consists of", "Words of the code",
)  # fmt: skip
"""Sections of the glossary."""


@functools.cache
def words_page() -> str:
    """The whole glossary, Markdown."""
    return (resources.files("recsim_train.report") / "words.md").read_text(encoding="utf-8")


@functools.cache
def words_of(title: str) -> dict[str, str]:
    """Meanings by word in one of its sections, as plain text."""
    (found,) = (part for part in words_page().split("## ") if part.startswith(title))
    lines = re.findall(r"^\| (.+?) \| (.+) \|$", found, re.MULTILINE)[1:]
    return {_plain(word): _plain(meaning) for word, meaning in lines}


def _plain(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")


def glossary(effects: Collection[str]) -> dict[str, str]:
    """The words of reports, and what the iterations consist of that one shows."""
    shown = {effect(name) for name in effects}
    parts = {word.partition(" (")[0]: means for word, means in words_of(ITERATION).items()}
    return words_of(REPORTS) | {word: means for word, means in parts.items() if word in shown}
