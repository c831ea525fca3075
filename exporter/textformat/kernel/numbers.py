"""Reads values and timestamps: what follows the head of a line.

Exactness: a decimal number is an integer of up to 19 digits times a power of ten. If both are exact as float64, so is
one rounding of their product or quotient (Clinger 1990). Otherwise the product with a 128-bit power of ten is known to
two units in its last place (the idea of Eisel and Lemire 2021). This decides all roundings but the ones next to a tie;
those, longer numbers and extreme exponents are left to Python.

Worked example: 1763456789.1234567 is 17634567891234567 / 10**7; the integer is above 2**53, so the second way.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, check-untyped-defs=False
# ruff: noqa: ANN001, ANN201, ANN202, PLR2004 - numba infers types from the signature at the end; the numbers are ASCII

from __future__ import annotations

from math import inf, ldexp, nan

import numpy as np

from exporter.jit import in_place_kernel, part

from .common import (
    BAD,
    BYTES,
    COUNT,
    FLAG,
    HASH,
    KINDS,
    LF,
    NUMBERS,
    OFFSETS,
    SAMPLE,
    SLOW,
    SPACE,
    U0,
    U1,
    U32,
    ZERO,
    blank,
    digit,
    line_end,
    skip,
    trimmed,
)

READ, HARD, WRONG = 0, 1, 2  # how reading went; the worse is the larger
_NOT_SIMPLE = -1
_MAX_EXPONENT = 100_000  # digits of an exponent beyond it are for the plain reader
_PLUS, _MINUS, _DOT = 43, 45, 46
_U2, _U10, _U11 = (np.uint64(n) for n in (2, 10, 11))
_LOW32 = np.uint64(2**32 - 1)
_TOP = np.uint64(2**63)
_EXACT = np.uint64(2**53)
MAX_POWER = 64


def power_of_ten(exponent: int) -> tuple[int, int, int]:
    """10**exponent as (high, low, shift): its first 128 bits as two words, cut off, times 2**shift."""
    numerator, denominator = 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
    shift = numerator.bit_length() - denominator.bit_length() - 128  # 128 bits, or 129
    if _quotient(numerator, denominator, shift) >> 128:
        shift += 1
    bits = _quotient(numerator, denominator, shift)
    return bits >> 64, bits & (2**64 - 1), shift


def _quotient(numerator: int, denominator: int, shift: int) -> int:
    return (numerator << max(-shift, 0)) // (denominator << max(shift, 0))


_ALL = [power_of_ten(exponent) for exponent in range(-MAX_POWER, MAX_POWER + 1)]
HIGH = np.array([high for high, _, _ in _ALL], np.uint64)
LOW = np.array([low for _, low, _ in _ALL], np.uint64)
SHIFT = np.array([shift for _, _, shift in _ALL], np.int64)
TEN = 10.0 ** np.arange(23)  # 10**22 is the largest power of ten a float64 holds exactly


@part
def _word_end(body, i, end):
    while i < end and not blank(body[i]):
        i += 1
    return i


@part
def _multiply(a, b):
    """The high and the low 64 bits of a product, by halves."""
    a_high, a_low, b_high, b_low = a >> U32, a & _LOW32, b >> U32, b & _LOW32
    middle = (a_low * b_low >> U32) + (a_high * b_low & _LOW32) + a_low * b_high
    return a_high * b_high + (a_high * b_low >> U32) + (middle >> U32), a * b


@part
def _times_power(mantissa, power):
    """The mantissa times 10**power, correctly rounded; HARD if this cannot decide the rounding."""
    if mantissa <= _EXACT and -22 <= power <= 22:
        exact = float(mantissa)
        return READ, exact * TEN[power] if power >= 0 else exact / TEN[-power]
    if mantissa == U0:
        return READ, 0.0
    if not -MAX_POWER <= power <= MAX_POWER:
        return HARD, nan
    shift = 0
    while mantissa < _TOP:
        mantissa <<= U1
        shift += 1
    high, low = _multiply(mantissa, HIGH[power + MAX_POWER])
    carry, _ = _multiply(mantissa, LOW[power + MAX_POWER])
    low += carry
    if low < carry:
        high += U1
    # The product lies in [high:low, high:low + 2). A float64 keeps its first 53 bits: all but the last 10 or 11 of
    # `high`. What is cut off is compared with one half; a sum that could reach or be one half is not decided here.
    cut = _U11 if high >= _TOP else _U10
    rest = high & ((U1 << cut) - U1)
    half = U1 << (cut - U1)
    if (rest == half and low == U0) or (rest == half - U1 and low >= U0 - _U2):
        return HARD, nan
    kept = (high >> cut) + (U1 if rest >= half else U0)
    # The product is 192 bits long and `high` begins at its bit 128.
    return READ, ldexp(float(kept), 128 + np.int64(cut) + SHIFT[power + MAX_POWER] - shift)


@part
def _special(body, i, end):
    """`NaN`, `+Inf` and `-Inf` in their usual spelling; the plain reader parses the other spellings."""
    if end - i == 3 and body[i] == 78 and body[i + 1] == 97 and body[i + 2] == 78:
        return READ, nan
    signed = end - i == 4 and body[i] in (_PLUS, _MINUS)
    if signed and body[i + 1] == 73 and body[i + 2] == 110 and body[i + 3] == 102:
        return READ, -inf if body[i] == _MINUS else inf
    last = body[end - 1] | 32
    return (HARD if last in (110, 102, 121) else WRONG), nan  # nan, inf, infinity in some case


@part
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
    while k < end and digit(body[k]):
        exponent = min(exponent * 10 + np.int64(body[k] - ZERO), _MAX_EXPONENT)
        k += 1
    return k, -exponent if down else exponent


@part
def _number(body, i, end):
    """The number that is the word [i, end)."""
    start = i
    negative = body[i] == _MINUS
    if negative or body[i] == _PLUS:
        i += 1
    mantissa, digits, power, is_number, after_point = U0, 0, 0, False, False
    while i < end and (digit(body[i]) or (body[i] == _DOT and not after_point)):
        if body[i] == _DOT:
            after_point = True
        else:
            is_number = True
            mantissa = mantissa * _U10 + np.uint64(body[i] - ZERO)  # wraps after 19 digits: HARD below
            digits += 1 if digits > 0 or body[i] != ZERO else 0
            power -= 1 if after_point else 0
        i += 1
    if not is_number:
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
        mantissa = U0
    status, value = _times_power(mantissa, power)
    return status, -value if negative else value


@part
def _time(body, i, end, openmetrics):
    """POSIX seconds from the timestamp that is the word [i, end)."""
    point = False
    plain = True
    for k in range(i, end):
        point |= body[k] == _DOT
        plain &= digit(body[k]) or body[k] == _DOT or (k == i and body[k] in (_PLUS, _MINUS))
    if openmetrics or (point and plain):
        return _number(body, i, end)
    if not plain:
        return WRONG, nan
    k = i + 1 if body[i] in (_PLUS, _MINUS) else i
    if not 0 < end - k <= 15:  # 10**15 < 2**53: exact as float64; no digit, or many, are the plain reader's
        return HARD, nan
    milliseconds = 0
    while k < end:
        milliseconds = milliseconds * 10 + np.int64(body[k] - ZERO)
        k += 1
    return READ, (-milliseconds if body[i] == _MINUS else milliseconds) / 1000.0


@part
def _tail(body, i, end, openmetrics):
    """(how it went, value, timestamp) of the sample with its head's end at i and its line's end at `end`."""
    i = skip(body, i, end)
    if i == end or body[i] == HASH:
        return WRONG, nan, nan
    stop = _word_end(body, i, end)
    status, value = _number(body, i, stop)
    i = skip(body, stop, end)
    if status == WRONG or i == end or body[i] == HASH:
        return status, value, nan
    stop = _word_end(body, i, end)
    timed, at = _time(body, i, stop, openmetrics)
    if timed == READ and not np.isfinite(at):
        timed = WRONG
    i = skip(body, stop, end)
    if i < end and body[i] != HASH:
        timed = WRONG
    return max(status, timed), value, at


@part
def _simple_tail(body, i):
    """` 12.5` and a line feed, the tail of nearly every line: (where the line feed is, value), or _NOT_SIMPLE."""
    k, size = np.uint64(i), np.uint64(len(body))
    if k + _U2 >= size or body[k] != SPACE:
        return _NOT_SIMPLE, nan
    k += U1
    negative = body[k] == _MINUS
    k += np.uint64(negative)
    begin, point, mantissa = k, k, U0
    while k < size and body[k] != LF:
        if body[k] == _DOT and point == begin and k > begin:
            point = k
        elif digit(body[k]):
            mantissa = mantissa * _U10 + np.uint64(body[k] - ZERO)
        else:
            return _NOT_SIMPLE, nan
        k += U1
    length = np.int64(k - begin)
    if not 0 < length <= 16:  # with a point, 15 digits: below 2**53; without one, 16: one rounding of an integer
        return _NOT_SIMPLE, nan
    value = float(mantissa)
    if point > begin:
        value /= TEN[np.int64(k - point) - 1]
    return np.int64(k), -value if negative else value


@part
def measured(body, i, openmetrics):
    """(where the line ends, how it went, value, timestamp) of a sample with its head's end at i."""
    end, value = _simple_tail(body, i)
    if end != _NOT_SIMPLE:
        return end, READ, value, nan
    end = line_end(body, i)
    status, value, at = _tail(body, i, trimmed(body, i, end), openmetrics)
    return end, status, value, at


@in_place_kernel(COUNT(BYTES, FLAG, OFFSETS, KINDS, NUMBERS, NUMBERS))
def measure(body, openmetrics, stop, kind, value, at):
    """Reads the numbers of every SAMPLE; its head ends at `stop`. Returns how many turned out SLOW or BAD.

    value, at: one per line, NaN if the line has none.
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
