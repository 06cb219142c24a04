"""The clocks of a run's ranks: those of other hosts differ from rank 0's, and drift from it."""

from __future__ import annotations

import time
from hashlib import sha256

import torch
import torch.distributed as dist

from recsim_train.executor.link.rendezvous import this_machine
from recsim_train.trace.facts import ClockReading

_EXCHANGES = 32
"""Of messages with rank 0, of which the quickest counts."""


def read() -> ClockReading | None:
    """By how much this rank's monotonic clock is ahead of rank 0's; None where they are one.

    All ranks take part. Rank 0 answers each of the others in turn with its own time. Of the
    quickest exchange that time is taken to lie in the middle, as in NTP (RFC 5905, 8): it is off by
    at most half of what the exchange took.
    """
    # as a tensor: objects would travel as pickles, which may have code run where they are read
    clock = sha256(this_machine("time").encode()).digest()
    mine = torch.frombuffer(bytearray(clock), dtype=torch.uint8)
    known = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(known, mine)
    me = dist.get_rank()
    others = [rank for rank, clock in enumerate(known) if not clock.equal(known[0])]
    if me == 0:
        for other in others:
            _answer(other)
    return _ask() if me in others else None


def _answer(rank: int) -> None:
    question, now = torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.float64)
    for _ in range(_EXCHANGES):
        dist.recv(question, rank)
        now[0] = time.monotonic()
        dist.send(now, rank)


def _ask() -> ClockReading:
    question, theirs = torch.zeros(1, dtype=torch.float64), torch.empty(1, dtype=torch.float64)
    readings = []
    for _ in range(_EXCHANGES):
        asked = time.monotonic()
        dist.send(question, 0)
        dist.recv(theirs, 0)
        heard = time.monotonic()
        middle, half = (asked + heard) / 2, (heard - asked) / 2
        readings.append(ClockReading(middle - float(theirs), half))
    return min(readings, key=lambda reading: reading.error)
