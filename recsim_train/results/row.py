"""The row of a run in a table of many: all of its figures, by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recsim_train.config.cluster import Cluster
from recsim_train.placement.plan import Plan
from recsim_train.results.figures import Summary, document_of
from recsim_train.results.folder import clean_document
from recsim_train.results.whole import BILLION, whole_training
from recsim_train.trace.binding import Binding
from recsim_train.trace.facts import Facts

COMPLETE, DOES_NOT_FIT, FAILED = "complete", "does not fit", "failed"

COLUMNS: Mapping[str, str] = {
    "strategy": "string",
    "options": "json",
    "profile": "string",
    "status": "string",
    "message": "string",
    "examples_per_second": "double",
    "eps_low": "double",
    "eps_high": "double",
    "calibration_low": "double",
    "calibration_high": "double",
    "bound_eps": "double",
    "bottleneck": "string",
    "bytes_per_step": "double",
    "seconds_per_iteration": "double",
    "steps": "int64",
    "elp": "int64",
    "examples_per_step": "int64",
    "sync_gap": "double",
    "sync_gap_per_thread": "double",
    "staleness": "double",
    "trainers": "int64",
    "embedding_servers": "int64",
    "dense_servers": "int64",
    "readers": "int64",
    "hosts": "int64",
    "cost_per_hour": "double",
    "cost_per_billion": "double",
    "currency": "string",
    "cores": "double",
    "threads": "int64",
    "operation_threads": "int64",
    "batch_size": "int64",
    "seed": "int64",
    "memory_bytes": "double",
    "memory_share": "double",
    "simulated_seconds": "double",
    "wall_seconds": "double",
    "stopped": "string",
    "run_id": "string",
    "binding": "json",
    "utilisation": "json",
    "bounds": "json",
    "time_by_effect": "json",
    "bytes_by_effect": "json",
    "nic_bytes": "double",
    "memory": "json",
    "elasticities": "json",
    "cpu_per_example": "json",
    "calibration_errors": "json",
    "notes": "json",
}
"""Columns beside the swept settings, and their types. ``bytes_per_step``: payload of one counted
iteration of every training loop, background rounds in proportion; ``memory_bytes``: the largest
process; ``memory_share``: the fullest host's; ``hosts``: that are paid for, and what they cost an
hour and a billion examples, in ``currency``, where all have a price; ``cores``: of all hosts;
``examples_per_step``: that one step of the whole job processes, an iteration of every training
loop; ``nic_bytes``: for each such step, bytes of frames that all NICs of hosts of their own sent,
from start to end; ``notes``: what a reader must know of it, one sentence each;
``cpu_per_example``: seconds by "role.what"; ``binding``: a `Binding` as JSON;
``bottleneck``: the same in words, which reports make of it."""


def row_of(
    plan: Plan,
    cluster: Cluster | None,
    summary: Summary | None,
    status: str,
    message: str = "",
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The figures of one point, by column; those of a point without a run are None.

    ``cluster``: None of a measurement that has no profile.
    """
    spec = plan.experiment
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    if summary is not None:
        row |= _figures(summary, cluster is not None and cluster.colocate)
    row |= {
        "strategy": plan.strategy.kind,
        "options": plan.strategy.options,
        "profile": None if cluster is None else cluster.name,
        "status": status,
        "message": message or None,
        "trainers": spec.roles.trainers,
        "embedding_servers": len(plan.of_role("embedding_server")),
        "dense_servers": len(plan.of_role("dense_server")),
        "readers": len(plan.of_role("reader")),
        "threads": plan.worker_threads,
        "operation_threads": plan.operation_threads,
        "batch_size": spec.training.batch_size,
        "examples_per_step": len(plan.training) * spec.training.batch_size,
        "notes": list(notes) or None,
        "seed": spec.seed,
        "wall_seconds": None,
        "run_id": None,
    }
    return clean_document(row)


def _figures(summary: Summary, colocate: bool) -> dict[str, Any]:
    facts, document = summary.facts, document_of(summary)
    synchronisation = summary.synchronisation
    gap, staleness = synchronisation.sync_gap, synchronisation.staleness
    per_step = [size for size in summary.bytes_by_effect.values() if size is not None]
    uses = facts.memory.values()
    shares = [filled / there for filled, there in memory_of_hosts(facts, colocate).values()]
    named = document["facts"] | document
    low, high = summary.ci95 or (None, None)
    least, most = facts.calibration_ci95 or (None, None)
    whole = whole_training(summary, BILLION)
    rented = facts.rented
    return {key: named[key] for key in COLUMNS.keys() & named.keys()} | {
        "eps_low": low,
        "eps_high": high,
        "calibration_low": least,
        "calibration_high": most,
        "bytes_per_step": sum(per_step) if per_step else None,
        "elp": synchronisation.elp,
        "sync_gap": gap and gap.mean,
        "sync_gap_per_thread": synchronisation.sync_gap_per_thread,
        "staleness": staleness and staleness.mean,
        "cores": cores_of(facts, colocate),
        "hosts": None if rented is None else rented.hosts,
        "cost_per_hour": None if rented is None else rented.per_hour,
        "cost_per_billion": None if whole is None else whole.cost,
        "currency": None if rented is None else rented.currency,
        "cpu_per_example": cpu_by_line(summary),
        "memory_bytes": max((use.bytes for use in uses), default=None),
        "memory_share": max(shares, default=None),
    }


def binding_of(row: Mapping[str, Any]) -> Binding | None:
    """What binds; of an earlier version's row in its words alone. None: nothing is known of it."""
    known = row.get("binding") or ((said := row.get("bottleneck")) and {"said": said})
    return None if not known else Binding(**known)


def cpu_by_line(summary: Summary) -> dict[str, float] | None:
    """CPU seconds of one example by "role.what"; None without a ledger."""
    lines = summary.cpu_per_example
    named = {".".join(filter(None, key)): seconds for key, seconds in (lines or {}).items()}
    return None if lines is None else named


def cores_of(facts: Facts, colocate: bool) -> float | None:
    """Cores of all hosts together; None: not known."""
    by_host = {_host(facts, name, colocate): count for name, count in facts.cores.items()}
    return float(sum(by_host.values())) if by_host else None


def memory_of_hosts(facts: Facts, colocate: bool) -> dict[str, tuple[float, float]]:
    """By host: bytes that its processes need, and that it has, where that is known."""
    found: dict[str, tuple[float, float]] = {}
    for name, use in facts.memory.items():
        if use.available:
            host = _host(facts, name, colocate)
            found[host] = found.get(host, (0.0, 0.0))[0] + use.bytes, use.available
    return found


def _host(facts: Facts, process: str, colocate: bool) -> str:
    return "" if colocate else facts.hosts.get(process, process)


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted name; lists stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
