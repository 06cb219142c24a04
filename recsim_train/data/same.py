"""The check that held-out rows are not those of the training file itself."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import BinaryIO

from recsim_train.data.lines import open_bytes

_COMPARED = 16 << 20
"""Bytes of two files' beginnings that are compared: about 70,000 rows."""
_BLOCK = 1 << 20


def same_rows(path: str, other: str) -> bool:
    """Whether two files are one, copies of each other, or the same text packed differently.

    Longer files than `_COMPARED` count as the same where they begin alike for so long: then the
    first rows of one are rows of the other, which is what matters.
    """
    if os.path.samefile(path, other):
        return True
    alike = os.path.getsize(path) == os.path.getsize(other)
    return (alike and _begin_alike(path, other, _raw)) or _begin_alike(path, other, open_bytes)


def _raw(path: str) -> BinaryIO:
    return open(path, "rb")


def _begin_alike(path: str, other: str, opened: Callable[[str], BinaryIO]) -> bool:
    """Whether both have the same bytes, the last line feed aside. Damaged ones do not."""
    try:
        with opened(path) as one, opened(other) as two:
            for _ in range(_COMPARED // _BLOCK):
                left, right = one.read(_BLOCK), two.read(_BLOCK)
                if left != right:
                    ended = max(len(left), len(right)) < _BLOCK
                    return ended and left.removesuffix(b"\n") == right.removesuffix(b"\n")
                if not left:
                    break
    except (OSError, EOFError, zlib.error):
        return False
    return True
