"""The kernel reads the same numbers as Python, to the bit."""

import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.textformat import Scanner, kernel
from exporter.textformat.kernel.numbers import power_of_ten

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
BITS = st.integers(0, 2**63 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<q", bits))[0])
DECIMALS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**22),
    st.one_of(st.just(""), st.integers(0, 10**19).map(".{}".format)),
    st.one_of(st.just(""), st.integers(-360, 300).map("e{}".format), st.integers(-30, 30).map("E{:+d}".format)),
)
# Halfway between two doubles, and one digit to either side: the hardest case.
TIES = st.builds(
    lambda mantissa, exponent, nudge: str((2 * mantissa + 1) * 2**exponent + nudge),
    st.integers(2**52, 2**53 - 1),
    st.integers(0, 9),
    st.sampled_from([-1, 0, 1]),
)


def near_half(mantissa, exponent, digits):
    """Returns the middle between two doubles, truncated to `digits`: closer to the tie than the kernel can decide."""
    middle = Decimal(2 * mantissa + 1) * Decimal(2) ** exponent
    return f"{middle:.{digits - 1}e}"


HALVES = st.builds(near_half, st.integers(2**52, 2**53 - 1), st.integers(-220, 150), st.integers(17, 19))
NUMBERS = st.one_of(FLOATS.map(repr), BITS.filter(np.isfinite).map("{:.16e}".format), DECIMALS, TIES)


def measured(texts):
    """Returns the values that the kernel reads, and which of them it leaves to Python."""
    lines = [b"a " + text.encode() for text in texts]
    stop = (np.cumsum([0, *(len(line) + 1 for line in lines[:-1])]) + 1).astype(np.int32)
    kind = np.full(len(texts), kernel.SAMPLE, np.uint8)
    value, at = np.empty(len(texts)), np.empty(len(texts))
    kernel.measure(np.frombuffer(b"\n".join(lines), np.uint8), False, stop, kind, value, at)
    return value, kind == kernel.SLOW


def bits(values):
    return np.asarray(values, np.float64).view(np.uint64).tolist()


@settings(max_examples=100)
@given(st.lists(NUMBERS, min_size=1, max_size=50))
@example(["0", "-0.0", "00012.500", "5e-324", "1.7976931348623157e308", "9007199254740993", "0.1", "1e23", "8.5e-23"])
@example(
    ["9223372036854775794", "18446744073709551615", "18446744073709551616", "10000000000000000000", "1e22", "1e-22"]
)
def test_number_equals_that_of_float_to_the_bit(texts):
    texts = [text for text in texts if np.isfinite(float(text))]
    page = Scanner().scan("\n".join(f'a{{i="{i}"}} {text}' for i, text in enumerate(texts)).encode())
    assert bits(page.values) == bits([float(text) for text in texts])
    values, slow = measured(texts) if texts else (np.empty(0), np.empty(0, bool))
    assert bits(values[~slow]) == bits([float(text) for text, is_slow in zip(texts, slow, strict=True) if not is_slow])


@settings(max_examples=30)
@given(st.lists(HALVES, min_size=30, max_size=60))
def test_number_next_to_a_tie_is_rounded_to_the_right_side_or_left_to_python(texts):
    values, slow = measured(texts)
    assert bits(values[~slow]) == bits([float(text) for text, is_slow in zip(texts, slow, strict=True) if not is_slow])


@settings(max_examples=50)
@given(st.lists(st.floats(1e-30, 1e30).map(repr), min_size=1, max_size=50))
def test_numbers_of_common_length_are_never_left_to_python(texts):
    assert not measured(texts)[1].any()


def test_dcgms_mark_for_no_value_is_read_by_the_kernel():
    values, slow = measured(["9223372036854775794"])
    assert values.tolist() == [2.0**63]
    assert not slow.any()


@pytest.mark.parametrize("exponent", [-64, -23, -1, 0, 1, 22, 27, 28, 55, 64])
def test_power_of_ten_is_truncated_by_less_than_one_unit(exponent):
    high, low, shift = power_of_ten(exponent)
    bits_ = (high << 64) + low
    assert bits_.bit_length() == 128
    # Both sides times 10**64 * 2**512 are whole numbers.
    scale = 512 + shift
    exact = 10 ** (64 + exponent) << 512
    assert (bits_ * 10**64) << scale <= exact < ((bits_ + 1) * 10**64) << scale
