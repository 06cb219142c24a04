"""How unsure a prediction is, cause by cause, from what its calibration knows of its own errors.

Each cause is a relative standard error of the throughput; together they count in quadrature.
Throughput answers to an input by its slope (`recsim_train.evaluate.elasticity`); work that a slope
stands for shares it by CPU seconds. Nothing here was ever compared with a run that is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum, hypot, sqrt
from typing import TYPE_CHECKING

from recsim_train.config.cluster import Calibration, Cluster
from recsim_train.sim.cluster.links import UNSURE, UPLINK_UNSURE
from recsim_train.sim.why.caveats import rested
from recsim_train.trace.ledger import COLLECTIVES, TRANSPORT, Booked, share_around
from recsim_train.workload.operations import MEETINGS, MESSAGES, OPS

if TYPE_CHECKING:
    from recsim_train.sim.runtime import Runtime

Slope = float
"""Of log(throughput) over log(input)."""


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of a simulation."""

    by_prices: float
    """Of all that unit prices alone make."""
    by_operations: float
    """Of operations that were measured at a shape of theirs, scaled or not."""
    fitted: Mapping[str, tuple[float, float]]
    """By group of the fits: those of ``by_prices``, and those of ``by_operations`` that are scaled
    by the same prices."""
    erring: float
    """By how many seconds ``by_operations`` err, all together."""
    share_around: float
    """Of all, what is around operations (`recsim_train.trace.ledger.share_around`)."""

    @classmethod
    def of(cls, runtime: Runtime, booked: Booked) -> Spent:
        """In the counted window of a simulation that has ended: beyond it loops feed and ask ahead.
        ``booked``: its CPU seconds."""
        pricing = runtime.pricing
        sums = {"unit": 0.0, "measured": 0.0, "scaled": 0.0}
        fitted: dict[str, tuple[float, float]] = {}
        erring = 0.0
        for what, rest, seconds in rested(booked, pricing.rests):
            sums[rest] += seconds
            if rest in ("measured", "scaled"):
                erring += seconds * pricing.error_of(what)
            group = _group(what, rest, known=what in pricing.rests)
            if group is not None:
                unit, scaled = fitted.get(group, (0.0, 0.0))
                more = (0.0, seconds) if rest == "scaled" else (seconds, 0.0)
                fitted[group] = unit + more[0], scaled + more[1]
        unit, measured = sums["unit"], sums["measured"] + sums["scaled"]
        around = share_around((what, seconds) for (_, what, _), seconds in booked.items())
        return cls(unit, measured, fitted, erring, around)


def _group(what: str, rest: str, *, known: bool) -> str | None:
    """Whose residuals count; None: those of no fit."""
    if rest == "measured":
        return None
    if known:
        return OPS[what].fit
    return {TRANSPORT: MESSAGES, COLLECTIVES: MEETINGS}.get(what)


def causes(
    cluster: Cluster,
    slopes: Mapping[str, Slope],
    error: float,
    spent: Spent,
    threads: int,
) -> dict[str, float]:
    """By cause, relative standard errors of the throughput.

    `recsim_train.report.what_if.CAUSES` has them in words; those of which the profile says nothing
    are left out. ``error``: standard error of a slope; what it adds on the mean is taken off.
    ``threads``: on which operations run.
    """
    known = cluster.calibration or Calibration(date="", machine="")
    prices = {name: slope for name, slope in slopes.items() if name.startswith("costs.")}
    by_prices, operations = fsum(prices.values()), slopes.get("operations", 0.0)

    def size(slope: float, many: int = 1) -> float:
        return sqrt(max(0.0, slope * slope - many * error * error))

    found: dict[str, float] = {}
    unsure = {name: _unsure(cluster, name, threads) for name in slopes}
    if any(unsure.values()):
        # what is dearer speeds nothing up: such a slope is scatter
        found["prices"] = hypot(*(size(min(0.0, slopes[n])) * u for n, u in unsure.items()))
    if spent.by_operations:
        found["operations"] = size(operations) * spent.erring / spent.by_operations
    if known.fit_errors:
        unit = size(by_prices, len(prices)) / spent.by_prices if spent.by_prices else 0.0
        scaled = size(operations) / spent.by_operations if spent.by_operations else 0.0
        most = max(known.fit_errors.values())  # of groups that the profile does not know
        found["fits"] = hypot(
            *(
                known.fit_errors.get(group, most) * (unit * seconds + scaled * more)
                for group, (seconds, more) in spent.fitted.items()
            )
        )
    # A job whose work, latency and bytes all take k times as long takes k times as long: its slopes
    # add up to -1, and what is not of wires is of work. The sum over all prices says the same with
    # the scatter of each of them.
    wires = slopes.get("nic", 0.0) + slopes.get("uplink", 0.0) - slopes.get("latency", 0.0)
    wires = min(1.0, max(0.0, wires))
    if (moved := known.speed_spread) is not None:  # all work is as fast or slow together
        found["speed"] = moved * (1.0 - wires)
    if known.own_error is not None:
        found["model"] = known.own_error * spent.share_around * (1.0 - wires)
    if found and wires > 0.0 and not cluster.colocate:
        uplinks = min(wires, max(0.0, slopes.get("uplink", 0.0)))
        queue = cluster.network.queue
        found["links"] = UNSURE[queue] * (wires - uplinks) + UPLINK_UNSURE[queue] * uplinks
    return found


def _unsure(cluster: Cluster, name: str, threads: int) -> float:
    """Relative standard error of a price or a serial share; 0 of what has none."""
    group, _, member = name.partition(".")
    if group == "costs":
        return float(getattr(cluster.costs, member).uncertainty)
    return cluster.threads.uncertainty(member, threads) if group == "threads" else 0.0
