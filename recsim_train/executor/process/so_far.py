"""How far a run is, and how fast it goes, from what its trainers say now and then."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from recsim_train.placement.plan import Plan
from recsim_train.trace.progress import Meter

_LATELY = 10.0
"""Seconds of which the speed that is shown is the mean."""


@dataclass(frozen=True, slots=True)
class TrainerSaid:
    """What a trainer's process says of its loops."""

    slowest: int
    """Iterations of the slowest one."""
    iterations: int
    """Of all of them together."""
    loss: float | None
    """The mean of their last batches."""


class SoFar:
    """What a meter is told of a run."""

    def __init__(self, plan: Plan, meter: Meter) -> None:
        rules = plan.experiment.training
        self._steps, self._batch = rules.warmup_steps + rules.steps, rules.batch_size
        self._meter = meter
        self._seen: deque[tuple[float, int]] = deque()

    def tell(self, trainers: list[TrainerSaid]) -> None:
        """All trainers have begun, and have last said this."""
        done = min(said.slowest for said in trainers)
        now, iterations = time.monotonic(), sum(said.iterations for said in trainers)
        seen = self._seen
        seen.append((now, iterations))
        while len(seen) > 2 and now - seen[0][0] > _LATELY:
            seen.popleft()
        words = []
        (since, before), stage = seen[0], "training"
        if done >= self._steps:
            stage = "evaluating"
        elif iterations > before and now > since:
            words.append(f"{(iterations - before) * self._batch / (now - since):,.0f} examples/s")
        losses = [said.loss for said in trainers if said.loss is not None]
        if losses:
            loss = fmean(losses)
            words.append(f"loss {loss:.4f}" if isfinite(loss) else "loss not finite")
        self._meter(done, self._steps, stage, ", ".join(words))
