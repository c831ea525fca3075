"""The types of the kernels' arguments, and what they call of the C library."""

from __future__ import annotations

from numba import types

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

# The C library's, because it compares 32 bytes at a time and a loop in a kernel would not (measured: 3 µs against 12
# for a page of 72 kB). Its pointers are declared as the integers they are.
memcmp = types.ExternalFunction("memcmp", types.int32(types.uintp, types.uintp, types.uintp))
# For lines that are skipped: it returns the address of the byte, or 0.
memchr = types.ExternalFunction("memchr", types.uintp(types.uintp, types.int32, types.uintp))
