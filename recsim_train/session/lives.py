"""What it came to that a measurement was started again from checkpoints, once or more."""

from __future__ import annotations

from dataclasses import dataclass, field

from recsim_train.placement.plan import Plan
from recsim_train.trace.facts import Reliability
from recsim_train.trace.record import Outcome


@dataclass(slots=True)
class Lives:
    """Of one run: from each start to the next one, or to its end."""

    plan: Plan
    known: list[tuple[int, Outcome]] = field(default_factory=list)
    """The iteration that loops began with, and what was measured; without those that came to
    nothing."""
    failures: int = 0

    def failed(self, first: int, outcome: Outcome | None) -> None:
        """One has ended by a failure."""
        self.failures += 1
        if outcome is not None and outcome.iterations:
            self.known.append((first, outcome))

    def reliability(self, first: int, last: Outcome) -> Reliability | None:
        """As a prediction has it, over all of them: from the first counted iteration to the last.
        None where the ``last`` one was the only one."""
        rules = self.plan.experiment.training
        lives = [*self.known, (first, last)]
        spans = [
            (life.began + i.start, life.began + i.end)
            for _, life in lives
            for i in life.iterations
            if i.iteration >= rules.warmup_steps
        ]
        if not self.failures or not spans:
            return None
        examples = len(self.plan.training) * rules.batch_size
        done = [
            self.plan.resumed(begun).experiment.training.warmup_steps + life.steps
            for begun, life in self.known
        ]
        again = [begun for begun, _ in lives[1:]]
        lost = [max(0, end - begun) for end, begun in zip(done, again, strict=True)]
        ends = [life.began + max(i.end for i in life.iterations) for _, life in lives]
        begins = [life.began + min(i.start for i in life.iterations) for _, life in lives]
        made = [one for _, life in lives for one in life.facts.checkpoints if not one.problem]
        away = sum(begin - end for end, begin in zip(ends, begins[1:], strict=False))
        start, end = min(spans)[0], max(end for _, end in spans)
        return Reliability(
            policy="restart",
            failures=self.failures,
            first_failures=(),
            checkpoints=len(made),
            standstill_seconds=away + sum(one.still_seconds for one in made),
            lost_examples=float(sum(lost) * examples),
            goodput=rules.steps * examples / (end - start),
        )
