"""Do both worlds send the same payload? Bytes per counted step, by effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recsim_train.results.rundir import RunRecord

DATA, UNFINISHED = "depends on the data", "an unfinished run"
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
    """Why a difference would be no fault: the size follows the ids in the data, a process of an
    unfinished run took its counts with it, or background loops go round at their own pace."""

    @property
    def difference(self) -> float | None:
        """Predicted / measured - 1; None without a measured byte."""
        return self.predicted / self.measured - 1 if self.measured else None

    @property
    def fault(self) -> bool:
        """A difference that must not be: the model of this effect is wrong."""
        return not self.agree and not self.excuse


def compare_bytes(simulated: RunRecord, real: RunRecord) -> list[EffectBytes]:
    """Every effect that sent a byte in either world."""
    p, m = simulated.summary, real.summary
    dependent = set(simulated.manifest.get("data_dependent_effects", ()))
    dependent |= set(real.manifest.get("data_dependent_effects", ()))
    whole = simulated.status == real.status == "complete"
    effects = sorted(p["bytes_by_effect"].keys() | m["bytes_by_effect"].keys())
    return [
        EffectBytes(
            effect=effect,
            predicted=p["bytes_by_effect"].get(effect) or 0.0,
            measured=m["bytes_by_effect"].get(effect) or 0.0,
            agree=_agree(effect, p, m) and _same_rounds(effect, p, m) is not False,
            excuse=DATA
            if effect in dependent
            else UNFINISHED
            if not whole
            else _rounds_excuse(effect, p, m),
        )
        for effect in effects
    ]


def _rounds(effect: str, summary: dict[str, Any]) -> float:
    """Payload bytes if every background loop goes round once."""
    return float(summary.get("round_bytes_by_effect", {}).get(effect, 0.0))


def _same_rounds(effect: str, p: dict[str, Any], m: dict[str, Any]) -> bool | None:
    """Whether background loops sent the same per round and per step; None: they sent nothing."""
    if not _rounds(effect, p) and not _rounds(effect, m):
        return None
    per_step = p["bytes_by_effect"].get(effect), m["bytes_by_effect"].get(effect)
    return _rounds(effect, p) == _rounds(effect, m) and per_step[0] == per_step[1]


def _rounds_excuse(effect: str, p: dict[str, Any], m: dict[str, Any]) -> str:
    """How many rounds there are per step is a matter of time; what one sends is not."""
    same = _rounds(effect, p) == _rounds(effect, m) > 0
    return ROUNDS if same and _agree(effect, p, m) else ""


def _agree(effect: str, p: dict[str, Any], m: dict[str, Any]) -> bool:
    """Equal bytes per iteration, in integers: no rounding hides a byte.

    Runs of different length may cut an effect of every k-th iteration at different places; then
    the bytes of one occurrence must be equal, and their number per iteration as near as the
    lengths allow.
    """
    sent_p = p["total_bytes_by_effect"].get(effect, 0)
    sent_m = m["total_bytes_by_effect"].get(effect, 0)
    done_p, done_m = p["counted_iterations"], m["counted_iterations"]
    if sent_p * done_m == sent_m * done_p:
        return True
    count_p, count_m = p["count_by_effect"].get(effect), m["count_by_effect"].get(effect)
    if done_p == done_m or not count_p or not count_m or not done_p or not done_m:
        return False
    if sent_p * count_m["count"] != sent_m * count_p["count"]:
        return False
    slack = count_p["loops"] / done_p + count_m["loops"] / done_m
    return bool(abs(count_p["count"] / done_p - count_m["count"] / done_m) <= slack)
