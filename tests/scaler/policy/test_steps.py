"""Invariants of whole replicas, with their arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import demand as policy_demand

NOTHING = float("nan")
DEMAND = st.floats(0.0, 1e4)
CURRENT = st.integers(0, 10_000).map(float)
BAND = st.floats(0.0, 2.0)


def steps(demand, current, band):
    return policy_demand.steps(float(demand), float(current), band)


@pytest.mark.parametrize(
    ("demand", "current", "expected"),
    [
        (4.1, 4, 5),  # up at once
        (9.5, 1, 10),
        (4.0, 4, 4),
        (2.9, 4, 4),  # 2.9 + 0.2 = 3.1: still above the step at 3
        (2.8, 4, 3),  # 2.8 + 0.2 = 3.0: on it
        (0.5, 9, 1),  # down as far as it goes, at once: smoothing happened before
        (0.1, 1, 1),
        (0.0, 1, 1),  # zero is a verdict of idleness, not of rounding
        (0.0, 0, 0),
        (0.1, 0, 1),
        (2.1, NOTHING, 3),  # nothing to keep
    ],
)
def test_replicas_rise_at_once_and_fall_only_below_the_band(demand, current, expected):
    assert steps(demand, current, 0.2) == expected


def test_rounding_error_above_a_step_is_not_a_replica():
    assert 0.1 + 0.2 > 0.3
    assert steps((0.1 + 0.2) / 0.3, 1, 0.0) == 1.0


@settings(max_examples=200, deadline=None)
@given(DEMAND, CURRENT, BAND)
def test_replicas_are_enough_and_within_the_band(demand, current, band):
    replicas = steps(demand, current, band)
    assert replicas >= demand - 1e-9
    assert replicas <= max(np.ceil(demand), min(current, np.ceil(demand + band)))


@settings(max_examples=200, deadline=None)
@given(DEMAND, CURRENT, BAND)
def test_second_step_changes_nothing(demand, current, band):
    once = steps(demand, current, band)
    assert steps(demand, once, band) == once


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 1000), st.floats(0.01, 0.99), st.lists(st.floats(-0.49, 0.49), min_size=2, max_size=8))
def test_demand_that_varies_by_less_than_the_band_settles(step, band, trembles):
    replicas = step + 1.0  # as found after the largest tremble: the step above
    found = [replicas := steps(step + tremble * band, replicas, band) for tremble in [0.49, *trembles]]
    assert len(set(found)) == 1
