"""What is asked of a design, and in which order designs answer it.

Money is per hour, and of one currency: that of all designs, where it counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from recsim_train.designs.space import Candidate

By = Literal["cost", "throughput", "hosts"]
"""What may be asked for; `CRITERIA` says what each means."""


class Criterion(NamedTuple):
    """What is to be least or most."""

    most: str
    """Of designs that meet a target the one to take: "the cheapest"."""
    means: str
    """With a target, in words."""
    otherwise: str
    """Without one."""
    price: Callable[[Candidate], float | None]
    """Of a design, what is to be least; None: it is not known. Without a target: for an example."""


def _hosts(candidate: Candidate) -> float:
    return float(candidate.hosts)


CRITERIA: Mapping[By, Criterion] = {
    "cost": Criterion(
        "cheapest", "the least cost per hour", "the least cost per example", lambda c: c.per_hour
    ),
    "throughput": Criterion("fastest", "the most examples/s", "the most examples/s", _hosts),
    "hosts": Criterion("smallest", "the fewest hosts", "the most examples/s per host", _hosts),
}


@dataclass(frozen=True, slots=True)
class Demand:
    """Constraints are hard; of what keeps to them the best one by ``by`` is wanted."""

    target: float | None = None
    """Examples per second at least."""
    budget: float | None = None
    """Money per hour at most, in the currency of all designs."""
    by: By = "throughput"
    """What is to be least, or most: money, hosts, or examples per second. Without a target, money
    for an example, or examples per second of a host."""
    likely: bool = False
    """Whether the target is held to the prediction itself, not to its interval's lower end."""

    @property
    def means(self) -> str:
        """What is to be least or most, in words."""
        criterion = CRITERIA[self.by]
        return criterion.otherwise if self.target is None else criterion.means

    def price(self, candidate: Candidate) -> float:
        """What a design costs, by the criterion; hosts, where that is not known."""
        known = CRITERIA[self.by].price(candidate)
        return float(candidate.hosts) if known is None else known

    def affordable(self, candidate: Candidate) -> bool:
        """Whether it keeps to the budget."""
        rent = candidate.per_hour
        return self.budget is None or (rent is not None and rent <= self.budget)

    def enough(self, eps: float) -> bool:
        """Whether so many examples per second meet the target."""
        return self.target is None or eps >= self.target

    def order(self, candidate: Candidate, eps: float) -> tuple[float, ...]:
        """Designs in this order answer best, the first one most. ``eps``: what it is thought to
        give."""
        price = self.price(candidate)
        if eps <= 0.0:
            return (math.inf,)
        if self.target is not None:
            met = self.enough(eps)
            first = price if met and self.by != "throughput" else 0.0
            return (0.0 if met else 1.0, first, -eps, price)
        return (-eps, price) if self.by == "throughput" else (price / eps, -eps)
