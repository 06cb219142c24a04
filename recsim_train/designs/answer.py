"""The answer: the design to take, those that cannot be told from it, and what forbids more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from recsim_train.config.errors import UserError
from recsim_train.designs.searching import Design, Found
from recsim_train.designs.wanted import Demand
from recsim_train.placement.hosts import hosts_of
from recsim_train.report import naming, text
from recsim_train.results.folder import clean
from recsim_train.results.row import Row
from recsim_train.results.row import tie as alike
from recsim_train.trace.binding import CLASS_PARTS, CLASSES, class_of
from recsim_train.workload import shape


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that keeps a design from the target, by itself."""

    what: str
    """A class of resources, in words."""
    allows: float
    """Examples per second."""
    says: str
    """How much of it there is, and how much it would take; a sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that would lift every bound above the target."""

    says: str
    bound: float
    """Examples per second at most, then."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What would be enough for a target."""

    enough: tuple[Change, ...] = ()
    all_tried: bool = True
    """Whether there was time for all changes."""
    more_hosts: str = ""
    """Why more hosts alone would be slower; empty: they would not."""


@dataclass(frozen=True, slots=True)
class Recommended:
    """What a search found."""

    found: Found
    met: bool | None
    """Whether a design meets the target; None: there is none, or it is not known."""
    chosen: Design
    tied: tuple[Design, ...]
    """Those that cannot be told from it, cheapest first (`Demand.price`), itself not included."""
    others: tuple[Design, ...]
    """All others that were simulated as long."""
    barriers: tuple[Obstacle, ...] = ()
    """Where the target is not met: what keeps the best design from it."""
    would: Changes = field(default_factory=Changes)
    """The same: what would be enough."""

    @property
    def wanted(self) -> Demand:
        """What was asked."""
        return self.found.wanted

    @property
    def headroom(self) -> float | None:
        """By how much what is held to the target is above it, relative."""
        if self.wanted.target is None:
            return None
        return self.chosen.surely(self.wanted) / self.wanted.target - 1.0


class NoDesignError(UserError):
    """No design keeps to the constraints."""


def answer_of(found: Found) -> Recommended:
    """Raises NoDesignError where no design could be simulated, with what kept them."""
    if not found.whole or not (found.stopped or found.simulated):
        raise NoDesignError(_nothing(found))
    wanted, whole = found.wanted, found.whole
    enough = [d for d in whole if d.whole and wanted.enough(d.surely(wanted))]
    asked = (d for d in found.designs if wanted.affordable(d.candidate))
    may_be = found.unfinished and any(d.known is None or wanted.enough(d.ceiling) for d in asked)
    met = None if wanted.target is None or (may_be and not enough) else bool(enough)
    among = enough or whole
    among = [d for d in among if not d.candidate.rounded] or among
    if wanted.target is not None and not enough:
        chosen = _nearest(among, wanted)
    else:
        chosen = min(among, key=lambda d: wanted.order(d.candidate, d.surely(wanted)))
    rest = [d for d in whole if d is not chosen]
    tied = sorted(
        (d for d in rest if tie(chosen, d) and (d in enough or not enough)),
        key=lambda d: (wanted.price(d.candidate), -(d.eps or 0.0)),
    )
    others = sorted(
        (d for d in rest if d not in tied), key=lambda d: wanted.order(d.candidate, d.eps or 0.0)
    )
    return Recommended(found, met, chosen, tuple(tied), tuple(others))


def _nearest(designs: Sequence[Design], wanted: Demand) -> Design:
    """The design to take where none meets the target: the one that comes surely nearest, unless one
    that is predicted as fast or faster costs less."""
    first = max(designs, key=lambda d: d.surely(wanted))
    if wanted.by == "throughput":
        return first
    as_fast = [design for design in designs if (design.eps or 0.0) >= (first.eps or 0.0)]
    return min(as_fast, key=lambda d: (wanted.price(d.candidate), -d.surely(wanted)))


def tie(one: Design, other: Design) -> bool:
    """Whether two designs cannot be told apart; how far short simulations are off is not known."""
    if one.row is None or other.row is None or not (one.whole and other.whole):
        return False
    return alike(one.row.evidence(), other.row.evidence())


def _nothing(found: Found) -> str:
    count = len(found.designs)
    if found.beyond_budget == count:
        rents = [(r.per_hour, r.currency) for d in found.designs if (r := d.candidate.rented)]
        least, most = min(rents), (found.wanted.budget or 0.0, rents[0][1])
        return (
            f"none of {count:,} designs costs at most {text.money(*most)} an hour; the cheapest "
            f"costs {text.money(*least)}"
        )
    if found.problems:
        ((first, _),) = found.problems.most_common(1)
        nowhere = _fits_nowhere(found)
        return f"none of {count:,} designs fits into the hosts{nowhere}; most often: {first}"
    why = "".join(f"; most often: {first}" for first, _ in found.failures.most_common(1))
    return f"none of {count:,} designs could be simulated{why}"


def _fits_nowhere(found: Found) -> str:
    """The largest table, where all hosts of a design together have no room for it."""
    model = found.designs[0].candidate.job.plan.experiment.model
    number, table = max(enumerate(model.tables), key=lambda known: known[1].rows)
    size = float(table.rows * shape.row_bytes(model))
    room = max(
        sum(host.kind.memory for host in hosts_of(job.plan.instances, job.profile))
        for job in (design.candidate.job for design in found.designs)
    )
    if size <= room:
        return ""
    return (
        f": model.tables[{number}] alone, of {table.rows:,} rows, takes {text.size(size)}, and all "
        f"hosts together have {text.size(room)}"
    )


def barriers(design: Design, target: float) -> tuple[Obstacle, ...]:
    """Each class of resources that by itself keeps a design below the target."""
    return tuple(
        Obstacle(naming.class_words(what), allows, _lacking(design, what, target / allows))
        for what, allows in design.bounds.items()
        if allows < target
    )


def _lacking(design: Design, what: str, times: float) -> str:
    """How much of a class of resources there is, and how much it would take."""
    if what == "loops":
        return f"each training loop would have to be {times:.2g} times as fast by itself"
    job, (role, part) = design.candidate.job, CLASSES[what]
    owner, many = role.replace("_", " "), sum(i.role == role for i in job.plan.instances)
    if part == "cores" and many:
        hosts = hosts_of(job.plan.instances, job.profile)
        cores = sum(host.kind.cores for host in hosts if host.instances[0].role == role)
        return f"it takes {ceil(cores * times):,} cores of {owner}s, and there are {cores:,}"
    if part == "interpreter" and many:
        return (
            f"it takes {ceil(many * times):,} {owner} processes, each with an interpreter lock of "
            f"its own, and there are {many:,}"
        )
    wires = "" if job.plan.experiment.execution.wire != "full" else ", or fewer bytes"
    whose = f"{owner}s" if many else f"each {owner}"
    return f"{CLASS_PARTS[part]} of {whose}: it takes {times:.2g} times the rate{wires}"


def evaluated(found: Found) -> str:
    """How many designs there were, and what became of them; without a full stop."""
    parts = []
    if found.space.other_step:
        parts.append(
            f"{found.space.other_step:,} more have other examples in a step (search.any_step)"
        )
    if found.beyond_budget:
        parts.append(f"{found.beyond_budget:,} are beyond the budget")
    if unfit := found.problems.total():
        parts.append(f"{unfit:,} do not fit")
    if found.barred:
        parts.append(f"{found.barred:,} cannot reach it by their bounds")
    if failed := found.failures.total():
        ((most, _),) = found.failures.most_common(1)
        parts.append(f"{failed:,} failed (most often: {most})")
    parts.append(f"{found.tried:,} were simulated, {found.in_full} in full")
    stopped = ", when it was interrupted: `--resume` goes on" if found.stopped else ""
    return (
        f"{len(found.designs):,} designs: {', '.join(parts)}, "
        f"in {text.duration(found.seconds)}{stopped}"
    )


def answer_document(answer: Recommended) -> dict[str, Any]:
    """As JSON."""
    found, wanted = answer.found, answer.wanted
    rent = answer.chosen.candidate.rented
    return {
        "asked": {
            "target": wanted.target,
            "target_unit": "examples/s",
            "budget": wanted.budget,
            "budget_unit": f"{rent.currency}/h" if rent and wanted.budget else None,
            "by": wanted.by,
            "by_means": wanted.means,
            "likely": wanted.likely,
            "hosts": found.space.most_hosts,
            "examples_per_step": sorted(
                {d.candidate.origin.examples_per_step for d in found.designs}
            ),
        },
        "met": answer.met,
        "headroom": answer.headroom,
        "chosen": design_document(answer.chosen),
        "tied": [design_document(design) for design in answer.tied],
        "others": [design_document(design) for design in answer.others],
        "barriers": [{"what": b.what, "allows": b.allows, "says": b.says} for b in answer.barriers],
        "changes": [{"says": c.says, "bound": c.bound} for c in answer.would.enough],
        "more_hosts": answer.would.more_hosts or None,
        "all_changes_tried": answer.would.all_tried,
        "evaluated": {
            "designs": len(found.designs),
            "impossible": sum(found.space.impossible.values()),
            "other_step": found.space.other_step,
            "beyond_budget": found.beyond_budget,
            "do_not_fit": found.problems.total(),
            "cannot_reach": found.barred,
            "failed": found.failures.total(),
            "simulated": found.tried,
            "in_full": found.in_full,
            "may_be_better": len(found.left_out),
            "seconds": round(found.seconds, 3),
            "seconds_by_bounds": round(found.by_bounds, 3),
            "interrupted": found.stopped,
        },
    }


def design_document(design: Design) -> dict[str, Any]:
    """One design as JSON."""
    candidate, row = design.candidate, design.row or Row()
    plan = candidate.job.plan
    rent = candidate.rented
    return {
        "strategy": plan.strategy.kind,
        "options": plan.strategy.options,
        "settings": dict(candidate.job.settings),
        "roles": plan.experiment.roles.model_dump(),
        "batch_size": plan.experiment.training.batch_size,
        "examples_per_step": candidate.examples_per_step,
        "hosts": candidate.hosts,
        "per_hour": candidate.per_hour,
        "currency": None if rent is None else rent.currency,
        "cost_per_billion": row.cost_per_billion,
        "examples_per_second": design.eps,
        "interval90": design.interval,
        "in_full": design.whole,
        "bound": next(iter(design.bounds.values()), 0.0),
        "bounds": dict(design.bounds),
        "bottleneck": naming.bottleneck(row.what_binds),
        "binding": clean(row.binding),
        "memory_share": row.memory_share,
        "notes": row.notes or [],
    }


def busiest(design: Design, count: int = 3) -> Sequence[tuple[str, float]]:
    """Resources by how busy they are, by class, the busiest first."""
    found: dict[str, float] = {}
    for name, share in ((design.row or Row()).utilisation or {}).items():
        what = class_of(name)
        found[what] = max(share, found.get(what, 0.0))
    return sorted(found.items(), key=lambda item: -item[1])[:count]
