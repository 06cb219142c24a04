"""The critical path of one iteration, effect by effect, and what hides beside it."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.placement.plan import Plan
from recsim_train.sim.accounts import PARTS, merged
from recsim_train.sim.loop import LoopState
from recsim_train.strategy.effects import LOCAL, NextRound
from recsim_train.trace.facts import CriticalPath
from recsim_train.trace.record import Iteration, Total, TotalKey

_NO_TALK = {effect.kind for effect in LOCAL} | {NextRound.kind}
"""Effects of a trainer that move nothing."""


def critical_path(
    plan: Plan,
    loops: Sequence[LoopState],
    totals: dict[TotalKey, Total],
    iterations: Sequence[Iteration],
    warmup: int,
    end: float,
) -> CriticalPath | None:
    """Seconds of a mean iteration of a training loop; None where none was counted.

    The parts of an effect (`recsim_train.sim.accounts`) add up to its exact time, shared out as the
    loops' accounts say. What is hidden is communication of loops beside the training loops, per
    iteration of one of these; ``end``: seconds of the run.
    """
    done = sum(i.iteration >= warmup for i in iterations)
    if not done:
        return None
    training = {loop.name for loop in plan.training}
    background = {loop.name for loop in plan.background}
    exact: dict[str, float] = {}
    hidden: dict[str, float] = {}
    mean = sum(i.end - i.start for i in iterations if i.iteration >= warmup) / done
    for key, total in totals.items():
        loop = f"{key.instance}.{key.loop}"
        if loop in training:
            exact[key.effect] = exact.get(key.effect, 0.0) + total.seconds / done
        elif key.instance.startswith("trainer") and key.effect not in _NO_TALK:
            if loop in background:  # its rounds cover the whole run
                beside = total.seconds / end * mean / len(training)
            elif key.effect.startswith("serve_"):
                continue
            else:
                beside = total.seconds / done
            hidden[key.effect] = hidden.get(key.effect, 0.0) + beside
    accounts = merged(loop.account for loop in loops)
    found = {}
    for effect, seconds in sorted(exact.items()):
        split = accounts.get(effect)
        known = 0.0 if split is None else sum(split)
        if split is None or known <= 0.0:
            continue
        found[effect] = {
            part: seconds * share / known for part, share in zip(PARTS, split, strict=True)
        }
    return CriticalPath(found, dict(sorted(hidden.items())), mean)
