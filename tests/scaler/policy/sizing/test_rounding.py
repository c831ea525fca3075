"""Tests that a size a small part above a whole number of replicas is that number while the error budget allows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.capacity import DEFAULTS, Estimate
from tests.scaler.policy.sizing.reference_sizing import whole

PLAIN = DEFAULTS._replace(rounded_down=0.0)


def settled(sized, rates, requests, constants, stretch=0.0):
    """A workload at this rate for half an hour, with this much of the error budget's stretch."""
    chat = sized(constants=constants)
    chat.during(1800.0, rates(requests, gaps=0.0))
    chat.estimates[0, Estimate.STRETCH] = stretch
    chat.during(600.0, rates(requests, gaps=0.0))
    return chat[Estimate.SIZE]


def rate_of(sized, rates, size):
    """Requests per second that need this size without rounding down."""
    lowest, highest = 0.0, 200.0
    for _ in range(30):
        middle = (lowest + highest) / 2.0
        few = settled(sized, rates, middle, PLAIN) < size
        lowest, highest = (middle, highest) if few else (lowest, middle)
    return lowest


@pytest.mark.parametrize(
    ("plain", "replicas"), [(0.9, 1), (1.05, 1), (1.1, 1), (1.2, 2), (2.1, 2), (2.2, 3), (9.1, 9), (9.2, 10)]
)
def test_a_small_part_of_a_replica_above_a_whole_number_is_rounded_down(sized, rates, plain, replicas):
    requests = rate_of(sized, rates, plain)
    assert whole(settled(sized, rates, requests, DEFAULTS)) == replicas


@given(st.floats(0.1, 60.0))
def test_rounding_never_takes_more_than_one_replica_and_never_the_last(sized, rates, requests):
    plain, rounded = (settled(sized, rates, requests, constants) for constants in (PLAIN, DEFAULTS))
    assert max(1, whole(plain) - 1) <= whole(rounded) <= whole(plain)


@given(st.floats(0.1, 60.0), st.floats(0.0, 1.0))
def test_spent_error_budget_ends_rounding_down(sized, rates, requests, stretch):
    # Misses are not measured here, so the stretch stays.
    plain, rounded = (settled(sized, rates, requests, constants, stretch) for constants in (PLAIN, DEFAULTS))
    assert plain - rounded <= DEFAULTS.rounded_down * max(0.0, 1.0 - stretch / DEFAULTS.rounded_stretch) + 1e-9


def test_backlog_is_not_rounded_down(sized, rates):
    plain, rounded = (sized(constants=constants) for constants in (PLAIN, DEFAULTS))
    for chat in (plain, rounded):
        chat.during(600.0, rates(4.0, gaps=0.0))
    sizes = [chat.after(5.0, rates(4.0, gaps=0.0), waiting=400.0) for chat in (plain, rounded)]
    assert sizes[0] == sizes[1]
