"""What machine measurements and predictions are of, as cards, and what it did beside measurements.

That is what others took of it, and how its speed moved: by CPU seconds, so that what others took
does not count as slowness.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from recsim_train.config.measured import MachineSpeeds
from recsim_train.report import text
from recsim_train.results.environment import counted_cores
from recsim_train.results.rundir import RunRecord
from recsim_train.results.undisturbed import MOVED, Moved, drift_of, moved

BUSY_SHARE = 0.25
"""Background load above this share of the cores is worth a warning."""
_CHANGED = 0.10
"""Relative change of the machine's speed during a run that is worth a sentence: a single reading
scatters, too."""
Pairs = Sequence[tuple[RunRecord, RunRecord]]
"""(prediction, measurement)."""


def beside(pairs: Pairs) -> dict[str, str]:
    """At most one sentence of each kind, whatever the number of measurements."""
    reals = list({real.path: real for _, real in pairs}.values())
    found = {
        "others": _others(reals),
        "load": _load(reals),
        "since": _since(pairs, len(reals)),
        "during": _during(reals),
    }
    return {kind: sentence for kind, sentence in found.items() if sentence}


def _others(reals: Sequence[RunRecord]) -> str:
    """By the ledger of the counted window."""
    busy = []
    for real in reals:
        use = real.facts.ledger and real.facts.ledger.machine
        if use and (other := use.others + use.steal) > BUSY_SHARE * use.cores:
            busy.append((other, use.cores, real.run_id))
    if not busy:
        return ""
    other, cores, name = max(busy)
    taken = f"{other:.1f} of {counted_cores(cores)}"
    if len(busy) == 1:
        return (
            f"While {name} was measured, other work took {taken}, so the measurement may be too "
            "slow."
        )
    return (
        f"While {len(busy)} of {len(reals)} measurements ran, other work took up to {taken}, so "
        "they may be too slow."
    )


def _load(reals: Sequence[RunRecord]) -> str:
    """By the load average, of runs without a ledger of the machine."""
    busy = []
    for real in reals:
        if real.facts.ledger is not None and real.facts.ledger.machine is not None:
            continue
        load = real.environment.get("load")
        cores = real.environment.get("cores")
        if isinstance(load, int | float) and isinstance(cores, int) and load > BUSY_SHARE * cores:
            busy.append((load, cores, real.run_id))
    if not busy:
        return ""
    load, cores, name = max(busy)
    if len(busy) == 1:
        what = f"when {name} began: load {load:.1f}"
    else:
        what = f"when {len(busy)} of {len(reals)} measurements began: load up to {load:.1f}"
    where = counted_cores(cores)
    return f"The machine was busy {what} on {where}, so the measurement may be too slow."


def _since(pairs: Pairs, measurements: int) -> str:
    """Of the machine that the profile names."""
    far = {}
    for simulated, real in pairs:
        drift = drift_of(simulated, real)
        if drift.named and drift.since is not None and drift.since.far:
            far[real.run_id] = drift.since.change
    if not far:
        return ""
    if len(far) == 1:
        ((name, change),) = far.items()
        return (
            f"Before and after {name} the idle machine's reference work ran {_way(change)} than at "
            "its calibration: the error contains that."
        )
    return (
        f"Before and after {len(far)} of {measurements} measurements the idle machine's "
        f"reference work ran at another speed than at its calibration ({_span(far.values())}): "
        "the errors contain that."
    )


def since_calibration(pairs: Pairs) -> list[str]:
    """The machine's speed idle before and after all of them, a sentence for each calibration."""
    speeds: dict[MachineSpeeds, dict[Path, MachineSpeeds]] = {}
    for simulated, real in pairs:
        drift = drift_of(simulated, real)
        if drift.calibration is not None and drift.run is not None:
            speeds.setdefault(drift.calibration, {})[real.path] = drift.run
    found = (moved(there, list(here.values())) for there, here in speeds.items())
    return [speed_sentence(one) for one in found if one is not None]


def speed_sentence(one: Moved) -> str:
    """How fast the machine was, relative to its calibration."""
    runs = "the run" if one.runs == 1 else f"the {one.runs} runs"
    error = "" if one.error is None else f" ± {text.percent(one.error)}"
    each = f"; more than {text.percent(MOVED)} off beside {one.off} of them" if one.runs > 1 else ""
    return (
        f"The machine's speed, idle before and after {runs}, against that at its calibration: "
        f"{text.percent(one.change, signed=True)}{error}{each}."
    )


def _during(reals: Sequence[RunRecord]) -> str:
    moved = {}
    for real in reals:
        change = real.facts.machine_speed and real.facts.machine_speed.change
        if change and abs(change) > _CHANGED:
            moved[real.run_id] = change
    if not moved:
        return ""
    if len(moved) == 1:
        ((name, change),) = moved.items()
        what = f"ran {_way(change)} after {name} than before it"
    else:
        what = (
            f"changed its speed during {len(moved)} of {len(reals)} measurements "
            f"({_span(moved.values())})"
        )
    return f"The idle machine's reference work {what}: its speed changed meanwhile."


def _way(change: float) -> str:
    return f"{text.percent(abs(change))} {'faster' if change > 0 else 'slower'}"


def _span(changes: Collection[float]) -> str:
    low, high = (text.percent(edge(changes), signed=True) for edge in (min, max))
    return f"{low} to {high}"


Card = tuple[str, list[tuple[str, str]]]
"""Title, and (term, meaning) pairs."""


def environments(records: Iterable[RunRecord]) -> list[Card]:
    """One card per profile and per machine."""
    cards = (
        _profile_card(record) if record.world == "simulated" else _machine_card(record)
        for record in records
    )
    return list({repr(card): card for card in cards}.values())


def _profile_card(record: RunRecord) -> Card:
    cluster = record.manifest.get("cluster") or {}
    calibration = cluster.get("calibration") or {}
    told = calibration.get("machine_speed")
    host = (cluster.get("hosts") or {}).get("default") or {}
    rows = {
        "profile": cluster.get("name"),
        "calibrated": calibration.get("date") or "no: prices are assumed",
        "on": calibration.get("machine"),
        "cores per host": host.get("cores"),
        "memory per host": text.size(host.get("memory")) if host.get("memory") else None,
        "network": f"{host['nic'] * 8 / 1e9:.3g} Gbit/s" if host.get("nic") else None,
        "types of hosts": "; ".join(record.facts.host_types),
        "latency": text.seconds((cluster.get("network") or {}).get("latency")),
        "load while calibrating": calibration.get("background_load"),
        "idle speed at calibration": _speeds(told and MachineSpeeds.model_validate(told)),
        "calibrated with": _versions(calibration.get("versions")),
        "simulated with": _versions(record.environment.get("versions")),
    }
    return "Prediction", [(k, str(v)) for k, v in rows.items() if v not in (None, "")]


def _machine_card(record: RunRecord) -> Card:
    e = record.environment
    memory = e.get("memory_bytes")
    ledger = record.facts.ledger
    use = None if ledger is None else ledger.machine
    load = e.get("load") if use is None else None
    rows = {
        "machine": e.get("machine"),
        "host": e.get("host"),
        "system": e.get("system"),
        "memory": text.size(memory) if memory else None,
        "date": e.get("date"),
        "load before": None if load is None else f"{load:.2f} on {counted_cores(e.get('cores'))}",
        "others' load": use and f"{use.others + use.steal:.2f} of {counted_cores(use.cores)}",
        "idle speed": _speeds(record.facts.machine_speed),
        "revision": e.get("revision"),
        "versions": _versions(e.get("versions")),
    }
    return "Measurement", [(k, str(v)) for k, v in rows.items() if v not in (None, "")]


def _speeds(speeds: MachineSpeeds | None) -> str:
    """Of the reference work on idle cores, before and after."""
    if speeds is None:
        return ""
    before, after = (end and end.overall for end in (speeds.before, speeds.after))
    each = (("before", before), ("after", after))
    return ", ".join(f"{speed:.3f} {when}" for when, speed in each if speed is not None)


def _versions(versions: Any) -> str:
    if not isinstance(versions, dict):
        return ""
    return ", ".join(f"{name} {version}" for name, version in versions.items())
