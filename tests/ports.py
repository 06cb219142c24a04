"""Ports for ranks to meet at."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _LAST = 20_000, 32_000
"""Below what Linux gives to whoever asks for any port, as gloo does: between the moment in which a
test finds a port free and that in which rank 0 listens there, another test would be given it."""
_EACH = 1_009
"""Ports that a test process has before it comes to those of the next one."""
_tried = itertools.count(os.getpid() * _EACH)


def free_port() -> int:
    """A port that nobody listens at and no other test takes."""
    for tried in itertools.islice(_tried, _LAST - _FIRST):
        port = _FIRST + tried % (_LAST - _FIRST)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
