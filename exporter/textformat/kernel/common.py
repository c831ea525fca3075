"""Holds what all kernels share: argument types, kinds of lines, ASCII codes, and steps over blanks and lines."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, check-untyped-defs=False
# ruff: noqa: ANN001, ANN201 - numba infers the types

from __future__ import annotations

import numpy as np
from numba import types

from exporter.jit import part

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
TEXT = types.Array(types.uint8, 1, "C")  # bytes that a kernel writes
KINDS = types.Array(types.uint8, 1, "C")
OFFSETS = types.Array(types.int32, 1, "C")
TRIPLES = types.Array(types.int32, 2, "C")
HASHES = types.Array(types.uint64, 1, "C")
NUMBERS = types.Array(types.float64, 1, "C")
COUNT = types.int64
COUNTS = types.Array(types.int64, 1, "C")
PAIR = types.UniTuple(types.int64, 2)
STEPS = types.Array(types.uint16, 2, "C")
SIGNS = types.Array(types.int16, 1, "C")
FLAG = types.boolean

# What a line of a response is.
SKIP = 0  # blank, or a comment other than TYPE
TYPE = 1
SAMPLE = 2
DUPLICATE = 3  # a sample of a series that an earlier line has; the caller finds these, not the kernel
BAD = 4
NOT_UTF8 = 5  # the caller finds these too
SLOW = 6  # the head is valid, the plain reader reads the rest
UNDECIDED = 7  # the plain reader reads the whole line

DEVIATED = -1  # what `follow` returns instead of a count

LF, CR, TAB, SPACE = 10, 13, 9, 32
QUOTE, HASH, ZERO, NINE = 34, 35, 48, 57

# All 64-bit arithmetic is between uint64: numba makes float64 of a uint64 and a signed integer.
U0, U1, U32 = np.uint64(0), np.uint64(1), np.uint64(32)


@part
def blank(byte):
    return byte in (SPACE, TAB)


@part
def skip(body, i, end):
    """The first byte from i on that is no blank."""
    while i < end and blank(body[i]):
        i += 1
    return i


@part
def digit(byte):
    return ZERO <= byte <= NINE


@part
def line_end(body, i):
    """The index of the next line feed, or of the end of the response."""
    k = np.uint64(i)  # numba checks an index that may be negative: twice the time
    while k < np.uint64(len(body)) and body[k] != LF:
        k += U1
    return np.int64(k)


@part
def trimmed(body, start, end):
    """The end of a line without the carriage return that may stand there."""
    return end - 1 if end > start and body[end - 1] == CR else end
