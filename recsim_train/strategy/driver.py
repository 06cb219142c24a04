"""The driver: what holds for every loop of a strategy, whichever world answers its effects.

It owns iterations and rounds, what an effect may ask for, names, lines and spans. It has no clock
and does no input or output; a world lends it the one and performs what it asks for:

    while (effect := driver.next()) is not None:
        try:
            answer, sent = perform(effect)
        except Exception as error:
            driver.failed(error)
        else:
            driver.answered(answer, sent)
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from recsim_train.config.errors import RunFailed
from recsim_train.strategy import effects
from recsim_train.strategy.base import DenseService, EmbeddingService, Loop, Topology
from recsim_train.strategy.blame import StrategyError, raising_line, waiting_line
from recsim_train.strategy.effects import END, Effect
from recsim_train.strategy.handles import Handles, named, no_request
from recsim_train.strategy.values import Opaque

_KINDS = frozenset(effects.EFFECTS)
_EMBEDDING = (effects.Lookup, effects.Update, effects.Fetch, effects.Store)
_DENSE = (effects.Pull, effects.Push, effects.Exchange)
_QUEUES = (effects.Put, effects.Take, effects.Close)
_MISTAKES = (TypeError, ValueError, LookupError, AssertionError)
"""What a world raises where a program asks for something wrong; other errors are the world's."""
_BEGINNING = frozenset({effects.NextBatch, effects.NextItem, effects.NextRound})


class Listener(Protocol):
    """Who is told what a loop does. Times are those of the world's clock, in seconds."""

    def begins(self, iteration: int, now: float) -> None:
        """An iteration, or a round of a background loop, begins."""

    def ends(self, iteration: int, began: float, now: float) -> None:
        """It is over."""

    def did(
        self,
        effect: Effect[Any],
        iteration: int,
        began: float,
        now: float,
        sent: int,
        number: int = 0,
    ) -> None:
        """An effect is answered; this side has handed ``sent`` payload bytes to the transport.

        ``number``: the lane of a started request, which went on beside the loop; 0: the loop.
        """

    def over(self) -> None:
        """The loop ends no more iterations; may be told twice."""

    def synced(self, iteration: int, now: float) -> None:
        """The trainer's dense parameters have met those of others."""


class Driver:
    """One loop of a strategy as a state machine: the next effect, its answer, the next effect.

    ``who``: as messages name it, such as "trainer[0].worker[1]".
    """

    __slots__ = (
        "_acted",
        "_allowed",
        "_answer",
        "_began",
        "_clock",
        "_effect",
        "_exhausted",
        "_failed_at",
        "_failure",
        "_handles",
        "_listener",
        "_open",
        "_since",
        "finished",
        "iteration",
        "loop",
        "program",
        "who",
    )

    def __init__(
        self,
        who: str,
        loop: Loop,
        topology: Topology,
        program: Coroutine[Effect[Any], Any, None],
        clock: Callable[[], float],
        listener: Listener,
    ) -> None:
        self.who, self.loop, self.program = who, loop, program
        self.iteration = -1
        """The iteration or round that the loop is in; after the end of its data, one that none is
        counted for."""
        self.finished = False
        self._clock, self._listener = clock, listener
        self._handles = Handles()
        self._allowed = Allowed(loop, topology, self._handles)
        self._effect: Effect[Any] | None = None
        self._answer: object = None
        self._failure: Exception | None = None
        self._failed_at = ""
        self._since = self._began = 0.0
        self._open = self._acted = self._exhausted = False

    def next(self) -> Effect[Any] | None:
        """Advance the program to its next effect; None: it has ended.

        Raises StrategyError, which names the line, for what a strategy may not do, for exceptions
        of its own, and where an effect failed because of what it was asked. Another error of an
        effect, such as the loss of a peer, is raised as it is if the program does not handle it.
        """
        while True:
            effect = self._advance()
            if self._exhausted:  # only now: others may go by what the program noted meanwhile
                self._exhausted = False
                self._listener.over()
            if type(effect) not in _KINDS:
                if effect is END:
                    # a round that only learned of the end is none
                    self._close(self._clock(), counts=self._acted or not self.loop.background)
                    self.finished = True
                    self._listener.over()
                    if (left := self._handles.left) is not None:
                        raise StrategyError(f"{self.who} never waits for the {named(left)}")
                    return None
                line = self.line
                self.program.close()
                raise StrategyError(
                    f"{line}: {self.who} awaits {type(effect).__name__}, which is not an effect; "
                    "a strategy may await effects only"
                )
            if mistake := self._allowed.mistake(effect):
                self._failure = mistake
                continue
            now = self._clock()
            if type(effect) is effects.Synced:
                self._listener.synced(self.iteration, now)
                self._answer = None
                continue
            if type(effect) in self._allowed.beginning and not _early(effect):
                self._close(now)
                self.iteration += 1
                self._began, self._open, self._acted = now, True, False
                self._listener.begins(self.iteration, now)
            else:
                self._acted = True
            self._effect, self._since, self._failed_at = effect, now, ""
            return effect  # type: ignore[no-any-return]  # an effect by now

    def answered(self, answer: object, sent: int = 0) -> None:
        """The effect is done: what it returns, and payload bytes that this side has sent."""
        effect = self._effect
        assert effect is not None
        if isinstance(effect, effects.Start):
            answer = self._handles.start(
                effect.request, self.line, self.iteration + effect.ahead, self._since, answer
            )
        elif isinstance(effect, effects.Wait):
            done = effect.handle
            self._handles.end(done)
            self._listener.did(
                done.request, done.iteration, done.began, self._clock(), sent, done.lane
            )
            sent = 0
        self._answer = answer
        if (answer is None and isinstance(effect, effects.NextBatch)) or answer is END:
            # what follows the last iteration is not part of one
            self._open = self._open and (_early(effect) or getattr(effect, "held", 0) > 0)
            self._exhausted = not self._open
            return
        self._listener.did(effect, self.iteration, self._since, self._clock(), sent)

    def failed(self, error: Exception) -> None:
        """The effect could not be done; the program may handle it."""
        self._failed_at = self.waiting  # while there is still a line to be named
        self._failure = error
        if isinstance(self._effect, effects.Wait):
            self._handles.end(self._effect.handle)

    @property
    def waiting(self) -> str:
        """What it waits for and where, for tables of who waits."""
        if self._failed_at:
            return self._failed_at
        if self._effect is None or self.finished:
            return "ended" if self.finished else "not started"
        effect = self._effect
        what = f" for the {named(effect.handle)}," if isinstance(effect, effects.Wait) else ""
        return f"{effect.kind}{what} at {self.line}"

    @property
    def line(self) -> str:
        """``file:line`` of the strategy at which the program waits."""
        return waiting_line(self.program)

    def _advance(self) -> Any:
        """What the program asks for, whatever that is; END: it is over."""
        failure, self._failure = self._failure, None
        try:
            if failure is None:
                return self.program.send(self._answer)
            return self.program.throw(failure)
        except StopIteration:
            return END
        except Exception as error:
            if isinstance(error, RunFailed) or (
                error is failure and not isinstance(error, _MISTAKES)
            ):
                raise
            line = raising_line(error.__traceback__)
            raise StrategyError(
                f"{self.who} failed at {line}: {type(error).__name__}: {error}"
            ) from error

    def _close(self, now: float, *, counts: bool = True) -> None:
        if self._open and counts:
            self._listener.ends(self.iteration, self._began, now)
        self._open = False


def _early(effect: Effect[Any]) -> bool:
    """Whether it takes a batch for a later iteration."""
    return isinstance(effect, effects.NextBatch) and effect.early


class Allowed:
    """What one loop may ask for, by the strategy's own topology."""

    def __init__(self, loop: Loop, topology: Topology, handles: Handles) -> None:
        self._loop, self._handles = loop.name, handles
        services, groups = topology.services, topology.groups
        embedding = {s.name for s in services if isinstance(s, EmbeddingService)}
        dense = {s.name for s in services if isinstance(s, DenseService)}
        mine = {g.name for g in groups if g.loop == loop.name}
        queues = {q.name for q in topology.queues}
        barriers = {b.name for b in topology.barriers if loop.name in b.loops}
        self._names: dict[type, tuple[str, set[str]]] = {
            effects.NextBatch: ("reader queue", {"reader"} if loop.consumes_batches else set()),
            effects.NextItem: ("pacing queue", {loop.paced_by} if loop.paced_by else set()),
            effects.NextRound: ("group for its rounds", mine | {""} if loop.background else set()),
            effects.Barrier: ("barrier", barriers),
            effects.Progress: (
                "other loops' progress in",
                set() if loop.training else {"training"},
            ),
            **dict.fromkeys(_EMBEDDING, ("embedding service", embedding)),
            **dict.fromkeys(_DENSE, ("dense service", dense)),
            **dict.fromkeys(effects.COLLECTIVE, ("group", mine)),
            **dict.fromkeys(_QUEUES, ("queue", queues)),
        }
        self.beginning = _BEGINNING - ({effects.NextBatch} if loop.paced_by else set())
        """Effects with which an iteration or a round begins."""
        self._fine: set[tuple[object, ...]] = set()
        """What was found to be right once: what is asked, of whom, with values of which types."""

    def mistake(self, effect: Effect[Any]) -> Exception | None:
        """Why the effect cannot be performed, to be thrown into the program; None where it can."""
        if isinstance(effect, effects.Wait):
            return self._handles.mistake(effect.handle)
        if isinstance(effect, effects.Start):
            return no_request(effect.request) or self.mistake(effect.request)
        asked: tuple[object, ...]
        if type(effect) is effects.Compute:
            asked = (effect.operation, *map(type, effect.arguments))
        else:
            values = [type(getattr(effect, field)) for field, _ in _VALUES[type(effect)]]
            asked = (type(effect), effect.about, *values)
        if asked in self._fine:
            return None
        mistake = self._mistake(effect)
        if mistake is None:
            self._fine.add(asked)
        return mistake

    def _mistake(self, effect: Effect[Any]) -> Exception | None:
        kind = type(effect)
        if isinstance(effect, effects.Compute):
            said = effect.operation.mistake(effect.arguments)
            return TypeError(said) if said else None
        what, names = self._names.get(kind, ("", None))
        if names is not None and effect.about not in names:
            return KeyError(
                f"{kind.__name__}: the strategy's topology gives loop {self._loop!r} no {what} "
                f"{effect.about!r}"
            )
        for field, types in _VALUES[kind]:
            if not isinstance(getattr(effect, field), types):
                wanted = " or ".join(t.__name__ for t in types)
                given = type(getattr(effect, field)).__name__
                return TypeError(f"{kind.__name__} needs {wanted}, not {given}")
        return None


def _values_of(kind: type[Effect[Any]]) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """The fields of an effect that hold values, and the types that they may have."""
    found = []
    for name, hint in typing.get_type_hints(kind).items():
        bound = hint.__bound__ if isinstance(hint, typing.TypeVar) else hint
        types = tuple(t for t in typing.get_args(bound) or (bound,) if isinstance(t, type))
        if types and all(issubclass(t, Opaque) for t in types):
            found.append((name, types))
    return tuple(found)


_VALUES: dict[type, tuple[tuple[str, tuple[type, ...]], ...]] = {
    kind: _values_of(kind) for kind in effects.EFFECTS
}
"""Of each effect: see `_values_of`."""
