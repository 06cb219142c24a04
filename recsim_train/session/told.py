"""What is told of a prediction while it is made: its bound first, then its headline."""

from __future__ import annotations

from recsim_train.placement.plan import Plan
from recsim_train.report import text
from recsim_train.report.runs import title
from recsim_train.sim.why.beforehand import Beforehand
from recsim_train.trace.progress import between
from recsim_train.trace.record import Outcome


def before(plan: Plan, known: Beforehand) -> str:
    """Before it is simulated."""
    takes = f"simulating {_name(plan)}: takes {between(*known.seconds)}"
    if known.bound is None:
        return takes
    return f"{takes}; nothing can beat about {text.rate(known.bound)} examples/s ({known.binds})"


def headline(plan: Plan, outcome: Outcome) -> str:
    """As soon as it stands."""
    speed = outcome.speed
    if speed is None or speed.examples_per_second is None:
        return f"predicted {_name(plan)}: too short for a throughput"
    found = text.rated(speed.examples_per_second, speed.ci95)
    said = f"predicted {_name(plan)}: {found} examples/s, bound by {outcome.bottleneck}"
    if outcome.bound_eps:
        said += f"; nothing can beat {text.rate(outcome.bound_eps)}"
    asked = bool(plan.experiment.simulation.what_if_steps)
    return said + (". What calibration adds to ± follows" if asked else "")


def _name(plan: Plan) -> str:
    return title(plan.strategy.kind, plan.strategy.options)
