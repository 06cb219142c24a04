"""The compiler of what Python is too slow for (numba): at first use, and then kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kept(function: _Function, **options: Any) -> _Function:
    """``function`` compiled; the result is kept beside its file, in the user's cache folder, or
    where NUMBA_CACHE_DIR says. ``options``: of `numba.njit`."""
    try:
        return cast(_Function, njit(cache=True, **options)(function))
    except RuntimeError:  # none of them can be written: each process compiles for itself
        return cast(_Function, njit(**options)(function))


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
