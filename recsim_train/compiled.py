"""The compiler of what Python is too slow for (numba): at first use, and then kept in a file."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic
from numba.np import linalg

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SUM = 32
"""Bytes of a checksum."""


def _without_a_blas() -> None:
    """When numba loads its first function it looks for a BLAS, and so imports scipy's linear
    algebra, a third of a second. Nothing here calls one, and what does looks for it again."""
    looks = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = looks


class _Files(IndexDataCacheFile):
    """Kept files that end in a checksum, of the source's state, too."""

    def _sum(self, data: bytes) -> bytes:
        return hashlib.sha256(repr(self._source_stamp).encode() + data).digest()

    def _dump(self, content: object) -> bytes:
        data: bytes = super()._dump(content)
        return data + self._sum(data)

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        data = content[:-_SUM]
        if self._sum(data) != content[-_SUM:]:
            raise ValueError(f"{name} is damaged")  # machine code that may do anything
        return pickle.loads(data)


class _Kept(FunctionCache):
    """What is kept of one function, until a file changes of its folder or of that of something
    compiled that it calls, which is part of it. Whatever is wrong with it, the function is compiled
    anew."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        parts, left = {function}, [function]
        while left:
            known = left.pop().__globals__.values()
            called = {other.py_func for other in known if hasattr(other, "py_func")} - parts
            parts |= called
            left += called
        folders = {Path(part.__code__.co_filename).parent for part in parts}
        files = sorted(path for folder in folders for path in folder.glob("*.py"))
        # not by their times, which builds of packages set alike
        stamp = [(path.name, hashlib.sha256(path.read_bytes()).digest()) for path in files]
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, *asked: Any) -> Any:
        _without_a_blas()
        try:
            return super().load_overload(*asked)
        except Exception:  # of a damaged file it may be any
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *made: Any) -> None:
        # A full disk, or a damaged file that cannot be replaced.
        with suppress(Exception):
            super().save_overload(*made)


def kept(function: _Function, **options: Any) -> _Function:
    """``function`` compiled; the result is kept beside its file, in the user's cache folder, or
    where NUMBA_CACHE_DIR says. ``options``: of `numba.njit`."""
    made = njit(**options)(function)
    with suppress(RuntimeError):  # none of them can be written: each process compiles for itself
        made._cache = _Kept(function)  # as njit(cache=True) does with numba's own
    return cast(_Function, made)


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether one of `kept` needs no compiling: this process has compiled it, or a file has it."""
    known: Any = function
    with suppress(Exception):  # of a damaged file it may be any
        return bool(known.signatures or known._cache._cache_file._load_index())
    return False


def _prefetch(_: Any, rows: Any, row: Any, column: Any) -> Any:
    """Within compiled code: have the processor fetch the line in which rows[row, column] lies."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.ptrtoint(array.data, ir.IntType(64))
        for axis, at in enumerate(arguments[1:]):
            step = builder.extract_value(array.strides, axis)
            place = builder.add(place, builder.mul(step, at))
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        # for reading, into the nearest cache, data
        builder.call(fetch, [builder.inttoptr(place, pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.int64), generate


prefetch = cast(Callable[..., None], intrinsic(_prefetch))
