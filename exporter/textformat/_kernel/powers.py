"""Powers of ten to 128 bits, for `numbers.py`. Plain integers; 10**n does not change with a release.

Worked example: 10**0 is high 2**63, low 0, shift -127: 2**127 * 2**-127.
"""

from __future__ import annotations

import numpy as np

MAX_POWER = 64


def power_of_ten(exponent: int) -> tuple[int, int, int]:
    """10**exponent as (high, low, shift): its first 128 bits as two words, cut off, times 2**shift."""
    numerator, denominator = 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
    shift = numerator.bit_length() - denominator.bit_length() - 128  # 128 bits, or 129
    if _scaled(numerator, denominator, shift) >> 128:
        shift += 1
    bits = _scaled(numerator, denominator, shift)
    return bits >> 64, bits & (2**64 - 1), shift


def _scaled(numerator: int, denominator: int, shift: int) -> int:
    return (numerator << max(-shift, 0)) // (denominator << max(shift, 0))


_ALL = [power_of_ten(exponent) for exponent in range(-MAX_POWER, MAX_POWER + 1)]
HIGH = np.array([high for high, _, _ in _ALL], np.uint64)
LOW = np.array([low for _, low, _ in _ALL], np.uint64)
SHIFT = np.array([shift for _, _, shift in _ALL], np.int64)
TEN = 10.0 ** np.arange(23)  # 10**22 is the largest power of ten a float64 holds exactly
