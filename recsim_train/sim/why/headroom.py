"""Answers to "what if" that can be: between nothing and what the bounds of the prediction leave.

The answers of `recsim_train.sim.why.elasticity` are means over short runs, and scatter. But more
of a resource cannot slow a job, what is dearer cannot speed it up, neither can change it by more
than if all that it consists of were as much faster or dearer, and nothing can be faster than the
bounds (`recsim_train.sim.why.bounds`), which a resource raises where there is more of it. What lies
beyond is scatter, and is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping

from recsim_train.placement.plan import SERVERS

RATES = ("cores", "nic", "uplink")
"""Inputs of which more is faster; all others are seconds, of which more is slower."""


def possible(
    changes: Mapping[str, float],
    step: float,
    eps: float,
    bounds: Mapping[str, float],
    raised: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """Relative changes of a prediction of ``eps`` examples per second, each cut to what can be.

    ``changes``: by input, of which there is ``step`` more, or by servers, of which there is one
    more; ``bounds``: of the prediction, examples per second by resource; ``raised``: by each rate
    or servers, how many times as high each bound is then.
    """
    found = {}
    for name, change in changes.items():
        if name in RATES:
            least, most = 0.0, min(step, _left(eps, bounds, raised.get(name, {})))
        elif name.removesuffix("s") in SERVERS:
            least, most = -1.0, _left(eps, bounds, raised.get(name, {}))
        else:
            least, most = 1.0 / (1.0 + step) - 1.0, 0.0
        found[name] = min(max(least, change), most)
    return found


def _left(eps: float, bounds: Mapping[str, float], raised: Mapping[str, float]) -> float:
    """By how much ``eps`` may grow, at most; a resource of which nothing is known does not bind."""
    known = [bound * raised[name] for name, bound in bounds.items() if name in raised]
    return max(0.0, min(known, default=float("inf")) / eps - 1.0)
