"""Laws of whole replicas, with their arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.signals.kernels import hysteresis

NOTHING = float("nan")
DEMAND = st.floats(0.0, 1e4)
CURRENT = st.integers(0, 10_000).map(float)
BAND = st.floats(0.0, 2.0)


def steps(demand, current, band):
    return hysteresis(np.array([float(demand)]), np.array([float(current)]), band)[0]


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
        (NOTHING, 3, NOTHING),  # unknown is not zero
    ],
)
def test_up_at_once_and_down_only_when_demand_has_left_the_step(demand, current, expected):
    np.testing.assert_array_equal(steps(demand, current, 0.2), expected)


def test_dust_above_a_step_is_not_a_replica():
    assert 0.1 + 0.2 > 0.3
    assert steps((0.1 + 0.2) / 0.3, 1, 0.0) == 1.0


@settings(max_examples=200, deadline=None)
@given(DEMAND, CURRENT, BAND)
def test_there_are_always_enough_replicas_and_never_more_than_the_band_asks_for(demand, current, band):
    replicas = steps(demand, current, band)
    assert replicas >= demand - 1e-9
    assert replicas <= max(np.ceil(demand), min(current, np.ceil(demand + band)))


@settings(max_examples=200, deadline=None)
@given(DEMAND, CURRENT, BAND)
def test_asking_again_changes_nothing(demand, current, band):
    once = steps(demand, current, band)
    assert steps(demand, once, band) == once


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 1000), st.floats(0.01, 0.99), st.lists(st.floats(-0.49, 0.49), min_size=2, max_size=8))
def test_a_demand_that_trembles_by_less_than_the_band_settles(step, band, trembles):
    replicas = step + 1.0  # as found after the largest tremble: the step above
    answers = [replicas := steps(step + tremble * band, replicas, band) for tremble in [0.49, *trembles]]
    assert len(set(answers)) == 1
