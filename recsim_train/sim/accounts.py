"""Accounts of where the time of a training loop's effects goes: work, sharing, transfer, waiting.

Every effect of a loop is a chain: its own work, then what it waits for. Of requests that go out
together the one that comes back last is the chain. An effect's seconds are

- compute: work on a core, the loop's own and what servers did for it, as long as it takes alone;
- transfer: latency, and bytes at the rate that they would have alone;
- waiting: until others are where the loop is, or have made what it needs (members of a collective,
  trainers that update together, readers, the other end of a queue);
- queueing: everything else, which is what sharing costs: cores, interpreter locks and NICs that
  others used too, and requests that stood in line.

Beside the parts stands the `Account.least` that an iteration takes: its own work, and of every
chain what is left of its work and transfer when all that the loop did meanwhile hides some of it.
Of a chain that hid in part the parts are shared out, so that they say nothing for certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

COMPUTE, QUEUEING, TRANSFER, WAITING = range(4)
PARTS = ("compute", "queueing", "transfer", "waiting")

Split = list[float]
"""Seconds by part, in the order of `PARTS`."""


class Chain(NamedTuple):
    """What one request that was waited for consisted of, seconds."""

    compute: float
    transfer: float
    waiting: float
    total: float


class Account:
    """The effects of one loop."""

    __slots__ = ("_certain", "_first", "effects", "least", "now")

    def __init__(self, first: int) -> None:
        self._first = first
        """Iterations before this one do not count."""
        self.effects: dict[str, Split] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
        self.now: Split = [0.0, 0.0, 0.0, 0.0]
        """Of the effect that goes on."""
        self.least: dict[int, float] = {}
        """By iteration: seconds that it takes even where nothing is shared and nobody is late."""
        self._certain = 0.0

    def take(self, part: int, seconds: float) -> None:
        """Work or transfer that nothing hides."""
        self.now[part] += seconds
        self._certain += seconds

    def blame(self, waited: float, chain: Chain | None) -> None:
        """Share out the time until the last of some requests was done.

        What the loop did itself meanwhile is no wait, so that a chain may be longer than that.
        """
        if chain is None or chain.total <= 0.0:
            return
        self._certain += max(0.0, chain.compute + chain.transfer - (chain.total - waited))
        share = min(1.0, waited / chain.total)
        self.now[COMPUTE] += share * chain.compute
        self.now[TRANSFER] += share * chain.transfer
        self.now[WAITING] += share * chain.waiting

    def close(self, effect: str, iteration: int, seconds: float) -> None:
        """An effect is over."""
        now = self.now
        self.now = [0.0, 0.0, 0.0, 0.0]
        certain, self._certain = self._certain, 0.0
        if iteration < self._first:
            return
        self.least[iteration] = self.least.get(iteration, 0.0) + certain
        now[QUEUEING] += seconds - sum(now)
        if now[QUEUEING] < 0.0:  # own work that went on while the chain did: it hid behind it
            now[TRANSFER] = max(0.0, now[TRANSFER] + now[QUEUEING])
            now[QUEUEING] = 0.0
        known = self.effects[effect]
        for part, value in enumerate(now):
            known[part] += value


def merged(accounts: Iterable[Account]) -> dict[str, Split]:
    """The sums of several loops' effects."""
    found: dict[str, Split] = {}
    for account in accounts:
        for effect, split in account.effects.items():
            known = found.setdefault(effect, [0.0, 0.0, 0.0, 0.0])
            for part, value in enumerate(split):
                known[part] += value
    return found
