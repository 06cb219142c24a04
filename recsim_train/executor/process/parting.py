"""The end of a run under torchrun in which something went wrong: who is left, why, what is kept.

Each rank that can leaves a word and its part of the result in the store, as JSON: whoever reaches
the store could leave anything there. Who leaves none within some seconds is lost. The lowest of the
others puts the parts together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter

from recsim_train.executor.part import Ending, ProcessPart, cause
from recsim_train.executor.process.peers import LEAVING
from recsim_train.trace.ledger import Key
from recsim_train.trace.record import Total, TotalKey

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

ROLL_CALL = 5.0
"""Seconds in which every rank that lives has left its word."""
_HEARD = 2.0
"""Seconds that others get to read what the lowest has found."""
_CHUNK = 4 << 20
"""Bytes of a value: the store takes less than 8 MiB."""
_MOST = 1000
"""Values of one part."""
_STEP = 0.02
FINISHED, INTERRUPTED = "finished", "interrupted"
"""Kinds of endings beside those of `recsim_train.executor.process.describe`."""


@dataclass(frozen=True, slots=True)
class Parting:
    """What a rank knows at the end."""

    sentence: str
    kept_here: bool
    """Whether this rank is to keep what was measured."""
    parts: Sequence[ProcessPart]
    interrupted: bool
    """Whether nothing but a signal ended it."""


_PART = TypeAdapter(
    tuple[ProcessPart, list[tuple[TotalKey, Total]], list[list[tuple[Key, float]]]],
    config=ConfigDict(ser_json_inf_nan="constants", defer_build=True),
)
"""A part, and beside it what it keeps by keys that JSON has not: totals, and what each of its
samples has booked."""


_ENDING = TypeAdapter(Ending)


def put_part(store: Store, rank: int, part: ProcessPart) -> None:
    """Leave a part of the result."""
    bare = replace(
        part,
        records=replace(part.records, totals={}),
        samples=[sample._replace(booked={}) for sample in part.samples],
    )
    booked = [[*sample.booked.items()] for sample in part.samples]
    content = _PART.dump_json((bare, [*part.records.totals.items()], booked))
    chunks = range(0, len(content), _CHUNK)
    for number, at in enumerate(chunks):
        store.set(f"part/{rank}/{number}", content[at : at + _CHUNK])  # type: ignore[arg-type]
    store.set(f"part/{rank}", str(len(chunks)))


def get_part(store: Store, rank: int) -> ProcessPart | None:
    """The part that a rank has left; None where there is none, or what is there is none."""
    if not store.check([f"part/{rank}"]):
        return None
    said = store.get(f"part/{rank}")
    if not (said.isdigit() and len(said) < 6 and 0 < int(said) <= _MOST):
        return None
    keys = [f"part/{rank}/{number}" for number in range(int(said))]
    if not store.check(keys):
        return None
    with suppress(ValueError):
        part, totals, booked = _PART.validate_json(b"".join(store.multi_get(keys)))
        part.records.totals.update(totals)
        for sample, seconds in zip(part.samples, booked, strict=True):
            sample.booked.update(seconds)
        return part
    return None


def leave(store: Store, rank: int, kind: str, sentence: str, waits: Sequence[str] = ()) -> None:
    """Leave a word, and unless this rank has `FINISHED`, have all others hear of it."""
    store.set(f"left/{rank}", json.dumps(asdict(Ending("", kind, sentence, waits))))
    if kind != FINISHED:
        store.set(LEAVING, "1")


def words_left(store: Store, labels: Sequence[str]) -> dict[int, Ending]:
    """By rank, the words that are there; what cannot be read is a word, too."""
    return {
        rank: _ending(label, store.get(f"left/{rank}"))
        for rank, label in enumerate(labels)
        if store.check([f"left/{rank}"])
    }


def _ending(label: str, said: bytes) -> Ending:
    with suppress(ValueError):
        return replace(_ENDING.validate_json(said), name=label)
    return Ending(label, "own", "what it said of its end cannot be read")


def part_ways(
    store: Store, labels: Sequence[str], mine: int, *, hosting: bool, seconds: float = ROLL_CALL
) -> Parting:
    """After `leave` and `put_part`: wait for the words of the others, and agree with them on what
    happened. ``hosting``: whether others read it from this process's store."""
    left = ask_until(
        seconds, lambda: words_left(store, labels), lambda found: len(found) == len(labels)
    )
    going = [rank for rank, ending in left.items() if ending.kind != FINISHED]
    if (lowest := mine == min(going)) and store.add("keeper", 1) > 1:
        lowest = False  # who came late to a roll call that is over
    if not lowest:
        heard = ask_until(_HEARD, lambda: store.check(["verdict"]), bool)
        told = store.get("verdict").decode(errors="replace") if heard else _verdict(left, labels)
        with suppress(RuntimeError):
            store.add("verdict/read", 1)
        return Parting(told, False, (), _only_signals(left, labels))
    sentence = _verdict(left, labels)
    parts = [part for rank in left if (part := get_part(store, rank)) is not None]
    store.set("verdict", sentence)
    if hosting:
        ask_until(
            _HEARD, lambda: store.add("verdict/read", 0), lambda count: count >= len(going) - 1
        )
    return Parting(sentence, True, parts, _only_signals(left, labels))


def ask_until(seconds: float, ask: Callable[[], Any], enough: Callable[[Any], bool]) -> Any:
    """What ``ask`` returns once that is ``enough``, or after so many seconds."""
    end = time.monotonic() + seconds
    while not enough(found := ask()) and time.monotonic() < end:
        time.sleep(_STEP)
    return found


def _verdict(left: dict[int, Ending], labels: Sequence[str]) -> str:
    endings = [ending for ending in left.values() if ending.kind != FINISHED]
    lost = [label for rank, label in enumerate(labels) if rank not in left]
    own = cause([ending for ending in endings if ending.kind == "own"])
    if own is not None:
        return own
    if lost:
        told = f"{' and '.join(lost)} {'was' if len(lost) == 1 else 'were'} lost without a word"
        return f"{told}: killed, stopped, or its machine cannot be reached any more"
    if (stall := cause(endings)) is not None:
        return stall
    first = min(endings, key=lambda ending: ending.kind != INTERRUPTED)
    if first.kind == INTERRUPTED:
        return f"{first.name} was asked to end"
    return f"{first.name} failed: {first.sentence}"


def _only_signals(left: dict[int, Ending], labels: Sequence[str]) -> bool:
    kinds = {ending.kind for ending in left.values()}
    return INTERRUPTED in kinds and len(left) == len(labels) and not kinds & {"own", "stall"}
