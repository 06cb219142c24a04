"""The other processes of a run, as one of them sees them by way of the store that all share.

Here they meet, say from time to time that they live, and hear of those that fail. A process that
has stopped, or whose machine is gone, is noticed by all of the others, whatever they wait for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from recsim_train.executor.link.rendezvous import SETTING
from recsim_train.executor.part import LostPeerError
from recsim_train.executor.process.attend import until
from recsim_train.executor.process.board import Board

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

LEAVING = "leaving"
"""On the board once a process leaves before the run's end."""
_LOOK = 0.25
"""Seconds between two looks whether a rank leaves."""
_BEATS = 8
"""Signs of life in the time after which a silent process is given up."""


class PeerLeftError(Exception):
    """Another process leaves the run, for a reason that it has left on the board."""


def word_of(rank: int) -> str:
    """The key of the word that a process leaves at its end."""
    return f"left-{rank}"


def gather(
    store: Store,
    what: str,
    rank: int,
    labels: Sequence[str],
    wait: Callable[[list[str], Callable[[], str]], None],
    said: str = "1",
    within: str = SETTING,
) -> list[str]:
    """Say that this rank has come to a point, and wait until all have; the keys under which they
    say so. ``wait``: until keys are there, with the sentence for when it takes too long."""
    keys = [f"{what}/{other}" for other in range(len(labels))]
    store.set(keys[rank], said)
    if store.add(f"{what}/count", 1) == len(labels):
        store.set(f"{what}/all", "1")

    def late() -> str:
        absent = [label for label, key in zip(labels, keys, strict=True) if not store.check([key])]
        return f"{' and '.join(absent)} did not come within {within}"

    wait([f"{what}/all"], late)  # one key is looked for again and again, not many
    wait(keys, late)
    return keys


class Peers:
    """Of one process. All of them call `meet` in the same order."""

    def __init__(
        self,
        labels: Sequence[str],
        rank: int,
        store: Store,
        beats: Store,
        board: Board,
        timeout: float,
        *,
        keeper: int | None = None,
    ) -> None:
        """``labels``: of each process, as sentences name it; ``timeout``: seconds after which a
        silent one is given up. ``beats``, ``board``: other ways to the store, and to what those
        leave that end. ``keeper``: the rank that keeps the store."""
        self.labels, self.rank, self.store, self.timeout = labels, rank, store, timeout
        self.problem: BaseException | None = None
        """What this process has heard of the others, to be raised."""
        self.tell: Callable[[BaseException], None] = lambda _: None
        """Called with it, too."""
        self._beats, self._board = beats, board
        self._keeper = keeper
        self._over = threading.Event()
        self._began = False
        self._seen = [(b"", time.monotonic())] * len(labels)
        """The last sign of life of each process, and when it was seen."""
        beats.set(self._beat(rank), "0")
        threading.Thread(target=self._live, name="signs of life", daemon=True).start()

    def check(self) -> None:
        """Raise what was heard of the others."""
        if self.problem is not None:
            raise self.problem

    def meet(self, what: str, limit: float | None = None) -> None:
        """Wait until all processes have come here.

        ``limit``: seconds that are left of the time to start, and TimeoutError that names who is
        missing after them; None: as long as the others live.
        """
        most = float("inf") if limit is None else limit
        gather(
            self.store, what, self.rank, self.labels,
            lambda keys, late: self.wait(keys, late=late, limit=most),
        )  # fmt: skip

    def wait(
        self,
        keys: list[str],
        look: Callable[[], None] = lambda: None,
        late: Callable[[], str] | None = None,
        limit: float = float("inf"),
    ) -> None:
        """Until all keys are there. ``look`` may raise, too; it is called every quarter second."""
        due = 0.0

        def check() -> None:
            nonlocal due
            self.check()
            if (now := time.monotonic()) >= due:
                due = now + _LOOK
                look()

        try:
            until(lambda: bool(self.store.check(keys)), check, late, limit)
        except RuntimeError as error:
            self.check()
            raise self._without_store(error) from error

    def begin(self) -> None:
        """From here on all others are known to give signs of life."""
        self._seen = [(b"", time.monotonic())] * len(self.labels)
        self._began = True

    def end(self) -> None:
        """Nothing more is asked of the others."""
        self._over.set()

    def _beat(self, rank: int) -> str:
        return f"beat/{rank}"

    def _live(self) -> None:
        gap = self.timeout / _BEATS
        beats, due = 0, time.monotonic() + gap
        while not self._over.wait(min(_LOOK, gap)):
            try:
                if self._board.get(LEAVING) is not None:
                    return self._heard(PeerLeftError())
                if time.monotonic() < due:
                    continue
                beats, due = beats + 1, time.monotonic() + gap
                self._beats.set(self._beat(self.rank), str(beats))
                if self._began and (silent := self._silent(self.timeout + 2 * gap)):
                    names = " and ".join(self.labels[r] for r in silent)
                    return self._heard(
                        TimeoutError(f"{names} gave no sign of life for {self.timeout:g} s")
                    )
            except RuntimeError as error:
                if not self._over.is_set():
                    self._heard(self._without_store(error))
                return None
        return None

    def _silent(self, limit: float) -> list[int]:
        """Who has given no sign of life for so many seconds, and has not left a word either."""
        now = time.monotonic()
        said = self._beats.multi_get([self._beat(rank) for rank in range(len(self.labels))])
        self._seen = signs = [
            seen if sign == seen[0] else (sign, now)
            for sign, seen in zip(said, self._seen, strict=True)
        ]
        return [
            rank
            for rank, (_, since) in enumerate(signs)
            if rank != self.rank and now - since > limit and self._board.get(word_of(rank)) is None
        ]

    def _heard(self, problem: BaseException) -> None:
        self.problem = problem
        self.tell(problem)

    def _without_store(self, error: RuntimeError) -> BaseException:
        if self._keeper is None:
            return error
        return LostPeerError(self.labels[self._keeper])
