"""What is kept of a process's effects: so many spans of all its threads together."""

from __future__ import annotations

from recsim_train.trace.record import Recorder, Span, TotalKey


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
