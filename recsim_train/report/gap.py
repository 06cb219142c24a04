"""The gap between prediction and measurement: an iteration's seconds, divided up by effects and
operations, and its payload bytes, by effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from recsim_train.report import naming, text
from recsim_train.results.rundir import RunRecord
from recsim_train.results.summary import Summary
from recsim_train.workload.compression import STALE_FACTOR

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


DATA, UNFINISHED = "depends on the data", "an unfinished run"
DIVERGED = "the measured model diverged: what reaches a threshold is not what a model sends"
ESTIMATED = 0.05
"""Stated tolerance where no batch was counted, and sizes were estimated from shapes."""
_DEVIATIONS = NormalDist().inv_cdf(1 - 0.001 / 2)
"""How many standard deviations chance explains: 99.9 %."""
ROUNDS = "each round of the background loops sends the same"


@dataclass(frozen=True, slots=True)
class EffectBytes:
    """One effect's payload per counted step (all roles together)."""

    effect: str
    predicted: float
    measured: float
    agree: bool
    """Exactly, not nearly."""
    excuse: str = ""
    """Why a difference is no fault: it is within what the data explain, a process of an unfinished
    run took its counts with it, thresholds met what is no number, or background loops go round at
    their own pace."""
    allowed: float | None = None
    """Of a size that follows the data: the largest ratio of the two worlds that this explains."""

    @property
    def difference(self) -> float | None:
        """Predicted / measured - 1; None without a measured byte."""
        return self.predicted / self.measured - 1 if self.measured else None

    @property
    def fault(self) -> bool:
        """A difference that must not be: the model of this effect is wrong."""
        return not self.agree and not self.excuse

    @property
    def allowance(self) -> str:
        """``allowed`` in words; empty where the size does not depend on the data."""
        if self.allowed is None:
            return ""
        if self.allowed >= STALE_FACTOR:
            return f"up to {self.allowed:g} times as much or as little"
        return f"up to {text.small_percent(self.allowed - 1)} more or less"

    @property
    def beyond(self) -> str:
        """Of a fault: what the data would have explained."""
        return f"; the data explain {self.allowance}" if self.fault and self.allowed else ""


def compare_bytes(simulated: RunRecord, real: RunRecord) -> list[EffectBytes]:
    """Every effect that sent a byte in either world."""
    p, m = simulated.summary, real.summary
    whole = simulated.whole and real.whole
    effects = sorted(p.bytes_by_effect.keys() | m.bytes_by_effect.keys())
    found = []
    for effect in effects:
        allowed, equal = _allowed(effect, simulated, real), _agree(effect, p, m)
        step = [s.bytes_by_effect.get(effect) or 0.0 for s in (p, m)]
        # if every background loop goes round once
        round_ = [s.round_bytes_by_effect.get(effect, 0.0) for s in (p, m)]
        if not whole:
            excuse = UNFINISHED
        elif allowed is not None:
            less, more = sorted(r or s for r, s in zip(round_, step, strict=True))
            excuse = DATA if less and more / less <= allowed else ""
            if not excuse and m.facts.diverged is not None and _thresholded(effect, simulated):
                excuse = DIVERGED
        else:
            # how many rounds there are per step is a matter of time; what each sends is not
            excuse = ROUNDS if equal and round_[0] == round_[1] > 0 else ""
        found.append(
            EffectBytes(
                effect=effect,
                predicted=step[0],
                measured=step[1],
                agree=equal
                and (not any(round_) or (round_[0] == round_[1] and step[0] == step[1])),
                excuse=excuse,
                allowed=allowed,
            )
        )
    return found


def _thresholded(effect: str, record: RunRecord) -> bool:
    """Whether it sends what reaches a threshold."""
    return bool(record.manifest.get("thresholded_effect") == effect)


def _allowed(effect: str, simulated: RunRecord, real: RunRecord) -> float | None:
    """The largest ratio of the two worlds' bytes that the data explain; None: they must be equal.

    Ids are counted in the very batches that a run feeds, so that equally many steps must send
    equally many bytes. A prediction of fewer steps is a sample: the difference of the two means has
    the variance s^2 (1/n - 1/N) where its steps are among the measured ones, and at most
    s^2 (1/n + 1/N) else, with s from one step to another within the prediction.
    """
    manifests = simulated.manifest, real.manifest
    if any(_thresholded(effect, r) for r in (simulated, real)):
        return STALE_FACTOR
    if not any(effect in (m.get("data_dependent_effects") or ()) for m in manifests):
        return None
    known = simulated.facts.payload_spread
    measured = real.summary.steps
    if known is None or effect not in known.effects or not measured:
        return 1.0
    if not known.steps:
        return 1 + ESTIMATED
    sampled, counted = 1 / known.steps, 1 / measured
    variance = abs(sampled - counted) if known.exact else sampled + counted
    return 1 + _DEVIATIONS * known.effects[effect] * sqrt(variance)


def _agree(effect: str, p: Summary, m: Summary) -> bool:
    """Equal bytes per iteration, in integers: no rounding hides a byte.

    Runs of different length may cut an effect of every k-th iteration at different places; then
    the bytes of one occurrence must be equal, and their number per iteration as near as the
    lengths allow.
    """
    sent_p = p.total_bytes_by_effect.get(effect, 0)
    sent_m = m.total_bytes_by_effect.get(effect, 0)
    done_p, done_m = p.counted_iterations, m.counted_iterations
    if sent_p * done_m == sent_m * done_p:
        return True
    count_p, count_m = p.count_by_effect.get(effect), m.count_by_effect.get(effect)
    if done_p == done_m or not count_p or not count_m or not done_p or not done_m:
        return False
    if sent_p * count_m.count != sent_m * count_p.count:
        return False
    slack = count_p.loops / done_p + count_m.loops / done_m
    return abs(count_p.count / done_p - count_m.count / done_m) <= slack
