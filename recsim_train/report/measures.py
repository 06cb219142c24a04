"""Figures of single runs, and what a claim's checks make of several: ratios, slopes, crossings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from recsim_train.config.claim import Check
from recsim_train.results.rundir import RunRecord
from recsim_train.workload import laws

Runs = Mapping[str, RunRecord]
"""By the name of the variant."""


class NoFigureError(Exception):
    """A run does not have what a check asks for; the sentence says what is missing."""


def setting(record: RunRecord, name: str) -> float:
    """A numeric setting of a run by its dotted name."""
    at: Any = record.manifest["configuration"]
    for part in name.split("."):
        at = at.get(part) if isinstance(at, dict) else None
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise NoFigureError(f"{name} is no number in the settings of {record.run_id}")
    return float(at)


def measure(record: RunRecord, check: Check) -> float:
    """What the check measures, of one run. Raises NoFigureError."""
    summary = record.summary
    if check.measure in ("eps", "time"):
        eps = summary.examples_per_second
        if not eps:
            raise NoFigureError(f"{record.run_id} counted no iteration")
        return eps if check.measure == "eps" else 1 / eps
    if check.measure == "bytes":
        return bytes_per_example(record, check.effects)
    if check.measure == "sync_gap":
        gap = summary.synchronisation.sync_gap
        if gap is None:
            raise NoFigureError(f"{record.run_id} recorded no sync gap")
        return gap.mean
    counted = summary.facts.compression.get(check.content)
    if counted is None:
        raise NoFigureError(f"{record.run_id} compressed no {check.content}")
    return float(getattr(counted, check.measure))


def bytes_per_example(record: RunRecord, effects: Sequence[str] = ()) -> float:
    """Bytes sent per counted example, by all processes.

    Payload counts an all-reduce's vector once per member; here it counts as its ring sends it.
    """
    groups = {
        name.partition("[")[0]: len(members)
        for name, members in record.manifest["plan"]["groups"].items()
    }
    if record.summary.round_bytes_by_effect:
        raise NoFigureError(f"{record.run_id} has background loops, whose bytes are per round")
    sent = 0.0
    for key, total in record.totals().items():
        effect = key.effect.removeprefix("serve_")
        if not effects or effect in effects:
            factor = laws.ring_factor(groups[key.name]) if effect == "all_reduce" else 1.0
            sent += total.bytes * factor
    examples = record.summary.counted_iterations * record.summary.batch_size
    if not examples:
        raise NoFigureError(f"{record.run_id} counted no iteration")
    return sent / examples


def idle_cores(check: Check, runs: Runs) -> str:
    """Which run of a comparison of speed leaves cores of its trainers' hosts idle; "": none does.

    How fast it would be on all of them is not known, so that its speed says nothing about a claim.
    Runs without a profile are not judged.
    """
    if check.measure not in ("eps", "time"):
        return ""
    for name in dict.fromkeys((*check.of, *check.over)):
        profile = runs[name].manifest.get("cluster")
        if profile is None:
            continue
        hosts = profile["hosts"]
        computing = runs[name].summary.computing_threads
        if profile["colocate"]:
            host, where = hosts["default"], "the host's"
            computing *= runs[name].summary.trainers
        else:
            host, where = hosts.get("trainer") or hosts["default"], "each host's"
        mixed: Sequence[dict[str, Any]] = (profile.get("mixed") or {}).get("trainer") or ({},)
        cores = max(int(entry.get("cores") or host["cores"]) for entry in mixed)
        if computing < cores:
            return f"{name!r} computes on {computing} of {where} {cores} cores"
    return ""


def figure(check: Check, runs: Runs) -> float | None:
    """What a check makes of its runs; None where a crossover is not reached.

    Raises NoFigureError where a run is missing or lacks the measure.
    """
    missing = [name for name in (*check.of, *check.over) if name not in runs]
    if missing:
        raise NoFigureError(f"not simulated: {', '.join(dict.fromkeys(missing))}")
    of = [measure(runs[name], check) for name in check.of]
    over = [measure(runs[name], check) for name in check.over]
    if any(value <= 0 for value in over):
        raise NoFigureError("the baseline's figure is 0")
    match check.form:
        case "value":
            return of[0]
        case "ratio":
            return of[0] / over[0]
        case "saved":
            return 1 - of[0] / over[0]
    along = [setting(runs[name], check.along) for name in check.of]
    if check.form == "exponent":
        return slope(along, of)
    if check.form == "knee":
        return of[-1] / (of[0] / along[0])
    return crossing(along, [a / b for a, b in zip(of, over, strict=True)])


def slope(along: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of log(value) over log(along): 1 is linear, 0 is flat."""
    x, y = [math.log(v) for v in along], [math.log(v) for v in values]
    try:
        return statistics.linear_regression(x, y).slope
    except statistics.StatisticsError:
        message = "the setting along which to compare does not differ"
        raise NoFigureError(message) from None


def crossing(along: Sequence[float], ratios: Sequence[float]) -> float | None:
    """Where a ratio passes 1, interpolated between logarithms; beyond the grid: None."""
    points = sorted(zip(along, ratios, strict=True))
    for (x0, r0), (x1, r1) in zip(points, points[1:], strict=False):
        if (r0 - 1) * (r1 - 1) <= 0 and r0 != r1:
            share = -math.log(r0) / (math.log(r1) - math.log(r0))
            return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))
    return None


def expected_by_law(check: Check, runs: Runs) -> float:
    """What the derived law says for the check's own runs."""
    first = runs[check.of[0]]
    cluster, plan = first.manifest["cluster"], first.manifest["plan"]
    hosts = cluster["hosts"]
    host = hosts.get("dense_server") or hosts["default"]
    common = {
        "servers": len(plan["dense_shards"]),
        "nic": host["nic"] * cluster["network"]["efficiency"],
        "iteration": first.summary.seconds_per_iteration,
        "threads": first.summary.threads,
        "weights": float(sum(shard["bytes"] for shard in plan["dense_shards"])),
    }
    if check.law == "easgd_knee":
        every = int(first.manifest["strategy"]["options"].get("every", 5))
        # t is an iteration's without its share of an exchange
        spent = first.summary.time_by_effect
        common["iteration"] -= spent.get("exchange", 0.0)
        return laws.easgd_knee(every=every, **common)
    latency = float(cluster["network"]["latency"])
    return laws.easgd_sync_gap(trainers=first.summary.trainers, latency=latency, **common)
