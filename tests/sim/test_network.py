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
from recsim_train.sim.engine import Engine, Event
from recsim_train.sim.network.layout import C_SPOKEN, C_THRESHOLD, C_WAITS, C_WINDOW, P_DROPS
from recsim_train.sim.network.network import Hop, Network

RATE = 20e6 / 8
"""Bytes of frames per second."""
HEAD = FRAME - SEGMENT
FAST = 1e12


class Wires:
    """Hosts, each with a port out and a port in, that are as fast as they are said to be."""

    def __init__(
        self,
        rates: Sequence[float],
        *,
        fair: bool = False,
        queue: float = 1.0,
        at_once: float = 0.0,
        latency: float = 0.0,
    ) -> None:
        self.engine = Engine(shared=False)
        self.network = self.engine.network = Network()
        self._fair, self._latency = fair, latency

        def ports(*, begins: bool) -> list[int]:
            port = partial(self.network.port, fair=fair, begins=begins)
            return [port(rate, queue, at_once) for rate in rates]

        self.out, self.into = ports(begins=True), ports(begins=False)
        self._queues: dict[tuple[int, int], int] = {}

    def _queue(self, port: int, peer: int) -> int:
        key = port, peer if self._fair else -1
        if key not in self._queues:
            self._queues[key] = self.network.queue(port)
        return self._queues[key]

    def connection(self, source: int, target: int, copies: float = 1.0) -> int:
        """``copies``: that one of the source stands for, at the target."""

        def hops(a: int, b: int, shares: tuple[float, float]) -> list[Hop]:
            ports = (self._queue(self.out[a], b), self._queue(self.into[b], a))
            return [Hop(queue, share) for queue, share in zip(ports, shares, strict=True)]

        there = hops(source, target, (1.0, copies))
        return self.network.connection(there, hops(target, source, (copies, 1.0)), self._latency)

    def send(self, connection: int, *sizes: float) -> list[float]:
        """When each message has arrived, once the engine has run."""
        ends: list[float] = []

        def arrived(_: Event) -> None:
            ends.append(self.engine.now)

        for size in sizes:
            self.engine.message(connection, size).callbacks.append(arrived)
        return ends


def wire(size: float) -> float:
    """Bytes of frames of a message."""
    return size + HEAD * ceil(size / SEGMENT)


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
        windows.append(int(wires.network._i[connection + C_WINDOW]))

    wires.send(connection, 400 * SEGMENT)
    wires.engine.run()
    spoken = float(wires.network._f[connection + C_SPOKEN])
    look()
    wires.engine.later(spoken + pause - wires.engine.now, lambda: wires.send(connection, 1.0))
    wires.engine.later(spoken + pause - wires.engine.now + 1e-6, look)
    wires.engine.run()
    assert windows[0] > 40
    assert windows[1] == max(min(10, windows[0]), windows[0] >> halves)


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
        wires.network._f[connection + C_THRESHOLD] = 60.0
    wires.send(connection, 3000 * SEGMENT)
    found: list[tuple[int, int]] = []

    def look() -> None:
        waiting, window = (int(wires.network._i[connection + at]) for at in (C_WAITS, C_WINDOW))
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
            k * 0.01, lambda: windows.append(int(wires.network._i[connection + C_WINDOW]))
        )
    wires.engine.run()
    assert wires.network._i[wires.into[1] + P_DROPS] > 0
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
