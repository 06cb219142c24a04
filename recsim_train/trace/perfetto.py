"""Timelines for ui.perfetto.dev and chrome://tracing, in the JSON Trace Event Format.

Processes are role instances, threads their loops (at a server: its clients). Whole iterations are
kept or left out, never a part of one: the first counted ones, as many as fit.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_train.config.topology import ROLE_NAMES
from recsim_train.trace.record import Iteration, Span

MAX_ITERATIONS = 200
MAX_EVENTS = 60_000
"""Perfetto opens this much at once; it is about 10 MB of JSON."""
_GRID = 8
"""Places of a time within a microsecond. An eighth is exact in binary and in nanoseconds, so that
no reader's arithmetic lets a slice end after its parent, or begin before its predecessor ends:
Perfetto drops such slices."""


@dataclass(frozen=True, slots=True)
class TracedRun:
    """One run's part of a trace."""

    title: str
    """Before every process's name: "simulated", "real"."""
    spans: Sequence[Span]
    iterations: Sequence[Iteration]
    warmup: int
    steps: int
    dropped_spans: int = 0


def trace_file(
    sources: Sequence[TracedRun],
    *,
    max_iterations: int = MAX_ITERATIONS,
    max_events: int = MAX_EVENTS,
) -> tuple[bytes, dict[str, str]]:
    """The trace of some runs below each other, each from its first counted iteration on: the
    content of its file, and what the caps left out, one sentence per run."""
    events: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    pid = 0
    for source in sources:
        kept = _fitting(source, max_iterations, max_events // max(1, len(sources)))
        chosen = [s for s in source.spans if source.warmup <= s.iteration < source.warmup + kept]
        marks = [
            i for i in source.iterations if source.warmup <= i.iteration < source.warmup + kept
        ]
        left_out[source.title] = _left_out(source, kept)
        if not chosen and not marks:
            continue
        origin = min([s.start for s in chosen] + [i.start for i in marks])
        for instance, loops in _threads(chosen, marks).items():
            pid += 1
            events.append(_meta("process_name", pid, 0, {"name": f"{source.title} {instance}"}))
            events.append(_meta("process_sort_index", pid, 0, {"sort_index": pid}))
            for tid, loop in enumerate(loops, start=1):
                events.append(_meta("thread_name", pid, tid, {"name": loop}))
                for i in marks:
                    if i.loop == f"{instance}.{loop}":
                        known = i.loss is not None and math.isfinite(i.loss)
                        loss = {"loss": round(i.loss or 0.0, 6)} if known else {}
                        facts = {"iteration": i.iteration, **loss}
                        title = f"iteration {i.iteration}"
                        events.append(_slice(title, "iteration", pid, tid, i, origin, facts))
                for s in loops[loop]:
                    facts = {"iteration": s.iteration, "payload_bytes": s.bytes}
                    title = f"{s.effect} {s.name}".strip()
                    events.append(_slice(title, s.effect, pid, tid, s, origin, facts))
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"left_out": left_out},
    }
    return f"{json.dumps(document, separators=(',', ':'))}\n".encode(), left_out


def _meta(kind: str, pid: int, tid: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": arguments}


def _slice(
    name: str,
    category: str,
    pid: int,
    tid: int,
    what: Iteration | Span,
    origin: float,
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """A complete event, microseconds from ``origin``."""
    first, last = (round((moment - origin) * 1e6 * _GRID) for moment in (what.start, what.end))
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": first / _GRID,
        "dur": max(0, last - first) / _GRID,
        "args": arguments,
    }


def _fitting(source: TracedRun, max_iterations: int, max_events: int) -> int:
    """How many whole counted iterations (of all loops) fit into the caps; at least one."""
    counted = range(source.warmup, source.warmup + source.steps)
    spans = Counter(s.iteration for s in source.spans if s.iteration in counted)
    marks = Counter(i.iteration for i in source.iterations)
    kept = events = 0
    for k in range(source.warmup, max(spans, default=-1) + 1):
        events += spans[k] + (marks[k] if k in spans else 0)
        if kept and (kept >= max_iterations or events > max_events):
            break
        kept += 1
    return kept


def _left_out(source: TracedRun, kept: int) -> str:
    parts = [f"shows the first {kept} of {source.steps} counted iterations of every loop"]
    if source.warmup:
        parts.append(f"{source.warmup} warm-up iterations are left out")
    if source.dropped_spans:
        parts.append(
            f"{source.dropped_spans} spans were beyond the recording limit (execution.max_spans)"
        )
    return "; ".join(parts)


def order(instance: str) -> tuple[int, int, str]:
    """Sort key of instances: trainers first, by number."""
    role, _, number = instance.partition("[")
    roles: tuple[str, ...] = ROLE_NAMES
    place = roles.index(role) if role in roles else len(roles)
    digits = number.rstrip("]")
    return place, int(digits) if digits.isdigit() else 0, instance


def _threads(spans: Iterable[Span], marks: Iterable[Iteration]) -> dict[str, dict[str, list[Span]]]:
    """Spans by instance and loop, in a fixed order."""
    by_instance: dict[str, dict[str, list[Span]]] = {}
    for s in spans:
        by_instance.setdefault(s.instance, {}).setdefault(s.loop, []).append(s)
    for i in marks:
        instance, _, loop = i.loop.partition(".")
        by_instance.setdefault(instance, {}).setdefault(loop, [])
    return {
        instance: {
            loop: sorted(by_instance[instance][loop], key=lambda s: (s.start, -s.end))
            for loop in sorted(by_instance[instance])
        }
        for instance in sorted(by_instance, key=order)
    }
