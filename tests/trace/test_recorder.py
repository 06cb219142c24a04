"""What is kept of a process's effects: so many spans of all its threads together."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from recsim_train.trace.record import Compact, Iteration, Recorder, Span, Sync, TotalKey

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def test_threads_of_one_process_share_the_room_for_spans() -> None:
    kept = [0]
    threads = [Recorder(warmup=0, steps=100, max_spans=5, kept=kept) for _ in range(2)]
    alone = Recorder(warmup=0, steps=100, max_spans=5)
    for number in range(4):
        for recorder in (*threads, alone):
            recorder.add(Span("trainer[0]", "worker[0]", number, "pull", "dense", 0.0, 1.0, 8))
    assert [len(recorder.spans) for recorder in threads] == [3, 2]
    assert [recorder.dropped_spans for recorder in threads] == [1, 2]
    assert len(alone.spans) == 4
    # what is not kept counts all the same
    key = TotalKey("trainer[0]", "worker[0]", "pull", "dense")
    assert [recorder.totals[key].bytes for recorder in threads] == [32, 32]


@given(st.lists(st.tuples(st.integers(0, 2**40), NUMBERS, NUMBERS, st.none() | NUMBERS)))
def test_compact_records_come_back_as_they_were(
    rows: list[tuple[int, float, float, float | None]],
) -> None:
    """Losses that are not known in some iterations, too."""
    done, syncs = Compact(Iteration), Compact(Sync)
    for iteration, start, end, loss in rows:
        done.add("worker[0]", iteration, start, end, loss)
        syncs.add("worker[0]", iteration, end)
    assert list(done) == [Iteration("worker[0]", *row) for row in rows]
    assert list(syncs) == [Sync("worker[0]", row[0], row[2]) for row in rows]


def test_a_million_iterations_take_bytes_and_no_objects() -> None:
    done = Compact(Iteration)
    tracemalloc.start()
    for number in range(100_000):
        done.add("worker[0]", number, number * 0.1, number * 0.1 + 0.05, 0.5)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= 100_000 * 4 * 8 * 1.2  # arrays grow by an eighth at a time
