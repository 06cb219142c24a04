"""Frames on links: what one message takes, what several get, what is lost and comes anyway."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import ceil, inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsim_train.config.frames import FRAME, SEGMENT
from recsim_train.sim.network.layout import (
    C_ROUND,
    C_SPOKEN,
    C_THRESHOLD,
    C_VARIES,
    C_WAITS,
    C_WINDOW,
    P_DROPS,
)
from tests.sim.wires import FAST, HEAD, RATE, Wires, wire

# ---------------------------------------------------------------- one message


@pytest.mark.parametrize(
    ("size", "latency"),
    [(1, 3e-3), (SEGMENT, 0.0), (SEGMENT + 1, 3e-3), (10 * SEGMENT, 0.02), (123_456, 0.0)],
)
def test_a_message_alone_takes_its_bytes_and_the_first_frame_once_more(
    size: int, latency: float
) -> None:
    """Each frame is whole at one port before it goes to the next. Those of the first window follow
    each other; so do later ones while acknowledgements are back before the queue is empty."""
    wires = Wires([RATE, RATE], latency=latency)
    ends = wires.send(wires.connection(0, 1), size)
    wires.engine.run()
    first = min(size, SEGMENT) + HEAD
    assert ends == pytest.approx([(wire(size) + first) / RATE + latency], rel=1e-9)


@pytest.mark.parametrize("segments", [10, 3000])
def test_of_frames_that_are_handled_as_one_the_first_does_not_wait_for_the_last(
    segments: int,
) -> None:
    """At 10 Gbit/s 21 frames are one. Each window but the first leaves when the one before it has
    been acknowledged, until there are two of them on the way."""
    rate = 10e9 / 8
    wires = Wires([rate, rate])
    ends = wires.send(wires.connection(0, 1), segments * SEGMENT)
    wires.engine.run()
    least = wire(segments * SEGMENT)
    assert least <= ends[0] * rate <= least + 5 * FRAME


def test_the_slower_of_two_links_says_how_long_it_takes() -> None:
    size = 200 * SEGMENT
    for rates in ([RATE, 10 * RATE], [10 * RATE, RATE]):
        wires = Wires(rates)
        ends = wires.send(wires.connection(0, 1), size)
        wires.engine.run()
        assert ends == pytest.approx([(wire(size) + FRAME / 10) / RATE], rel=1e-9)


def test_an_emulated_link_lets_frames_pass_as_long_as_it_owes_nothing() -> None:
    """By hand: with two frames earned three leave at once, then one in each frame's time; a fifth
    of a frame is earned in the pause before the last message."""
    wires = Wires([RATE, FAST], at_once=2.0 * FRAME)
    connection, ends = wires.connection(0, 1), []
    ends = wires.send(connection, *[float(SEGMENT)] * 6)
    later: list[float] = []

    def again() -> None:
        later.extend([wires.engine.now])
        wires.engine.message(connection, SEGMENT).callbacks.append(
            lambda _: later.append(wires.engine.now)
        )

    wires.engine.later(3.2 * FRAME / RATE, again)
    wires.engine.run()
    frame = FRAME / RATE
    assert ends == pytest.approx([0.0, 0.0, 0.0, frame, 2 * frame, 3 * frame], abs=1e-8)
    assert later[1] == pytest.approx(4 * frame, rel=1e-6)


def test_windows_double_in_each_round_trip() -> None:
    """Where links take no time: ten segments, then twenty more, then forty (RFC 5681, RFC 6928)."""
    latency = 0.05
    for segments, round_trips in ((10, 0), (11, 1), (30, 1), (31, 2), (70, 2), (71, 3)):
        wires = Wires([FAST, FAST], latency=latency)
        ends = wires.send(wires.connection(0, 1), segments * SEGMENT)
        wires.engine.run()
        assert ends == pytest.approx([latency * (1 + 2 * round_trips)], rel=1e-3), segments


@pytest.mark.parametrize(("pause", "halves"), [(0.15, 0), (0.25, 1), (0.45, 2), (5.0, 9)])
def test_a_window_is_halved_for_every_time_out_of_silence(pause: float, halves: int) -> None:
    """Not below ten segments; of a time-out of 200 ms."""
    wires = Wires([100 * RATE, RATE])
    connection = wires.connection(0, 1)
    windows: list[int] = []

    def look() -> None:
        windows.append(int(wires.network._words.ints[connection + C_WINDOW]))

    wires.send(connection, 400 * SEGMENT)
    wires.engine.run()
    spoken = float(wires.network._words.floats[connection + C_SPOKEN])
    look()
    wires.send_later(spoken + pause - wires.engine.now, connection, 1.0)
    wires.engine.later(spoken + pause - wires.engine.now + 1e-6, look)
    wires.engine.run()
    assert windows[0] > 40
    assert windows[1] == max(min(10, windows[0]), windows[0] >> halves)


def read(wires: Wires, connection: int) -> int:
    """A connection's window."""
    return int(wires.network._words.ints[connection + C_WINDOW])


def test_after_a_pause_a_window_doubles_again_to_three_quarters() -> None:
    """Also where slow start ended at less (RFC 2861)."""
    wires = Wires([100 * RATE, RATE])
    connection = wires.connection(0, 1)
    wires.send(connection, 400 * SEGMENT)
    wires.engine.run()
    window = read(wires, connection)
    assert window > 40
    wires.network._words.floats[connection + C_THRESHOLD] = 10.0
    wires.send_later(0.5, connection, 1.0)
    wires.engine.run()
    assert wires.network._words.floats[connection + C_THRESHOLD] == window * 3 // 4


def test_beyond_slow_start_a_window_grows_by_one_in_each_round_trip() -> None:
    """10 segments, then 11, then 12 (RFC 5681)."""
    latency = 0.05
    for segments, round_trips in ((10, 0), (11, 1), (21, 1), (22, 2), (33, 2), (34, 3)):
        wires = Wires([FAST, FAST], latency=latency)
        connection = wires.connection(0, 1)
        wires.network._words.floats[connection + C_THRESHOLD] = 10.0
        ends = wires.send(connection, segments * SEGMENT)
        wires.engine.run()
        assert ends == pytest.approx([latency * (1 + 2 * round_trips)], rel=1e-3), segments


def test_beyond_slow_start_a_window_grows_by_what_was_acknowledged() -> None:
    """Also where there are many acknowledgements in a round trip: once 10, then 11, ..., then 21
    have come, which are 186 in all, the window is 22."""
    wires = Wires([10 * RATE, 10 * RATE], latency=0.05)
    connection = wires.connection(0, 1)
    wires.network._words.floats[connection + C_THRESHOLD] = 10.0
    wires.send(connection, 196 * SEGMENT)
    wires.engine.run()
    assert sum(range(10, 22)) == 186
    assert read(wires, connection) == pytest.approx(22, abs=1)


def test_a_window_grows_to_twice_of_what_is_used() -> None:
    """Of eight segments at a time, by two for each acknowledgement; then what is not used of it is
    given up by and by (RFC 7661)."""
    wires = Wires([10 * RATE, 10 * RATE], latency=5e-3)
    connection = wires.connection(0, 1)
    windows: list[int] = []
    for k in range(40):
        wires.send_later(0.05 * k, connection, 8 * SEGMENT)
        wires.engine.later(0.05 * k + 0.04, lambda: windows.append(read(wires, connection)))
    wires.engine.run()
    assert windows[0] == 16
    assert max(windows) <= 17


def test_a_window_that_is_not_used_falls_half_way_in_each_time_out() -> None:
    """To ten segments at last. Something is sent all the time, so that it is never halved."""
    wires = Wires([100 * RATE, RATE])
    connection = wires.connection(0, 1)
    wires.send(connection, 400 * SEGMENT)
    wires.engine.run()
    begin, windows = wires.engine.now, [read(wires, connection)]
    for k in range(40):
        wires.send_later(0.05 * k, connection, 1.0)
        wires.engine.later(0.05 * k + 0.04, lambda: windows.append(read(wires, connection)))
    wires.engine.run()
    assert windows[0] > 40
    assert wires.engine.now - begin == pytest.approx(40 * 0.05, abs=0.05)
    expected = [windows[0]]
    while len(expected) < 4:
        expected.append((expected[-1] + 10) // 2)
    assert list(dict.fromkeys(windows))[:4] == expected
    assert 7 <= len(set(windows)) <= 10


def test_a_round_trip_is_what_most_have_taken() -> None:
    """An eighth of the last one, a quarter of how far it is off (RFC 6298). Three messages, each a
    frame, after the frames without payload by which the connection was made."""
    latency = 5e-3
    wires = Wires([RATE, RATE], latency=latency)
    connection = wires.connection(0, 1)
    for k in range(3):
        wires.send_later(0.05 * k, connection, SEGMENT)
    wires.engine.run()
    first = 2 * latency + 4 * HEAD / RATE
    each = 2 * latency + 2 * (FRAME + HEAD) / RATE
    trip, varies = first, first / 2
    for _ in range(3):
        varies = 0.75 * varies + 0.25 * (each - trip)
        trip = 0.875 * trip + 0.125 * each
    found = [float(wires.network._words.floats[connection + at]) for at in (C_ROUND, C_VARIES)]
    assert found == pytest.approx([trip, varies], rel=1e-9)


@pytest.mark.parametrize("size", [25 * SEGMENT + 100, 1])
def test_a_link_carries_heads_and_its_other_direction_acknowledgements(size: int) -> None:
    """One for every second segment, and for the last."""
    wires = Wires([RATE, RATE])
    wires.send(wires.connection(0, 1), size)
    wires.engine.run()
    carried = wires.network.carried
    assert [carried(wires.out[0]), carried(wires.into[1])] == [wire(size)] * 2
    assert carried(wires.out[1]) == carried(wires.into[0]) == HEAD * ceil(ceil(size / SEGMENT) / 2)


def test_frames_that_are_handled_as_one_have_a_head_each() -> None:
    wires = Wires([500 * RATE, 500 * RATE])
    wires.send(wires.connection(0, 1), 1_000_000)
    wires.engine.run()
    assert wires.network.carried(wires.out[0]) == wire(1_000_000)


# ---------------------------------------------------------------- what is lost


@pytest.mark.parametrize(
    ("segments", "frames"),
    [
        # sent again after two round trips and what an acknowledgement may be late by, then after
        # time-outs of 200, 400, 800 ms
        (1, {0.075: 1, 0.095: 2, 0.275: 2, 0.295: 3, 0.675: 3, 0.695: 4, 1.475: 4, 1.495: 5}),
        # the last one of several, then the first one after each time-out
        (8, {0.04: 8, 0.20: 9, 0.235: 9, 0.3: 10, 0.6: 10, 0.7: 11}),
    ],
)
def test_what_nobody_acknowledges_is_sent_again_ever_later(
    segments: int, frames: dict[float, int]
) -> None:
    """The receiver's link stands still for two seconds."""
    wires = Wires([1000 * RATE] * 2, latency=0.01)
    connection = wires.connection(0, 1)
    wires.network.set_rate(0.0, wires.out[1], 0.0)
    wires.send(connection, *[float(SEGMENT)] * segments)
    found: dict[float, float] = {}

    def look() -> None:
        found[wires.engine.now] = wires.network.carried(wires.out[0]) / FRAME

    for at in frames:
        wires.engine.later(at, look)
    wires.engine.later(2.0, lambda: wires.network.set_rate(2.0, wires.out[1], RATE))
    wires.engine.run()
    assert found == pytest.approx(frames)


def test_a_queue_holds_64_frames() -> None:
    """Of eight hosts that send ten each, in the time of one of the link behind them, the last ones
    are lost."""
    wires = Wires([10 * RATE] * 8 + [RATE], queue=0.0)
    ends = [wires.send(wires.connection(n, 8), 10 * SEGMENT) for n in range(8)]
    drops: list[int] = []
    port = wires.into[8]
    wires.engine.later(
        1.05 * FRAME / RATE, lambda: drops.append(wires.network._words.ints[port + P_DROPS])
    )
    wires.engine.run()
    assert drops == [80 - 64]
    assert all(ends)


def test_an_empty_queue_takes_a_frame_of_any_size() -> None:
    """One that stands for a hundred others, at a link that is 200 times as fast."""
    wires = Wires([RATE / 10, 20 * RATE], queue=0.0)
    ends = wires.send(wires.connection(0, 1, copies=100.0), 10 * SEGMENT)
    wires.engine.later(5.0, wires.engine.stop)
    wires.engine.run()
    assert ends == pytest.approx([105 * FRAME / RATE], rel=1e-9)


# ---------------------------------------------------------------- several


def test_first_in_first_out_a_short_message_waits_for_what_is_in_the_queue() -> None:
    """One host sends a long message to another; 5 ms later a frame of a third's comes to the same
    link and waits for what has come there and has not left."""
    wires = Wires([4 * RATE, RATE, RATE])
    long, short = wires.connection(0, 1), wires.connection(2, 1)
    wires.send(long, 10 * SEGMENT)
    ends: list[float] = []
    begun = 5e-3

    def ask() -> None:
        wires.engine.message(short, 100).callbacks.append(lambda _: ends.append(wires.engine.now))

    wires.engine.later(begun, ask)
    wires.engine.run()
    frame = FRAME / RATE
    # the first frame was there after a quarter of a frame's time, the link has been full since
    left = frame / 4 + 10 * frame
    there = begun + (100 + HEAD) / RATE
    assert there < left
    assert ends == pytest.approx([left + (100 + HEAD) / RATE], rel=1e-9)


@pytest.mark.parametrize("fair", [False, True])
def test_two_equal_senders_have_half_of_a_link_each(*, fair: bool) -> None:
    size = 300 * SEGMENT
    wires = Wires([RATE, RATE, RATE], fair=fair)
    ends = [wires.send(wires.connection(n, 2), size) for n in range(2)]
    wires.engine.run()
    whole = wire(2 * size) / RATE
    assert max(ends)[0] == pytest.approx(whole, rel=0.01)
    assert min(ends)[0] > 0.9 * whole


def test_fair_queues_take_turns_by_bytes() -> None:
    """One sends many short messages, a frame each, the other a long one: as much on the wire."""
    count = 600
    size = round(count * (500 + HEAD) / FRAME) * SEGMENT
    wires = Wires([4 * RATE, 4 * RATE, RATE], fair=True)
    short = wires.send(wires.connection(0, 2), *[500.0] * count)
    long = wires.send(wires.connection(1, 2), size)
    wires.engine.run()
    whole = 2 * wire(size) / RATE
    assert short[-1] == pytest.approx(whole, rel=0.1)
    assert long[-1] == pytest.approx(whole, rel=0.1)


def test_fair_queues_spare_a_short_message_the_queue_of_others() -> None:
    """It waits for one frame of each other at most, at the port where they meet."""
    for fair, least, most in ((False, 8, inf), (True, 0, 3)):  # frames
        wires = Wires([4 * RATE, RATE, RATE], fair=fair, queue=64 * FRAME / RATE)
        wires.send(wires.connection(0, 1), 200 * SEGMENT)
        ends: list[float] = []

        def ask(wires: Wires = wires, ends: list[float] = ends) -> None:
            done = wires.engine.message(wires.connection(2, 1), 100)
            done.callbacks.append(lambda _: ends.append(wires.engine.now))

        wires.engine.later(0.05, ask)
        wires.engine.run()
        waited = (ends[0] - 0.05) * RATE / FRAME
        assert least <= waited <= most


@pytest.mark.parametrize(
    ("mbit", "times"), [(2.0, 2.0), (20.0, 2.0), (50.0, 2.0), (100.0, 2.0), (50.0, 1.2)]
)
def test_a_stream_keeps_in_its_own_queue_what_it_sends_in_a_millisecond(
    mbit: float, times: float
) -> None:
    """By hand, of a stream alone that has grown to a window of w segments, of which n wait: a
    round trip is n + 2 frames long, and two acknowledgements; pace is 2 w in a round trip, 1.2 w
    beyond slow start; of 1 / 1024 s of that as many segments wait as there are 2280 B in it, but
    two at least, and one more. A window grows as long as twice is on its way, so w > 2 (n + 2)."""
    rate, frame = mbit * 1e6 / 8, FRAME / (mbit * 1e6 / 8)
    wires = Wires([rate, rate])
    connection = wires.connection(0, 1)
    if times < 2.0:
        wires.network._words.floats[connection + C_THRESHOLD] = 60.0
    wires.send(connection, 3000 * SEGMENT)
    found: list[tuple[int, int]] = []

    def look() -> None:
        waiting, window = (
            int(wires.network._words.ints[connection + at]) for at in (C_WAITS, C_WINDOW)
        )
        found.append((waiting, window))

    wires.engine.later(2000 * frame, look)
    wires.engine.run()
    ((waiting, window),) = found
    n = 2.0
    for _ in range(200):
        pace = times * window * SEGMENT / ((n + 2.0 + 2.0 * HEAD / FRAME) * frame)
        n = 0.5 * n + 0.5 * (max(2.0, pace / 1024.0 / 2280.0) + 0.5)
    assert waiting == pytest.approx(n, abs=1.0)
    assert window > 2 * (waiting + 2) or times < 2.0


def test_who_stands_for_several_takes_as_much_of_a_link() -> None:
    """One sender that stands for five against five senders, all alike."""
    size = 100 * SEGMENT
    alone = Wires([RATE, RATE])
    one = alone.send(alone.connection(0, 1, copies=5.0), size)
    alone.engine.run()
    five = Wires([RATE] * 6)
    all_ends = [five.send(five.connection(n, 5), size) for n in range(5)]
    five.engine.run()
    assert one[0] == pytest.approx(max(all_ends)[0], rel=0.03)


@pytest.mark.parametrize(("share", "times"), [(0.5, 2.0), (0.25, 4.0)])
def test_a_link_that_is_slower_for_a_while_takes_longer(share: float, times: float) -> None:
    size = 200 * SEGMENT
    alone = wire(size) / RATE
    wires = Wires([RATE, FAST])
    ends = wires.send(wires.connection(0, 1), size)
    change = wires.network.set_rate
    wires.engine.later(0.2 * alone, lambda: change(0.2 * alone, wires.out[0], share * RATE))
    wires.engine.later(0.4 * alone, lambda: change(0.4 * alone, wires.out[0], 0.0))
    wires.engine.later(0.9 * alone, lambda: change(0.9 * alone, wires.out[0], RATE))
    wires.engine.run()
    carried = 0.2 + 0.2 / times
    assert ends == pytest.approx([(0.9 + 1.0 - carried) * alone], rel=0.03)


# ---------------------------------------------------------------- laws


def _sent(
    messages: Sequence[tuple[int, int, float]], slower: float, at_once: float, *, fair: bool
) -> list[tuple[int, int, float]]:
    """(who, which, when) in the order in which they arrived."""
    wires = Wires([RATE * slower] * 3 + [RATE], fair=fair, queue=0.0, at_once=at_once)
    connections = [wires.connection(n, 3) for n in range(3)]
    came: list[tuple[int, int, float]] = []

    def send(number: int, who: int, size: int) -> None:
        done = wires.engine.message(connections[who], size)
        done.callbacks.append(lambda _: came.append((who, number, wires.engine.now)))

    for number, (who, size, at) in enumerate(messages):
        wires.engine.later(at, partial(send, number, who, size))
    wires.engine.run()
    return came


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 60_000), st.floats(0.0, 0.1)),
        min_size=1,
        max_size=25,
    ),
    st.booleans(),
    st.sampled_from([0.0, 2.0 * FRAME]),
    st.floats(1.0, 20.0),
)
def test_everything_arrives_in_order_and_no_link_is_faster_than_it_is(
    messages: list[tuple[int, int, float]], fair: bool, at_once: float, slower: float
) -> None:
    """Of three senders to one link, which loses much: its queue is 64 frames long."""
    runs = [_sent(sorted(messages, key=lambda m: m[2]), slower, at_once, fair=fair) for _ in "ab"]
    assert runs[0] == runs[1]
    assert len(runs[0]) == len(messages)
    for who in range(3):
        order = [number for sender, number, _ in runs[0] if sender == who]
        assert order == sorted(order)
    first = min(at for *_, at in messages)
    most = (runs[0][-1][2] - first) * RATE + (3.0 * FRAME if at_once else 0.0)
    assert sum(size for _, size, _ in messages) <= most * (1.0 + 1e-9)


def test_what_is_lost_is_sent_again_and_halves_the_window() -> None:
    """A host ten times as fast as the link behind it fills that link's queue of 64 frames."""
    wires = Wires([10 * RATE, RATE], queue=0.0)
    connection = wires.connection(0, 1)
    size = 1500 * SEGMENT
    ends = wires.send(connection, size)
    windows: list[int] = []
    for k in range(1, 100):
        wires.engine.later(
            k * 0.01, lambda: windows.append(int(wires.network._words.ints[connection + C_WINDOW]))
        )
    wires.engine.run()
    assert wires.network._words.ints[wires.into[1] + P_DROPS] > 0
    least = wire(size) / RATE
    assert least < ends[0] < 1.15 * least
    falls = [b / a for a, b in zip(windows, windows[1:], strict=False) if b < a]
    assert falls
    assert min(falls) > 0.45


def test_memory_grows_with_what_is_on_its_way() -> None:
    """Many more messages than there is room for at the beginning, some of them long."""
    draw = Random(5)
    wires = Wires([RATE * 1000] * 12, queue=1.0, latency=0.05)
    sizes = [[draw.randrange(1, 2_000_000) for _ in range(40)] for _ in range(11)]
    ends = [wires.send(wires.connection(n, 11), *sizes[n]) for n in range(11)]
    wires.engine.run()
    assert [len(one) for one in ends] == [40] * 11
    assert all(a <= b for one in ends for a, b in zip(one, one[1:], strict=False))
    assert max(one[-1] for one in ends) >= sum(map(sum, sizes)) / (RATE * 1000)


def test_messages_of_a_connection_share_frames_with_nobody() -> None:
    """Each begins with a frame of its own."""
    sizes = [100.0, 2000.0, 1.0, 5 * SEGMENT]
    wires = Wires([RATE, FAST])
    ends = wires.send(wires.connection(0, 1), *sizes)
    wires.engine.run()
    assert ends == pytest.approx([b / RATE for b in accumulate(map(wire, sizes))], rel=1e-6)
