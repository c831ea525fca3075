"""The types of the kernels' arguments, and how they are compiled: at import, for one signature (`exporter.jit`).

Worked example:

    @kernel(FLOATS(*RINGS, FLOATS, NUMBER))
    def window_max(times, values, head, window_s, now): ...

numba stamps a cached kernel with the hash of the file that holds it, and of no other: an upgrade could leave
yesterday's callee inside today's caller. So a kernel calls only what is in its own file, or has the `fingerprint` of
the others in its closure, which is part of the key under which numba keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from inspect import getsource
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from exporter import jit

Indices: TypeAlias = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

NUMBER = types.float64
# `readonly` lets in frozen and broadcast arrays beside ordinary ones, and numba refuses to compile a kernel that
# writes to one. "A" is any stride: a column of a table is an argument too.
FLOATS = types.Array(types.float64, 1, "A", readonly=True)
INDICES = types.Array(types.int64, 1, "A", readonly=True)
_SLOTS = types.Array(types.float64, 2, "C", readonly=True)
RINGS = (_SLOTS, _SLOTS, INDICES)  # times, values, head
RESULT = types.Array(types.float64, 1, "C")
PAIR = types.UniTuple(RESULT, 2)  # type: ignore[no-untyped-call]


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compile a function for `signature`, from the cache if it can be used at all (`exporter.jit`).

    `error_model="numpy"`: a division by zero is inf or NaN, as in the twins, and not an exception.
    """
    return jit.kernel(signature, error_model="numpy")


def part(function: Function) -> Function:
    """A part of a kernel, compiled into it and not kept on disk by itself."""
    return cast(Function, njit(error_model="numpy", forceinline=True)(function))


def fingerprint(*modules: ModuleType) -> str:
    """Of the text of these modules: another for every change."""
    return blake2b("\0".join(getsource(module) for module in modules).encode(), digest_size=16).hexdigest()
