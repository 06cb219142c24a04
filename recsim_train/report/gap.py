"""The gap between a predicted and a measured iteration, divided up by effects and operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recsim_train.report import naming, text

AGREES = 0.01
"""Iteration times closer than this share have no gap worth dividing up."""
WORTH_SAYING = 0.02
"""A part is named if it differs by this share of the measured iteration."""
MOST = 4


@dataclass(frozen=True, slots=True)
class GapPart:
    """One effect's (or operation's) mean seconds in an iteration of a training loop."""

    name: str
    predicted: float
    measured: float
    share: float | None
    """Of the gap between the iterations; None where there is no gap."""

    @property
    def difference(self) -> float:
        """Measured minus predicted, seconds."""
        return self.measured - self.predicted


@dataclass(frozen=True, slots=True)
class Gap:
    """The gap between two iterations, divided up."""

    whole: GapPart
    """The iterations themselves."""
    parts: tuple[GapPart, ...]
    """All parts, largest difference first; their differences sum to the gap."""
    sentences: tuple[str, ...]


def divided(predicted: Mapping[str, float], measured: Mapping[str, float]) -> Gap | None:
    """Divide the difference of two iterations up by their parts (which sum to the iteration).

    None where a world has no parts.
    """
    if not predicted or not measured:
        return None
    whole = GapPart("whole iteration", sum(predicted.values()), sum(measured.values()), None)
    gap = whole.difference
    close = whole.measured <= 0 or abs(gap) < AGREES * whole.measured
    parts = []
    for name in sorted(predicted.keys() | measured.keys()):
        p, m = predicted.get(name, 0.0), measured.get(name, 0.0)
        parts.append(GapPart(name, p, m, None if close else (m - p) / gap))
    parts.sort(key=lambda part: -abs(part.difference))
    return Gap(whole, tuple(parts), tuple(_sentences(whole, parts, close)))


def _sentences(whole: GapPart, parts: list[GapPart], close: bool) -> Iterator[str]:
    yield (
        f"An iteration takes {text.seconds(whole.predicted)} predicted, "
        f"{text.seconds(whole.measured)} measured"
        + (": there is no gap to explain." if close else ".")
    )
    named = [p for p in parts if abs(p.difference) >= WORTH_SAYING * whole.measured][:MOST]
    if close and named:
        yield "Single parts differ nevertheless, and cancel out:"
    yield from map(_sentence, named)
    if not close and not named:
        yield "No single part stands out: the gap is spread over all of them."


def _sentence(part: GapPart) -> str:
    times = f"{text.seconds(part.predicted)} predicted, {text.seconds(part.measured)} measured"
    if part.share is None:
        way = "longer" if part.difference > 0 else "shorter"
        apart = f"{text.seconds(abs(part.difference))} {way} than predicted"
    elif part.share >= 0:
        apart = f"that is {part.share * 100:.0f} % of the gap"
    else:
        apart = f"that hides {-part.share * 100:.0f} % of the gap again"
    return f"{name_of(part.name)} takes {times}: {apart}."


def name_of(part: str) -> str:
    """A part's name at the start of a sentence."""
    kind, _, operation = part.partition(" ")
    named = naming.effect(kind)
    if operation:
        named += f" ({naming.work(operation)})"
    return named[0].upper() + named[1:]
