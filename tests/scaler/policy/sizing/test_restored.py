"""Tests which restored estimates are used: those that this version could have written."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import capacity
from scaler.policy.capacity import Estimate
from tests.budget import examples

BLANK = capacity.blank(1)
MAY_BE_UNKNOWN = {
    Estimate.AT, Estimate.WORK, Estimate.SIZE, Estimate.PEAKS_FROM, Estimate.LATE_AT, Estimate.ABSENT_AT,
    Estimate.BURST_AT, Estimate.COLD, Estimate.FELL_AT,
}  # fmt: skip
NEVER_NEGATIVE = [
    Estimate.PROMPT_SUM, Estimate.OUTPUT_SUM,
    Estimate.WORK, Estimate.SIZE, Estimate.UNREAD, Estimate.REQUESTS, Estimate.STRETCH, Estimate.QUEUE,
    Estimate.SPELL_S, Estimate.SPELL_LATE, Estimate.SPELL_PEAK, Estimate.BURST, Estimate.COLD,
    Estimate.WHOLE, Estimate.REVERSALS,
]  # fmt: skip
COUNTS = [Estimate.PROMPTS, Estimate.OUTPUTS, Estimate.STEP_WEIGHT, Estimate.FACTOR_WEIGHT, Estimate.STEP_SUM]


@pytest.fixture(scope="session")
def busy(sized, rates):
    """The estimates after an hour of traffic."""
    chat = sized()
    chat.during(3600.0, rates(3.0, prompt=800.0, output=300.0, sequences=12.0), running=12.0, kv_used=0.2)
    return chat.estimates


def changed(estimates, column, value):
    other = estimates.copy()
    other[0, column] = value
    return capacity.made_sound(other)


def test_estimates_of_this_version_are_kept(busy):
    np.testing.assert_array_equal(capacity.made_sound(busy), busy)
    np.testing.assert_array_equal(capacity.made_sound(BLANK), BLANK)


@pytest.mark.parametrize("value", [nan, inf, -inf, 1e13, -1e13, 1e300])
def test_estimate_that_no_version_writes_makes_the_row_blank(busy, value):
    for column in range(capacity.WIDTH):
        blank = not (np.isnan(value) and column in MAY_BE_UNKNOWN)
        expected = BLANK if blank else changed(busy, column, nan)
        np.testing.assert_array_equal(changed(busy, column, value), expected, err_msg=f"column {column}")


@pytest.mark.parametrize("column", [*COUNTS, *NEVER_NEGATIVE])
def test_negative_number_makes_the_row_blank(busy, column):
    np.testing.assert_array_equal(changed(busy, column, -1.0), BLANK)


def test_stretch_of_more_than_all_makes_the_row_blank(busy):
    np.testing.assert_array_equal(changed(busy, Estimate.STRETCH, 1.0 + 1e-9), BLANK)
    assert changed(busy, Estimate.STRETCH, 1.0)[0, Estimate.STRETCH] == 1.0


@pytest.mark.parametrize("column", COUNTS)
@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-30])
def test_divisor_of_almost_zero_makes_the_row_blank(busy, column, value):
    np.testing.assert_array_equal(changed(busy, column, value), BLANK)


def test_only_the_row_with_the_fault_becomes_blank(busy):
    three = np.concatenate([busy, busy, busy])
    three[1, Estimate.STEP_SUM] = nan
    restored = capacity.made_sound(three)
    np.testing.assert_array_equal(restored[[0, 2]], three[[0, 2]])
    np.testing.assert_array_equal(restored[1], BLANK[0])


@given(st.lists(st.tuples(st.integers(0, capacity.WIDTH - 1), st.floats()), min_size=1, max_size=4), st.booleans())
@settings(max_examples=examples(300))
def test_any_restored_estimates_are_safe_to_update(sized, rates, busy, faults, begins_blank):
    chat = sized()
    chat.estimates = (BLANK if begins_blank else busy).copy()
    for column, value in faults:
        chat.estimates[0, column] = value
    chat.estimates = capacity.made_sound(chat.estimates)
    sizes = chat.during(60.0, rates(3.0, sequences=10.0), running=10.0, kv_used=0.2)[1:]
    assert np.isfinite(sizes).all()
    assert min(sizes) >= 0.0
