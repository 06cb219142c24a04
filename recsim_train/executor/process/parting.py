"""The end of a run: who is left, why, what is kept.

Each process that can leaves a word and then its part of the result, as JSON. Who leaves none within
some seconds is lost. Who has started the processes puts the parts together; under torchrun rank 0
does, or where something went wrong the lowest of those that are left. Imports no torch: the
launcher reads it.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter

from recsim_train.checkpoints.going_on import LAST
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.executor.part import (
    FINISHED,
    INTERRUPTED,
    KILLED,
    Ending,
    LostPeerError,
    ProcessPart,
    cause,
)
from recsim_train.executor.process.board import Board
from recsim_train.executor.process.peers import LEAVING, PeerLeftError, word_of
from recsim_train.trace.ledger import Key
from recsim_train.trace.record import Total, TotalKey

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

ROLL_CALL = 5.0
"""Seconds in which every rank that lives has left its word."""
_HEARD = 2.0
"""Seconds that others get to read what the lowest has found."""
_STEP = 0.02
_SOURCE_PLACE = re.compile(r"^\[\S+\.(?:cc|cpp|h):\d+\] ")
"""Where in C++ an error of gloo was made."""


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


def describe(error: BaseException) -> tuple[str, str]:
    """(kind, sentence) of an `Ending`."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "asked to end"
    if isinstance(error, PeerLeftError):
        return "peer", "another rank left the run"
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    lowered = str(error).lower()
    if isinstance(error, UserError | RunFailed):
        return "own", text
    if isinstance(error, LostPeerError):
        return "peer", text
    text = _SOURCE_PLACE.sub("", text)
    if "timed out" in lowered or "timeout" in lowered or isinstance(error, TimeoutError):
        return "stall", text
    lost = ("connection closed by peer", "connection reset", "broken pipe", "connection refused")
    if any(words in lowered for words in lost):
        return "peer", "lost the connection to another process"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return "own", f"{where}{error.strerror}"
    place = traceback.extract_tb(error.__traceback__)
    last = f" ({Path(place[-1].filename).name}:{place[-1].lineno})" if place else ""
    return "own", f"{type(error).__name__}: {text}{last}"


def leave(board: Board, rank: int, ending: Ending, part: ProcessPart | None = None) -> None:
    """Leave a word, of which all others hear unless this process has `FINISHED`, and a part."""
    board.put(word_of(rank), _ENDING.dump_json(replace(ending, measured=part is not None)))
    if ending.kind != FINISHED:
        board.put(LEAVING, b"1")
    if part is not None:
        bare = replace(
            part,
            records=replace(part.records, totals={}),
            samples=[sample._replace(booked={}) for sample in part.samples],
        )
        booked = [[*sample.booked.items()] for sample in part.samples]
        board.put(f"part-{rank}", _PART.dump_json((bare, [*part.records.totals.items()], booked)))


def get_part(board: Board, rank: int) -> ProcessPart | None:
    """The part that a process has left; None where there is none, or what is there is none."""
    with suppress(ValueError):
        if (said := board.get(f"part-{rank}")) is not None:
            part, totals, booked = _PART.validate_json(said)
            part.records.totals.update(totals)
            for sample, seconds in zip(part.samples, booked, strict=True):
                sample.booked.update(seconds)
            return part
    return None


def words_left(board: Board, labels: Sequence[str]) -> dict[int, Ending]:
    """By rank, the words that are there; what cannot be read is a word, too."""
    said = {rank: board.get(word_of(rank)) for rank in range(len(labels))}
    return {rank: _ending(labels[rank], one) for rank, one in said.items() if one is not None}


def _ending(label: str, said: bytes) -> Ending:
    with suppress(ValueError):
        return replace(_ENDING.validate_json(said), name=label)
    return Ending(label, "own", "what it said of its end cannot be read")


def parts_left(board: Board, ranks: Iterable[int]) -> list[ProcessPart]:
    """The parts that are there."""
    return [part for rank in ranks if (part := get_part(board, rank)) is not None]


def part_ways(
    store: Store,
    board: Board,
    labels: Sequence[str],
    mine: int,
    *,
    hosting: bool,
    seconds: float = ROLL_CALL,
) -> Parting:
    """After `leave`: wait for the words of the other ranks, and agree with them on what happened.

    ``store``: where they do; ``hosting``: whether others read it from this process's store.
    """
    left = ask_until(
        seconds, lambda: words_left(board, labels), lambda found: len(found) == len(labels)
    )
    going = [rank for rank, ending in left.items() if ending.kind != FINISHED]
    lost = [label for rank, label in enumerate(labels) if rank not in left]
    only_signals = not lost and _only_signals(left)
    if (lowest := mine == min(going)) and store.add("keeper", 1) > 1:
        lowest = False  # who came late to a roll call that is over
    if not lowest:
        heard = ask_until(_HEARD, lambda: store.check(["verdict"]), bool)
        told = store.get("verdict").decode(errors="replace") if heard else verdict(left, lost)
        with suppress(RuntimeError):
            store.add("verdict/read", 1)
        return Parting(told, False, (), only_signals)
    sentence = verdict(left, lost)
    store.set("verdict", sentence)
    measured = [rank for rank, ending in left.items() if ending.measured]
    # one that has died since its word leaves none; and whoever ends all ranks kills this one, too
    ask_until(LAST - ROLL_CALL, lambda: store.check([f"part-{rank}" for rank in measured]), bool)
    parts = parts_left(board, measured)
    if hosting:
        ask_until(
            _HEARD, lambda: store.add("verdict/read", 0), lambda count: count >= len(going) - 1
        )
    return Parting(sentence, True, parts, only_signals)


def ask_until(seconds: float, ask: Callable[[], Any], enough: Callable[[Any], bool]) -> Any:
    """What ``ask`` returns once that is ``enough``, or after so many seconds."""
    end = time.monotonic() + seconds
    while not enough(found := ask()) and time.monotonic() < end:
        time.sleep(_STEP)
    return found


def verdict(left: Mapping[int, Ending], lost: Sequence[str]) -> str:
    """What has ended the run, in one sentence. ``left``: the words of those that left one;
    ``lost``: of whose end nothing is known."""
    endings = [ending for ending in left.values() if ending.kind != FINISHED]
    own = cause([ending for ending in endings if ending.kind in (KILLED, "own")])
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


def _only_signals(left: Mapping[int, Ending]) -> bool:
    kinds = {ending.kind for ending in left.values()}
    return INTERRUPTED in kinds and not kinds & {"own", "stall"}
