"""Finding heads: where name and labels of each line end, whether they are well formed, and which series they name.

It knows the grammar of names, labels and quotes. It refuses to know numbers. A head that was read on the remembered
page is recognised by its bytes, in its old place or, through a table of hashes, in any other; a hash alone never
decides anything.

Worked example: `a{x="1",y="2"} 5` is a SAMPLE whose head ends behind the brace; its hash is that of `a{y="2",x="1"}`.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, check-untyped-defs=False
# ruff: noqa: ANN001, ANN202, PLR2004 - numba infers types from the signature at the end; the numbers are ASCII

from __future__ import annotations

import numpy as np
from numba import njit

from exporter.jit import kernel

from .compiled import BYTES, COUNT, HASHES, KINDS, OFFSETS, memcmp
from .kinds import ASK, BAD, DUPLICATE, SAMPLE, SKIP, TYPE

_LF, _CR, _TAB, _SPACE = 10, 13, 9, 32
_QUOTE, _HASH, _COMMA, _ZERO, _NINE, _COLON, _EQUALS = 34, 35, 44, 48, 57, 58, 61
_BACKSLASH, _UNDERSCORE, _OPEN, _CLOSE = 92, 95, 123, 125

_MAX_LABELS = 64  # of one line, before the plain reader looks for a label named twice: 64 * 64 / 2 comparisons
_PROBES = 8  # look-ups in the table of remembered lines: giving up costs a longer parse, never a wrong answer

# All 64-bit arithmetic is between uint64: numba makes float64 of a uint64 and a signed integer.
_U0, _U1, _U32 = np.uint64(0), np.uint64(1), np.uint64(32)
_FNV_OFFSET, _FNV_PRIME, _MIX = (np.uint64(n) for n in (0xCBF29CE484222325, 0x100000001B3, 0x9E3779B97F4A7C15))


@njit
def _blank(byte):
    return byte in (_SPACE, _TAB)


@njit
def _skip(body, i, end):
    while i < end and _blank(body[i]):
        i += 1
    return i


@njit
def _digit(byte):
    return _ZERO <= byte <= _NINE


@njit
def _line_end(body, i):
    """The index of the next line feed, or of the end of the page."""
    k = np.uint64(i)  # an index that cannot be negative spares numba its look for one: half the time
    while k < np.uint64(len(body)) and body[k] != _LF:
        k += _U1
    return np.int64(k)


@njit
def _trimmed(body, start, end):
    return end - 1 if end > start and body[end - 1] == _CR else end


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
    behind = _skip(body, end, len(body))
    return end < behind < len(body) and body[behind] != _OPEN


@njit
def _name_start(byte, colon):
    letter = byte | 32  # lower case
    return 97 <= letter <= 122 or byte == _UNDERSCORE or (colon and byte == _COLON)


@njit
def _hashed(h, byte):
    return (h ^ np.uint64(byte)) * _FNV_PRIME


@njit
def _mixed(h):
    """Spread a hash before it is added to others: sums of bare FNV hashes of similar labels cancel out."""
    h = (h ^ (h >> _U32)) * _MIX
    h = (h ^ (h >> _U32)) * _MIX
    return h ^ (h >> _U32)


@njit
def _quoted(body, i, end, h):
    """Behind the closing quote of the text that opens at i (-1 if none closes it), and the hash of what it means."""
    i += 1
    while i < end and body[i] != _QUOTE:
        byte = body[i]
        if byte == _BACKSLASH and i + 1 < end:
            follower = body[i + 1]
            if follower in (_BACKSLASH, _QUOTE, 110):
                byte = np.uint8(_LF) if follower == 110 else follower
                i += 1
        h = _hashed(h, byte)
        i += 1
    return (i + 1 if i < end else -1), h


@njit
def _bare(body, i, end, colon, h):
    while i < end and (_name_start(body[i], colon) or _digit(body[i])):
        h = _hashed(h, body[i])
        i += 1
    return i, h


@njit
def _repeated(body, spans, hashes, count, start, stop, h):
    """Whether a label of this name came before in the line: SAMPLE no, BAD yes, ASK perhaps (spelt differently)."""
    for k in range(count):
        if hashes[k] == h:
            length = spans[k, 1] - spans[k, 0]
            equal = length == stop - start and _same(body, spans[k, 0], body, start, length)
            return BAD if equal else ASK
    return SAMPLE


@njit
def _key(body, i, end):
    """(the next byte behind the name and blanks or -1, where the name starts and stops, its hash) of a label."""
    if body[i] == _QUOTE:
        behind, h = _quoted(body, i, end, _FNV_OFFSET)
        start, stop = i + 1, behind - 1
    elif _name_start(body[i], False):
        behind, h = _bare(body, i, end, False, _FNV_OFFSET)
        start, stop = i, behind
    else:
        return np.int64(-1), i, i, _U0
    return (_skip(body, behind, end) if stop > start else -1), start, stop, h


@njit
def _pair(body, i, end, key, start, stop, spans, hashes, count):
    """(kind, behind the value, hash) of a label whose `=` is at i and whose name is [start, stop) with hash `key`."""
    i = _skip(body, i + 1, end)
    if i == end or body[i] != _QUOTE:
        return BAD, end, _U0
    kind = _repeated(body, spans, hashes, count, start, stop, key)
    if kind == SAMPLE and count == _MAX_LABELS:
        kind = ASK
    if kind != SAMPLE:
        return kind, end, _U0
    spans[count, 0], spans[count, 1], hashes[count] = start, stop, key
    i, pair = _quoted(body, i, end, _hashed(key, 255))  # 255 is in no UTF-8 text
    return (SAMPLE if i > 0 else BAD), i, _mixed(pair)


@njit
def _labels(body, i, end, named, h, spans, hashes):
    """(kind, behind the closing brace, hash) of the labels that begin at i, behind the brace.

    The hash does not depend on the labels' order: it is a sum over them.
    """
    count = np.int64(0)
    i = _skip(body, i, end)
    while i < end and body[i] != _CLOSE:
        quoted = body[i] == _QUOTE
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
        i = _skip(body, i, end)
        if i < end and body[i] == _COMMA:
            i = _skip(body, i + 1, end)
        elif i == end or body[i] != _CLOSE:
            return BAD, end, h
    return (SAMPLE if named and i < end else BAD), i + 1, h


@njit
def _head(body, i, end, spans, hashes):
    """(kind, where the head ends, hash) of a line that is neither blank nor a comment."""
    start = i
    h = _FNV_OFFSET
    if _name_start(body[i], True):
        i, h = _bare(body, i, end, True, h)
    brace = _skip(body, i, end)
    if brace < end and body[brace] == _OPEN:
        return _labels(body, brace + 1, end, i > start, h, spans, hashes)
    if i == start or (i < end and not _blank(body[i])):
        return BAD, end, h
    return SAMPLE, i, h


@njit
def _is_type(body, i, end):
    i = _skip(body, i + 1, end)
    return i + 4 < end and body[i] == 84 and body[i + 1] == 89 and body[i + 2] == 80 and body[i + 3] == 69


@njit
def _fresh(body, p, end, spans, hashes):
    """(kind, where the head ends, hash) of a line nothing is known about."""
    i = _skip(body, p, end)
    if i == end:
        return SKIP, end, _U0
    if body[i] == _HASH:
        h = _FNV_OFFSET
        for k in range(p, end):
            h = _hashed(h, body[k])
        return (TYPE if _is_type(body, i, end) else SKIP), end, h
    kind, stop, h = _head(body, i, end, spans, hashes)
    return kind, stop, h if kind == SAMPLE else _U0


@njit
def _table(hashes):
    """An open-addressing table of the lines that have a hash: index + 1, 0 where empty."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    table = np.zeros(size, np.int32)
    for line in range(len(hashes)):
        slot = np.int64(hashes[line] >> _U32) & (size - 1)
        for _ in range(_PROBES if hashes[line] != _U0 else 0):
            if table[slot] == 0:
                table[slot] = line + 1
                break
            slot = (slot + 1) & (size - 1)
    return table


@njit
def _after(table, hashes, h, body, p, old, start, stop, kind, otherwise):
    """The remembered line after the one that the line at p repeats; `otherwise` if it repeats none."""
    slot = np.int64(h >> _U32) & (len(table) - 1)
    for _ in range(_PROBES if h != _U0 else 0):
        line = table[slot] - 1
        if line < 0:
            break
        if hashes[line] == h and _begins(body, p, old, start[line], stop[line], kind[line]):
            return np.int64(line) + 1
        slot = (slot + 1) & (len(table) - 1)
    return otherwise


@kernel(COUNT(BYTES, BYTES, OFFSETS, OFFSETS, KINDS, HASHES, OFFSETS, OFFSETS, KINDS, HASHES))
def survey(body, old, old_start, old_stop, old_kind, old_hash, start, stop, kind, hashes):
    """Find what every line is; what is remembered of `old` (an earlier page's result) saves reading heads again.

    Per line: start and stop (of the head of a sample, else of the line), kind, hash of the series (the same for the
    same name and labels in any order; 0 has none). Returns the number of lines.
    """
    spans = np.empty((_MAX_LABELS, 2), np.int64)
    names = np.empty(_MAX_LABELS, np.uint64)
    table = _table(old_hash)
    p, line, e = np.int64(0), 0, np.int64(0)  # e: the remembered line that should come next
    while p < len(body):
        if e < len(old_start) and _begins(body, p, old, old_start[e], old_stop[e], old_kind[e]):
            behind = p + old_stop[e] - old_start[e]
            end = _line_end(body, behind)
            kind[line], hashes[line] = SAMPLE if old_kind[e] == DUPLICATE else old_kind[e], old_hash[e]
            e += 1
        else:
            end = _line_end(body, p)
            kind[line], behind, hashes[line] = _fresh(body, p, _trimmed(body, p, end), spans, names)
            if kind[line] != SAMPLE:
                behind = end
            e = _after(table, old_hash, hashes[line], body, p, old, old_start, old_stop, old_kind, e)
        start[line], stop[line] = p, behind
        p = end + 1
        line += 1
    return line
