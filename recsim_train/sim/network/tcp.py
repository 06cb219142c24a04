"""One direction of a TCP connection: its window, what waits at the sender, what is lost.

As Linux does it, with Reno: slow start and congestion avoidance by acknowledged segments (RFC 5681,
RFC 3465); a window that grows only while it holds something back (RFC 7661), is halved where
nothing was sent for a time-out (RFC 2861), and once for what a round trip loses (RFC 6675). One
acknowledgement for every second segment, for a message's last one, and for each while something is
missing. What is lost is found by what was sent after it and has come (RFC 8985); a last unit is
sent again, as a probe.

Small queues (`tcp_small_queue_check`): at the sender's port wait at most two segments of a
connection, or what it would send in a millisecond at its pace. A window leaves in a round trip at
half of that pace while it grows, then at 1 / 1.2 of it (`tcp_update_pacing_rate`). So who has sent
much has more in the queue than who sends a little now and then, and gets more of the link.
"""

from __future__ import annotations

from math import inf

from recsim_train.config.frames import BURST, FRAME, SEGMENT
from recsim_train.sim.fluid.chains import append, insert_in_order, unlink
from recsim_train.sim.fluid.layout import Floats, Ints, compiled
from recsim_train.sim.network.layout import (
    ACKNOWLEDGE,
    C_AWAY,
    C_AWAY_LAST,
    C_CAME,
    C_COUNT,
    C_EARLY,
    C_EXPECTS,
    C_EXPIRES,
    C_FIRST,
    C_FLIGHT,
    C_FULL,
    C_GROWN,
    C_LOST,
    C_LOST_FRAMES,
    C_MOST,
    C_NUMBER,
    C_PACE,
    C_PEAK,
    C_PLACE,
    C_PROBES,
    C_RECOVERS,
    C_ROUND,
    C_ROUND_END,
    C_SAYS,
    C_SAYS_WATCHED,
    C_SPOKEN,
    C_THRESHOLD,
    C_TRIES,
    C_UNSAID,
    C_USED,
    C_USED_SINCE,
    C_VARIES,
    C_WAITS,
    C_WATCHED,
    C_WINDOW,
    DONE,
    EXPIRE,
    F_CONNECTION,
    F_HOP,
    F_NUMBER,
    F_SIZE,
    F_UNIT,
    F_WORDS,
    FREE_FRAME,
    FREE_UNIT,
    M_LEFT,
    M_NEXT,
    NOW,
    U_AFTER,
    U_AGAIN,
    U_FRAMES,
    U_GOT,
    U_HELD,
    U_MESSAGE,
    U_NEXT,
    U_NUMBER,
    U_PLACE,
    U_SENT,
    U_SIZE,
    U_WORDS,
)
from recsim_train.sim.network.ports import made, put, schedule

_HEAD = FRAME - SEGMENT
_MEMORY = 2280.0
"""Bytes of memory by which the kernel counts a segment that waits at the sender's port."""
_MOST_WAITS = 4194304.0
"""Bytes of memory that wait there at most (`tcp_limit_output_bytes`)."""
FIRST_WINDOW = 10
"""Segments (RFC 6928)."""
_UNSURE = 3
"""Transmissions that have come after one that has not, until that is taken for lost."""
_LEAST_TIMEOUT = 0.2
_LATE = 0.04
"""Seconds that an acknowledgement waits for a second segment."""
_AT_A_TIME = 64
"""Units that one event sends, at most; more leave as these do."""


@compiled
def _timeout(f: Floats, i: Ints, c: int) -> float:
    seconds: float = max(_LEAST_TIMEOUT, f[c + C_ROUND] + 4.0 * f[c + C_VARIES])
    return seconds * float(1 << min(i[c + C_TRIES], 6))


@compiled
def _out(i: Ints, c: int) -> int:
    """Segments sent and not acknowledged."""
    frames: int = i[c + C_FLIGHT] + i[c + C_LOST_FRAMES]
    return frames


@compiled
def _keep_threshold(f: Floats, i: Ints, c: int) -> None:
    """Of a window that falls, slow start goes to three quarters again."""
    if not i[c + C_RECOVERS]:
        f[c + C_THRESHOLD] = max(f[c + C_THRESHOLD], float((3 * i[c + C_WINDOW]) >> 2))


@compiled
def _after_a_pause(f: Floats, i: Ints, c: int) -> None:
    """The window is halved for every time-out in which nothing was sent."""
    timeout, least = _timeout(f, i, c), min(FIRST_WINDOW, i[c + C_WINDOW])
    paused = f[NOW] - f[c + C_SPOKEN]
    if paused <= timeout:
        return
    _keep_threshold(f, i, c)
    while paused > timeout and i[c + C_WINDOW] > least:
        i[c + C_WINDOW] >>= 1
        paused -= timeout
    i[c + C_WINDOW] = max(i[c + C_WINDOW], least)
    i[c + C_USED], f[c + C_USED_SINCE] = 0, f[NOW]


@compiled
def _held_back(f: Floats, i: Ints, c: int) -> bool:
    """Whether the window holds something back; while it grows, whether twice of what was on the way
    is more than it."""
    slow = i[c + C_WINDOW] < f[c + C_THRESHOLD] and i[c + C_WINDOW] < 2 * i[c + C_PEAK]
    return bool(i[c + C_FULL]) or slow


@compiled
def _note_use(f: Floats, i: Ints, c: int, full: bool) -> None:
    """Note how much of the window is used (`tcp_cwnd_validate`)."""
    out, now = _out(i, c), f[NOW]
    oldest = i[c + C_AWAY]
    if i[c + C_LOST]:
        oldest = i[c + C_LOST]
    place = i[oldest + U_PLACE] if oldest else i[c + C_PLACE]
    if place >= i[c + C_ROUND_END] or full or (not i[c + C_FULL] and out > i[c + C_PEAK]):
        i[c + C_FULL], i[c + C_PEAK], i[c + C_ROUND_END] = full, out, i[c + C_PLACE]
    if _held_back(f, i, c):
        i[c + C_USED], f[c + C_USED_SINCE] = 0, now
        return
    i[c + C_USED] = max(i[c + C_USED], out)
    still = i[c + C_FIRST] == 0 and not i[c + C_RECOVERS]  # it has nothing more to send
    if still and now - f[c + C_USED_SINCE] >= _timeout(f, i, c):
        used = max(i[c + C_USED], FIRST_WINDOW)
        if used < i[c + C_WINDOW]:
            _keep_threshold(f, i, c)
            i[c + C_WINDOW] = (i[c + C_WINDOW] + used) >> 1
        i[c + C_USED], f[c + C_USED_SINCE] = 0, now


@compiled
def push(f: Floats, i: Ints, c: int) -> None:
    """Send what window and small queues let leave."""
    if not i[c + C_AWAY] and not i[c + C_LOST] and i[c + C_FIRST]:
        _after_a_pause(f, i, c)
    waits = min(_MOST_WAITS, max(BURST * _MEMORY, f[c + C_PACE] / 1024.0))
    sent, full = 0, False
    while (i[c + C_LOST] or i[c + C_FIRST]) and sent < _AT_A_TIME:
        left = i[c + C_WINDOW] - i[c + C_FLIGHT]
        if left <= 0:
            full = True
            break
        if i[c + C_WAITS] * _MEMORY > waits and i[c + C_AWAY]:
            break
        unit = i[c + C_LOST]
        if unit:
            i[c + C_LOST] = i[unit + U_NEXT]
            i[c + C_LOST_FRAMES] -= i[unit + U_FRAMES]
            i[unit + U_AGAIN] = 1
        else:
            unit = _cut(f, i, c, left)
        _transmit(f, i, c, unit)
        sent += 1
    if sent or full:
        _note_use(f, i, c, full)


@compiled
def _cut(f: Floats, i: Ints, c: int, window: int) -> int:
    """A new unit of the message whose turn it is."""
    message, unit = i[c + C_FIRST], made(f, i, FREE_UNIT, U_WORDS)
    size = min(f[message + M_LEFT], f[c + C_MOST], float(window * SEGMENT))
    f[message + M_LEFT] -= size
    f[unit + U_SIZE] = size
    i[unit + U_FRAMES] = max(1, int(-(-size // SEGMENT)))
    i[unit + U_PLACE] = i[c + C_PLACE]
    i[c + C_PLACE] += 1
    i[unit + U_HELD] = 2
    if f[message + M_LEFT] <= 0.0:
        i[unit + U_MESSAGE] = message
        i[c + C_FIRST] = i[message + M_NEXT]
    return unit


@compiled
def _transmit(f: Floats, i: Ints, c: int, unit: int) -> None:
    i[c + C_NUMBER] += 1
    i[unit + U_NUMBER] = i[c + C_NUMBER]
    f[unit + U_SENT] = f[c + C_SPOKEN] = f[NOW]
    append(i, c + C_AWAY, unit, U_NEXT)
    i[c + C_FLIGHT] += i[unit + U_FRAMES]
    i[c + C_WAITS] += i[unit + U_FRAMES]
    i[unit + U_HELD] += 1  # by the frame
    if i[c + C_AWAY] == unit or i[c + C_PROBES]:
        watch(f, i, c, True)
    frame = _frame(f, i, c, unit, i[c + C_NUMBER], f[unit + U_SIZE] + i[unit + U_FRAMES] * _HEAD)
    if not put(f, i, frame):
        i[c + C_WAITS] -= i[unit + U_FRAMES]
        drop(f, i, frame)


@compiled
def _frame(f: Floats, i: Ints, c: int, unit: int, number: int, size: float) -> int:
    frame = made(f, i, FREE_FRAME, F_WORDS)
    i[frame + F_CONNECTION], i[frame + F_UNIT], i[frame + F_NUMBER] = c, unit, number
    f[frame + F_SIZE] = size
    return frame


@compiled
def _let_go(f: Floats, i: Ints, unit: int) -> None:
    """Sender, receiver or a frame needs a unit no longer."""
    i[unit + U_HELD] -= 1
    if i[unit + U_HELD] == 0:
        i[unit + U_AFTER] = i[FREE_UNIT]
        i[FREE_UNIT] = unit


@compiled
def drop(f: Floats, i: Ints, frame: int) -> None:
    """A frame is no more."""
    if i[frame + F_UNIT]:
        _let_go(f, i, i[frame + F_UNIT])
    i[frame + F_WORDS - 1] = i[FREE_FRAME]
    i[FREE_FRAME] = frame


# ---------------------------------------------------------------- what does not come


@compiled
def _see_to(f: Floats, i: Ints, c: int, due: int, what: int) -> None:
    """Have somebody look when something is due, unless somebody does before; the word after it says
    when that is."""
    if f[c + due] < f[c + due + 1]:
        f[c + due + 1] = f[c + due]
        schedule(f, i, f[c + due], what, c)


@compiled
def watch(f: Floats, i: Ints, c: int, probe: bool) -> None:
    """What is on its way is taken for lost after a while. ``probe``: before that its last unit may
    be sent again, two round trips after the last word."""
    if not i[c + C_AWAY]:
        f[c + C_EXPIRES] = inf
        return
    timeout, probing = _timeout(f, i, c), inf
    if probe and not i[c + C_RECOVERS] and not i[c + C_TRIES]:
        alone = i[c + C_AWAY] == i[c + C_AWAY_LAST]
        probing = 2.0 * f[c + C_ROUND] + (_LATE if alone else 0.002)
    i[c + C_PROBES] = probing < timeout
    f[c + C_EXPIRES] = f[NOW] + min(timeout, probing)
    _see_to(f, i, c, C_EXPIRES, EXPIRE)


@compiled
def expire(f: Floats, i: Ints, c: int) -> None:
    """Somebody looks whether what is on its way has expired."""
    now = f[NOW]
    if f[c + C_WATCHED] != now:
        return  # another event looks earlier or later
    f[c + C_WATCHED] = inf
    if f[c + C_EXPIRES] > now:
        _see_to(f, i, c, C_EXPIRES, EXPIRE)
        return
    if i[c + C_PROBES]:
        unit, before = i[c + C_AWAY], 0
        while i[unit + U_NEXT]:
            before, unit = unit, i[unit + U_NEXT]
        unlink(i, c + C_AWAY, before, unit, U_NEXT)
        i[c + C_FLIGHT] -= i[unit + U_FRAMES]
        i[unit + U_AGAIN] = 1
        _transmit(f, i, c, unit)
        watch(f, i, c, False)
        return
    i[c + C_TRIES] += 1
    while i[c + C_AWAY]:
        unit = i[c + C_AWAY]
        unlink(i, c + C_AWAY, 0, unit, U_NEXT)
        _lose(i, c, unit)
    _recover(f, i, c)
    i[c + C_WINDOW] = 1
    push(f, i, c)


@compiled
def _lose(i: Ints, c: int, unit: int) -> None:
    """A unit that was on its way is to be sent again, in its place of the stream."""
    i[c + C_FLIGHT] -= i[unit + U_FRAMES]
    i[c + C_LOST_FRAMES] += i[unit + U_FRAMES]
    insert_in_order(i, c + C_LOST, unit, U_PLACE, U_NEXT)


@compiled
def _recover(f: Floats, i: Ints, c: int) -> None:
    """Something is lost: the window is halved until what has been sent so far has come."""
    f[c + C_THRESHOLD] = max(2.0, float(i[c + C_WINDOW] // 2))
    i[c + C_WINDOW], i[c + C_RECOVERS] = int(f[c + C_THRESHOLD]), i[c + C_NUMBER]


# ---------------------------------------------------------------- the receiver


@compiled
def receive(f: Floats, i: Ints, frame: int) -> None:
    """A unit has come."""
    c, unit = i[frame + F_CONNECTION], i[frame + F_UNIT]
    i[c + C_CAME] = max(i[c + C_CAME], i[frame + F_NUMBER])
    if i[unit + U_GOT]:
        _acknowledge(f, i, c)
        return
    i[unit + U_GOT] = 1
    i[c + C_UNSAID] += i[unit + U_FRAMES]
    at_once = i[c + C_EARLY] != 0 or i[unit + U_PLACE] != i[c + C_EXPECTS]
    insert_in_order(i, c + C_EARLY, unit, U_PLACE, U_AFTER)
    while i[c + C_EARLY] and i[i[c + C_EARLY] + U_PLACE] == i[c + C_EXPECTS]:
        unit = i[c + C_EARLY]
        i[c + C_EARLY] = i[unit + U_AFTER]
        i[c + C_EXPECTS] += 1
        message = i[unit + U_MESSAGE]
        if message:
            at_once = True
            append(i, DONE, message, M_NEXT)
        _let_go(f, i, unit)
    if at_once or i[c + C_UNSAID] >= 2:
        _acknowledge(f, i, c)
    elif f[c + C_SAYS] == inf:
        f[c + C_SAYS] = f[NOW] + _LATE
        _see_to(f, i, c, C_SAYS, ACKNOWLEDGE)


@compiled
def at_the_latest(f: Floats, i: Ints, c: int) -> None:
    """Somebody looks whether an acknowledgement has waited long enough."""
    f[c + C_SAYS_WATCHED] = inf
    if f[c + C_SAYS] <= f[NOW]:
        _acknowledge(f, i, c)
    else:
        _see_to(f, i, c, C_SAYS, ACKNOWLEDGE)


@compiled
def _acknowledge(f: Floats, i: Ints, c: int) -> None:
    """The receiver says what has come: its last transmission, and all before it that have."""
    i[c + C_UNSAID], f[c + C_SAYS] = 0, inf
    frame = _frame(f, i, c, 0, i[c + C_CAME], float(_HEAD))
    i[frame + F_HOP] = i[c + C_COUNT]
    if not put(f, i, frame):
        drop(f, i, frame)


# ---------------------------------------------------------------- the sender hears of it


@compiled
def hear(f: Floats, i: Ints, c: int, number: int) -> None:
    """All that has come of what was sent until a transmission is acknowledged."""
    came, oldest, before = 0, -1.0, 0
    unit = i[c + C_AWAY]
    while unit and i[unit + U_NUMBER] <= number:
        following = i[unit + U_NEXT]
        got = i[unit + U_GOT] != 0
        lost = not got and (i[c + C_RECOVERS] or i[unit + U_NUMBER] <= number - _UNSURE)
        if got or lost:
            unlink(i, c + C_AWAY, before, unit, U_NEXT)
        else:
            before = unit
        if got:
            came += i[unit + U_FRAMES]
            i[c + C_FLIGHT] -= i[unit + U_FRAMES]
            if oldest < 0.0 and not i[unit + U_AGAIN]:
                oldest = f[unit + U_SENT]
            _let_go(f, i, unit)
        elif lost:
            if not i[c + C_RECOVERS]:
                _recover(f, i, c)
            _lose(i, c, unit)
        unit = following
    if oldest >= 0.0:
        _measure(f, i, c, f[NOW] - oldest)
    if came:
        i[c + C_TRIES] = 0
        _grow(f, i, c, number, came)
    growing = i[c + C_WINDOW] < f[c + C_THRESHOLD] / 2.0
    window = max(i[c + C_WINDOW], _out(i, c))
    f[c + C_PACE] = SEGMENT * (2.0 if growing else 1.2) * window / f[c + C_ROUND]
    if came:
        watch(f, i, c, True)
    push(f, i, c)


@compiled
def _measure(f: Floats, i: Ints, c: int, seconds: float) -> None:
    """A round trip took so long (RFC 6298)."""
    f[c + C_VARIES] += (abs(seconds - f[c + C_ROUND]) - f[c + C_VARIES]) / 4.0
    f[c + C_ROUND] += (seconds - f[c + C_ROUND]) / 8.0


@compiled
def _grow(f: Floats, i: Ints, c: int, number: int, came: int) -> None:
    """So many frames of a window have come."""
    window = i[c + C_WINDOW]
    if i[c + C_RECOVERS]:
        if number >= i[c + C_RECOVERS] and not i[c + C_LOST]:
            i[c + C_RECOVERS] = 0
        elif window < f[c + C_THRESHOLD]:  # after a time-out
            i[c + C_WINDOW] += came
    elif not _held_back(f, i, c):
        return
    elif window < f[c + C_THRESHOLD]:
        i[c + C_WINDOW] = int(min(float(window + came), max(f[c + C_THRESHOLD], float(window))))
    else:
        i[c + C_GROWN] += came
        if i[c + C_GROWN] >= window:
            i[c + C_GROWN] -= window
            i[c + C_WINDOW] += 1
