"""What is told of a prediction while it is made: its bound first, then its headline."""

from __future__ import annotations

from collections.abc import Iterator

from recsim_train.evaluate.asymptotic import AsymptoticBounds
from recsim_train.placement.plan import Plan
from recsim_train.report import naming, text
from recsim_train.report.runs import title
from recsim_train.trace.progress import about, between
from recsim_train.trace.record import Outcome

_SHOWN = 3
"""Bounds."""


def before(plan: Plan, known: AsymptoticBounds) -> str:
    """Before it is simulated."""
    takes = f"simulating {_name(plan)}: takes {_duration(known)}"
    if known.bound is None:
        return takes
    binds = naming.class_words(next(iter(known.bounds)))
    return f"{takes}; at a glance at most about {text.rate(known.bound)} examples/s ({binds})"


def verdicts(known: AsymptoticBounds) -> Iterator[str]:
    """What ``--dry-run`` says of a prediction, the tightest bounds first."""
    bounds = [(text.rate(eps), naming.class_words(name)) for name, eps in known.bounds.items()]
    if bounds:
        (eps, what), *further = bounds[:_SHOWN]
        then = ", ".join(f"{more} ({other})" for more, other in further)
        yield f"binds: {what}, at about {eps} examples/s" + (f"; then {then}" if then else "")
    yield f"simulating it takes {_duration(known)}"


def _duration(known: AsymptoticBounds) -> str:
    asking = f", asking what would change it {about(known.asking)} more" if known.asking else ""
    return between(*known.seconds) + asking


def headline(plan: Plan, outcome: Outcome) -> str:
    """As soon as it stands."""
    speed = outcome.speed
    if speed is None or speed.examples_per_second is None:
        return f"predicted {_name(plan)}: too short for a throughput"
    found, binds = text.rate(speed.examples_per_second), naming.bottleneck(outcome.binding)
    said = f"predicted {_name(plan)}: {found} examples/s, bound by {binds}"
    if outcome.bound_eps:
        said += f"; nothing can beat {text.rate(outcome.bound_eps)}"
    asked = bool(plan.experiment.simulation.what_if_steps)
    return said + (". Its interval follows" if asked else "")


def _name(plan: Plan) -> str:
    return title(plan.strategy.kind, plan.strategy.options)
