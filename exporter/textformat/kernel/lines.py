"""Finds the lines of a response and the series they name; follows the lines of an earlier response; selects lines.

A remembered head is recognized by its bytes, at its position or, through a table of hashes, at any other. A hash alone
never decides anything. Numbers are read by `numbers`.

Worked example: `a{x="1",y="2"} 5` is a SAMPLE; its head ends behind the brace; its hash is that of `a{y="2",x="1"}`.
After the response `a 1`, with `a` selected and `b` not, `follow` on `b 7`, `a 2` skips the first line and reads `2`.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, check-untyped-defs=False
# ruff: noqa: ANN001, ANN201, ANN202, PLR2004 - numba infers types from the signature at the end; the numbers are ASCII

from __future__ import annotations

import numpy as np
from numba import types

from exporter.jit import in_place_kernel, kernel, part

from .common import (
    BAD,
    BYTES,
    COUNT,
    COUNTS,
    DEVIATED,
    DUPLICATE,
    FLAG,
    HASH,
    HASHES,
    KINDS,
    LF,
    NUMBERS,
    OFFSETS,
    PAIR,
    QUOTE,
    SAMPLE,
    SIGNS,
    SKIP,
    STEPS,
    TEXT,
    TRIPLES,
    TYPE,
    U0,
    U1,
    U32,
    UNDECIDED,
    ZERO,
    blank,
    digit,
    line_end,
    skip,
    trimmed,
)
from .numbers import HARD, WRONG, measured

_COMMA, _COLON, _EQUALS, _BACKSLASH, _UNDERSCORE, _OPEN, _CLOSE = 44, 58, 61, 92, 95, 123, 125
_POINT, _E, _L = 46, 101, 108
_MAX_DIGITS = 15  # of a bound that is read here: so many are exact

_MAX_LABELS = 64  # of one line, before the plain reader looks for a label named twice: 64 * 64 / 2 comparisons
_PROBES = 8  # look-ups in the table of remembered lines: giving up costs a longer parse, never a wrong result
_FNV_OFFSET, _FNV_PRIME, _MIX = (np.uint64(n) for n in (0xCBF29CE484222325, 0x100000001B3, 0x9E3779B97F4A7C15))

# The C library compares 32 bytes at a time and a loop in a kernel would not (measured: 3 µs against 12 for a response
# of 72 kB). Its pointers are declared as the integers they are.
_memcmp = types.ExternalFunction("memcmp", types.int32(types.uintp, types.uintp, types.uintp))
# For lines that are skipped: it returns the address of the byte, or 0.
_memchr = types.ExternalFunction("memchr", types.uintp(types.uintp, types.int32, types.uintp))


@part
def _same(a, i, b, j, length):
    """Whether two slices are equal. The caller has checked that both lie inside their arrays."""
    return _memcmp(a.ctypes.data + np.uint64(i), b.ctypes.data + np.uint64(j), np.uint64(length)) == 0


@part
def _begins(body, p, old, start, stop, kind):
    """Whether the line at p begins as a remembered line does: with its head, or, if it is no sample, with all of it."""
    end = p + stop - start
    if end > len(body) or not _same(body, p, old, start, stop - start):
        return False
    if kind not in (SAMPLE, DUPLICATE):
        return end == len(body) or body[end] == LF
    if old[stop - 1] == _CLOSE:  # a brace ends a head by itself, a bare name if a blank follows and no brace
        return True
    behind = skip(body, end, len(body))
    return end < behind < len(body) and body[behind] != _OPEN


@part
def _name_start(byte, colon):
    letter = byte | 32  # lower case
    return 97 <= letter <= 122 or byte == _UNDERSCORE or (colon and byte == _COLON)


@part
def _name_byte(byte, colon):
    return _name_start(byte, colon) or digit(byte)


@part
def _hashed(h, byte):
    return (h ^ np.uint64(byte)) * _FNV_PRIME


@part
def _mixed(h):
    """Spreads a hash before it is added to others: sums of bare FNV hashes of similar labels cancel out."""
    h = (h ^ (h >> U32)) * _MIX
    h = (h ^ (h >> U32)) * _MIX
    return h ^ (h >> U32)


@part
def _quoted(body, i, end, h):
    """(the byte behind the closing quote of the text that opens at i or -1, the hash of the unescaped text)."""
    i += 1
    while i < end and body[i] != QUOTE:
        byte = body[i]
        if byte == _BACKSLASH and i + 1 < end:
            follower = body[i + 1]
            if follower in (_BACKSLASH, QUOTE, 110):
                byte = np.uint8(LF) if follower == 110 else follower
                i += 1
        h = _hashed(h, byte)
        i += 1
    return (i + 1 if i < end else -1), h


@part
def _bare(body, i, end, colon, h):
    while i < end and _name_byte(body[i], colon):
        h = _hashed(h, body[i])
        i += 1
    return i, h


@part
def _repeated(body, spans, hashes, count, start, stop, h):
    """Whether a label of this name came before in the line: SAMPLE no, BAD yes, UNDECIDED maybe (other escapes)."""
    for k in range(count):
        if hashes[k] == h:
            length = spans[k, 1] - spans[k, 0]
            equal = length == stop - start and _same(body, spans[k, 0], body, start, length)
            return BAD if equal else UNDECIDED
    return SAMPLE


@part
def _key(body, i, end):
    """(the next byte behind the name and blanks or -1, where the name starts and stops, its hash) of a label."""
    if body[i] == QUOTE:
        behind, h = _quoted(body, i, end, _FNV_OFFSET)
        start, stop = i + 1, behind - 1
    elif _name_start(body[i], False):
        behind, h = _bare(body, i, end, False, _FNV_OFFSET)
        start, stop = i, behind
    else:
        return np.int64(-1), i, i, U0
    return (skip(body, behind, end) if stop > start else -1), start, stop, h


@part
def _pair(body, i, end, key, start, stop, spans, hashes, count):
    """(kind, behind the value, hash) of a label with `=` at i and the name [start, stop) with hash `key`."""
    i = skip(body, i + 1, end)
    if i == end or body[i] != QUOTE:
        return BAD, end, U0
    kind = _repeated(body, spans, hashes, count, start, stop, key)
    if kind == SAMPLE and count == _MAX_LABELS:
        kind = UNDECIDED
    if kind != SAMPLE:
        return kind, end, U0
    spans[count, 0], spans[count, 1], hashes[count] = start, stop, key
    i, pair = _quoted(body, i, end, _hashed(key, 255))  # 255 is in no UTF-8 text
    return (SAMPLE if i > 0 else BAD), i, _mixed(pair)


@part
def _labels(body, i, end, named, h, spans, hashes):
    """(kind, behind the closing brace, hash) of the labels that begin at i, behind the brace.

    The hash does not depend on the labels' order: it is a sum over them.
    """
    count = np.int64(0)
    i = skip(body, i, end)
    while i < end and body[i] != _CLOSE:
        quoted = body[i] == QUOTE
        i, start, stop, key = _key(body, i, end)
        if i < 0:
            return BAD, end, h
        if i < end and body[i] == _EQUALS:
            kind, i, pair = _pair(body, i, end, key, start, stop, spans, hashes, count)
            if kind != SAMPLE:
                return kind, end, h
            h += pair
            count += 1
        elif quoted and not named and count == 0:
            named = True  # Prometheus 3: {"my.metric", l="v"}
            h = key
        else:
            return BAD, end, h
        i = skip(body, i, end)
        if i < end and body[i] == _COMMA:
            i = skip(body, i + 1, end)
        elif i == end or body[i] != _CLOSE:
            return BAD, end, h
    return (SAMPLE if named and i < end else BAD), i + 1, h


@part
def _head(body, i, end, spans, hashes):
    """(kind, where the head ends, hash) of a line that is neither blank nor a comment."""
    start = i
    h = _FNV_OFFSET
    if _name_start(body[i], True):
        i, h = _bare(body, i, end, True, h)
    brace = skip(body, i, end)
    if brace < end and body[brace] == _OPEN:
        return _labels(body, brace + 1, end, i > start, h, spans, hashes)
    if i == start or (i < end and not blank(body[i])):
        return BAD, end, h
    return SAMPLE, i, h


@part
def _is_type(body, i, end):
    i = skip(body, i + 1, end)
    return i + 4 < end and body[i] == 84 and body[i + 1] == 89 and body[i + 2] == 80 and body[i + 3] == 69


@part
def _fresh(body, p, end, spans, hashes):
    """(kind, where the head ends, hash) of a line that is not a remembered one."""
    i = skip(body, p, end)
    if i == end:
        return SKIP, end, U0
    if body[i] == HASH:
        h = _FNV_OFFSET
        for k in range(p, end):
            h = _hashed(h, body[k])
        return (TYPE if _is_type(body, i, end) else SKIP), end, h
    kind, stop, h = _head(body, i, end, spans, hashes)
    return kind, stop, h if kind == SAMPLE else U0


@part
def _table(hashes):
    """An open-addressing table of the lines that have a hash: index + 1, 0 where empty."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    table = np.zeros(size, np.int32)
    for line in range(len(hashes)):
        slot = np.int64(hashes[line] >> U32) & (size - 1)
        for _ in range(_PROBES if hashes[line] != U0 else 0):
            if table[slot] == 0:
                table[slot] = line + 1
                break
            slot = (slot + 1) & (size - 1)
    return table


@part
def _after(table, hashes, h, body, p, old, start, stop, kind, otherwise):
    """The remembered line after the one that the line at p repeats; `otherwise` if it repeats none."""
    slot = np.int64(h >> U32) & (len(table) - 1)
    for _ in range(_PROBES if h != U0 else 0):
        line = table[slot] - 1
        if line < 0:
            break
        if hashes[line] == h and _begins(body, p, old, start[line], stop[line], kind[line]):
            return np.int64(line) + 1
        slot = (slot + 1) & (len(table) - 1)
    return otherwise


@kernel(COUNT(BYTES, BYTES, OFFSETS, OFFSETS, KINDS, HASHES, OFFSETS, OFFSETS, KINDS, HASHES))
def survey(body, old, old_start, old_stop, old_kind, old_hash, start, stop, kind, hashes):
    """Finds what every line is. The result for an earlier response, `old`, saves reading heads again.

    Per line: start and stop (of the head of a sample, else of the line), kind, hash of the series (the same for the
    same name and labels in any order; 0 if the line has none). Returns the number of lines.
    """
    spans = np.empty((_MAX_LABELS, 2), np.int64)
    names = np.empty(_MAX_LABELS, np.uint64)
    table = _table(old_hash)
    p, line, e = np.int64(0), 0, np.int64(0)  # e: the remembered line that should come next
    while p < len(body):
        if e < len(old_start) and _begins(body, p, old, old_start[e], old_stop[e], old_kind[e]):
            behind = p + old_stop[e] - old_start[e]
            end = line_end(body, behind)
            kind[line], hashes[line] = SAMPLE if old_kind[e] == DUPLICATE else old_kind[e], old_hash[e]
            e += 1
        else:
            end = line_end(body, p)
            kind[line], behind, hashes[line] = _fresh(body, p, trimmed(body, p, end), spans, names)
            if kind[line] != SAMPLE:
                behind = end
            e = _after(table, old_hash, hashes[line], body, p, old, old_start, old_stop, old_kind, e)
        start[line], stop[line] = p, behind
        p = end + 1
        line += 1
    return line


@part
def _type_name(body, i):
    """Where the name begins in the TYPE comment with its hash at i; -1 if it is another comment."""
    end = len(body)
    if not _is_type(body, i, end):
        return -1
    i = skip(body, i + 1, end) + 4
    return skip(body, i, end) if blank(body[i]) else -1


@part
def _bound_in_range(body, i, low, high):
    """(whether the bound that begins at i is in the range, where it ends); True and -1 for what is no plain number."""
    number, divisor, digits, point = 0.0, 1.0, 0, False
    while i < len(body) and digits <= _MAX_DIGITS:
        byte = body[i]
        if digit(byte):
            number = 10.0 * number + np.float64(byte - ZERO)
            digits += 1
            if point:
                divisor *= 10.0
        elif byte == _POINT and not point:
            point = True
        else:
            break
        i += 1
    if i == len(body) or body[i] != QUOTE or digits == 0 or digits > _MAX_DIGITS:
        return True, np.int64(-1)
    return low <= number / divisor <= high, i


@part
def _in_range(body, i, low, high):
    """(whether the bucket whose name ends before i is selected, what decided it or -1)."""
    if np.isnan(low):
        return False, i
    while i + 3 < len(body) and body[i] != LF:
        if body[i] == _L and body[i + 1] == _E and body[i + 2] == _EQUALS and body[i + 3] == QUOTE:
            before = body[i - 1]
            if before in (_OPEN, _COMMA) or blank(before):
                return _bound_in_range(body, i + 4, low, high)
        i += 1
    return True, np.int64(-1)


@part
def _selected(body, p, column, step, flags, sign, ranges):
    """(whether the line at p is selected, the sign its name begins with or -1, where the name begins, what decided it).

    The last is an index: a line that begins with the same bytes, up to that one, is judged so too (-1: unknown).
    """
    if flags[1] == 2:  # every line is
        return True, -1, p, -1
    end = len(body)
    i = skip(body, p, end)
    if i == end:
        return False, -1, p, -1
    comment, quoted = body[i] == HASH, False
    if comment:
        i = _type_name(body, i)
        if i < 0:
            return False, -1, p, -1
        quoted = i < end and body[i] == QUOTE
    elif body[i] == _OPEN:
        i = skip(body, i + 1, end)
        quoted = i < end and body[i] == QUOTE
        if not quoted:
            return False, -1, p, -1
    i += quoted
    k, size, state = np.uint64(i), np.uint64(end), np.uint64(1)
    while k < size:
        after = np.uint64(step[state, column[body[k]]])
        if after == U0:
            break
        state = after
        k += U1
    found = -1 if comment else np.int64(sign[state])
    decided = np.int64(k) if k < size else -1
    flag = np.int64(flags[state])
    if flag in (0, 2):
        return flag == 2, found, i, decided
    whole = k < size and body[k] == QUOTE if quoted else k == size or not _name_byte(body[k], True)
    if flag == 1 or comment or not whole:
        return whole, found, i, decided
    kept, decided = _in_range(body, np.int64(k), ranges[2 * (flag - 3)], ranges[2 * (flag - 3) + 1])
    return kept, found, i, decided


@part
def _line_feed(body, i):
    """The index of the next line feed, or of the end of the response; for lines that are long and not read."""
    start = body.ctypes.data + np.uint64(i)
    found = _memchr(start, LF, np.uint64(len(body) - i))
    return np.int64(found - body.ctypes.data) if found != 0 else np.int64(len(body))


@in_place_kernel(
    COUNT(
        *(BYTES, FLAG, BYTES, OFFSETS, OFFSETS, KINDS, OFFSETS),
        *(KINDS, STEPS, KINDS, SIGNS, NUMBERS, KINDS),
        *(NUMBERS, NUMBERS, OFFSETS, TRIPLES),
    )
)
def follow(
    body, openmetrics, old, start, stop, kind, number,
    column, step, flags, sign, ranges, known_signs,
    value, at, series_number, slow,
):  # fmt: skip
    """Reads the numbers of a response if its selected lines begin as the remembered ones of `old` do.

    number:        of each remembered line in its response, from 1. Those of lines that are no samples must be the same.
    ranges:        low and high of each group of buckets.
    known_signs:   whether the remembered response had a name with each sign; another sign is a deviation.
    value, at, series_number: one per SAMPLE.
    slow:          gets (series, start, stop) of each tail that the plain reader must read.
    Returns the number of slow tails, or DEVIATED.
    """
    p, series, hard, line, here = np.int64(0), 0, 0, 0, 0
    left, length = (
        np.int64(0),
        np.int64(0),
    )  # what decided the last line that is not selected; a family has many
    while p < len(body):
        here += 1
        if 0 < length <= len(body) - p and body[p] == body[left] and _same(body, p, body, left, length):
            p = _line_feed(body, p + length - 1) + 1
            continue
        if line == len(start) or not _begins(body, p, old, start[line], stop[line], kind[line]):
            is_selected, found, _, decided = _selected(body, p, column, step, flags, sign, ranges)
            if is_selected or (found >= 0 and known_signs[found] == 0):
                return DEVIATED
            if decided >= 0:
                left, length = p, decided + 1 - p
            p = _line_feed(body, p) + 1
            continue
        if kind[line] > SAMPLE and here != number[line]:  # a dropped line is reported by its number
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


@part
def _count_name(body, i, sign, counts, names, most):
    """Counts the name at i for its sign once, up to `most` names. names: a table of hashes."""
    h = _FNV_OFFSET
    while i < len(body) and _name_byte(body[i], True):
        h = _hashed(h, body[i])
        i += 1
    h = ((h ^ (h >> U32)) * _MIX) | U1  # 0 is an empty slot
    slot = np.int64(h >> U32) & (len(names) - 1)
    while names[slot] != U0:
        if names[slot] == h:
            return
        slot = (slot + 1) & (len(names) - 1)
    if counts[sign] < most:
        names[slot] = h
        counts[sign] += 1


@in_place_kernel(PAIR(BYTES, KINDS, STEPS, KINDS, SIGNS, NUMBERS, COUNTS, HASHES, COUNT, TEXT, OFFSETS))
def select(body, column, step, flags, sign, ranges, counts, names, most, into, numbers):
    """Finds the selected lines. Returns how many there are, and how many bytes they take, each with a line feed.

    Called twice. With an empty `numbers` it counts the distinct names of each sign, `most` at most: `names` is a table
    of their hashes, all 0, with a power of two of slots, at least twice as many as names are counted. With the right
    sizes it copies the lines to `into`, and their numbers in the response, from 1, to `numbers`.
    """
    p, number, kept, size = np.int64(0), 0, 0, np.int64(0)
    left, length = np.int64(0), np.int64(0)  # as in `follow`, of lines that have no sign
    while p < len(body):
        number += 1
        if 0 < length <= len(body) - p and body[p] == body[left] and _same(body, p, body, left, length):
            p = _line_feed(body, p + length - 1) + 1
            continue
        is_selected, found, start, decided = _selected(body, p, column, step, flags, sign, ranges)
        end = _line_feed(body, p)
        if not is_selected and found < 0 and decided >= 0:
            left, length = p, decided + 1 - p
        if found >= 0 and len(numbers) == 0:
            _count_name(body, start, found, counts, names, most)
        if is_selected:
            if len(numbers) > 0:
                for k in range(end - p):  # LLVM copies it as a block; numba compiles a copied slice for 1.8 s
                    into[size + k] = body[p + k]
                into[size + end - p] = LF
                numbers[kept] = number
            kept += 1
            size += end - p + 1
        p = end + 1
    return kept, size
