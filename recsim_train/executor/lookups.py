"""What is kept of a client's last lookups until their updates, which come in the same order."""

from __future__ import annotations

from typing import Generic, TypeVar

S = TypeVar("S")
MOST = 16
"""Lookups that are kept; where none is updated, as in evaluation, older ones are forgotten."""


class Lookups(Generic[S]):
    """By number, as client and shard count them alike."""

    def __init__(self) -> None:
        self._kept: dict[int, S] = {}
        self._next = 0

    def add(self, left: S) -> int:
        """What a lookup has ``left``; its number."""
        number = self._next
        self._kept[number], self._next = left, number + 1
        self._kept.pop(number - MOST, None)
        return number

    def of(self, number: int) -> S:
        """What was left by it; earlier ones are forgotten. Raises KeyError if it is."""
        left = self._kept[number]
        self._kept = {n: kept for n, kept in self._kept.items() if n >= number}
        return left

    def items(self) -> list[tuple[int, S]]:
        """Those that are kept, the newest first."""
        return list(reversed(self._kept.items()))
