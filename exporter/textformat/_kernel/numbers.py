"""Selecting lines, and reading values and timestamps: what follows the head of a line.

It knows digits and blanks, how a name begins, and where the heads of a remembered page end. It refuses to know labels.

Exactness: a decimal number is an integer of up to 19 digits times a power of ten. If both are exact as float64, so is
one rounding of their product or quotient (Clinger 1990). Else the product with a 128-bit power of ten is known to two
units in its last place (the idea of Eisel and Lemire 2021), which decides all roundings but the ones next to a tie;
those, longer numbers and extreme exponents are left to Python.

Worked example: 1763456789.1234567 is 17634567891234567 / 10**7; the integer is above 2**53, so the second way.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, check-untyped-defs=False
# ruff: noqa: ANN001, ANN202, PLR2004 - numba infers types from the signature at the end; the numbers are ASCII

from __future__ import annotations

from math import inf, ldexp, nan

import numpy as np
from numba import njit

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
    kernel,
    memchr,
    memcmp,
)
from .kinds import BAD, DEVIATED, DUPLICATE, SAMPLE, SLOW
from .powers import HIGH, LOW, MAX_POWER, SHIFT, TEN

_READ, _HARD, _WRONG = 0, 1, 2  # how reading went; the worse is the larger
_NOT_SIMPLE = -1
_MAX_EXPONENT = 100_000  # digits of an exponent beyond it are for the plain reader

_LF, _CR, _TAB, _SPACE = 10, 13, 9, 32
_QUOTE, _HASH, _PLUS, _MINUS, _DOT, _ZERO, _NINE, _COLON = 34, 35, 43, 45, 46, 48, 57, 58
_UNDERSCORE, _OPEN, _CLOSE = 95, 123, 125

# All 64-bit arithmetic is between uint64: numba makes float64 of a uint64 and a signed integer.
_U0, _U1, _U2, _U10, _U11, _U32 = (np.uint64(n) for n in (0, 1, 2, 10, 11, 32))
_LOW32 = np.uint64(2**32 - 1)
_FNV_OFFSET, _FNV_PRIME, _MIX = (np.uint64(n) for n in (0xCBF29CE484222325, 0x100000001B3, 0x9E3779B97F4A7C15))
_TOP = np.uint64(2**63)
_EXACT = np.uint64(2**53)


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
def _word_end(body, i, end):
    while i < end and not _blank(body[i]):
        i += 1
    return i


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
def _multiply(a, b):
    """The high and the low 64 bits of a product, by halves."""
    a_high, a_low, b_high, b_low = a >> _U32, a & _LOW32, b >> _U32, b & _LOW32
    middle = (a_low * b_low >> _U32) + (a_high * b_low & _LOW32) + a_low * b_high
    return a_high * b_high + (a_high * b_low >> _U32) + (middle >> _U32), a * b


@njit
def _scaled(mantissa, power):
    """The mantissa times 10**power, correctly rounded; _HARD where this cannot be told."""
    if mantissa <= _EXACT and -22 <= power <= 22:
        exact = float(mantissa)
        return _READ, exact * TEN[power] if power >= 0 else exact / TEN[-power]
    if mantissa == _U0:
        return _READ, 0.0
    if not -MAX_POWER <= power <= MAX_POWER:
        return _HARD, nan
    shift = 0
    while mantissa < _TOP:
        mantissa <<= _U1
        shift += 1
    high, low = _multiply(mantissa, HIGH[power + MAX_POWER])
    carry, _ = _multiply(mantissa, LOW[power + MAX_POWER])
    low += carry
    if low < carry:
        high += _U1
    # The product lies in [high:low, high:low + 2). A float64 keeps its first 53 bits: all but the last 10 or 11 of
    # `high`. What is cut off is compared with one half; a sum that could reach or be one half is not decided here.
    cut = _U11 if high >= _TOP else _U10
    rest = high & ((_U1 << cut) - _U1)
    half = _U1 << (cut - _U1)
    if (rest == half and low == _U0) or (rest == half - _U1 and low >= _U0 - _U2):
        return _HARD, nan
    kept = (high >> cut) + (_U1 if rest >= half else _U0)
    # The product is 192 bits long and `high` begins at its bit 128.
    return _READ, ldexp(float(kept), 128 + np.int64(cut) + SHIFT[power + MAX_POWER] - shift)


@njit
def _special(body, i, end):
    """`NaN`, `+Inf` and `-Inf` as they are usually spelt; the plain reader knows the other spellings."""
    if end - i == 3 and body[i] == 78 and body[i + 1] == 97 and body[i + 2] == 78:
        return _READ, nan
    signed = end - i == 4 and body[i] in (_PLUS, _MINUS)
    if signed and body[i + 1] == 73 and body[i + 2] == 110 and body[i + 3] == 102:
        return _READ, -inf if body[i] == _MINUS else inf
    last = body[end - 1] | 32
    return (_HARD if last in (110, 102, 121) else _WRONG), nan  # nan, inf, infinity in some case


@njit
def _exponent(body, i, end):
    """(the first byte that is no part of it, exponent) of an `e-12` at i; (i, 0) if there is none."""
    k = i + 1
    if i == end or body[i] | 32 != 101:  # e
        return i, 0
    down = k < end and body[k] == _MINUS
    if k < end and (down or body[k] == _PLUS):
        k += 1
    if k == end:
        return i, 0
    exponent = 0
    while k < end and _digit(body[k]):
        exponent = min(exponent * 10 + np.int64(body[k] - _ZERO), _MAX_EXPONENT)
        k += 1
    return k, -exponent if down else exponent


@njit
def _number(body, i, end):
    """The number that is the word [i, end)."""
    start = i
    negative = body[i] == _MINUS
    if negative or body[i] == _PLUS:
        i += 1
    mantissa, digits, power, seen, after_point = _U0, 0, 0, False, False
    while i < end and (_digit(body[i]) or (body[i] == _DOT and not after_point)):
        if body[i] == _DOT:
            after_point = True
        else:
            seen = True
            mantissa = mantissa * _U10 + np.uint64(body[i] - _ZERO)  # wraps after 19 digits: HARD below
            digits += 1 if digits > 0 or body[i] != _ZERO else 0
            power -= 1 if after_point else 0
        i += 1
    if not seen:
        return _special(body, start, end)
    i, exponent = _exponent(body, i, end)
    power += exponent
    if i < end:
        return _WRONG, nan
    if digits > 19 or abs(exponent) == _MAX_EXPONENT:
        return _HARD, nan
    # The number lies in [10**(power + digits - 1), 10**(power + digits)); float64 ends at 1.8e308 and 4.9e-324.
    if digits > 0 and power + digits > 310:
        return _WRONG, nan
    if power + digits < -330:
        mantissa = _U0
    status, value = _scaled(mantissa, power)
    return status, -value if negative else value


@njit
def _time(body, i, end, openmetrics):
    """POSIX seconds from the timestamp that is the word [i, end)."""
    point = False
    plain = True
    for k in range(i, end):
        point |= body[k] == _DOT
        plain &= _digit(body[k]) or body[k] == _DOT or (k == i and body[k] in (_PLUS, _MINUS))
    if openmetrics or (point and plain):
        return _number(body, i, end)
    if not plain:
        return _WRONG, nan
    k = i + 1 if body[i] in (_PLUS, _MINUS) else i
    if not 0 < end - k <= 15:  # 10**15 < 2**53: exact as float64; no digit, or many, are the plain reader's
        return _HARD, nan
    milliseconds = 0
    while k < end:
        milliseconds = milliseconds * 10 + np.int64(body[k] - _ZERO)
        k += 1
    return _READ, (-milliseconds if body[i] == _MINUS else milliseconds) / 1000.0


@njit
def _tail(body, i, end, openmetrics):
    """Value and own time of the sample whose head ends at i and whose line ends at `end`."""
    i = _skip(body, i, end)
    if i == end or body[i] == _HASH:
        return _WRONG, nan, nan
    stop = _word_end(body, i, end)
    status, value = _number(body, i, stop)
    i = _skip(body, stop, end)
    if status == _WRONG or i == end or body[i] == _HASH:
        return status, value, nan
    stop = _word_end(body, i, end)
    timed, at = _time(body, i, stop, openmetrics)
    if timed == _READ and not np.isfinite(at):
        timed = _WRONG
    i = _skip(body, stop, end)
    if i < end and body[i] != _HASH:
        timed = _WRONG
    return max(status, timed), value, at


@njit
def _simple_tail(body, i):
    """` 12.5` and a line feed, the tail of nearly every line: (where the line feed is, value), or _NOT_SIMPLE."""
    k, size = np.uint64(i), np.uint64(len(body))
    if k + _U2 >= size or body[k] != _SPACE:
        return _NOT_SIMPLE, nan
    k += _U1
    negative = body[k] == _MINUS
    k += np.uint64(negative)
    begin, point, mantissa = k, k, _U0
    while k < size and body[k] != _LF:
        if body[k] == _DOT and point == begin and k > begin:
            point = k
        elif _digit(body[k]):
            mantissa = mantissa * _U10 + np.uint64(body[k] - _ZERO)
        else:
            return _NOT_SIMPLE, nan
        k += _U1
    length = np.int64(k - begin)
    if not 0 < length <= 16:  # with a point, 15 digits: below 2**53; without one, 16: one rounding of an integer
        return _NOT_SIMPLE, nan
    value = float(mantissa)
    if point > begin:
        value /= TEN[np.int64(k - point) - 1]
    return np.int64(k), -value if negative else value


@njit
def _measured(body, i, openmetrics):
    """(where the line ends, how it went, value, own time) of a sample whose head ends at i."""
    end, value = _simple_tail(body, i)
    if end != _NOT_SIMPLE:
        return end, _READ, value, nan
    end = _line_end(body, i)
    status, value, at = _tail(body, i, _trimmed(body, i, end), openmetrics)
    return end, status, value, at


@kernel(COUNT(BYTES, FLAG, OFFSETS, KINDS, NUMBERS, NUMBERS))
def measure(body, openmetrics, stop, kind, value, at):
    """Read the numbers of every SAMPLE, whose head ends at `stop`; some turn out SLOW or BAD. Returns how many did.

    value, at: one per line, NaN where there is none.
    """
    open_ = 0
    for line in range(len(stop)):
        value[line], at[line] = nan, nan
        if kind[line] == SAMPLE:
            end, status, value[line], at[line] = _measured(body, np.int64(stop[line]), openmetrics)
            if status == _WRONG:
                kind[line], stop[line] = BAD, end
            elif status == _HARD:
                kind[line] = SLOW
            open_ += status != _READ
    return open_


@njit
def _name_byte(byte):
    letter = byte | 32  # lower case
    return 97 <= letter <= 122 or _ZERO <= byte <= _NINE or byte in (_UNDERSCORE, _COLON)


@njit
def _type_name(body, i):
    """Where the name begins in the TYPE comment whose hash is at i; -1 if it is another comment."""
    end = len(body)
    i = _skip(body, i + 1, end)
    if i + 4 >= end or body[i] != 84 or body[i + 1] != 89 or body[i + 2] != 80 or body[i + 3] != 69:
        return -1
    return _skip(body, i + 4, end) if _blank(body[i + 4]) else -1


@njit
def _selected(body, p, column, step, flags, sign):
    """(whether the line at p is selected, the sign its name begins with or -1, where the name begins, what decided it).

    The last is an index: a line that begins with the same bytes, up to that one, is judged so too (-1: unknown).
    """
    if flags[1] == 2:  # every line is
        return True, -1, p, -1
    end = len(body)
    i = _skip(body, p, end)
    if i == end:
        return False, -1, p, -1
    comment, quoted = body[i] == _HASH, False
    if comment:
        i = _type_name(body, i)
        if i < 0:
            return False, -1, p, -1
        quoted = i < end and body[i] == _QUOTE
    elif body[i] == _OPEN:
        i = _skip(body, i + 1, end)
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
            end, status, v, t = _measured(body, p, openmetrics)
            if status == _WRONG or (status == _HARD and kind[line] == DUPLICATE):
                return DEVIATED
            if kind[line] == SAMPLE:
                value[series], at[series], series_number[series] = v, t, here
                if status == _HARD:
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
