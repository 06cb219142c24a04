"""From counted work to seconds on this cluster: by unit prices, or by what was measured at an
operation's own shape or at a near one; with the same answer for the same question."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import fsum, hypot
from typing import Literal, NamedTuple

from recsim_train.config.cluster import Cluster, Costs, InRuns
from recsim_train.config.experiment import Experiment
from recsim_train.config.measured import MeasuredOperation
from recsim_train.trace.ledger import COLLECTIVES, READING, TRANSPORT
from recsim_train.workload import operations
from recsim_train.workload.arithmetic import Piece
from recsim_train.workload.scope import Scope
from recsim_train.workload.shape import moved_bytes
from recsim_train.workload.signature import Signature, signature
from recsim_train.workload.threads import NONE, Gains, gains

_REMEMBERED = 1 << 16

Part = tuple[str, float, float, float, float]
"""(what it is for as `recsim_train.trace.ledger` names it, seconds on one thread, and what further
threads of an operation change: `recsim_train.workload.threads.Gains`)."""


class Priced(NamedTuple):
    """A piece of one thread's work with its price: seconds on one idle core."""

    seconds: float
    locked: float
    """Of these, seconds that hold the interpreter lock."""
    parts: tuple[Part, ...]
    """All of them by what they are for."""


NOTHING = Priced(0.0, 0.0, ())


class AskedPrices(dict[str, float]):
    """Prices that are filled in when they are first asked for, so that it shows which are used."""

    def __init__(self, prices: Mapping[str, float]) -> None:
        super().__init__()
        self._prices = prices

    def __missing__(self, name: str) -> float:
        self[name] = self._prices[name]
        return self[name]


class Pricing:
    """The profile's prices applied to the experiment's model."""

    def __init__(
        self,
        experiment: Experiment,
        cluster: Cluster,
        examples: int,
        threads: int = 1,
        *,
        beside: float = 1.0,
        queued: bool = True,
    ) -> None:
        """``threads``: on which an operation of a foreground loop runs; ``beside``: share of the
        other cores of a trainer's machine for which there is a loop; ``queued``: whether a process
        has several loops, so that a call out of Python keeps its lock as `Costs.handover` says."""
        self.experiment = experiment
        self._threads, self._law = threads, cluster.threads
        self.examples = examples
        """Examples of one iteration of a loop."""
        prices = {name: getattr(cluster.costs, name).value for name in Costs.model_fields}
        if (cooling := cluster.cooling) is not None:
            cold = moved_bytes(experiment.model, examples) / cooling.bytes
            for name in operations.COOLED:
                prices[name] *= cold**cooling.exponent
        self._queued = queued
        self.prices: Mapping[str, float] = AskedPrices(prices)
        """Those that have been asked for so far."""
        self.rests: dict[str, dict[Rest, float]] = {}
        """By operation that was asked for: seconds of its different shapes by what they rest on."""
        self._erring: dict[str, tuple[float, float]] = {}
        self.asked: list[tuple[str, Scope]] | None = None
        """Operations in the order in which each was first asked for; None: nobody wants to know."""
        self.locked: dict[str, tuple[float, float]] = {}
        """By operation, of its different shapes together: seconds, and those that hold the lock."""
        self._measured: dict[str, list[tuple[Signature, MeasuredOperation]]] = {}
        """By operation, the shapes at which it was measured, as the profile has them."""
        for entry in cluster.operations or ():
            shapes = self._measured.setdefault(entry.operation, [])
            shapes.append((Signature.parse(entry.shape), entry))
        self._beside, self._contention = beside, cluster.contention
        self._in_runs = cluster.in_runs or InRuns()
        self._known: dict[tuple[object, ...], Priced] = {}
        self._handling = cache(self._handled)

    def units(self, what: str, **work: float) -> Priced:
        """Seconds of plain units, such as ``units(REQUESTS, request=2)``."""
        total, held = operations.seconds(work, self.prices, queued=self._queued)
        return Priced(total, held, ((what, total, *NONE),))

    def messages(self, count: int) -> Priced:
        """Handling ``count`` requests or answers at one end."""
        return self._handling("message", count, TRANSPORT)

    def gloo_messages(self, count: float) -> Priced:
        """Handling ``count`` messages of reader feeds at one end."""
        return self._handling("gloo_message", count, TRANSPORT)

    def meeting(self, steps: int) -> Priced:
        """One member's part in a collective of so many steps, without its bytes."""
        return self._handling("collective_message", steps, COLLECTIVES)

    def _handled(self, price: str, count: float, what: str) -> Priced:
        return self.units(what, **{price: count}) if count else NOTHING

    def operation(
        self,
        name: str,
        *,
        pooling: Literal["server", "worker"] = "server",
        ids: float = 0,
        unique: float = 0,
        tables: int = 0,
        elements: int = 0,
        shards: int = 1,
        pieces: tuple[Piece, ...] = (),
        numbers: float = 0.0,
        kept: float = 0,
    ) -> Priced:
        """Seconds of one named operation; see `recsim_train.workload.scope`."""
        key = (name, pooling, ids, unique, tables, elements, shards, pieces, numbers, kept)
        known = self._known.get(key)
        if known is None:
            scope = Scope(
                model=self.experiment.model,
                training=self.experiment.training,
                pooling=pooling,
                batch=self.examples,
                ids=ids,
                unique=unique,
                tables=tables,
                elements=elements,
                shards=shards,
                pieces=pieces,
                numbers=numbers,
                kept=kept,
            )
            known = self.shaped(name, scope)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return known

    def shaped(self, name: str, scope: Scope) -> Priced:
        """Seconds of the operation ``name`` at one shape."""
        if self.asked is not None:
            self.asked.append((name, scope))
        rest, found = self._priced(name, scope)
        self.note(name, rest, found.seconds)
        whole, locked = self.locked.get(name, (0.0, 0.0))
        self.locked[name] = whole + found.seconds, locked + found.locked
        return found

    def note(self, name: str, rest: Rest, seconds: float) -> None:
        """Of an operation so many seconds rest on this."""
        by_rest = self.rests.setdefault(name, {})
        by_rest[rest] = by_rest.get(rest, 0.0) + seconds

    def _priced(self, name: str, scope: Scope) -> tuple[Rest, Priced]:
        op, work = operations.OPS[name], operations.cost(name, scope)
        total, held = operations.seconds(work, self.prices, queued=self._queued)
        if name not in self._measured or not total:
            longer = self._in_runs.times if op.net_pass else 1.0
            seconds = longer * total
            change = self._gains(name, scope, longer)
            return "unit", Priced(seconds, longer * held, ((name, seconds, *change),))
        shape = signature(name, scope)
        # of equally near ones the first in the profile
        nearest, entry = min(self._measured[name], key=lambda known: shape.distance(known[0]))
        rest: Rest = "measured" if shape.is_own(nearest) else "scaled"
        # on an idle core, which the simulated machine slows by its contention when all are busy: so
        # that on busy cores they come to what was measured on busy cores
        seconds = entry.alone + self._beside * (entry.seconds * self._contention - entry.alone)
        error = hypot(entry.uncertainty, entry.spread or 0.0)
        if op.net_pass or name == READING:
            seconds *= self._in_runs.times
            error = hypot(error, self._in_runs.uncertainty)
        whole, erring = self._erring.get(name, (0.0, 0.0))
        self._erring[name] = whole + seconds, erring + seconds * error
        if shape != nearest:
            seconds *= total / fsum(units * self.prices[n] for n, units in entry.work.items())
        ratio = seconds / total
        change = self._on_threads(entry, seconds) or self._gains(name, scope, ratio)
        return rest, Priced(seconds, held * ratio, ((name, seconds, *change),))

    def _gains(self, name: str, scope: Scope, ratio: float = 1.0) -> Gains:
        """What the operation's threads change by the law."""
        if self._threads == 1:
            return NONE
        return gains(
            operations.OPS[name].divided(scope), self.prices, self._law, self._threads, ratio
        )

    def error_of(self, name: str) -> float:
        """Relative error of an operation's measured seconds, of different shapes their mean."""
        whole, erring = self._erring[name]
        return erring / whole

    def _on_threads(self, entry: MeasuredOperation, seconds: float) -> Gains | None:
        """What the operation's threads came to; None where it was not measured on so many."""
        pooled = entry.pooled
        if pooled is None or pooled.threads != self._threads:
            return None
        wall = pooled.seconds / entry.seconds
        # they cannot be busy for longer than all of them are there
        spent = min(pooled.cpu / entry.seconds, self._threads * wall)
        further = max(0.0, spent - wall)  # the calling thread is busy as long as any is
        return Gains(seconds * (1.0 - wall), seconds * (spent - 1.0), seconds * further)


def part_of(work: Priced, share: float) -> Priced:
    """A share of a piece of work."""
    total, held, booked = work
    parts = tuple((what, share * a, share * b, share * c, share * d) for what, a, b, c, d in booked)
    return Priced(share * total, share * held, parts)


def plus(*parts: Priced) -> Priced:
    """The sum of several pieces of work done one after the other by one thread."""
    total = held = 0.0
    booked: tuple[Part, ...] = ()
    for seconds, locked, whats in parts:
        total += seconds
        held += locked
        booked += whats
    return Priced(total, held, booked)


Rest = Literal["measured", "scaled", "unit"]
"""What the seconds of an operation rest on: its own measured shape; unit prices, scaled by what the
nearest measured shape came to; unit prices."""
