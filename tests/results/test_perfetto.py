from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsim_train.trace.perfetto import TracedRun, trace_file
from recsim_train.trace.record import Iteration, Span


def source(factory: Any, title: str = "real", **changes: Any) -> TracedRun:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="real")
    settings = {"warmup": 5, "steps": 60, "dropped_spans": 0} | changes
    return TracedRun(title, outcome.spans, outcome.iterations, **settings)


def trace_document(sources: list[TracedRun], **caps: int) -> Any:
    return json.loads(trace_file(sources, **caps)[0])


def slices(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in document["traceEvents"] if e["ph"] == "X"]


def test_ids_are_integers_and_every_thread_has_a_name(factory: Any) -> None:
    document = trace_document([source(factory, "simulated"), source(factory, "real")])
    named = {(e["pid"], e["tid"]) for e in document["traceEvents"] if e["name"] == "thread_name"}
    processes = {
        e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"
    }
    for event in slices(document):
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert (event["pid"], event["tid"]) in named
        assert event["pid"] in processes
    assert len(processes) == 8  # 2 trainers and 2 servers that were asked, in both worlds
    assert processes[1] == "simulated trainer[0]"
    assert "real dense_server[0]" in processes.values()


def test_times_are_microseconds_from_the_first_counted_iteration(factory: Any) -> None:
    events = slices(trace_document([source(factory)]))
    assert min(e["ts"] for e in events) == 0
    lookup = next(e for e in events if e["cat"] == "lookup")
    assert lookup["dur"] == 3100
    assert lookup["args"]["payload_bytes"] == 2048


def test_effects_lie_inside_their_iteration_and_do_not_overlap(factory: Any) -> None:
    events = slices(trace_document([source(factory)]))
    for pid, tid in {(e["pid"], e["tid"]) for e in events}:
        end = 0.0
        for e in sorted((e for e in events if (e["pid"], e["tid"]) == (pid, tid)), key=_start):
            if e["cat"] != "iteration":
                assert e["ts"] >= end - 0.01
                end = e["ts"] + e["dur"]


@st.composite
def nested(draw: st.DrawFn) -> tuple[list[Iteration], list[Span]]:
    """Iterations of one loop, one after the other, and effects within them, one after the other,
    with and without gaps, after a long or a short run."""
    start = draw(st.floats(0, 1e6))
    pause = st.floats(0, 3e-3) | st.just(0.0)
    duration = st.floats(1e-8, 3e-3)
    now = start + draw(pause)
    iterations, spans = [], []
    for number in range(draw(st.integers(1, 6))):
        began = now
        for _ in range(draw(st.integers(0, 6))):
            begin = now + draw(pause)
            now = begin + draw(duration)
            spans.append(Span("trainer[0]", "worker[0]", number, "pull", "dense", begin, now, 0))
        now += draw(pause)
        iterations.append(Iteration("trainer[0].worker[0]", number, began, now))
    return iterations, spans


READERS: list[Callable[[float], float]] = [
    lambda us: us,  # microseconds, added as they are
    lambda us: round(us * 1000),  # whole nanoseconds
    lambda us: int(us * 1000),
]


@given(run=nested())
def test_slices_nest_exactly_whatever_a_reader_makes_of_them(
    run: tuple[list[Iteration], list[Span]],
) -> None:
    iterations, spans = run
    found = slices(trace_document([TracedRun("real", spans, iterations, 0, len(iterations))]))
    kept = {s["args"]["iteration"] for s in found}
    outer = [s for s in found if s["cat"] == "iteration"]
    inner = [s for s in found if s["cat"] != "iteration"]
    assert len(inner) == sum(s.iteration in kept for s in spans)
    for read in READERS:
        times = {id(s): (read(s["ts"]), read(s["ts"]) + read(s["dur"])) for s in found}
        for row in (outer, inner):
            for before, after in itertools.pairwise(row):
                assert times[id(before)][1] <= times[id(after)][0]
        parents = {s["args"]["iteration"]: times[id(s)] for s in outer}
        for s in inner:
            begin, end = parents[s["args"]["iteration"]]
            assert begin <= times[id(s)][0] <= times[id(s)][1] <= end
    for s, span in zip(inner, (s for s in spans if s.iteration in kept), strict=True):
        assert s["dur"] == pytest.approx((span.end - span.start) * 1e6, abs=0.126)


def _start(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], -event["dur"]


def test_caps_keep_whole_iterations_and_say_so(factory: Any) -> None:
    document = trace_document([source(factory)], max_iterations=7)
    assert {e["args"]["iteration"] for e in slices(document)} == set(range(5, 12))
    assert "first 7 of 60 counted" in document["otherData"]["left_out"]["real"]
    per_iteration = 4 * (7 + 1 + 4)
    document = trace_document([source(factory)], max_events=3 * per_iteration + 5)
    assert {e["args"]["iteration"] for e in slices(document)} == {5, 6, 7}
    assert len(slices(document)) == 3 * per_iteration


def test_dropped_spans_and_spans_outside_loops(factory: Any) -> None:
    base = source(factory, dropped_spans=12)
    base.spans.append(Span("trainer[0]", "main", -1, "pull", "dense", 0.0, 9.0, 0))  # type: ignore[attr-defined]
    document = trace_document([base])
    assert "12 spans were beyond" in document["otherData"]["left_out"]["real"]
    assert all(e["args"]["iteration"] >= 5 for e in slices(document))


def test_a_run_without_spans_gives_an_empty_trace() -> None:
    content, left_out = trace_file([TracedRun("real", [], [], 5, 60)])
    assert "first 0 of 60" in left_out["real"]
    assert json.loads(content)["traceEvents"] == []
