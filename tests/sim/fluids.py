"""What tests ask of a fluid, by the calls with which the engine moves it."""

from __future__ import annotations

from math import inf, nextafter

from recsim_train.sim.fluid import layout as lay
from recsim_train.sim.fluid.solver import Activity, Fluid


def advance(fluid: Fluid, time: float) -> list[object]:
    """Move the clock to ``time``; returns the tags of what was finished on the way, in order."""
    done: list[object] = []
    while some := fluid.run(time):
        done += some
    fluid.now = time
    return done


def next_completion(fluid: Fluid) -> float | None:
    """When the next activity finishes if nothing changes; None when nothing runs."""
    assert fluid.run(nextafter(fluid.now, inf)) == []
    return None if fluid.due == inf else fluid.due


def rate_of(fluid: Fluid, activity: Activity) -> float:
    """Current rate of a running activity."""
    next_completion(fluid)
    kind, words = activity.kind.address, fluid.block
    if held := words.ints[kind + lay.K_AT]:
        return words.floats[held + lay.R_LEVEL] * words.floats[kind + lay.K_WEIGHT]
    return words.floats[kind + lay.K_RATE]
