"""Tests which restored times are used: those that this version could have written."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import service_time
from scaler.policy.service_time import WIDTH, RequestTime
from tests.budget import examples

BLANK = service_time.blank(1)


@pytest.fixture(scope="session")
def busy(timed):
    """The times after two hours of traffic that changes."""
    chat = timed()
    chat.serves(3600.0, 2.0, alone_s=2.0, slower=0.08)
    chat.serves(3600.0, 5.0, alone_s=2.0, slower=0.08)
    return chat.times


def changed(times, column, value):
    other = times.copy()
    other[0, column] = value
    return service_time.made_sound(other)


def test_times_of_this_version_are_kept(busy):
    np.testing.assert_array_equal(service_time.made_sound(busy), busy)
    np.testing.assert_array_equal(service_time.made_sound(BLANK), BLANK)


@pytest.mark.parametrize("value", [nan, inf, -inf, 1e13, 1e300])
def test_time_that_no_version_writes_makes_the_row_blank(busy, value):
    for column in range(WIDTH):
        np.testing.assert_array_equal(changed(busy, column, value), BLANK, err_msg=f"column {column}")


@pytest.mark.parametrize("column", [column for column in RequestTime if column is not RequestTime.SLOPE])
def test_negative_sum_makes_the_row_blank(busy, column):
    np.testing.assert_array_equal(changed(busy, column, -1.0), BLANK)


@given(st.lists(st.tuples(st.integers(0, WIDTH - 1), st.floats()), min_size=1, max_size=4), st.booleans())
@settings(max_examples=examples(300))
def test_any_restored_times_are_safe_to_update(timed, busy, faults, begins_blank):
    chat = timed()
    chat.times = (BLANK if begins_blank else busy).copy()
    for column, value in faults:
        chat.times[0, column] = value
    chat.times = service_time.made_sound(chat.times)
    sizes = chat.during(120.0, 3.0, in_hand=10.0)
    assert np.isfinite(sizes).all()
    assert min(sizes) >= 0.0
