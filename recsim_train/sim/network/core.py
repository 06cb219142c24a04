"""What Python calls of the compiled half of `recsim_train.sim.network`: time moves."""

from __future__ import annotations

from math import inf

from recsim_train.sim.fluid.chains import append
from recsim_train.sim.fluid.chains import drop as drop_pair
from recsim_train.sim.fluid.layout import Floats, Ints, entry
from recsim_train.sim.network.layout import (
    ARRIVE,
    C_FIRST,
    C_WAITS,
    DONE,
    EVENTS,
    EVENTS_SIZE,
    EXPIRE,
    F_CONNECTION,
    F_HOP,
    F_NUMBER,
    F_UNIT,
    M_NEXT,
    NOW,
    P_FIRST,
    P_RATE,
    P_READY,
    P_WAKES,
    SERVE,
    TOP,
    U_FRAMES,
)
from recsim_train.sim.network.ports import goes_on, put, serve, wake
from recsim_train.sim.network.tcp import at_the_latest, drop, expire, hear, push, receive

MARGIN = 4096
"""Words that one event may take, at most."""


@entry
def send(f: Floats, i: Ints, now: float, connection: int, message: int) -> None:
    """A message is sent after those before it."""
    f[NOW] = now
    append(i, connection + C_FIRST, message, M_NEXT)
    push(f, i, connection)


@entry
def set_rate(f: Floats, i: Ints, now: float, port: int, rate: float) -> None:
    """From now on a port sends so many bytes a second."""
    f[NOW] = f[port + P_READY] = now
    f[port + P_RATE] = rate
    if rate > 0.0 and i[port + P_FIRST] and not i[port + P_WAKES]:
        wake(f, i, port)


@entry
def run(f: Floats, i: Ints, until: float, room: int) -> float:
    """Move on until messages have arrived (chained from ``DONE``), ``until`` is passed or memory is
    short; returns when the next event is, inf: never. ``room``: pairs that the heap holds."""
    base = i[EVENTS]
    while i[EVENTS_SIZE] and f[base] <= until:
        if i[DONE] or i[TOP] + MARGIN > f.size or i[EVENTS_SIZE] + MARGIN > room:
            break
        f[NOW] = f[base]
        what = i[base + 1]
        i[EVENTS_SIZE] = drop_pair(f, i, base, i[EVENTS_SIZE])
        record, kind = what // 4, what % 4
        if kind == SERVE:
            frame = serve(f, i, record)
            if frame and i[frame + F_UNIT] and i[frame + F_HOP] == 1:
                connection = i[frame + F_CONNECTION]
                i[connection + C_WAITS] -= i[i[frame + F_UNIT] + U_FRAMES]
                push(f, i, connection)
        elif kind == EXPIRE:
            expire(f, i, record)
        elif kind != ARRIVE:
            at_the_latest(f, i, record)
        elif goes_on(f, i, record):
            if not put(f, i, record):
                drop(f, i, record)
        else:
            if i[record + F_UNIT]:
                receive(f, i, record)
            else:
                hear(f, i, i[record + F_CONNECTION], i[record + F_NUMBER])
            drop(f, i, record)
    return f[base] if i[EVENTS_SIZE] else inf
