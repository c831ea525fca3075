"""Reading values and timestamps: what follows the head of a line.

It knows digits and blanks. It refuses to know labels.

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

from exporter.jit import kernel

from .compiled import BYTES, COUNT, FLAG, KINDS, NUMBERS, OFFSETS
from .kinds import BAD, SAMPLE, SLOW
from .powers import HIGH, LOW, MAX_POWER, SHIFT, TEN

READ, HARD, WRONG = 0, 1, 2  # how reading went; the worse is the larger
_NOT_SIMPLE = -1
_MAX_EXPONENT = 100_000  # digits of an exponent beyond it are for the plain reader

_LF, _CR, _TAB, _SPACE = 10, 13, 9, 32
_HASH, _PLUS, _MINUS, _DOT, _ZERO, _NINE = 35, 43, 45, 46, 48, 57

# All 64-bit arithmetic is between uint64: numba makes float64 of a uint64 and a signed integer.
_U0, _U1, _U2, _U10, _U11, _U32 = (np.uint64(n) for n in (0, 1, 2, 10, 11, 32))
_LOW32 = np.uint64(2**32 - 1)
_TOP = np.uint64(2**63)
_EXACT = np.uint64(2**53)


@njit
def blank(byte):
    return byte in (_SPACE, _TAB)


@njit
def skip(body, i, end):
    while i < end and blank(body[i]):
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
    while i < end and not blank(body[i]):
        i += 1
    return i


@njit
def _multiply(a, b):
    """The high and the low 64 bits of a product, by halves."""
    a_high, a_low, b_high, b_low = a >> _U32, a & _LOW32, b >> _U32, b & _LOW32
    middle = (a_low * b_low >> _U32) + (a_high * b_low & _LOW32) + a_low * b_high
    return a_high * b_high + (a_high * b_low >> _U32) + (middle >> _U32), a * b


@njit
def _scaled(mantissa, power):
    """The mantissa times 10**power, correctly rounded; HARD where this cannot be told."""
    if mantissa <= _EXACT and -22 <= power <= 22:
        exact = float(mantissa)
        return READ, exact * TEN[power] if power >= 0 else exact / TEN[-power]
    if mantissa == _U0:
        return READ, 0.0
    if not -MAX_POWER <= power <= MAX_POWER:
        return HARD, nan
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
        return HARD, nan
    kept = (high >> cut) + (_U1 if rest >= half else _U0)
    # The product is 192 bits long and `high` begins at its bit 128.
    return READ, ldexp(float(kept), 128 + np.int64(cut) + SHIFT[power + MAX_POWER] - shift)


@njit
def _special(body, i, end):
    """`NaN`, `+Inf` and `-Inf` as they are usually spelt; the plain reader knows the other spellings."""
    if end - i == 3 and body[i] == 78 and body[i + 1] == 97 and body[i + 2] == 78:
        return READ, nan
    signed = end - i == 4 and body[i] in (_PLUS, _MINUS)
    if signed and body[i + 1] == 73 and body[i + 2] == 110 and body[i + 3] == 102:
        return READ, -inf if body[i] == _MINUS else inf
    last = body[end - 1] | 32
    return (HARD if last in (110, 102, 121) else WRONG), nan  # nan, inf, infinity in some case


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
        return WRONG, nan
    if digits > 19 or abs(exponent) == _MAX_EXPONENT:
        return HARD, nan
    # The number lies in [10**(power + digits - 1), 10**(power + digits)); float64 ends at 1.8e308 and 4.9e-324.
    if digits > 0 and power + digits > 310:
        return WRONG, nan
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
        return WRONG, nan
    k = i + 1 if body[i] in (_PLUS, _MINUS) else i
    if not 0 < end - k <= 15:  # 10**15 < 2**53: exact as float64; no digit, or many, are the plain reader's
        return HARD, nan
    milliseconds = 0
    while k < end:
        milliseconds = milliseconds * 10 + np.int64(body[k] - _ZERO)
        k += 1
    return READ, (-milliseconds if body[i] == _MINUS else milliseconds) / 1000.0


@njit
def _tail(body, i, end, openmetrics):
    """Value and own time of the sample whose head ends at i and whose line ends at `end`."""
    i = skip(body, i, end)
    if i == end or body[i] == _HASH:
        return WRONG, nan, nan
    stop = _word_end(body, i, end)
    status, value = _number(body, i, stop)
    i = skip(body, stop, end)
    if status == WRONG or i == end or body[i] == _HASH:
        return status, value, nan
    stop = _word_end(body, i, end)
    timed, at = _time(body, i, stop, openmetrics)
    if timed == READ and not np.isfinite(at):
        timed = WRONG
    i = skip(body, stop, end)
    if i < end and body[i] != _HASH:
        timed = WRONG
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
def measured(body, i, openmetrics):
    """(where the line ends, how it went, value, own time) of a sample whose head ends at i."""
    end, value = _simple_tail(body, i)
    if end != _NOT_SIMPLE:
        return end, READ, value, nan
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
            end, status, value[line], at[line] = measured(body, np.int64(stop[line]), openmetrics)
            if status == WRONG:
                kind[line], stop[line] = BAD, end
            elif status == HARD:
                kind[line] = SLOW
            open_ += status != READ
    return open_
