"""Declares the argument types of the kernels and compiles them: at import, for one signature (`exporter.jit`).

numba stamps a cached kernel with the files of its folder, and with no others. So a kernel calls only what is in its
own folder.

Worked example:

    @kernel(RESULT(*RINGS, FLOATS, NUMBER))
    def counter_rate(times, values, head, window_s, now): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba import types
from numpy.typing import NDArray

from exporter import jit

Indices: TypeAlias = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

NUMBER = types.float64
# `readonly` accepts frozen and broadcast arrays beside ordinary ones, and numba refuses to compile a kernel that
# writes to one. "A" is any stride: a column of a table is an argument too.
FLOATS = types.Array(types.float64, 1, "A", readonly=True)
INDICES = types.Array(types.int64, 1, "A", readonly=True)
_SLOTS = types.Array(types.float64, 2, "C", readonly=True)
RINGS = (_SLOTS, _SLOTS, INDICES)  # times, values, head
RESULT = types.Array(types.float64, 1, "C")
TABLE = types.Array(types.float64, 2, "C")  # which the kernel writes to


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compiles a function for `signature`, or takes it from the cache.

    `error_model="numpy"`: a division by zero is inf or NaN, as in NumPy, and not an exception.
    """
    return jit.kernel(signature, error_model="numpy")


def in_place_kernel(signature: Any) -> Callable[[Function], Function]:
    """The same for a function that makes no array: without reference counts (`exporter.jit.in_place_kernel`)."""
    return jit.in_place_kernel(signature, error_model="numpy")


def lazy_kernel(function: Function) -> Function:
    """Compiles a function at its first call, for the types of the arguments, or takes it from the cache."""
    return cast(Function, jit.lazy_kernel(function, error_model="numpy"))


def part(function: Function) -> Function:
    """A part of kernels, which is inlined there (`exporter.jit.part`)."""
    return jit.part(function, error_model="numpy", forceinline=True)
