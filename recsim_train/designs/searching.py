"""The search: memory, bounds, then simulations by successive halving.

Nothing is simulated that does not fit, costs more than there is, or is kept from the target by a
bound. Of what is left some designs of each strategy are simulated shortly; what they reach of their
bounds says what the others of that strategy may reach. Where the search leaves something open, what
lies one step beside the best follows. The best of all are simulated for longer, and the best of
these as long as any prediction.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from statistics import median

from recsim_train.designs.space import Candidate, Space, neighbours
from recsim_train.designs.wanted import Demand
from recsim_train.evaluate.evaluator import evaluate
from recsim_train.evaluate.levels import BOUND, INTERVAL, RACE, SCREEN, Level, at, requests_of
from recsim_train.evaluate.memo import Memo
from recsim_train.evaluate.simulations import representatives
from recsim_train.report import text
from recsim_train.results.interval import Interval
from recsim_train.results.row import DOES_NOT_FIT, FAILED, Row
from recsim_train.session.caller import Caller

_LIGHT, _HEAVY = 12_000, 4
"""Requests up to which a design's first simulation is taken lightly; how many others are simulated
at a time, at most, where the best that may be expected of them is better than what is known."""
_AGAIN = 4
"""Times that these are chosen anew, by what is known then."""
_FIRST = 16
"""Designs that are simulated before anything is known of what strategies reach of their bounds."""
_PARTS = 4
"""In so many parts the others of the first round follow, each chosen by what is known then."""
_KEPT = (48, 10, 4)
"""Designs in each round, at most."""
_SLACK = (0.15, 0.03)
"""By how much a simulation of a round may be below a longer one: such designs get a longer one."""
_REFINED, _ABOUT = 4, 2
"""Times that designs beside the best are tried, at most, and beside how many of them."""
_MORE = 2
"""Times that the last round goes on with the next ones, where none of it meets the target."""
LEVELS = (SCREEN, RACE, INTERVAL)
"""Of the rounds."""
STAGES = len(LEVELS)
_SOUNDED = 2
"""Designs of each strategy that are looked at first."""
_BELOW = 0.05
"""By how much the lower end of an interval is below its design's bound at least, relative: a design
whose bound is just above the target does not surely meet it."""


@dataclass(slots=True)
class Design:
    """A candidate, and what has been found out of it."""

    number: int
    candidate: Candidate
    known: Mapping[str, float] | None = None
    """Examples per second by class of resources, by asymptotic bounds, the tightest first; None:
    these are not known."""
    row: Row | None = None
    """Its figures by the longest simulation; None: it was not simulated."""
    rounds: int = 0
    """Simulations of it; `STAGES`: it was simulated as any prediction is."""
    ended: bool = False
    """Whether one of them failed, after which there are no more."""

    @property
    def kind(self) -> str:
        """Its strategy, with its options."""
        from recsim_train.report.runs import title

        chosen = self.candidate.job.plan.strategy
        return title(chosen.kind, chosen.options)

    @property
    def bound(self) -> float:
        """Examples per second at most; 0: not known."""
        return next(iter((self.known or {}).values()), 0.0)

    @property
    def bounds(self) -> Mapping[str, float]:
        """The same by class of resources, the tightest first: of its whole prediction, which none
        of them is below, or asymptotic ones."""
        from recsim_train.sim.why.usage import by_class

        known = self.known or {}
        if not self.whole or self.row is None:
            return known
        own = by_class(self.row.bounds or {}) or known
        return {what: max(bound, self.eps or 0.0) for what, bound in own.items()}

    @property
    def eps(self) -> float | None:
        """Examples per second. A short simulation, in which servers may be left behind and racks
        are left out, is beyond the bound at times."""
        if self.row is None or (found := self.row.examples_per_second) is None:
            return None
        return found if self.whole else min(found, self.bound or inf)

    @property
    def interval(self) -> Interval | None:
        """90 % of them; None where it was simulated shortly."""
        return self.row.interval90() if self.whole and self.row is not None else None

    @property
    def whole(self) -> bool:
        """Whether it was simulated as any prediction is."""
        return self.rounds == STAGES

    def surely(self, wanted: Demand) -> float:
        """What is held to the target; the prediction where there is none."""
        ends = self.interval
        if wanted.likely or wanted.target is None or ends is None:
            return self.eps or 0.0
        return ends[0]


@dataclass(slots=True)
class Found:
    """What the search came to."""

    designs: list[Design]
    wanted: Demand
    space: Space
    beyond_budget: int = 0
    barred: int = 0
    """Kept from the target by a bound."""
    seconds: float = 0.0
    stopped: bool = False
    """Whether it was interrupted."""
    problems: Counter[str] = field(default_factory=Counter)
    """Why designs do not fit, and how many."""
    failures: Counter[str] = field(default_factory=Counter)
    """Why they failed, and how many."""

    @property
    def simulated(self) -> list[Design]:
        """Those with a figure."""
        return [design for design in self.designs if design.eps]

    @property
    def tried(self) -> int:
        """How many were simulated at all."""
        return sum(design.rounds > 0 or design.ended for design in self.designs)

    @property
    def in_full(self) -> int:
        """How many were simulated as any prediction is."""
        return sum(design.whole for design in self.designs)

    @property
    def unfinished(self) -> bool:
        """Whether it was interrupted, or no design could be simulated in full."""
        return self.stopped or not self.in_full

    @property
    def whole(self) -> list[Design]:
        """Those simulated as any prediction is; where there is none, all."""
        done = [design for design in self.simulated if design.whole]
        return done or self.simulated


class Searcher:
    """Goes through a space of designs."""

    def __init__(
        self,
        space: Space,
        wanted: Demand,
        processes: int,
        caller: Caller,
        memo: Memo | None = None,
    ) -> None:
        """``memo``: what was found before, and where more of it goes."""
        designs = [Design(number, c) for number, c in enumerate(space.candidates)]
        self.found = Found(designs, wanted, space)
        self._processes, self._caller = processes, caller
        self._memo = Memo() if memo is None else memo
        self._began = time.perf_counter()
        self._left: list[Design] = []
        """Designs that are worth a simulation."""
        self._works: dict[int, int] = {}
        """By design: requests in its first simulation."""
        self._margin = 0.0
        """What short simulations are thought to lose once their interval is known, relative."""

    def run(self) -> Found:
        """Everything; what is known by then where it is interrupted."""
        try:
            self._all()
        except KeyboardInterrupt:
            if not self.found.simulated:
                raise
            self.found.stopped = True
        self.found.seconds = time.perf_counter() - self._began
        return self.found

    def _all(self) -> None:
        found, wanted = self.found, self.found.wanted
        self._left = left = self._open(self.found.designs)
        first = _spread(self._light(left), _FIRST)
        self._simulate(first, 0)
        for _ in range(_PARTS):
            reached = _reached(left)
            rest = [d for d in self._light(left) if d.rounds == 0 and not d.ended]
            rest.sort(key=lambda d: wanted.order(d.candidate, d.bound * reached(d)))
            self._simulate(rest[: (_KEPT[0] - len(first)) // _PARTS], 0)
        for _ in range(_AGAIN):
            self._simulate(self._promising(left), 0)
        for _ in range(_REFINED):
            if not self._refine():
                break
        for stage in range(1, STAGES):
            self._simulate(self._best(left, stage, _KEPT[stage]), stage)
            for _ in range(_AGAIN):  # who fell makes room: none goes on that was not simulated so
                there = sorted((d for d in left if d.rounds >= stage), key=self._place)
                ahead = there[: (*_KEPT, 1)[stage + 1]]
                self._simulate([d for d in ahead if d.rounds == stage and not d.ended], stage)
        for _ in range(_MORE):
            if wanted.target is None or any(wanted.enough(d.surely(wanted)) for d in found.whole):
                break
            self._margin = self._usual_margin()
            best = self._best(left, 1, _KEPT[-1])
            self._simulate([d for d in best if wanted.enough(self._thought(d))], STAGES - 1)

    def _open(self, designs: Sequence[Design]) -> list[Design]:
        """Of new designs those that are worth a simulation."""
        found, wanted = self.found, self.found.wanted
        paid = [d for d in designs if wanted.affordable(d.candidate)]
        found.beyond_budget += len(designs) - len(paid)
        self._look(paid)
        there = [d for d in paid if d.bound > 0.0]
        left = [d for d in there if wanted.enough(d.bound)]
        found.barred += len(there) - len(left)
        # where none can reach it the best is still wanted, to say by how much
        hopeless = not left and not any(wanted.enough(d.bound) for d in self._left)
        return there if hopeless else left

    def _refine(self) -> bool:
        """Simulate what lies one step beside the best; whether one of them is better."""
        found = self.found
        best = sorted((d for d in self._left if d.eps), key=self._place)[:_ABOUT]
        known = {d.candidate.job.identity for d in found.designs}
        new: list[Design] = []
        for design in best:
            for candidate in neighbours(design.candidate, found.space.most_hosts):
                if candidate.job.identity not in known:
                    known.add(candidate.job.identity)
                    new.append(Design(len(found.designs) + len(new), candidate))
        if not new:
            return False
        found.designs += new
        left = self._open(new)
        self._simulate(self._light(left), 0)
        self._simulate(self._promising(left), 0)
        self._left += left
        places = [self._place(d) for d in left if d.eps]
        return bool(places) and min(places) < self._place(best[0])

    def _light(self, designs: Sequence[Design]) -> list[Design]:
        """Those that are simulated quickly; of a strategy without one, the quickest."""
        least: dict[str, int] = {}
        for design in designs:
            work = self._work(design)
            least[design.kind] = min(work, least.get(design.kind, work))
        return [d for d in designs if self._work(d) <= max(_LIGHT, least[d.kind])]

    def _work(self, design: Design) -> int:
        known = self._works.get(design.number)
        if known is None:
            known = self._works[design.number] = work(design.candidate)
        return known

    def _promising(self, designs: Sequence[Design]) -> list[Design]:
        """Those that would be the best if they reached of their bounds what those like them do; of
        those that take long, whose many connections fill links as few do not, all of them."""
        wanted, light = self.found.wanted, {d.number for d in self._light(designs)}
        best = min((self._place(d) for d in self._left if d.eps), default=(inf,))
        reached = _reached(self._left)
        places = {
            d.number: wanted.order(
                d.candidate, d.bound * (reached(d) if d.number in light else 1.0)
            )
            for d in designs
            if d.rounds == 0 and not d.ended
        }
        hopeful = [d for d in designs if places.get(d.number, (inf,)) < best]
        return sorted(hopeful, key=lambda d: places[d.number])[:_HEAVY]

    def _best(self, designs: Sequence[Design], least: int, count: int) -> list[Design]:
        """Of those simulated at least so often, but not wholly, those that may be the best."""
        known = [d for d in designs if least <= d.rounds < STAGES and not d.ended]

        def may_be(design: Design) -> tuple[float, ...]:
            more = 1.0 + _SLACK[design.rounds - 1]
            return self.found.wanted.order(design.candidate, self._thought(design, more))

        return sorted(known, key=may_be)[:count]

    def _place(self, design: Design) -> tuple[float, ...]:
        return self.found.wanted.order(design.candidate, self._thought(design))

    def _thought(self, design: Design, more: float = 1.0) -> float:
        """Examples per second that are held to the target, where a simulation comes to so many
        times what it did."""
        eps = (design.eps or 0.0) * more * (1.0 - self._margin)
        if design.whole or not design.bound:
            return eps
        wanted = self.found.wanted
        below = 0.0 if wanted.likely or wanted.target is None else _BELOW
        return min(eps, design.bound * (1.0 - max(below, self._margin)))

    def _usual_margin(self) -> float:
        """By how much what is held to the target is below a prediction, relative."""
        wanted = self.found.wanted
        shares = [1.0 - d.surely(wanted) / d.eps for d in self.found.designs if d.whole and d.eps]
        return median(shares) if shares else 0.0

    def _look(self, designs: Sequence[Design]) -> None:
        """At all of them; but where the quickest of a strategy take too long, at none but those."""
        kinds: dict[str, list[Design]] = {}
        for design in designs:
            kinds.setdefault(design.kind, []).append(design)
        first = [
            design for own in kinds.values() for design in sorted(own, key=self._work)[:_SOUNDED]
        ]
        slow = self._look_at(first)
        slow_kinds = {d.kind for d in slow} - {d.kind for d in first if d not in slow}
        rest = [d for d in designs if d.known is None]
        self._look_at([d for d in rest if d.kind not in slow_kinds])
        left_out = (d.kind for d in rest if d.kind in slow_kinds)
        self.found.failures.update(
            f"{kind}: bounds of its quickest designs took too long" for kind in left_out
        )

    def _look_at(self, designs: Sequence[Design]) -> list[Design]:
        """Returns those that took too long."""
        slow = []
        title = f"bounds of {len(designs):,} designs"
        for design, row in self._each(designs, BOUND, title):
            design.known = row.bounds or {}
            if row.status == DOES_NOT_FIT:
                self.found.problems[row.why] += 1
            elif row.status == FAILED:
                self.found.failures[row.why] += 1
                slow += [design] * bool(row.too_long)
        return slow

    def _simulate(self, designs: Sequence[Design], stage: int) -> None:
        title = f"simulating {len(designs)} designs, round {stage + 1} of {STAGES}"
        for design, row in self._each(designs, LEVELS[stage], title):
            if row.examples_per_second:
                design.row, design.rounds = row, stage + 1
            else:
                design.ended = True
                self.found.failures[row.why] += 1

    def _each(
        self, designs: Sequence[Design], level: Level, title: str
    ) -> Iterator[tuple[Design, Row]]:
        if not designs:
            return
        cases = [design.candidate.job.case for design in designs]
        with (
            self._caller.progress(title) as meter,
            contextlib.closing(
                evaluate(cases, level, processes=self._processes, memo=self._memo, meter=meter)
            ) as rows,
        ):
            for done, (place, row) in enumerate(rows, start=1):
                yield designs[place], row
                meter(done, len(designs), so_far=self._so_far())

    def _so_far(self) -> str:
        best = min(self.found.simulated, key=self._place, default=None)
        if best is None or best.eps is None:
            return ""
        return f"best so far {text.rate(best.eps)} examples/s, {best.kind}"


def work(candidate: Candidate) -> int:
    """Requests in a design's first simulation: what it costs, about."""
    case = at(candidate.job.case, SCREEN)
    folding, rules = representatives(case), case.experiment.training
    share = folding.simulated / folding.trainers
    return ceil(requests_of(case.plan) * share * (rules.steps + rules.warmup_steps))


def _spread(designs: Sequence[Design], count: int) -> list[Design]:
    """Some of each strategy, those of the highest bounds first, in turn."""
    by_kind: dict[str, list[Design]] = {}
    for design in sorted(designs, key=lambda d: -d.bound):
        by_kind.setdefault(design.kind, []).append(design)
    queues = list(by_kind.values())
    turns = (queue[turn] for turn in range(count) for queue in queues if turn < len(queue))
    return [design for design, _ in zip(turns, range(max(count, len(queues))), strict=False)]


def _reached(designs: Sequence[Design]) -> Callable[[Design], float]:
    """The share of its bound that a design is thought to reach: what those of its strategy do that
    differ from it in the fewest settings, hosts apart."""
    shares: dict[str, list[tuple[Mapping[str, object], float]]] = {}
    for design in designs:
        if design.eps and design.bound:
            own = shares.setdefault(design.kind, [])
            own.append((design.candidate.job.settings, min(1.0, design.eps / design.bound)))
    usual = median(share for own in shares.values() for _, share in own) if shares else 1.0

    def reached(design: Design) -> float:
        own = shares.get(design.kind)
        if own is None:
            return usual
        settings = design.candidate.job.settings
        apart = [
            sum(known.get(name) != value for name, value in settings.items() if name != "hosts")
            for known, _ in own
        ]
        return median(s for (_, s), much in zip(own, apart, strict=True) if much == min(apart))

    return reached
