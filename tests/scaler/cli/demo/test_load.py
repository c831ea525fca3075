"""The demo's load follows a fixed course of one day."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.cli.demo.load import shape


def test_same_seed_gives_the_same_day():
    first, again, other = shape(1200.0, 7), shape(1200.0, 7), shape(1200.0, 8)
    assert np.array_equal(first.at_s, again.at_s)
    assert np.array_equal(first.prompt_tokens, again.prompt_tokens)
    assert np.array_equal(first.output_tokens, again.output_tokens)
    assert not np.array_equal(first.at_s[:50], other.at_s[:50])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([60.0, 900.0, 1200.0, 3600.0]))
def test_day_begins_quietly_and_ends_with_a_night(seed, duration_s):
    day = shape(duration_s, seed)
    assert day.at_s[0] >= 0.05 * duration_s
    assert day.at_s[-1] <= 0.72 * duration_s
    assert np.all(np.diff(day.at_s) >= 0.0)
    assert day.prompt_tokens.min() >= 16
    assert day.output_tokens.max() <= 1500


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_hour_has_some_ten_thousand_requests_and_a_burst(seed):
    day = shape(3600.0, seed)
    per_3_minutes = np.histogram(day.at_s, bins=20, range=(0.0, 3600.0))[0]
    assert 8_500 <= len(day) <= 12_000
    # 7 replicas at 1.15 requests a second are 1,450 in three minutes; the morning's 5 are 1,035.
    assert per_3_minutes.argmax() in {9, 10}
    assert per_3_minutes.max() > 1_250
    assert day.prompt_tokens.mean() == pytest.approx(4000, rel=0.1)
    assert day.output_tokens.mean() == pytest.approx(600, rel=0.1)
