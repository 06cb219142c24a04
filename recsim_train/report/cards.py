"""Where predictions and measurements come from, as cards: profiles and machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recsim_train.config.speed import MachineSpeeds
from recsim_train.report import text
from recsim_train.results.environment import counted_cores
from recsim_train.results.rundir import RunRecord

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
    load, ledger = record.facts.load_average_before, record.facts.ledger
    use = None if ledger is None else ledger.machine
    load = e.get("load") if load is None and use is None else load
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
