"""The rule that ends a simulation: the 95 % interval of the throughput is narrow enough."""

from __future__ import annotations

from math import ceil

from recsim_train.placement.plan import Plan
from recsim_train.results.statistics import throughput, throughput_within
from recsim_train.sim.folding import Folding
from recsim_train.trace.record import Iteration, Throughput

LEAST_STEPS = 16
"""Counted iterations of each loop, however many loops there are."""
_GROWTH = 1.1
"""Between two looks at the interval the number of counted iterations grows by this factor."""


class Steady:
    """Decides after each step of all training loops whether the estimate has settled.

    Not before ``simulation.minimum_steps`` counted iterations per loop, or fewer where many loops
    have done ``simulation.minimum_iterations`` together, and never with a precision of 0 or where
    the strategy's steps are not alike: then every step is run. Where trainers are folded
    approximately, the run stops there: a narrower interval would say more than is known.
    """

    def __init__(self, plan: Plan, folding: Folding) -> None:
        training, simulation = plan.experiment.training, plan.experiment.simulation
        self._warmup = training.warmup_steps
        self._batch = training.batch_size
        self._precision = simulation.precision if plan.topology.steady else 0.0
        self._folded = not folding.exact
        loops = len(plan.training) // folding.trainers * folding.simulated
        together = ceil(simulation.minimum_iterations / loops)
        self._next = min(simulation.minimum_steps, max(LEAST_STEPS, together))

    def reached(self, counted: int, iterations: list[Iteration]) -> bool:
        """Whether the run may stop now that all loops have ``counted`` counted iterations."""
        if self._precision <= 0.0 or counted < self._next:
            return False
        if self._folded:
            return True
        self._next = max(counted + 1, int(counted * _GROWTH))
        found = self.overall(counted, iterations)
        if found.ci95 is None or found.examples_per_second is None:
            return False
        low, high = found.ci95
        return (high - low) / 2 <= self._precision * found.examples_per_second

    def within(
        self, start: float, end: float, counted: int, iterations: list[Iteration]
    ) -> Throughput:
        """Throughput between two times, of about ``counted`` iterations of each loop."""
        return throughput_within(iterations, start, end, steps=counted, batch_size=self._batch)

    def overall(self, counted: int, iterations: list[Iteration]) -> Throughput:
        """Throughput over the first ``counted`` counted iterations of each loop."""
        return throughput(iterations, warmup=self._warmup, steps=counted, batch_size=self._batch)
