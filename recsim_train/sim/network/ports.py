"""Ports: what leaves by a link waits there, first in first out or by turns of whom it is for.

After a pause so many bytes as it has earned, at most a burst, leave at once. A card's frame leaves
when its last bit does; an emulated link (htb, in Linux) lets one go as long as it owes nothing. Of
queues that take turns each sends until it has sent its share of bytes (deficit round
robin, Shreedhar and Varghese 1995).
"""

from __future__ import annotations

from recsim_train.config.frames import FRAME
from recsim_train.sim.fluid.chains import append, insert, unlink
from recsim_train.sim.fluid.layout import Floats, Ints, compiled
from recsim_train.sim.network.layout import (
    ARRIVE,
    C_COUNT,
    C_HOPS,
    C_LATENCY,
    EVENTS,
    EVENTS_SIZE,
    F_CARRIED,
    F_CONNECTION,
    F_HOP,
    F_NEXT,
    F_SIZE,
    NOW,
    P_BURST,
    P_CARRIED,
    P_DROPS,
    P_FAIR,
    P_FIRST,
    P_LIMIT,
    P_OWES,
    P_RATE,
    P_READY,
    P_WAKES,
    Q_BYTES,
    Q_FIRST,
    Q_LEFT,
    Q_NEXT,
    Q_PORT,
    SERVE,
    TOP,
)


@compiled
def made(f: Floats, i: Ints, free: int, words: int) -> int:
    """A record, one to use again if there is one; its last word is the next of such."""
    record: int = i[free]
    if record:
        i[free] = i[record + words - 1]
    else:
        record = i[TOP]
        i[TOP] += words
    for word in range(record, record + words):
        i[word] = 0
    return record


@compiled
def schedule(f: Floats, i: Ints, at: float, what: int, record: int) -> None:
    """Have something happen at a time."""
    insert(f, i, i[EVENTS], i[EVENTS_SIZE], at, record * 4 + what)
    i[EVENTS_SIZE] += 1


@compiled
def wake(f: Floats, i: Ints, port: int) -> None:
    """A port has something to send: it looks when that may have left."""
    i[port + P_WAKES] = 1
    paid = f[port + P_READY]
    if not i[port + P_OWES]:
        paid += f[i[i[port + P_FIRST] + Q_FIRST] + F_CARRIED] / f[port + P_RATE]
    schedule(f, i, max(f[NOW], paid), SERVE, port)


@compiled
def put(f: Floats, i: Ints, frame: int) -> bool:
    """A frame comes to its next port; false: its queue is full, so that it is dropped."""
    connection = i[frame + F_CONNECTION]
    hop = i[connection + C_HOPS] + 2 * i[frame + F_HOP]
    queue = i[hop]
    f[frame + F_CARRIED] = f[frame + F_SIZE] * f[hop + 1]
    port, size, now = i[queue + Q_PORT], f[frame + F_CARRIED], f[NOW]
    first = i[queue + Q_FIRST] == 0
    if f[queue + Q_BYTES] + size > f[port + P_LIMIT] and not first:
        i[port + P_DROPS] += 1
        return False
    append(i, queue + Q_FIRST, frame, F_NEXT)
    if first:
        append(i, port + P_FIRST, queue, Q_NEXT)
    f[queue + Q_BYTES] += size
    if not i[port + P_WAKES] and f[port + P_RATE] > 0.0:
        f[port + P_READY] = max(f[port + P_READY], now - f[port + P_BURST] / f[port + P_RATE])
        wake(f, i, port)
    return True


@compiled
def serve(f: Floats, i: Ints, port: int) -> int:
    """A port's next frame leaves; returns it, 0 where none may."""
    i[port + P_WAKES] = 0
    queue, rate, now = i[port + P_FIRST], f[port + P_RATE], f[NOW]
    if queue == 0 or rate <= 0.0:
        return 0
    frame: int = i[queue + Q_FIRST]
    size = f[frame + F_CARRIED]
    unlink(i, queue + Q_FIRST, 0, frame, F_NEXT)
    f[queue + Q_BYTES] -= size
    f[queue + Q_LEFT] -= size
    turn = i[port + P_FAIR] and f[queue + Q_LEFT] < 0.0
    if turn:
        f[queue + Q_LEFT] += max(FRAME, size)
    if turn or not i[queue + Q_FIRST]:
        unlink(i, port + P_FIRST, 0, queue, Q_NEXT)
        if i[queue + Q_FIRST]:
            append(i, port + P_FIRST, queue, Q_NEXT)
    f[port + P_READY] += size / rate
    f[port + P_CARRIED] += size
    if i[port + P_FIRST]:
        wake(f, i, port)
    connection = i[frame + F_CONNECTION]
    i[frame + F_HOP] += 1
    schedule(f, i, now + f[connection + C_LATENCY], ARRIVE, frame)
    return frame


@compiled
def goes_on(f: Floats, i: Ints, frame: int) -> bool:
    """Whether a frame that has come somewhere has another port before it."""
    hop, count = i[frame + F_HOP], i[i[frame + F_CONNECTION] + C_COUNT]
    return bool(hop != count and hop != 2 * count)
