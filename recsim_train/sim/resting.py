"""What a prediction's CPU seconds rest on: operations measured at their shapes, or prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import fsum

from recsim_train.sim.machines import Machines
from recsim_train.sim.measured import Rest
from recsim_train.sim.pricing import Pricing
from recsim_train.trace.facts import Resting
from recsim_train.trace.ledger import Booked

_SHARES = (
    "Of the predicted CPU seconds {measured:.1%} rest on operations measured at their own shapes, "
    "{scaled:.1%} on such that are scaled by the nearest measured shape, {unit:.1%} on unit "
    "prices, {guessed:.1%} on guesses."
)
_GUESSES = (
    "Calibration never measured these operations: {names}. They are priced by counts of their "
    "work, and {share:.1%} of the predicted CPU seconds rest on them."
)


def rested(
    booked: Booked, rests: Mapping[str, Mapping[Rest, float]]
) -> Iterator[tuple[str, Rest, float]]:
    """(operation or other work, what it rests on, its CPU seconds).

    Of an operation that was asked for at different shapes, which do not all rest on the same, its
    seconds are shared out as those of one call of each shape are.
    """
    for (_, what, _), seconds in booked.items():
        shapes = rests.get(what, {})
        once = fsum(shapes.values())
        if not once:
            yield what, "unit", seconds
        for rest, share in shapes.items() if once else ():
            yield what, rest, seconds * share / once


def resting(machines: Machines, pricing: Pricing) -> Resting:
    """The shares of all CPU seconds that a simulation has spent."""
    whole = machines.cpu_seconds(machines.engine.fluid.used())
    found: dict[str, list[float]] = {"measured": [], "scaled": [], "unit": [], "guessed": []}
    for _, rest, seconds in rested(machines.books.seconds, pricing.rests):
        found[rest].append(seconds)
    shares = {rest: fsum(parts) / whole if whole > 0.0 else 0.0 for rest, parts in found.items()}
    beyond = max(1.0, fsum(shares.values()))  # what goes on at the end is booked, not yet spent
    measured, scaled, guessed = (shares[x] / beyond for x in ("measured", "scaled", "guessed"))
    guesses = tuple(sorted(name for name, rests in pricing.rests.items() if "guessed" in rests))
    return Resting(measured, scaled, max(0.0, 1.0 - measured - scaled - guessed), guessed, guesses)


def resting_in_words(found: Resting) -> Iterator[str]:
    """A sentence where operations were measured, and one of those that never were."""
    if found.measured or found.scaled:
        yield _SHARES.format(
            measured=found.measured,
            scaled=found.scaled,
            unit=found.unit,
            guessed=found.guessed,
        )
    if found.guesses:
        yield _GUESSES.format(names=", ".join(found.guesses), share=found.guessed)
