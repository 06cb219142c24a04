"""Folding: of many trainers that do the same some are simulated, each of which stands for several.

At links of others a simulated trainer's frames count for so many, and what servers do for it is
that many activities at once; its own host's work is its own. All members of a collective share its
bytes as before, with the real size of the group. Those that one stands for move in step, which
makes their requests burstier by O(1/simulated): were links shared equally and trainers alike in
all, they would do so anyway, but messages part them (`recsim_train.sim.network`), as chance and the
ids of batches do. So it is an approximation, and the run says how much half as many simulated
trainers change the answer.

Which trainers do so is worked out in `recsim_train.evaluate.representatives`.

What stragglers do to those that wait for each other is kept: see `Lateness`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from recsim_train.placement.plan import Plan
from recsim_train.sim.jitter import Draw
from recsim_train.trace.record import Iteration, Outcome, Total, TotalKey


@dataclass(frozen=True, slots=True)
class Folding:
    """The first ``simulated`` of ``trainers`` trainers are simulated."""

    trainers: int
    simulated: int
    parted: bool = False
    """Whether free loops are put out of step in their second iteration, which does not count."""

    @property
    def exact(self) -> bool:
        """Whether all are simulated."""
        return self.simulated == self.trainers

    def standing(self, trainer: int) -> int:
        """How many trainers a simulated one stands for, itself included."""
        return len(self.like(trainer))

    def like(self, trainer: int) -> range:
        """All that a simulated trainer stands for."""
        return range(trainer, self.trainers, self.simulated)

    def loops(self, plan: Plan) -> int | None:
        """Of how many loops the batches are needed: the first ones. None: of all."""
        if self.exact or plan.shares_batches:
            return None
        return len(plan.feeding) // self.trainers * self.simulated

    def stand_in(self, trainer: int) -> int:
        """Who stands for a trainer: one with the same place in its group of hosts."""
        return trainer % self.simulated


class Lateness:
    """Those that one loop stands for: when the last of them is done.

    They see the network as their stand-in does, but meet stragglers of their own. The loop keeps
    what it computed since all last met; at the next meeting the others' times for the same work
    are drawn, and the slowest one counts.
    """

    __slots__ = ("_draw", "_mine", "_others", "_work")

    def __init__(self, draw: Draw, others: int) -> None:
        self._draw = draw
        self._others = others
        self._work: list[float] = []
        self._mine = 0.0

    def add(self, seconds: float, taken: float) -> None:
        """Work of ``seconds`` took ``taken``."""
        self._work.append(seconds)
        self._mine += taken

    def latest(self) -> float:
        """Seconds by which the last of the others is later; begins anew."""
        work, mine = self._work, self._mine
        self._work, self._mine = [], 0.0
        if not work or self._others <= 0:
            return 0.0
        slowest = max(self._draw(self._others, len(work)) @ np.array(work))
        return max(0.0, float(slowest) - mine)


def everyones(iterations: list[Iteration], folding: Folding) -> list[Iteration]:
    """Those of simulated trainers, for every trainer."""
    if folding.exact:
        return iterations
    copies = _copies(folding)
    return [Iteration(n, i.iteration, i.start, i.end) for i in iterations for n in copies(i.loop)]


def _copies(folding: Folding) -> Callable[[str], tuple[str, ...]]:
    """ "trainer[0].worker[1]" gives that of every trainer that trainer[0] stands for."""

    @cache
    def copies(name: str) -> tuple[str, ...]:
        if not name.startswith("trainer["):
            return (name,)
        index, _, rest = name.removeprefix("trainer[").partition("]")
        return tuple(f"trainer[{number}]{rest}" for number in folding.like(int(index)))

    return copies


def unfold(outcome: Outcome, folding: Folding) -> None:
    """Give every trainer the records of its stand-in; spans stay those of the simulated ones."""
    if folding.exact:
        return
    copies = _copies(folding)
    outcome.iterations = everyones(outcome.iterations, folding)
    outcome.rounds = everyones(outcome.rounds, folding)
    outcome.syncs = [sync._replace(loop=n) for sync in outcome.syncs for n in copies(sync.loop)]
    totals: dict[TotalKey, Total] = {}
    for key, total in outcome.totals.items():
        instances, loops = copies(key.instance), copies(key.loop)
        if len(instances) == 1:
            instances = instances * len(loops)
        elif len(loops) == 1:
            loops = loops * len(instances)
        for instance, loop in zip(instances, loops, strict=True):
            totals[TotalKey(instance, loop, key.effect, key.name)] = Total(
                total.count, total.seconds, total.bytes
            )
    outcome.totals = dict(sorted(totals.items()))
