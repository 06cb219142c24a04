"""The critical path of one iteration, effect by effect, and what hides beside it."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.placement.plan import Plan
from recsim_train.sim.accounts import PARTS, merged
from recsim_train.sim.loop import LoopState
from recsim_train.strategy.effects import LOCAL, NextRound, Start, Wait
from recsim_train.trace.facts import CriticalPath
from recsim_train.trace.record import Iteration, Total, TotalKey, loop_of

_NO_TALK = {effect.kind for effect in LOCAL} | {NextRound.kind, Start.kind}
"""Effects of a trainer under whose names nothing moves."""
_OF_STARTED = (Start.kind, Wait.kind)
"""What of a started request is not hidden."""


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
    loops' accounts say. What is hidden is communication of loops beside the training loops, and of
    requests that these have started, for the time in which they neither start it nor wait, per
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
        lane, loop = f"{key.instance}.{key.loop}", f"{key.instance}.{loop_of(key.loop)}"
        if lane in training:
            exact[key.effect] = exact.get(key.effect, 0.0) + total.seconds / done
            if key.effect in _OF_STARTED:
                hidden[key.name] = hidden.get(key.name, 0.0) - total.seconds / done
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
    rest = {e: max(0.0, s) for e, s in sorted(hidden.items())}
    return CriticalPath(found, rest, mean)
