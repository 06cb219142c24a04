"""What TCP over Ethernet adds to payload."""

from __future__ import annotations

from math import ceil
from typing import Final

FRAME: Final = 1514
"""Bytes of a full Ethernet frame without its checksum, as the kernel counts it."""
SEGMENT: Final = 1448
"""Bytes of TCP's payload in it: 20 of its 1500 are IPv4's header, 32 TCP's with time stamps."""
TCP_OVER_ETHERNET: Final = round(SEGMENT / FRAME, 4)
"""Payload's share of a link's rate."""
ACKNOWLEDGING: Final = 1 / 2
"""Frames of acknowledgement for a full segment: one for every second one (RFC 5681, 4.2)."""

ANSWERED: Final = ACKNOWLEDGING * (FRAME - SEGMENT) / FRAME
"""What acknowledgements take of a link's other direction, by what payload takes of its own."""
_LEAST_WAITING: Final = 64


def room(rate: float, seconds: float) -> float:
    """Bytes of frames that may wait for a link of ``rate`` bytes per second: for so many seconds,
    but at least 64 frames, since TCP begins with ten segments of each sender."""
    return max(_LEAST_WAITING * FRAME, rate * seconds)


_AT_ONCE = 25e-6
"""Seconds of a link's rate that frames which are handled as one may take: so many pass without the
link after a pause, which a network card does not let."""


def together(rate: float) -> int:
    """Frames that are handled as one on a link of ``rate`` bytes per second: with more of them
    queues fill in steps; each one handled costs CPU."""
    return max(1, min(40, round(rate * _AT_ONCE / FRAME)))


BURST: Final = 2
"""Frames that an emulated link needs to let pass at once after a pause to reach its rate, and those
of one connection that TCP lets wait before a sender's link (small queues)."""


def in_frames(payload: float) -> float:
    """Bytes that full frames would carry in the time that those of a message take."""
    return (payload + ceil(payload / SEGMENT) * (FRAME - SEGMENT)) * SEGMENT / FRAME


def acknowledged(payload: float) -> float:
    """The same of the frames that acknowledge a message, which come back."""
    return ceil(payload / SEGMENT * ACKNOWLEDGING) * (FRAME - SEGMENT) * SEGMENT / FRAME
