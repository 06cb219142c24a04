"""The compiler of what Python is too slow for (numba): at first use, and then kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kept(function: _Function, **options: Any) -> _Function:
    """``function`` compiled; the result is kept beside its file, in the user's cache folder, or
    where NUMBA_CACHE_DIR says. ``options``: of `numba.njit`."""
    try:
        return cast(_Function, njit(cache=True, **options)(function))
    except RuntimeError:  # none of them can be written: each process compiles for itself
        return cast(_Function, njit(**options)(function))
