"""Selecting the lines of a response, and following those of the last one.

It knows how a name begins and where the heads of the remembered lines end. It refuses to know labels.

Worked example: after the response `a 1`, `follow` on `a 2` compares one byte and reads `2`; if `a` is selected and `b`
is not, `follow` on `b 7`, `a 2` skips the first line.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, check-untyped-defs=False
# ruff: noqa: ANN001, ANN202, PLR2004 - numba infers types from the signature at the end; the numbers are ASCII

from __future__ import annotations

import numpy as np
from numba import njit

from exporter.jit import kernel

from .compiled import (
    BYTES,
    COUNT,
    COUNTS,
    FLAG,
    HASHES,
    KINDS,
    NUMBERS,
    OFFSETS,
    PAIR,
    SIGNS,
    STEPS,
    TEXT,
    TRIPLES,
    memchr,
    memcmp,
)
from .kinds import DEVIATED, DUPLICATE, SAMPLE
from .numbers import HARD, WRONG, blank, measured, skip

_LF = 10
_QUOTE, _HASH, _ZERO, _NINE, _COLON, _UNDERSCORE, _OPEN, _CLOSE = 34, 35, 48, 57, 58, 95, 123, 125

# All 64-bit arithmetic is between uint64: numba makes float64 of a uint64 and a signed integer.
_U0, _U1, _U32 = np.uint64(0), np.uint64(1), np.uint64(32)
_FNV_OFFSET, _FNV_PRIME, _MIX = (np.uint64(n) for n in (0xCBF29CE484222325, 0x100000001B3, 0x9E3779B97F4A7C15))


@njit
def _same(a, i, b, j, length):
    """Whether two stretches are equal. The caller has checked that both lie inside their arrays."""
    return memcmp(a.ctypes.data + np.uint64(i), b.ctypes.data + np.uint64(j), np.uint64(length)) == 0


@njit
def _begins(body, p, old, start, stop, kind):
    """Whether the line at p begins as a remembered line does: with its head, or, if it is no sample, with all of it."""
    end = p + stop - start
    if end > len(body) or not _same(body, p, old, start, stop - start):
        return False
    if kind not in (SAMPLE, DUPLICATE):
        return end == len(body) or body[end] == _LF
    if old[stop - 1] == _CLOSE:  # a brace ends a head by itself, a bare name if a blank follows and no brace
        return True
    behind = skip(body, end, len(body))
    return end < behind < len(body) and body[behind] != _OPEN


@njit
def _name_byte(byte):
    letter = byte | 32  # lower case
    return 97 <= letter <= 122 or _ZERO <= byte <= _NINE or byte in (_UNDERSCORE, _COLON)


@njit
def _type_name(body, i):
    """Where the name begins in the TYPE comment whose hash is at i; -1 if it is another comment."""
    end = len(body)
    i = skip(body, i + 1, end)
    if i + 4 >= end or body[i] != 84 or body[i + 1] != 89 or body[i + 2] != 80 or body[i + 3] != 69:
        return -1
    return skip(body, i + 4, end) if blank(body[i + 4]) else -1


@njit
def _selected(body, p, column, step, flags, sign):
    """(whether the line at p is selected, the sign its name begins with or -1, where the name begins, what decided it).

    The last is an index: a line that begins with the same bytes, up to that one, is judged so too (-1: unknown).
    """
    if flags[1] == 2:  # every line is
        return True, -1, p, -1
    end = len(body)
    i = skip(body, p, end)
    if i == end:
        return False, -1, p, -1
    comment, quoted = body[i] == _HASH, False
    if comment:
        i = _type_name(body, i)
        if i < 0:
            return False, -1, p, -1
        quoted = i < end and body[i] == _QUOTE
    elif body[i] == _OPEN:
        i = skip(body, i + 1, end)
        quoted = i < end and body[i] == _QUOTE
        if not quoted:
            return False, -1, p, -1
    i += quoted
    k, size, state = np.uint64(i), np.uint64(end), np.uint64(1)
    while k < size:
        after = np.uint64(step[state, column[body[k]]])
        if after == _U0:
            break
        state = after
        k += _U1
    found = -1 if comment else np.int64(sign[state])
    decided = np.int64(k) if k < size else -1
    if flags[state] != 1:
        return flags[state] == 2, found, i, decided
    if quoted:
        return k < size and body[k] == _QUOTE, found, i, decided
    return k == size or not _name_byte(body[k]), found, i, decided


@njit
def _line_feed(body, i):
    """The index of the next line feed, or of the end of the response; for lines that are long and not read."""
    start = body.ctypes.data + np.uint64(i)
    found = memchr(start, _LF, np.uint64(len(body) - i))
    return np.int64(found - body.ctypes.data) if found != 0 else np.int64(len(body))


@kernel(
    COUNT(
        *(BYTES, FLAG, BYTES, OFFSETS, OFFSETS, KINDS, OFFSETS),
        *(KINDS, STEPS, KINDS, SIGNS, KINDS),
        *(NUMBERS, NUMBERS, OFFSETS, TRIPLES),
    )
)
def follow(
    body, openmetrics, old, start, stop, kind, number,
    column, step, flags, sign, known_signs,
    value, at, series_number, slow,
):  # fmt: skip
    """Read the numbers of a page whose selected lines begin as the remembered ones of `old` do.

    number:        of each remembered line on its page, from 1. Those of lines that are no samples must be the same.
    known_signs:   whether the remembered page had a name with each sign; another sign is a deviation.
    value, at, series_number: one per SAMPLE.
    slow:          gets (series, from, to) of each tail that is for the plain reader.
    Returns the number of those, or DEVIATED.
    """
    p, series, hard, line, here = np.int64(0), 0, 0, 0, 0
    left, length = np.int64(0), np.int64(0)  # what decided the last line that is not selected: most come in families
    while p < len(body):
        here += 1
        if 0 < length <= len(body) - p and body[p] == body[left] and _same(body, p, body, left, length):
            p = _line_feed(body, p + length - 1) + 1
            continue
        if line == len(start) or not _begins(body, p, old, start[line], stop[line], kind[line]):
            is_selected, found, _, decided = _selected(body, p, column, step, flags, sign)
            if is_selected or (found >= 0 and known_signs[found] == 0):
                return DEVIATED
            if decided >= 0:
                left, length = p, decided + 1 - p
            p = _line_feed(body, p) + 1
            continue
        if kind[line] > SAMPLE and here != number[line]:  # a line that was dropped is shown by its number
            return DEVIATED
        p += stop[line] - start[line]
        if kind[line] in (SAMPLE, DUPLICATE):
            end, status, v, t = measured(body, p, openmetrics)
            if status == WRONG or (status == HARD and kind[line] == DUPLICATE):
                return DEVIATED
            if kind[line] == SAMPLE:
                value[series], at[series], series_number[series] = v, t, here
                if status == HARD:
                    slow[hard, 0], slow[hard, 1], slow[hard, 2] = series, p, end
                    hard += 1
                series += 1
            p = end
        p += 1
        line += 1
    return hard if line == len(start) else DEVIATED


@njit
def _count_name(body, i, sign, counts, names, most):
    """Count the name at i for its sign, unless it has been counted, or `most` of them. names: a table of hashes."""
    h = _FNV_OFFSET
    while i < len(body) and _name_byte(body[i]):
        h = (h ^ np.uint64(body[i])) * _FNV_PRIME
        i += 1
    h = ((h ^ (h >> _U32)) * _MIX) | _U1  # 0 is an empty place
    slot = np.int64(h >> _U32) & (len(names) - 1)
    while names[slot] != _U0:
        if names[slot] == h:
            return
        slot = (slot + 1) & (len(names) - 1)
    if counts[sign] < most:
        names[slot] = h
        counts[sign] += 1


@kernel(PAIR(BYTES, KINDS, STEPS, KINDS, SIGNS, COUNTS, HASHES, COUNT, TEXT, OFFSETS))
def select(body, column, step, flags, sign, counts, names, most, into, numbers):
    """Find the selected lines. Returns how many there are, and how many bytes they take, each with a line feed.

    Called twice. With an empty `numbers` it counts the distinct names of each sign, `most` at most: `names` is a table
    of their hashes, all 0, of a power of two and at least twice as many places as names are counted. With the right
    sizes it copies the lines to `into`, and their numbers in the response, from 1, to `numbers`.
    """
    p, number, kept, size = np.int64(0), 0, 0, np.int64(0)
    left, length = np.int64(0), np.int64(0)  # as in `follow`, of lines that carry no sign
    while p < len(body):
        number += 1
        if 0 < length <= len(body) - p and body[p] == body[left] and _same(body, p, body, left, length):
            p = _line_feed(body, p + length - 1) + 1
            continue
        is_selected, found, start, decided = _selected(body, p, column, step, flags, sign)
        end = _line_feed(body, p)
        if not is_selected and found < 0 and decided >= 0:
            left, length = p, decided + 1 - p
        if found >= 0 and len(numbers) == 0:
            _count_name(body, start, found, counts, names, most)
        if is_selected:
            if len(numbers) > 0:
                into[size : size + end - p] = body[p:end]
                into[size + end - p] = _LF
                numbers[kept] = number
            kept += 1
            size += end - p + 1
        p = end + 1
    return kept, size
