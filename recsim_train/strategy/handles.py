"""The requests that one loop has started: which handles it may still wait for."""

from __future__ import annotations

from typing import Any

from recsim_train.strategy.effects import REQUESTS, Effect, Handle


class Handles:
    """Of one loop, by lane."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Handle[Any]] = {}

    def start(
        self, request: Effect[Any], line: str, iteration: int, began: float, under_way: Any
    ) -> Handle[Any]:
        """A handle of a request that has been sent."""
        lane = next(n for n in range(1, len(self._open) + 2) if n not in self._open)
        self._open[lane] = Handle(request, line, iteration, began, lane, under_way)
        return self._open[lane]

    def end(self, handle: Handle[Any]) -> None:
        """It has been waited for."""
        del self._open[handle.lane]

    def mistake(self, handle: object) -> Exception | None:
        """Why the loop cannot wait for it; None where it can."""
        if not isinstance(handle, Handle):
            given = type(handle).__name__
            return TypeError(f"Wait needs a Handle, which Start answers with, not {given}")
        if self._open.get(handle.lane) is not handle:
            return ValueError(
                f"the {named(handle)} has been waited for already, or is another loop's"
            )
        return None

    @property
    def left(self) -> Handle[Any] | None:
        """One that has not been waited for."""
        return next(iter(self._open.values()), None)


def no_request(request: object) -> Exception | None:
    """Why something cannot be started; None where it can."""
    if isinstance(request, REQUESTS):
        return None
    kinds = ", ".join(kind.__name__ for kind in REQUESTS)
    return TypeError(f"Start needs a request to a service ({kinds}), not {type(request).__name__}")


def named(handle: Handle[Any]) -> str:
    """As messages name it."""
    return f"{type(handle.request).__name__} started at {handle.line}"
