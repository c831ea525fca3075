"""Compares the kernel with its plain-Python reference over random histories."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.policy import capacity, service_time
from scaler.policy.capacity import Estimate
from scaler.policy.service_time import RequestTime, TimeInputs
from tests.budget import examples
from tests.scaler.policy.service_time.reference_service_time import Timed

START = 1.7e9  # POSIX seconds, so that floats have the precision of production

UNKNOWN = st.just(nan)
RATES = st.floats(-2.0, 50.0) | st.just(0.0) | UNKNOWN
COUNTS = st.integers(0, 400).map(float) | UNKNOWN
MOMENTS = st.tuples(
    st.sampled_from([1.0, 5.0, 15.0, 60.0]) | st.floats(-100.0, 5000.0),
    RATES,
    RATES,
    COUNTS,
    st.sampled_from([0.0, 0.0, 1.0, 40.0, nan]),
    st.integers(0, 8).map(float) | UNKNOWN,
    st.floats(0.01, 60.0) | UNKNOWN,
    st.floats(1.0, 1800.0),
)
NAMES = {
    Estimate.WORK: lambda each: each.work,
    Estimate.SIZE: lambda each: each.size,
    Estimate.SLOW: lambda each: each.slow,
    Estimate.REQUESTS: lambda each: each.requests,
    Estimate.BURST: lambda each: each.bursts.most,
}
SUMS = {
    "IN_HAND": lambda sums: sums.in_hand,
    "REQUESTS": lambda sums: sums.requests,
    "EACH": lambda sums: sums.in_hand_each,
    "RATE": lambda sums: sums.requests_each,
    "SECONDS": lambda sums: sums.seconds,
}
WINDOWS = {"": lambda each: each.last, "MINUTES_": lambda each: each.minutes, "HOUR_": lambda each: each.hour}
TIMES = {
    RequestTime[f"{prefix}{name}"]: lambda each, window=window, of=of: of(window(each))
    for prefix, window in WINDOWS.items()
    for name, of in SUMS.items()
} | {
    RequestTime.INFORMATION: lambda each: each.information,
    RequestTime.SLOPE: lambda each: each.products,
    RequestTime.STUCK: lambda each: each.stuck,
}


@given(st.lists(MOMENTS, min_size=1, max_size=30))
@settings(max_examples=examples(300))
def test_kernel_equals_the_reference(moments):
    times, estimates, reference, now = service_time.blank(1), capacity.blank(1), Timed(), START
    for step, *numbers in moments:
        now += step
        inputs = TimeInputs(*(np.array([each]) for each in numbers))
        service_time.update(times, estimates, np.ones(1, dtype=np.bool_), inputs, now, 45.0)
        reference.update(*numbers, 45.0, now)
        for columns, names in ((estimates, NAMES), (times, TIMES)):
            for column, of in names.items():
                assert columns[0, column] == pytest.approx(of(reference), rel=1e-6, abs=1e-9, nan_ok=True), column


def test_reference_knows_every_column():
    assert set(TIMES) == set(RequestTime)
