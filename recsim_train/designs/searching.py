"""The search: bounds of all designs, then the most promising ones by ever longer simulations.

Nothing is simulated that does not fit, costs more than there is, or is kept from the target by a
bound while others are not. What a design may give at most follows from its bound, and later from
its longest simulation and how far such ones are from a whole prediction
(`recsim_train.evaluate.levels.RUNGS`). Always those that promise most, by that, are simulated one
level further; what lies one step beside the best joins them where the search leaves it open. It
ends where no other design promises more than the best whole prediction gives, or where the levels
have simulated as many as they may.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from recsim_train.designs.space import Candidate, FewerBytes, Space, neighbours
from recsim_train.designs.wanted import Demand
from recsim_train.evaluate.evaluator import Memo, Workers, evaluate
from recsim_train.evaluate.levels import (
    ABOVE_BOUNDS,
    BELOW,
    BOUND,
    LEAST,
    RUNGS,
    SOUNDED,
    TOGETHER,
    Level,
    requests_of,
)
from recsim_train.report import text
from recsim_train.results.row import DOES_NOT_FIT, FAILED, Interval, Row
from recsim_train.session.job import Caller
from recsim_train.trace.binding import CLASSES, LINKS

STAGES = len(RUNGS)


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

    @property
    def ceiling(self) -> float:
        """Examples per second that a prediction may come to, as far as its bound says."""
        return self.bound * (1.0 + ABOVE_BOUNDS)

    @property
    def most(self) -> float:
        """Examples per second that its whole prediction may come to, as far as is known; of one
        that was made, those of it."""
        if self.row is None:
            return self.ceiling
        eps = self.eps or 0.0
        return eps if self.whole else min(self.ceiling, eps * (1.0 + RUNGS[self.rounds - 1].above))

    @property
    def needs_bytes(self) -> bool:
        """Whether a link is its tightest bound."""
        tightest = next(iter(self.bounds), "")
        return tightest in CLASSES and CLASSES[tightest][1] in LINKS

    def surely(self, wanted: Demand) -> float:
        """What is held to the target: without one the prediction, and before any simulation the
        bound."""
        if self.row is None:
            return self.bound
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
    by_bounds: float = 0.0
    """Seconds until all bounds were known."""
    left_out: list[Design] = field(default_factory=list)
    """Those that were not simulated in full, and might be better by what is known of them; first
    what promises most."""
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
        """Those simulated as any prediction is; where there is none, all that were simulated, and
        where nothing was, those with a bound."""
        done = [design for design in self.simulated if design.whole]
        return done or self.simulated or [design for design in self.designs if design.bound]


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
        self._workers, self._caller = Workers(processes), caller
        self._memo = Memo() if memo is None else memo
        self._began = time.perf_counter()
        self._there: list[Design] = []
        """Designs that are worth a simulation."""
        self._beside: set[tuple[int, FewerBytes]] = set()
        """Designs beside which it has looked, and how far."""
        self._margin = BELOW
        """By how much what is held to the target is thought to be below a prediction, relative."""

    def run(self) -> Found:
        """Everything; what is known by then where it is interrupted."""
        try:
            with self._workers:
                self._all()
        except KeyboardInterrupt:
            if not (self.found.by_bounds or self.found.simulated):
                raise  # of few bounds there is no answer
            self.found.stopped = True
        self.found.left_out = self._left_out()
        self.found.seconds = time.perf_counter() - self._began
        return self.found

    def _all(self) -> None:
        self._there = self._worth_it(self.found.designs)
        self.found.by_bounds = time.perf_counter() - self._began
        if best := min(self._there, key=self._place, default=None):
            hosts = best.candidate.hosts
            self._caller.say(
                f"by bounds alone, nothing simulated: {best.kind} on {hosts} "
                f"host{'s'[: hosts != 1]} may give up to {text.rate(best.bound)} examples/s; "
                "simulations follow, and Ctrl-C asks for the answer so far"
            )
        while following := self._next():
            self._simulate(following, following[0].rounds)
            self._add_beside()

    def _next(self) -> list[Design]:
        """Designs to simulate one level further, the same one for all. There are none where nothing
        promises more than the best whole prediction, or where a level has had its most."""
        wanted = self.found.wanted
        margins = [1.0 - d.surely(wanted) / d.eps for d in self._there if d.whole and d.eps]
        self._margin = median(margins) if margins else BELOW
        promise, best = self._promises(), self._best
        there = sorted((promise(d), d.number, d) for d in self._there)
        spent = Counter(level for d in self._there for level in range(d.rounds + d.ended))
        waiting = [
            (place < best, d)
            for place, _, d in there
            if not (d.whole or d.ended) and spent[d.rounds] < RUNGS[d.rounds].most
        ]
        ahead = [d for better, d in waiting if better]
        many = TOGETHER
        if not ahead:  # beside the best some that are not as good, but known as well
            many = max(0, LEAST - sum(d.whole for d in self._there))
            ahead = [d for _, d in waiting if d.rounds == STAGES - 1]
        if not ahead:
            return []
        level = ahead[0].rounds
        some = min(many, TOGETHER >> level, RUNGS[level].most - spent[level])
        return [d for d in ahead[:some] if d.rounds == level]

    def _worth_it(self, designs: Sequence[Design]) -> list[Design]:
        """Of new designs those that are worth a simulation."""
        found, wanted = self.found, self.found.wanted
        paid = [d for d in designs if wanted.affordable(d.candidate)]
        found.beyond_budget += len(designs) - len(paid)
        self._find_bounds(paid)
        there = [d for d in paid if d.bound > 0.0]
        left = [d for d in there if wanted.enough(d.ceiling)]
        found.barred += len(there) - len(left)
        # where none can reach it the best is still wanted, to say by how much
        hopeless = not left and not any(wanted.enough(d.ceiling) for d in self._there)
        return there if hopeless else left

    def _add_beside(self) -> None:
        """Add what lies one step beside the best, once."""
        found, fewer = self.found, FewerBytes.NO
        best = min((d for d in self._there if d.eps), key=self._place, default=None)
        if best is None:
            return
        if best.needs_bytes:
            met = any(found.wanted.enough(self._held(d, d.most)) for d in self._there)
            fewer = FewerBytes.ALIKE if met else FewerBytes.ROUNDED
        if (best.number, fewer) in self._beside:
            return
        self._beside.add((best.number, fewer))
        known = {d.candidate.job.identity for d in found.designs}
        new: list[Design] = []
        for candidate in neighbours(best.candidate, found.space.most_hosts, fewer):
            if candidate.job.identity not in known:
                known.add(candidate.job.identity)
                new.append(Design(len(found.designs) + len(new), candidate))
        found.designs += new
        self._there += self._worth_it(new)

    @property
    def _best(self) -> tuple[float, ...]:
        """The place of the best whole prediction."""
        return min((self._place(d) for d in self._there if d.whole), default=(inf,))

    def _left_out(self) -> list[Design]:
        best = self._best
        waiting = (d for d in self._there if not (d.whole or d.ended))
        return sorted((d for d in waiting if self._at_most(d) < best), key=self._at_most)

    def _place(self, design: Design) -> tuple[float, ...]:
        """By what it is thought to give; before any simulation by its bound."""
        thought = design.bound if design.row is None else design.eps or 0.0
        return self.found.wanted.order(design.candidate, self._held(design, thought))

    def _promises(self) -> Callable[[Design], tuple[float, ...]]:
        """By what each design may give at most: of its bound the share that those like it reach,
        and later what its longest simulation leaves open."""
        reached = _reached(self._there)

        def promise(design: Design) -> tuple[float, ...]:
            more = 1.0 if design.rounds else reached(design) * (1.0 + RUNGS[0].above)
            return self._at_most(design, min(1.0, more))

        return promise

    def _at_most(self, design: Design, share: float = 1.0) -> tuple[float, ...]:
        """By such a share of the most that a design may give."""
        held = self._held(design, design.most * share)
        return self.found.wanted.order(design.candidate, held)

    def _held(self, design: Design, eps: float) -> float:
        """What of so many examples per second is held to the target: of an interval its lower end,
        which until it is known is thought to lie as far below as those that are."""
        wanted = self.found.wanted
        if design.whole:
            return design.surely(wanted)
        return eps if wanted.likely or wanted.target is None else eps * (1.0 - self._margin)

    def _find_bounds(self, designs: Sequence[Design]) -> None:
        """Of all of them; but where those of the quickest of a strategy take too long, of no other
        one of it."""
        kinds: dict[str, list[Design]] = {}
        for design in designs:
            kinds.setdefault(design.kind, []).append(design)

        def requests(design: Design) -> int:  # what simulations of it take, about
            return requests_of(design.candidate.job.plan)

        first = [d for own in kinds.values() for d in sorted(own, key=requests)[:SOUNDED]]
        slow = self._bounds_of(first)
        slow_kinds = {d.kind for d in slow} - {d.kind for d in first if d not in slow}
        rest = [d for d in designs if d.known is None]
        self._bounds_of([d for d in rest if d.kind not in slow_kinds])
        left_out = (d.kind for d in rest if d.kind in slow_kinds)
        self.found.failures.update(
            f"{kind}: bounds of its quickest designs took too long" for kind in left_out
        )

    def _bounds_of(self, designs: Sequence[Design]) -> list[Design]:
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
        for design, row in self._each(designs, RUNGS[stage].level, title):
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
                evaluate(cases, level, processes=self._workers, memo=self._memo, meter=meter)
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


def _reached(designs: Sequence[Design]) -> Callable[[Design], float]:
    """The share of its bound that a design is thought to reach: what those of its strategy do that
    differ from it in the fewest settings, hosts apart; while there are none, all of it."""
    shares: dict[str, list[tuple[Mapping[str, object], float]]] = {}
    for design in designs:
        if design.eps and design.bound:
            own = shares.setdefault(design.kind, [])
            own.append((design.candidate.job.settings, min(1.0, design.eps / design.bound)))

    def reached(design: Design) -> float:
        own = shares.get(design.kind)
        if own is None:
            return 1.0  # how loose a bound is differs from strategy to strategy
        settings = design.candidate.job.settings
        apart = [
            sum(known.get(name) != value for name, value in settings.items() if name != "hosts")
            for known, _ in own
        ]
        return median(s for (_, s), much in zip(own, apart, strict=True) if much == min(apart))

    return reached
